//! The one list of reasons: the same word in condition, Event, metric, log and command line.
//! Never grows a second spelling: a reason that is not here is one that a guest declared.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;

/// What state a primary is in under one policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub enum State {
    /// What is there is what should be there.
    Applied,
    /// Left as it is on purpose; nothing is wrong.
    Held,
    /// Something is not there yet; not a failure.
    Waiting,
    /// Something must be mended.
    Failed,
}

impl State {
    /// The word as it is shown.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Applied => "Applied",
            Self::Held => "Held",
            Self::Waiting => "Waiting",
            Self::Failed => "Failed",
        }
    }
}

/// Why a primary is in its state.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// One of the agent's own words.
    Known(KnownReason),
    /// A word that a guest declared when it was loaded.
    Declared(Arc<str>),
}

impl Reason {
    /// The word itself.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Known(word) => word.as_str(),
            Self::Declared(word) => word,
        }
    }
}

impl From<KnownReason> for Reason {
    fn from(word: KnownReason) -> Self {
        Self::Known(word)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for Reason {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

/// Makes the enum, its words and what `transom explain` says, from one table.
macro_rules! words {
    ($($word:ident: $meaning:literal, $remedy:literal;)*) => {
        /// A reason of the agent itself.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum KnownReason {
            $(#[doc = $meaning] $word,)*
        }

        impl KnownReason {
            /// Every word, in the order of the table.
            pub const ALL: &'static [Self] = &[$(Self::$word,)*];

            /// The word as it is shown.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$word => stringify!($word),)* }
            }

            /// What it means.
            pub fn meaning(self) -> &'static str {
                match self { $(Self::$word => $meaning,)* }
            }

            /// Whether a guest may declare it as well: what is wrong with what both look into. No other word of the
            /// agent's is a guest's.
            pub fn is_shared(self) -> bool {
                matches!(self, Self::NoClusters | Self::InvalidTargetName)
            }

            /// What to do about it.
            pub fn remedy(self) -> &'static str {
                match self { $(Self::$word => $remedy,)* }
            }
        }
    };
}

words! {
    // States without a fault.
    InSync: "What is there is what should be there.", "Nothing to do.";
    Suspended: "The policy is suspended.", "Set spec.suspend of the policy to false.";
    ReadOnly: "The agent is read-only: what it would write stands in the message.", "Run the agent without --read-only to have it written.";
    SourceDeleted: "The primary is gone; what was made for it is removed or kept as the policy says.", "Nothing to do.";
    Loaded: "The newest revision of the policy is at work.", "Nothing to do.";
    // Waiting.
    InputTerminating: "An object that is needed is being deleted.", "Nothing to do: the object is looked at again when it is gone or made anew.";
    OwnershipPending: "Not every primary that may want the target has been located yet, of this policy or in its first 30 seconds of another one, so a target without a stamp is not written.", "Nothing to do: this ends with the start of the agent.";
    OwnedByAnother: "Another primary, or the same one under another policy, claims the same target and keeps it.", "Give one of the two primaries named in the message another target; where the message names two policies, let one of them write another Secret, or narrow its primaries.";
    StillNeeded: "What was made is kept until an object named by keepUntilAbsent is gone.", "Nothing to do: it is removed, or goes to the primary that claims it, when the object named in the message is gone.";
    // Ownership.
    TargetNotOwned: "The target exists and was not made by this policy, or was made for a primary on a cluster that is not connected.", "Delete or rename the target, let the policy adopt it (spec.own.adopt), or connect that cluster; where the message names another policy, let one of the two write another Secret.";
    Contended: "Someone else overwrote what the policy wrote three times in ten minutes.", "Find the other writer of the object and stop it, or let the policy own something else; it is tried again when the ten minutes are over.";
    WriteBudgetExceeded: "The policy wanted to write one object, or for one primary, more often than a minute allows.", "Look for what changes all the time: a guest whose answer depends on the time, or two writers; it is tried again when the minute allows.";
    ReconcileBudgetExceeded: "One object was to be reconciled under one policy more often than a minute allows.", "Look for what changes all the time: the object, one of its inputs, or what a guest asks for; it is reconciled again when the minute allows.";
    // Grant.
    ReadNotGranted: "The guest asked for an object that the policy does not grant.", "Add the object to grant.read, or use another guest.";
    WriteNotGranted: "The guest proposed to write what the policy does not grant.", "Add the target to grant.write, or use another guest.";
    ServerNotGranted: "The guest proposed a server that the policy does not grant.", "Use a guest that keeps to the Service, or grant the server.";
    CANotGranted: "The guest proposed a certificate authority that does not come from a granted input.", "Use another guest, or name the role in grant.write.kubeconfig.ca.";
    InsecureNotGranted: "The guest proposed to skip the verification of the server.", "Use another guest; insecure access is not granted.";
    ProxyNotGranted: "The guest proposed a proxy that the policy does not grant.", "Use another guest, or grant the source's proxy.";
    ServerNameNotGranted: "The guest proposed a tls-server-name that is not the source's.", "Use another guest.";
    CredentialNotGranted: "The guest proposed to write a kind of credential that the policy does not grant.", "Put another kind of credential into the source, or name the kind in grant.write.kubeconfig.credentials.";
    TaintKeyNotGranted: "The guest proposed a taint whose key the policy does not grant.", "Add the key to taintKeys, or use another guest.";
    UnknownReference: "The guest used a credential, certificate authority, proxy or entry number that it was never given.", "Use another guest: this one is broken or hostile.";
    // Source documents.
    KubeconfigMissing: "The secret has no such key.", "Put a kubeconfig under the key named in the message.";
    KubeconfigEmpty: "The kubeconfig is empty.", "Put a kubeconfig into the secret.";
    KubeconfigUnparsable: "The kubeconfig is not one well-formed YAML or JSON document.", "Mend the document at the place named in the message.";
    KubeconfigInvalid: "A field of the kubeconfig has the wrong type or an impossible value.", "Mend the field named in the message.";
    KubeconfigTooLarge: "The kubeconfig is larger than the limit.", "Make it smaller, or raise the limit.";
    NotAKubeconfig: "The document is not of apiVersion v1 and kind Config.", "Put a kubeconfig into the secret.";
    NoClusters: "The kubeconfig names no cluster.", "Put a kubeconfig with a cluster into the secret.";
    DuplicateEntry: "Two entries of one list, or two keys of one mapping, have the same name.", "Remove one of the two.";
    InvalidBase64: "A field that should hold base64 does not.", "Mend the field named in the message.";
    InvalidUrl: "A URL cannot be used: it is malformed or carries a user, a query or a fragment.", "Mend the field named in the message.";
    InvalidAuthority: "The certificate authority data holds something else than valid certificates of authorities.", "Put PEM certificates of the authority into the field.";
    InvalidCertificate: "A client certificate or key cannot be read.", "Put a PEM certificate and its key into the user entry.";
    CertificateKeyMismatch: "The client certificate and the key do not belong together.", "Put the key that belongs to the certificate into the user entry.";
    CertificateExpired: "A certificate is no longer valid.", "Renew the certificate in the source.";
    CertificateNotYetValid: "A certificate is not valid yet.", "Check the clocks, or wait until it is valid.";
    ContextUnresolved: "The current-context of the result does not lead to a cluster and a user.", "Mend current-context and contexts in the source.";
    InvalidObject: "An object that is read has a field of the wrong type.", "Mend the field named in the message.";
    InvalidTargetName: "The target's name or namespace is not one that Kubernetes allows.", "Choose a shorter name without dots for the managed cluster.";
    ObjectTooLarge: "An object is larger than the limit.", "Make the object smaller.";
    // Guests.
    GuestTimedOut: "The guest did not answer within its time.", "Look for a loop in the guest, or use its earlier version.";
    GuestMemoryExceeded: "The guest wanted more memory than its budget.", "Use another version of the guest.";
    GuestTablesExceeded: "The guest wanted larger tables than its budget.", "Use another version of the guest.";
    GuestStackOverflowed: "The guest recursed too deeply.", "Use another version of the guest.";
    GuestTrapped: "The guest stopped with a trap.", "The message says where it stopped; use the guest's earlier version.";
    AnswerTooLarge: "The guest's answer is larger than its budget.", "Use another version of the guest.";
    ArgumentTooLarge: "What the guest would be given is larger than the limit.", "Make the inputs named in the message smaller.";
    LogFlooded: "The guest wrote more log than its budget.", "Use another version of the guest.";
    HostCallsExceeded: "The guest called the host more often than its budget.", "Use another version of the guest.";
    ContractBroken: "The guest's answer breaks the contract.", "Use another version of the guest.";
    TooManyRounds: "The guest still asked for more after three rounds.", "Use another version of the guest.";
    EngineBusy: "No instance was free within the time of the call.", "Nothing to do: the call is tried again.";
    // Components and policies.
    ComponentNotFound: "The component cannot be read.", "Put it at the path named in the message, or correct spec.guests of the policy; the message lists the builtin components.";
    ComponentNotAllowed: "The policy names a file that it may not name as its component.", "Put the component below the folder that `--components` names, or beside the policy's own file, and name it by a relative path that stays there.";
    ComponentInvalid: "The file is not a component that can be compiled.", "Build the guest again.";
    ComponentTooLarge: "The component is larger than the limit.", "Make the component smaller.";
    DigestMismatch: "The component's digest is not the one that the policy names.", "Put the right component there, or correct the digest.";
    ImportNotGranted: "The component imports what the policy does not grant.", "For `log` put `capabilities: [log]` beside the component in spec.guests; nothing else can be granted, so use a guest without the other imports.";
    WorldMismatch: "The component does not export the world that its role needs.", "Use a guest built for that world.";
    DescriptionInvalid: "The component's description of itself breaks the contract.", "Use another version of the guest.";
    SettingsRefused: "The guest refuses its settings.", "Mend the field of the settings named in the message.";
    PolicyInvalid: "The policy cannot be used as it is written.", "Mend the field named in the message.";
    TaintKeyTaken: "Another policy owns a taint key of this one on the same objects.", "Remove the key named in the message from taintKeys of one of the two policies, or delete one of them; the other is loaded by itself then.";
    // The cluster.
    DuplicateObject: "The same object stands in two files.", "Remove it from one of the files named in the message.";
    ManifestInvalid: "A file cannot be read as Kubernetes manifests.", "Mend the file at the place named in the message.";
    ReadFailed: "An object could not be read.", "See the cause in the message; it is tried again.";
    WriteFailed: "A write did not succeed.", "See the cause in the message; it is tried again.";
    AgentFailed: "The agent itself failed while it reconciled the primary.", "Report the file and line in the log; the primary is tried again.";
    KindMissing: "The API server does not know a kind that a policy names.", "Install the CRD of the kind; the watch starts by itself when it is there. Until then nothing is removed that depends on its objects.";
    ReadForbidden: "The API server does not let the agent read what a policy needs.", "Give the agent the rights that `transom rbac` prints.";
    WriteForbidden: "The API server does not let the agent write what a policy grants.", "Give the agent the rights that `transom rbac` prints.";
    WriteInvalid: "The API server calls what is written invalid.", "See the field in the message.";
    TargetImmutable: "The target is an immutable Secret and differs from what it should be.", "Delete the target, so that it is made again.";
    QuotaExceeded: "A quota of the namespace leaves no room for the object.", "Raise the quota named in the message.";
    AdmissionRefused: "An admission webhook or policy of the cluster refused the write.", "See its answer in the message; let it allow what the policy grants.";
    AdmissionChanged: "An admission webhook of the cluster changed what was written, so it is not written again.", "Let the webhook leave the fields of the object alone.";
    ServerUnavailable: "The API server cannot be reached or is overloaded.", "Nothing to do when it passes: it is tried again.";
    Paused: "The primary carries the pause annotation.", "Remove the annotation transom.dev/paused from the primary.";
    NotLeading: "Another replica of the agent leads, so this one writes nothing.", "Nothing to do: the leader does the work.";
    WriteConflict: "The object changed between reading and writing.", "Nothing to do: it is reconciled again at once.";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_unique_and_explained() {
        for (index, word) in KnownReason::ALL.iter().enumerate() {
            let text = word.as_str();
            assert!(text.starts_with(|first: char| first.is_ascii_uppercase()), "{text}");
            assert!(word.meaning().ends_with('.') && word.remedy().ends_with('.'), "{text} is not explained");
            assert!(KnownReason::ALL.iter().skip(index + 1).all(|other| other.as_str() != text), "{text} stands there twice");
        }
    }

    #[test]
    fn a_reason_is_shown_as_its_word() {
        let reasons = [Reason::from(KnownReason::OwnedByAnother), Reason::Declared("OurOwn".into())];
        assert_eq!(serde_json::to_string(&reasons).unwrap(), r#"["OwnedByAnother","OurOwn"]"#);
        assert_eq!(reasons.map(|reason| reason.to_string()), ["OwnedByAnother", "OurOwn"]);
    }
}
