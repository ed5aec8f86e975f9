//! The table of the agent's own reasons: class, meaning and remedy of each.

use super::Class;

/// Makes the enum, its words, its classes and what `transom explain` says, from one table.
macro_rules! reasons {
    ($($word:ident, $class:ident: $meaning:literal, $remedy:literal;)*) => {
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

            /// The reason that is shown as this word, if the agent has one.
            pub fn named(word: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|reason| reason.as_str() == word)
            }

            /// What it means.
            pub fn meaning(self) -> &'static str {
                match self { $(Self::$word => $meaning,)* }
            }

            /// Whether a guest may declare it, too: reasons for inputs that both the agent and guests check. All other
            /// reasons of the agent are reserved.
            pub fn is_shared(self) -> bool {
                matches!(self, Self::NoClusters | Self::InvalidTargetName)
            }

            /// What to do about it.
            pub fn remedy(self) -> &'static str {
                match self { $(Self::$word => $remedy,)* }
            }
        }

        impl Class {
            /// The class of each of the agent's own reasons.
            pub fn of(word: KnownReason) -> Self {
                match word { $(KnownReason::$word => Self::$class,)* }
            }
        }
    };
}

reasons! {
    // States without a failure.
    InSync, Held: "The objects match the desired state.", "Nothing to do.";
    Suspended, Held: "The policy is suspended.", "Set spec.suspend of the policy to false.";
    ReadOnly, Held: "Nothing is written: the agent is read-only, or it is `transom status`, which only shows what would be written.",
        "Run the agent without --read-only to have it written. If `transom status` says it, a running agent writes it next.";
    SourceDeleted, Left: "The primary was deleted. What was made for it is removed or kept, as the policy says.",
        "Nothing to do.";
    Loaded, Held: "The newest revision of the policy is active.", "Nothing to do.";
    // Candidates.
    Trying, Held: "The newest revision of the policy is a candidate, and is tried on the live objects without a write.",
        "Nothing to do: it becomes active, or its status says what it waits for.";
    ApprovalRequired, Held:
        "The newest revision of the policy has passed its gates and waits for approval of its plan.",
        "Look at status.candidate, and approve the digest in its field approve: `transom approve POLICY DIGEST`; for a \
         policy in a file, put it into the annotation transom.dev/approved there.";
    PlanChanged, Held: "Another plan was approved than the one that would be carried out now, or other numbers than the limits withhold now.",
        "Look at status.candidate, or status.limits, again, and approve the digest in its field approve.";
    ApprovalForbidden, Held: "The plan, or what the limits withhold, was approved by a user who may not approve, or the approval names no user.",
        "Let a user approve who may update fleetpolicies/approval, with `transom approve POLICY DIGEST`.";
    Shadowing, Held: "The policy is only compared with the live objects, as its mode says: nothing is written.",
        "Set spec.rollout.mode to Preview or Automatic to let it become active.";
    AnswerUnstable, Invalid: "The candidate gives two answers to the same question, or would change again what it has changed.",
        "Use another version of the guest: its answer may depend on its input only, and has to stay when it is written.";
    RolledBack, Held: "The newest revision of the policy failed after it became active, and the one before is active again.",
        "See the cause in the message. Change the policy or its component: this revision does not become active again.";
    Diverged, Invalid: "From the same inputs, the new revision plans something else for this primary than its trial did. It is not written.",
        "Nothing to do for this primary: if too many primaries diverge, the agent rolls the revision back. Otherwise it tries this \
         one again when the revision's probation ends. Compare the agent's version and flags with those of the trial, and report it.";
    Verified, Held: "The components of the policy are signed by the keys that it trusts.", "Nothing to do.";
    LimitReached, Held:
        "The policy has changed as many primaries in this interval as spec.limits allows. Nothing is written for this \
         one until that is approved, or no longer wanted.",
        "Look at status.limits of the policy. If the changes are right, approve the digest that stands there, with \
         `transom approve POLICY DIGEST`, or raise the limit. If they are not, fix their cause: what is no \
         longer wanted is not written.";
    // What was applied, while a guest fails.
    Stale, Invalid:
        "The guest has failed for this primary for longer than spec.onFailure allows. What was applied stays as it is, and \
         may be wrong by now.",
        "Fix what the message says about the guest: use another version of it, or other settings. The agent asks it again \
         when an input, the policy or the component changes.";
    Withdrawn, Invalid:
        "The guest has failed for this primary for longer than spec.onFailure allows, so what was applied was taken back.",
        "Fix what the message says about the guest: use another version of it, or other settings. What the guest wants then \
         is applied again.";
    // Waiting.
    InputTerminating, Waiting: "A required object is being deleted.",
        "Nothing to do: the primary is reconciled again when the object is gone or recreated.";
    OwnershipPending, Unlocated:
        "The agent does not know yet which primaries claim the target: it has not located every primary of this \
         policy, or another policy is in its first 30 seconds. Until then it does not write a target without \
         ownership labels.",
        "Nothing to do: this ends once the agent has started up.";
    OwnedByAnother, Waiting:
        "Another primary, or the same one under another policy, owns the target, or is to write a shared object first.",
        "Give one of the two primaries named in the message another target. If the message names two policies, let \
         one of them write another Secret, or narrow its primaries. If all primaries share the object, nothing to do \
         unless it lasts: then the two want different content of it.";
    TargetMissing, Waiting: "The policy writes fields of an object that others create, and the object does not exist.",
        "Nothing to do if it comes: the primary is reconciled again then. Otherwise find out why nobody makes the object \
         named in the message.";
    StillNeeded, Waiting:
        "What was made is kept until an object named by keepUntilAbsent is gone, or until it is known that no other \
         primary wants or shares it.",
        "Nothing to do: when the object named in the message is gone, what was made is removed, or handed over to the \
         primary that claims it. If other primaries may share it, look at those whose guest fails.";
    // Ownership.
    TargetNotOwned, Invalid:
        "The target exists, but this policy did not create it, or it was made for a primary on another cluster.",
        "Delete or rename the target, let the policy adopt it (spec.own.adopt), or connect that cluster. If the \
         message names another policy, let one of the two write another object, or, if that policy is gone, release \
         the object (host/docs/uninstall.md); if another cluster, see host/docs/connections.md, \"Several \
         clusters, one hub\".";
    Contended, Invalid: "Another writer overwrote what the policy wrote three times in ten minutes, or removed the whole object ten times.",
        "Find the other writer of the object and stop it, or let the policy own something else. The agent tries again \
         when the ten minutes are over.";
    Conflicting, Invalid: "A controller that the policy replaces (spec.replaces) still runs.",
        "Both do the same work and neither undoes the other's: see host/docs/policies.md, \"A hub on these policies\", for what each of them \
         does beside that controller. End the controller, and first the operator that brings it back; or remove the policy.";
    WriteBudgetExceeded, Invalid:
        "The policy tried to write one object, or to write for one primary, more often than the limit per minute.",
        "Look for something that changes all the time: a guest whose answer depends on the time, or two writers. The \
         agent tries again when the limit allows it.";
    ReconcileBudgetExceeded, Invalid:
        "One object was due to be reconciled under one policy more often than the limit per minute.",
        "Look for something that changes all the time: the object, one of its inputs, or what a guest asks for. The \
         agent reconciles it again when the limit allows it.";
    // Grant.
    ReadNotGranted, Invalid: "The guest asked for an object that the policy does not grant.",
        "Add the object to grant.read, or use another guest.";
    WriteNotGranted, Invalid: "The guest proposed a write that the policy does not grant.",
        "Add the target to grant.write, or use another guest.";
    ValueNotGranted, Invalid: "The guest proposed a value that the policy does not grant for this field.",
        "Add the value to the field's list in grant.write.values, or use another guest or other settings.";
    ServerNotGranted, Invalid: "The guest proposed a server that the policy does not grant.",
        "Use a guest that keeps to the Service, or grant the server.";
    CANotGranted, Invalid: "The guest proposed a certificate authority that does not come from a granted input.",
        "Use another guest, or name the role in grant.write.kubeconfig.ca.";
    InsecureNotGranted, Invalid: "The guest proposed to skip verification of the server.",
        "Use another guest; insecure access is not granted.";
    ProxyNotGranted, Invalid: "The guest proposed a proxy that the policy does not grant.",
        "Use another guest, or grant the source's proxy.";
    ServerNameNotGranted, Invalid: "The guest proposed a tls-server-name that is not the source's.",
        "Use another guest.";
    CredentialNotGranted, Invalid:
        "The guest proposed to write a kind of credential, or bytes of a Secret, that the policy does not grant there.",
        "Put another kind of credential into the source and name it in grant.write.kubeconfig.credentials, or name the role of the Secret under grant.write.holes.";
    TaintKeyNotGranted, Invalid: "The guest proposed a taint whose key the policy does not grant.",
        "Add the key to grant.write (`taintKeys`, or `spec.taints[key=...]` in `fields` of an objects guest), or use another guest.";
    UnknownReference, Invalid:
        "The guest used a credential, certificate authority, proxy or entry number that it was never given.",
        "Use another guest: this one is broken or malicious.";
    // Source documents.
    KubeconfigMissing, Invalid: "The Secret does not have the expected key.",
        "Put a kubeconfig under the key named in the message.";
    KubeconfigEmpty, Invalid: "The kubeconfig is empty.", "Put a kubeconfig into the Secret.";
    KubeconfigUnparsable, Invalid: "The kubeconfig is not exactly one well-formed YAML or JSON document.",
        "Fix the document at the place named in the message.";
    KubeconfigInvalid, Invalid: "A field of the kubeconfig has the wrong type or an impossible value.",
        "Fix the field named in the message.";
    KubeconfigTooLarge, Invalid: "The kubeconfig has more bytes than --max-kubeconfig-bytes allows, or more than 4,000 values.",
        "Make it smaller. Only the number of bytes can be raised, by --max-kubeconfig-bytes.";
    NotAKubeconfig, Invalid: "The document does not have apiVersion v1 and kind Config.",
        "Put a kubeconfig into the Secret.";
    NoClusters, Invalid: "The kubeconfig names no cluster.", "Put a kubeconfig with a cluster into the Secret.";
    DuplicateEntry, Invalid: "Two entries of one list, or two keys of one mapping, have the same name.",
        "Remove one of the two.";
    InvalidBase64, Invalid: "A field that must hold base64 does not.", "Fix the field named in the message.";
    InvalidUrl, Invalid: "A URL cannot be used: it is malformed or contains a user, a query or a fragment.",
        "Fix the field named in the message.";
    InvalidAuthority, Invalid: "The certificate authority data holds a private key, or no valid CA certificate.",
        "Put PEM certificates of the certificate authority into the field.";
    InvalidCertificate, Invalid: "A client certificate or key cannot be read.",
        "Put a PEM certificate and its key into the user entry.";
    CertificateKeyMismatch, Invalid: "The client certificate and the key do not belong together.",
        "Put the key that belongs to the certificate into the user entry.";
    CertificateExpired, Invalid: "A certificate has expired.", "Renew the certificate in the source.";
    // Only time helps here.
    CertificateNotYetValid, Missing: "A certificate is not valid yet.", "Check the clocks, or wait until it is valid.";
    ContextUnresolved, Invalid: "The current-context of the result does not lead to a cluster and a user.",
        "Fix current-context and contexts in the source.";
    InvalidObject, Invalid: "An object that the agent reads has a field of the wrong type.",
        "Fix the field named in the message.";
    InvalidTargetName, Invalid: "Kubernetes does not allow the target's name or namespace.",
        "Choose a shorter name without dots for the managed cluster.";
    ObjectTooLarge, Invalid: "An object is larger than the limit.", "Make the object smaller.";
    // Guests.
    GuestTimedOut, Missing: "The guest did not answer within its limit of processor time.",
        "Look for a loop in the guest, or use its previous version.";
    GuestMemoryExceeded, Invalid: "The guest tried to use more memory than its limit.",
        "Use another version of the guest.";
    GuestTablesExceeded, Invalid: "The guest tried to use larger tables than its limit.",
        "Use another version of the guest.";
    GuestStackOverflowed, Invalid: "The guest overflowed its stack.", "Use another version of the guest.";
    GuestTrapped, Invalid: "The guest stopped with a trap.",
        "The message says where it stopped. Use the guest's previous version.";
    AnswerTooLarge, Invalid: "The guest's answer is larger than the limit.", "Use another version of the guest.";
    ArgumentTooLarge, Invalid: "The input of the guest call is larger than the limit.",
        "Make the inputs named in the message smaller.";
    LogFlooded, Invalid: "The guest wrote more log output than its limit.", "Use another version of the guest.";
    HostCallsExceeded, Invalid: "The guest called the host more often than its limit.",
        "Use another version of the guest.";
    ContractBroken, Invalid: "The guest's answer breaks the contract.", "Use another version of the guest.";
    TooManyRounds, Invalid: "The guest still asked for more objects after three rounds.",
        "Use another version of the guest.";
    TooManyInputs, Invalid: "The guest asked for a set of objects that is larger than the policy allows, or to observe more than 16 fields of one object.",
        "Raise `every` of the role in grant.read, or have the guest ask for fewer objects by namespace or label. Of one object 16 fields are kept for all guests.";
    EngineBusy, Missing: "No guest instance became free in time, the guest got no processor, or the compiler of components could not run: the machine has too much to do. Or the code of other components takes the room that a component needs.",
        "Nothing to do: it is tried again. If it stays, use smaller components, or fewer.";
    // Components and policies.
    ComponentNotFound, Missing: "The component cannot be read.",
        "Put it at the place named in the message, or correct spec.guests of the policy. The message lists the \
         builtin components.";
    ComponentNotAllowed, Missing: "The policy names a component, or a key of spec.verify, that it is not allowed to name.",
        "Name one from a source that the agent's flag `--sources` allows. Put a file below the folder that \
         `--components` names, or next to the policy's own file, and name it by a relative path that stays there.";
    BudgetNotAllowed, Invalid: "The policy asks for more for one call of its guests than the agent allows.",
        "Lower the named field of spec.budget, or raise the limit with the agent's flag `--call-limit`.";
    ComponentInvalid, Invalid: "The bytes are not a component that can be compiled.", "Build the guest again.";
    ComponentTooLarge, Invalid: "The component is larger than the limit.", "Make the component smaller.";
    CacheFull, Missing:
        "The cache has no room for the component: what the active and the previous revisions of policies use is not removed.",
        "Use smaller components, or remove policies that are not needed. The agent tries again.";
    DigestMismatch, Invalid: "The component's digest differs from the one that the policy names.",
        "Put the right component there, or correct the digest. That of a builtin component changes with the agent: leave it out.";
    SignatureMissing, Missing: "The component is not signed by the keys that the policy demands.",
        "Sign the component with a key of spec.verify: in a registry with cosign, elsewhere with a file or key `.sig` \
         beside it. The agent looks again.";
    SignatureInvalid, Missing:
        "The component has a signature that no key of the policy made, or that is about something else.",
        "Find out who made the component and the signature. If they are right, sign the component again, or correct the \
         keys of spec.verify.";
    TrustRootInvalid, Missing: "A key of spec.verify cannot be read, or is no public key.",
        "Put one public key, ECDSA on P-256 or Ed25519 as PEM, at the place named in the message.";
    TagMoved, Invalid:
        "The tag of a component means another artifact in the registry than when the agent pulled it.",
        "Nothing has changed for the policy. To take the new artifact, name its digest from the message in `component`, or \
         use another tag. To end the report, move the tag back, or name the digest that is active.";
    RegistryUnavailable, Unreachable: "The registry of the component does not give it.",
        "See the cause in the message. The agent tries again.";
    RegistryForbidden, Unreachable: "The registry refuses access to the component.",
        "Check the file of `--registry-config`, and the rights of its user. The agent tries again.";
    ImportNotGranted, Invalid: "The component imports something that the policy does not grant.",
        "To grant `log`, put `capabilities: [log]` next to the component in spec.guests. Nothing else can be granted: \
         use a guest without the other imports.";
    WorldMismatch, Invalid: "The component does not export the world that its role needs, or is of a generation of the \
         contract that this agent does not serve.",
        "Use a guest built for that world, of a generation that the message names.";
    DescriptionInvalid, Invalid: "The component's self-description breaks the contract.",
        "Use another version of the guest.";
    SettingsRefused, Invalid: "The guest rejects its settings.", "Fix the field of the settings named in the message.";
    CasesInvalid, Invalid: "The cases that travel with the component cannot be read, or exceed a limit.",
        "Build the component again with `transom build`.";
    CasesFailed, Invalid: "A case that travels with the component does not get the answer that it expects.",
        "Run `transom test COMPONENT`, which shows the difference. Fix the guest or the case, and build the component again.";
    PolicyInvalid, Invalid: "The policy is invalid.", "Fix the field named in the message.";
    TaintKeyTaken, Invalid: "Another policy owns one of this policy's taint keys on the same objects.",
        "Remove the key named in the message from taintKeys of one of the two policies, or delete one of them. The \
         other policy is then loaded without further action.";
    FinalizerTaken, Invalid: "Another policy keeps the same finalizer on the same objects.",
        "Give one of the two policies a finalizer of its own in spec.grant.finalizer, or let namespaces or labels of \
         spec.primary tell their objects apart, or delete one of them.";
    // The cluster.
    DuplicateObject, Invalid: "Two files define the same object.",
        "Remove it from one of the files named in the message.";
    ManifestInvalid, Invalid: "A file cannot be read as Kubernetes manifests.",
        "Fix the file at the place named in the message.";
    ReadFailed, Unreachable: "An object could not be read.", "See the cause in the message. The agent tries again.";
    WriteFailed, Missing: "A write failed.", "See the cause in the message. The agent tries again.";
    AgentFailed, Missing: "The agent itself failed while it reconciled the primary.",
        "Report the file and line from the log. The agent tries the primary again.";
    KindMissing, Missing: "The API server does not know a kind that a policy names.",
        "Install the CRD of the kind. The watch starts by itself when the CRD exists. Until then, objects of it that \
         the agent knew do not count as gone. A kind that was not served since the start counts as one without objects.";
    ClusterReplaced, Missing: "The connection of the primaries leads to another cluster than when the agent began, so \
         nothing is written for them on other connections.",
        "If the cluster was replaced, restart the agent. Else let the connection lead to the cluster of before.";
    ReadForbidden, Unreachable: "The API server does not let the agent read an object that a policy needs.",
        "Give the agent the permissions that `transom rbac` prints.";
    WriteForbidden, Missing: "The API server does not let the agent write an object that a policy grants.",
        "Give the agent the permissions that `transom rbac` prints.";
    WriteInvalid, Invalid: "The API server rejected the object as invalid.", "Fix the field named in the message.";
    TargetImmutable, Invalid:
        "The target differs in what nobody can change: it is an immutable Secret, or a binding with another role \
         that the policy may not remove.",
        "Delete the target, so that it is recreated.";
    TargetNamespaceMissing, Missing: "The namespace of the object to write is not there.",
        "Create the namespace named in the message, or find out why nobody makes it. The agent tries again.";
    QuotaExceeded, Missing: "A quota of the namespace leaves no room for the object.",
        "Raise the quota named in the message.";
    AdmissionRefused, Missing: "An admission webhook or policy of the cluster rejected the write.",
        "The message names the webhook or policy, without its answer, which may quote the object: see its log. Let it allow \
         what the policy grants.";
    AdmissionChanged, Invalid:
        "The cluster stored something else than the agent wrote, so the agent does not write it again: an admission \
         webhook changed it, or the CRD of the object lacks a field, and the API server left that out.",
        "See the message for the fields. Stop the webhook from changing them, or install the version of the CRD that has \
         them.";
    ServerUnavailable, Unreachable: "The API server cannot be reached, is overloaded, or cannot call a webhook for the write.",
        "Nothing to do if it is temporary: the agent tries again. Else see the message.";
    Paused, Held: "The primary has the pause annotation.", "Remove the annotation transom.dev/paused from the primary.";
    NotLeading, Standby: "This replica of the agent is not the leader, so it writes nothing.",
        "Nothing to do while another replica leads: it does the work. If none does, see the log for what keeps the \
         replicas from the Lease.";
    WriteConflict, Conflict: "The object changed between reading and writing.",
        "Nothing to do: it is reconciled again at once.";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_unique_and_explained() {
        for (index, word) in KnownReason::ALL.iter().enumerate() {
            let text = word.as_str();
            assert!(
                text.starts_with(|first: char| first.is_ascii_uppercase()),
                "{text}"
            );
            assert!(
                word.meaning().ends_with('.') && word.remedy().ends_with('.'),
                "{text} is not explained"
            );
            assert!(
                KnownReason::ALL
                    .iter()
                    .skip(index + 1)
                    .all(|other| other.as_str() != text),
                "{text} is listed twice"
            );
        }
    }
}
