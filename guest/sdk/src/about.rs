//! What every guest says of itself: name, what it reads, its reasons, its settings.
//! Never part of a decision: the host asks once, when it loads the component.

use crate::bindings::guest::exports::transom::policy::guest as wit;
use crate::{Problem, settings};
use serde::de::DeserializeOwned;

/// A guest's self-description, as constants.
#[derive(Clone, Copy, Debug)]
pub struct About {
    /// Its name, as an operator meets it.
    pub name: &'static str,
    /// Its version; `env!("CARGO_PKG_VERSION")` is the usual value.
    pub version: &'static str,
    /// Which fields of which kinds it reads; nothing else crosses.
    pub reads: &'static [Read],
    /// Every reason that it may answer with. The host refuses a word that is not listed.
    pub reasons: &'static [Reason],
    /// JSON Schema of the settings.
    pub settings_schema: &'static str,
}

impl About {
    /// Reads nothing, has no reasons and no settings: the base for `..About::EMPTY`.
    pub const EMPTY: Self = Self {
        name: "",
        version: "",
        reads: &[],
        reasons: &[],
        settings_schema: r#"{"type":"object","additionalProperties":false}"#,
    };
}

/// What a guest reads of one kind. A path is a dotted list of fields: `status.version.history`;
/// `["a.b/c"]` names a key with dots, `conditions[Available]` the element whose `type` is that.
#[derive(Clone, Copy, Debug)]
pub struct Read {
    /// Group and version, such as `hypershift.openshift.io/v1beta1`.
    pub api_version: &'static str,
    /// Such as `HostedCluster`.
    pub kind: &'static str,
    /// Paths whose values cross.
    pub fields: &'static [&'static str],
    /// Paths of which only the path crosses when they change, never the value.
    pub changes: &'static [&'static str],
}

/// A word that a guest may answer with, for the person who meets it.
#[derive(Clone, Copy, Debug)]
pub struct Reason {
    /// CamelCase.
    pub word: &'static str,
    /// What it means.
    pub meaning: &'static str,
    /// What to do about it.
    pub remedy: &'static str,
}

/// The part that guests of all kinds share.
pub trait Guest: 'static {
    /// The settings of a policy for this guest. Give the type `#[serde(default, deny_unknown_fields)]`,
    /// so that no setting is the default and a misspelt one is refused.
    type Settings: DeserializeOwned + Default;

    /// What the guest says of itself.
    const ABOUT: About;

    /// Judges settings that have the right shape; each problem names its field. Nothing to say accepts them.
    fn check(_settings: &Self::Settings) -> Vec<Problem> {
        Vec::new()
    }
}

/// Reasons that this crate itself may answer with, whatever the guest.
pub(crate) const OWN_REASONS: [Reason; 2] = [
    Reason {
        word: settings::INVALID_SETTINGS,
        meaning: "The settings of the policy for this guest do not have the form that the guest expects.",
        remedy: "Compare the settings with the schema that `transom inspect` shows.",
    },
    Reason {
        word: settings::UNREADABLE_FIELDS,
        meaning: "A field of the object that the guest reads has an unexpected type.",
        remedy: "Mend the object; the message names the field.",
    },
];

impl<T: Guest> wit::Guest for T {
    fn describe() -> wit::Description {
        crate::panic::tell();
        let about = T::ABOUT;
        wit::Description {
            name: about.name.into(),
            version: about.version.into(),
            reads: about.reads.iter().map(Into::into).collect(),
            reasons: about.reasons.iter().chain(&OWN_REASONS).map(Into::into).collect(),
            settings_schema: about.settings_schema.into(),
        }
    }

    fn validate(settings: String) -> Vec<Problem> {
        crate::panic::tell();
        match settings::read::<T::Settings>(&settings) {
            Ok(settings) => T::check(&settings),
            Err(problem) => vec![problem],
        }
    }
}

impl From<&Read> for wit::Read {
    fn from(read: &Read) -> Self {
        let owned = |paths: &[&str]| paths.iter().map(|path| (*path).to_owned()).collect();
        Self {
            api_version: read.api_version.into(),
            kind: read.kind.into(),
            fields: owned(read.fields),
            changes: owned(read.changes),
        }
    }
}

impl Reason {
    /// This reason with a sentence on the case at hand: what is wrong with what.
    pub fn problem(&self, message: impl Into<String>) -> Problem {
        Problem::new(self.word, message)
    }
}

impl From<&Reason> for wit::Reason {
    fn from(reason: &Reason) -> Self {
        Self { word: reason.word.into(), meaning: reason.meaning.into(), remedy: reason.remedy.into() }
    }
}
