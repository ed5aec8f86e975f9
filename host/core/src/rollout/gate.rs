//! The gates that a new revision passes before it becomes active.

use crate::failure::failing::is_fault;
use transom_api::KnownReason;

transom_api::words! {
    /// What a new revision passes before it becomes active, in order.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub enum Gate {
        /// The manifest is valid, and fits beside other policies.
        Manifest = "Manifest",
        /// The components may come from where the policy says, and can be read.
        Source = "Source",
        /// Their bytes are the demanded ones.
        Digest = "Digest",
        /// They are signed as the policy demands.
        Signature = "Signature",
        /// They import what is granted only.
        Imports = "Imports",
        /// They are guests of the world and the contract that the policy needs.
        Contract = "Contract",
        /// They are compiled within the limits.
        Compile = "Compile",
        /// They describe themselves.
        Description = "Description",
        /// They accept their settings.
        Settings = "Settings",
        /// They give the answers that their cases expect.
        Cases = "Cases",
        /// On the live primaries they answer twice the same, within the limits and the grant.
        Answers = "Answers",
        /// It changes no more than the limits of the policy allow in an interval, or that is approved.
        Limits = "Limits",
        /// What changes is approved, where that is demanded.
        Approval = "Approval",
    }
}

impl Gate {
    /// The gate at which a revision is refused for a reason while it is loaded.
    pub fn of(reason: KnownReason) -> Self {
        match reason {
            KnownReason::ComponentNotAllowed
            | KnownReason::ComponentNotFound
            | KnownReason::RegistryUnavailable
            | KnownReason::RegistryForbidden
            | KnownReason::CacheFull
            | KnownReason::ReadForbidden
            | KnownReason::ReadFailed
            | KnownReason::ServerUnavailable => Self::Source,
            KnownReason::DigestMismatch => Self::Digest,
            KnownReason::SignatureMissing | KnownReason::SignatureInvalid => Self::Signature,
            KnownReason::ImportNotGranted => Self::Imports,
            KnownReason::WorldMismatch => Self::Contract,
            KnownReason::ComponentInvalid
            | KnownReason::ComponentTooLarge
            | KnownReason::EngineBusy => Self::Compile,
            KnownReason::DescriptionInvalid => Self::Description,
            KnownReason::SettingsRefused => Self::Settings,
            KnownReason::CasesInvalid | KnownReason::CasesFailed => Self::Cases,
            reason if is_fault(reason) => Self::Description,
            _ => Self::Manifest,
        }
    }
}
