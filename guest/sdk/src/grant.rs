//! What a guest asks a policy to grant, as constants. It grants nothing by itself: `transom policy init` writes a manifest
//! with it.

mod crossing;

pub use crate::bindings::guest::exports::transom::policy::guest::Verb;
use crate::kinds::Kind;
use crate::objects::{Operator, Who};

/// What a guest asks a policy to grant, unless the settings say otherwise.
#[derive(Clone, Copy, Debug)]
pub struct Grant {
    /// Which labels the primaries have.
    pub primary_labels: &'static [LabelGrant],
    /// Templates that patterns use as `{name}`: name and text.
    pub names: &'static [(&'static str, &'static str)],
    /// The objects that it asks for, by role.
    pub read: &'static [ReadGrant],
    /// What it asks the API server.
    pub ask: &'static [AskGrant],
    /// What it writes; a trigger guest writes nothing.
    pub write: &'static [WriteGrant],
    /// The finalizer that it keeps on the primary.
    pub finalizer: Option<&'static str>,
}

impl Grant {
    /// No grant at all: the base for `..Grant::NONE`.
    pub const NONE: Self = Self {
        primary_labels: &[],
        names: &[],
        read: &[],
        ask: &[],
        write: &[],
        finalizer: None,
    };
}

/// What the label of one key must fulfil.
#[derive(Clone, Copy, Debug)]
pub struct LabelGrant {
    /// Key of the label.
    pub key: &'static str,
    /// How its value is compared.
    pub operator: Operator,
    /// The values, where there are any.
    pub values: &'static [&'static str],
}

/// Objects, as a grant of a policy names them: `*` matches any text, `{primary.namespace}` and `{primary.name}` are those
/// of the primary, `{name}` is a template of [`Grant::names`].
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
    /// How many objects, and how many bytes of them, it asks for at once.
    pub every: Option<(u32, u32)>,
    /// What it needs them for, in one sentence.
    pub why: &'static str,
}

impl ReadGrant {
    /// One object, or the presence of one.
    pub const fn object(role: &'static str, object: ObjectPattern, why: &'static str) -> Self {
        Self {
            role,
            object,
            keys: &[],
            every: None,
            why,
        }
    }

    /// A Secret with these keys.
    pub const fn secret(
        role: &'static str,
        secret: ObjectPattern,
        keys: &'static [&'static str],
        why: &'static str,
    ) -> Self {
        Self {
            keys,
            ..Self::object(role, secret, why)
        }
    }

    /// All objects, or their number, with the limits that a policy has by default.
    pub const fn every(role: &'static str, objects: ObjectPattern, why: &'static str) -> Self {
        Self {
            every: Some((1_000, 1 << 20)),
            ..Self::object(role, objects, why)
        }
    }
}

/// A question to the API server.
#[derive(Clone, Copy, Debug)]
pub struct AskGrant {
    /// Who may, or may not.
    pub who: Who,
    /// What: `renew`.
    pub verb: &'static str,
    /// With resources of this group; empty for the core group.
    pub group: &'static str,
    /// Plural name of the resource.
    pub resource: &'static str,
    /// A part of it.
    pub subresource: Option<&'static str>,
    /// Pattern of the namespace; absent where the question names none.
    pub namespace: Option<&'static str>,
    /// Pattern of the name; absent where the question names none.
    pub name: Option<&'static str>,
    /// What it needs the answer for, in one sentence.
    pub why: &'static str,
}

/// A field of a Secret that the host fills.
#[derive(Clone, Copy, Debug)]
pub struct HoleGrant {
    /// Its path.
    pub path: &'static str,
    /// The roles of Secrets whose bytes go there, or into Secrets of the text.
    pub bytes: &'static [&'static str],
    /// The same for kubeconfigs.
    pub kubeconfigs: &'static [&'static str],
    /// The kinds of the objects of the text that goes there.
    pub manifests: &'static [Kind],
}

impl HoleGrant {
    /// Bytes of Secrets of these roles.
    pub const fn bytes(path: &'static str, roles: &'static [&'static str]) -> Self {
        Self {
            path,
            bytes: roles,
            kubeconfigs: &[],
            manifests: &[],
        }
    }

    /// A kubeconfig that is made of one of these roles.
    pub const fn kubeconfigs(path: &'static str, roles: &'static [&'static str]) -> Self {
        Self {
            kubeconfigs: roles,
            ..Self::bytes(path, &[])
        }
    }

    /// A text of objects of these kinds.
    pub const fn manifests(path: &'static str, kinds: &'static [Kind]) -> Self {
        Self {
            manifests: kinds,
            ..Self::bytes(path, &[])
        }
    }
}

/// What a guest writes.
#[derive(Clone, Copy, Debug)]
pub struct WriteGrant {
    /// Which objects; absent for the primary itself.
    pub object: Option<ObjectPattern>,
    /// What it does with them.
    pub verbs: &'static [Verb],
    /// Dotted paths of the fields that it writes.
    pub fields: &'static [&'static str],
    /// Which values fields may get: path, and each value as JSON.
    pub values: &'static [(&'static str, &'static [&'static str])],
    /// Which labels objects of others have that it removes or releases.
    pub labels: &'static [LabelGrant],
    /// The finalizers that it takes off.
    pub finalizers: &'static [&'static str],
    /// Keys of the taints that it owns.
    pub taint_keys: &'static [&'static str],
    /// Types of the conditions that it sets.
    pub conditions: &'static [&'static str],
    /// The signers of the requests that it approves or denies.
    pub signers: &'static [&'static str],
    /// Roles of which the server of a kubeconfig may come, or URLs.
    pub servers: &'static [&'static str],
    /// Roles of which the certificate authorities of a kubeconfig may come.
    pub authorities: &'static [&'static str],
    /// Fields of a Secret that the host fills.
    pub holes: &'static [HoleGrant],
    /// What it writes, in one sentence.
    pub why: &'static str,
}

impl WriteGrant {
    /// These fields of the primary.
    pub const fn fields(fields: &'static [&'static str], why: &'static str) -> Self {
        Self {
            object: None,
            verbs: &[Verb::Patch],
            fields,
            values: &[],
            labels: &[],
            finalizers: &[],
            taint_keys: &[],
            conditions: &[],
            signers: &[],
            servers: &[],
            authorities: &[],
            holes: &[],
            why,
        }
    }

    /// The taints of the primary with these keys.
    pub const fn taints(keys: &'static [&'static str], why: &'static str) -> Self {
        Self {
            taint_keys: keys,
            ..Self::fields(&["spec.taints"], why)
        }
    }

    /// The conditions of these types in the status of the primary.
    pub const fn conditions(types: &'static [&'static str], why: &'static str) -> Self {
        Self {
            conditions: types,
            ..Self::fields(&["status.conditions"], why)
        }
    }

    /// These fields of objects that others made.
    pub const fn fields_of(
        object: ObjectPattern,
        fields: &'static [&'static str],
        why: &'static str,
    ) -> Self {
        Self {
            object: Some(object),
            ..Self::fields(fields, why)
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

    /// Objects that the policy makes, keeps and prunes, with these fields.
    pub const fn objects(
        object: ObjectPattern,
        fields: &'static [&'static str],
        why: &'static str,
    ) -> Self {
        Self {
            verbs: &[Verb::Create, Verb::Update, Verb::Delete],
            ..Self::fields_of(object, fields, why)
        }
    }

    /// Secrets that the policy makes, with these fields beside those that the host fills.
    pub const fn secrets(
        secret: ObjectPattern,
        fields: &'static [&'static str],
        holes: &'static [HoleGrant],
        why: &'static str,
    ) -> Self {
        Self {
            holes,
            ..Self::objects(secret, fields, why)
        }
    }

    /// The key `kubeconfig` of Secrets, with servers and certificate authorities of these roles: for a guest of the world
    /// `kubeconfig-guest`.
    pub const fn kubeconfig(
        secret: ObjectPattern,
        servers: &'static [&'static str],
        authorities: &'static [&'static str],
        why: &'static str,
    ) -> Self {
        Self::objects(secret, &["data.kubeconfig"], why).reaching(servers, authorities)
    }

    /// Objects that others made and that it removes.
    pub const fn removal(object: ObjectPattern, why: &'static str) -> Self {
        Self {
            verbs: &[Verb::Remove],
            ..Self::fields_of(object, &[], why)
        }
    }

    /// Finalizers that it takes off objects that others made.
    pub const fn release(
        object: ObjectPattern,
        finalizers: &'static [&'static str],
        why: &'static str,
    ) -> Self {
        Self {
            verbs: &[Verb::Release],
            finalizers,
            ..Self::fields_of(object, &[], why)
        }
    }

    /// With servers and certificate authorities of kubeconfigs, by role.
    #[must_use]
    pub const fn reaching(
        self,
        servers: &'static [&'static str],
        authorities: &'static [&'static str],
    ) -> Self {
        Self {
            servers,
            authorities,
            ..self
        }
    }

    /// With other verbs: `[Verb::Create]` alone for objects that are made once and then belong to others.
    #[must_use]
    pub const fn doing(self, verbs: &'static [Verb]) -> Self {
        Self { verbs, ..self }
    }

    /// With the values that fields may get, each as JSON.
    #[must_use]
    pub const fn of_values(
        self,
        values: &'static [(&'static str, &'static [&'static str])],
    ) -> Self {
        Self { values, ..self }
    }

    /// With the signers of the requests that it approves or denies.
    #[must_use]
    pub const fn of_signers(self, signers: &'static [&'static str]) -> Self {
        Self { signers, ..self }
    }

    /// With the labels of the objects that it removes or releases.
    #[must_use]
    pub const fn labelled(self, labels: &'static [LabelGrant]) -> Self {
        Self { labels, ..self }
    }
}
