//! The gates that a new revision passes before it becomes active.

use crate::failure::failing::is_fault;
use transom_api::KnownReason;

/// What a new revision passes before it becomes active, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Gate {
    /// The manifest is valid, and fits beside other policies.
    Manifest,
    /// The components may come from where the policy says, and can be read.
    Source,
    /// Their bytes are the demanded ones.
    Digest,
    /// They are signed as the policy demands.
    Signature,
    /// They import what is granted only.
    Imports,
    /// They are guests of the world and the contract that the policy needs.
    Contract,
    /// They are compiled within the limits.
    Compile,
    /// They describe themselves.
    Description,
    /// They accept their settings.
    Settings,
    /// They give the answers that the cases expect which travel with them.
    Cases,
    /// On the live primaries they answer twice the same, within the limits and the grant.
    Answers,
    /// It changes no more than the limits of the policy allow in an interval, or that is approved.
    Limits,
    /// What changes is approved, where that is demanded.
    Approval,
}

impl Gate {
    /// One word, for people.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Manifest => "Manifest",
            Self::Source => "Source",
            Self::Digest => "Digest",
            Self::Signature => "Signature",
            Self::Imports => "Imports",
            Self::Contract => "Contract",
            Self::Compile => "Compile",
            Self::Description => "Description",
            Self::Settings => "Settings",
            Self::Cases => "Cases",
            Self::Answers => "Answers",
            Self::Limits => "Limits",
            Self::Approval => "Approval",
        }
    }

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
