//! What fetching a component gives: its bytes with their digest, or why not.

use crate::builtin;
use crate::gathered::Unread;
use crate::location::MAX_BYTES;
use crate::sources::Sources;
use std::borrow::Cow;
use std::io;
use transom_api::KnownReason;

/// The bytes of a component, named by their digest.
pub struct Artifact {
    /// The component.
    pub bytes: Cow<'static, [u8]>,
    /// `sha256:<hex>` of the bytes.
    pub digest: String,
}

/// Why a component could not be fetched.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// The binary was built without it, or there is no such guest.
    #[error(
        "failed to read builtin component `{name}`: it does not exist; {}",
        builtin::all()
    )]
    NotBuiltin {
        /// The name that the policy gives.
        name: String,
    },
    /// The operator of this agent does not allow components from there.
    #[error(
        "component `{0}` is not allowed: this agent loads components only from `{1}`; its flag `--sources` names what is \
         allowed"
    )]
    NotAllowed(String, Sources),
    /// The objects that hold it, or their keys, are missing.
    #[error("failed to read component `{0}`: {1}")]
    Absent(String, String),
    /// The objects that hold it cannot be read.
    #[error("failed to read component `{0}`: {1}")]
    Unread(String, Unread),
    /// It is in a cluster, and none is read.
    #[error(
        "failed to read component `{0}`: it is in a cluster, and this command reads from no cluster"
    )]
    NoCluster(String),
    /// It is in a registry, and none is asked.
    #[error(
        "failed to read component `{0}`: it is in a registry, and this command pulls from none"
    )]
    NotPulled(String),
    /// The policy names a file, but this agent takes only builtin components.
    #[error(
        "component `{0}` is not allowed: this agent does not load components from files; set `--components` to the folder \
         of allowed components"
    )]
    NoFiles(String),
    /// The path leads out of the folder of components.
    #[error(
        "component `{0}` is not allowed: its path, or a link on it, is absolute or leads out of the folder of components; \
         use a relative path that stays below that folder (`--components` sets another folder)"
    )]
    Outside(String),
    /// The file cannot be read.
    #[error("failed to read component `{0}`{1}: {2}")]
    File(String, &'static str, io::Error),
    /// There is no such file, and a builtin component of that name.
    #[error(
        "failed to read component `{0}`: there is no such file; the builtin component is `builtin:{1}`"
    )]
    Unprefixed(String, String),
    /// The file is too large to be a component.
    #[error("failed to read component `{0}`: it is larger than {MAX_BYTES} bytes")]
    TooLarge(String),
    /// The component is another one than the policy names.
    #[error("component `{location}` has the digest {found}; the policy expects {wanted}")]
    Digest {
        /// Where the component lies.
        location: String,
        /// The digest that the policy names.
        wanted: String,
        /// The digest of the bytes that lie there.
        found: String,
    },
}

impl FetchError {
    /// The message about a trusted key, which is read like a component.
    pub fn about_key(&self) -> String {
        self.to_string().replacen("component `", "key `", 1)
    }

    /// Whether it stays so until the policy or the agent changes.
    pub fn lasts(&self) -> bool {
        matches!(
            self,
            Self::NotBuiltin { .. } | Self::NotAllowed(..) | Self::NoFiles(_)
        )
    }

    /// The reason to show.
    pub fn reason(&self) -> KnownReason {
        match self {
            Self::NotBuiltin { .. }
            | Self::File(..)
            | Self::Unprefixed(..)
            | Self::Absent(..)
            | Self::NoCluster(_)
            | Self::NotPulled(_) => KnownReason::ComponentNotFound,
            Self::NotAllowed(..) | Self::NoFiles(_) | Self::Outside(_) => {
                KnownReason::ComponentNotAllowed
            }
            Self::Unread(_, unread) => unread.reason,
            Self::TooLarge(_) => KnownReason::ComponentTooLarge,
            Self::Digest { .. } => KnownReason::DigestMismatch,
        }
    }
}
