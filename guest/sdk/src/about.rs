//! The self-description of a guest: name, what it reads, its reasons, its settings.
//! The host asks for it once, when it loads the component.

use crate::bindings::guest::exports::transom::policy::guest as wit;
use crate::{Problem, log, settings};
use serde::de::DeserializeOwned;

/// A guest's self-description, as constants.
#[derive(Clone, Copy, Debug)]
pub struct About {
    /// Its name for operators.
    pub name: &'static str,
    /// Its version; `env!("CARGO_PKG_VERSION")` is the usual value.
    pub version: &'static str,
    /// The fields that it reads, by kind, that of the primary first. The host passes no others.
    pub reads: &'static [Read],
    /// Every reason that it may answer with. The host refuses other reasons.
    pub reasons: &'static [Reason],
    /// JSON Schema of the settings, for people and editors; [`Guest::check`] and the type of the settings judge them.
    pub settings_schema: &'static str,
    /// What it asks a policy to grant. It grants nothing by itself: `transom policy init` writes a manifest with it.
    pub grant: Grant,
}

impl About {
    /// A guest that reads nothing and has no reasons and no settings: the base for `..About::EMPTY`.
    pub const EMPTY: Self = Self {
        name: "",
        version: "",
        reads: &[],
        reasons: &[],
        settings_schema: r#"{"type":"object","additionalProperties":false}"#,
        grant: Grant::NONE,
    };
}

/// What a guest reads of one kind. A path is a dotted list of fields: `status.version.history`. `["a.b/c"]` names a key
/// with dots, `conditions[Available]` the element whose `type` is `Available`.
#[derive(Clone, Copy, Debug)]
pub struct Read {
    /// Group and version, such as `hypershift.openshift.io/v1beta1`.
    pub api_version: &'static str,
    /// Kind, such as `HostedCluster`.
    pub kind: &'static str,
    /// Paths whose values the guest gets.
    pub fields: &'static [&'static str],
    /// Paths of which the guest gets only the path when they change, and not the value.
    pub changes: &'static [&'static str],
}

/// What a guest asks a policy to grant, unless the settings say otherwise.
#[derive(Clone, Copy, Debug)]
pub struct Grant {
    /// The objects that it asks for, by role.
    pub read: &'static [ReadGrant],
    /// What it writes; a trigger guest writes nothing.
    pub write: &'static [WriteGrant],
}

impl Grant {
    /// No grant at all.
    pub const NONE: Self = Self {
        read: &[],
        write: &[],
    };
}

/// Objects, as a grant of a policy names them: `*` matches any text, `{primary.namespace}` and `{primary.name}` are those
/// of the primary.
#[derive(Clone, Copy, Debug)]
pub struct ObjectPattern {
    /// Group and version, such as `v1`.
    pub api_version: &'static str,
    /// Kind, such as `Secret`.
    pub kind: &'static str,
    /// Pattern of the namespace; absent for a kind that is cluster-scoped.
    pub namespace: Option<&'static str>,
    /// Pattern of the name.
    pub name: &'static str,
}

/// Objects that a guest asks for under a role.
#[derive(Clone, Copy, Debug)]
pub struct ReadGrant {
    /// The role, as in the needs of the guest.
    pub role: &'static str,
    /// Which objects.
    pub object: ObjectPattern,
    /// The keys of a Secret's data that it asks for.
    pub keys: &'static [&'static str],
    /// What it needs them for, in one sentence.
    pub why: &'static str,
}

/// What a guest writes.
#[derive(Clone, Copy, Debug)]
pub struct WriteGrant {
    /// Which objects; absent for the primary itself. With a field of the status these are objects that others made.
    pub object: Option<ObjectPattern>,
    /// Dotted paths of the fields that it writes.
    pub fields: &'static [&'static str],
    /// Keys of the taints that it owns.
    pub taint_keys: &'static [&'static str],
    /// Types of the conditions that it sets.
    pub conditions: &'static [&'static str],
    /// Roles of which the server of a kubeconfig may come, or URLs.
    pub servers: &'static [&'static str],
    /// Roles of which the certificate authorities of a kubeconfig may come.
    pub authorities: &'static [&'static str],
    /// Keys of a Secret that are filled with bytes of Secrets: path, and the roles of these.
    pub holes: &'static [(&'static str, &'static [&'static str])],
    /// What it writes, in one sentence.
    pub why: &'static str,
}

impl WriteGrant {
    /// The taints of the primary with these keys.
    pub const fn taints(keys: &'static [&'static str], why: &'static str) -> Self {
        Self {
            object: None,
            fields: &["spec.taints"],
            taint_keys: keys,
            conditions: &[],
            servers: &[],
            authorities: &[],
            holes: &[],
            why,
        }
    }

    /// These fields of the primary.
    pub const fn fields(fields: &'static [&'static str], why: &'static str) -> Self {
        Self {
            object: None,
            fields,
            taint_keys: &[],
            conditions: &[],
            servers: &[],
            authorities: &[],
            holes: &[],
            why,
        }
    }

    /// The conditions of these types in the status of the primary.
    pub const fn conditions(types: &'static [&'static str], why: &'static str) -> Self {
        Self {
            conditions: types,
            ..Self::fields(&["status.conditions"], why)
        }
    }

    /// The conditions of these types in the status of objects that others made.
    pub const fn conditions_of(
        object: ObjectPattern,
        types: &'static [&'static str],
        why: &'static str,
    ) -> Self {
        Self {
            object: Some(object),
            ..Self::conditions(types, why)
        }
    }

    /// Objects that the policy makes, with these fields.
    pub const fn objects(
        object: ObjectPattern,
        fields: &'static [&'static str],
        why: &'static str,
    ) -> Self {
        Self {
            object: Some(object),
            ..Self::fields(fields, why)
        }
    }

    /// Secrets that the policy makes, with these fields beside bytes of other Secrets.
    pub const fn secrets(
        secret: ObjectPattern,
        fields: &'static [&'static str],
        holes: &'static [(&'static str, &'static [&'static str])],
        why: &'static str,
    ) -> Self {
        Self {
            holes,
            ..Self::objects(secret, fields, why)
        }
    }

    /// The key `kubeconfig` of Secrets, with servers and certificate authorities of these roles.
    pub const fn kubeconfig(
        secret: ObjectPattern,
        servers: &'static [&'static str],
        authorities: &'static [&'static str],
        why: &'static str,
    ) -> Self {
        Self {
            object: Some(secret),
            fields: &["data.kubeconfig"],
            taint_keys: &[],
            conditions: &[],
            servers,
            authorities,
            holes: &[],
            why,
        }
    }
}

/// A reason that a guest may answer with.
#[derive(Clone, Copy, Debug)]
pub struct Reason {
    /// The reason as a CamelCase word.
    pub name: &'static str,
    /// What it means.
    pub meaning: &'static str,
    /// What a person can do about it.
    pub remedy: &'static str,
}

/// What guests of all kinds have in common.
pub trait Guest: 'static {
    /// The settings of a policy for this guest. Give the type `#[serde(default, deny_unknown_fields)]`, so that an
    /// absent setting has its default and a misspelt one is refused.
    type Settings: DeserializeOwned + Default;

    /// The self-description of the guest.
    const ABOUT: About;

    /// Checks settings that have the right form; each problem names its field. No problem accepts them.
    fn check(_settings: &Self::Settings) -> Vec<Problem> {
        Vec::new()
    }
}

/// Reasons that this crate adds to those of every guest.
pub(crate) const OWN_REASONS: [Reason; 2] = [
    Reason {
        name: settings::INVALID_SETTINGS,
        meaning: "The settings of the policy for this guest do not have the form that the guest expects.",
        remedy: "Compare the settings with the schema that `transom inspect` shows.",
    },
    Reason {
        name: settings::UNREADABLE_FIELDS,
        meaning: "A field of the object that the guest reads has an unexpected type.",
        remedy: "Mend the object; the message names the field.",
    },
];

impl<T: Guest> wit::Guest for T {
    fn describe() -> wit::Description {
        log::report_panic();
        let about = T::ABOUT;
        wit::Description {
            name: about.name.into(),
            version: about.version.into(),
            reads: about.reads.iter().map(Into::into).collect(),
            reasons: about
                .reasons
                .iter()
                .chain(&OWN_REASONS)
                .map(Into::into)
                .collect(),
            settings_schema: about.settings_schema.into(),
            grant: wit::SuggestedGrant {
                read: about.grant.read.iter().map(Into::into).collect(),
                write: about.grant.write.iter().map(Into::into).collect(),
            },
        }
    }

    fn validate(settings: String) -> Vec<Problem> {
        log::report_panic();
        match settings::check::<T::Settings>(&settings) {
            Ok(settings) => T::check(&settings),
            Err(problem) => vec![problem],
        }
    }
}

fn owned(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

impl From<&ObjectPattern> for wit::ObjectPattern {
    fn from(object: &ObjectPattern) -> Self {
        Self {
            api_version: object.api_version.into(),
            kind: object.kind.into(),
            namespace: object.namespace.map(Into::into),
            name: object.name.into(),
        }
    }
}

impl From<&ReadGrant> for wit::ReadGrant {
    fn from(grant: &ReadGrant) -> Self {
        Self {
            role: grant.role.into(),
            object: (&grant.object).into(),
            keys: owned(grant.keys),
            why: grant.why.into(),
        }
    }
}

impl From<&WriteGrant> for wit::WriteGrant {
    fn from(grant: &WriteGrant) -> Self {
        Self {
            object: grant.object.as_ref().map(Into::into),
            fields: owned(grant.fields),
            taint_keys: owned(grant.taint_keys),
            conditions: owned(grant.conditions),
            servers: owned(grant.servers),
            authorities: owned(grant.authorities),
            holes: grant
                .holes
                .iter()
                .map(|(path, roles)| wit::HoleGrant {
                    path: (*path).into(),
                    roles: owned(roles),
                })
                .collect(),
            why: grant.why.into(),
        }
    }
}

impl From<&Read> for wit::Read {
    fn from(read: &Read) -> Self {
        Self {
            api_version: read.api_version.into(),
            kind: read.kind.into(),
            fields: owned(read.fields),
            changes: owned(read.changes),
        }
    }
}

impl Reason {
    /// A problem with this reason, and a sentence that says what is wrong with which object or field.
    pub fn problem(&self, message: impl Into<String>) -> Problem {
        Problem::new(self.name, message)
    }
}

impl From<&Reason> for wit::Reason {
    fn from(reason: &Reason) -> Self {
        Self {
            name: reason.name.into(),
            meaning: reason.meaning.into(),
            remedy: reason.remedy.into(),
        }
    }
}
