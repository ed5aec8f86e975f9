//! The self-description of a guest: name, what it reads, its reasons, its settings.
//! The host asks for it once, when it loads the component.

use crate::bindings::guest::exports::transom::policy::guest as wit;
use crate::grant::Grant;
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
        remedy: "Fix the object; the message names the field.",
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
            grant: (&about.grant).into(),
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

pub(crate) fn owned(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
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
