//! Why a directory cannot be used at all. An unusable file in it is an observation instead.

use std::io;
use std::path::PathBuf;

/// Why a directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The root does not exist or cannot be listed.
    #[error("failed to open the directory `{path}`: {cause}")]
    Root {
        /// The root.
        path: PathBuf,
        /// Why.
        cause: io::Error,
    },
    /// The own folder cannot be made or cleaned.
    #[error("failed to prepare the agent's own folder `{path}`: {cause}")]
    Own {
        /// The own folder.
        path: PathBuf,
        /// Why.
        cause: io::Error,
    },
    /// Another agent is at work.
    #[error("failed to use the agent's own folder `{path}`: another agent is using it")]
    InUse {
        /// The own folder.
        path: PathBuf,
    },
    /// Changes cannot be followed.
    #[error("failed to watch the directory `{path}`: {cause}")]
    Watch {
        /// The root.
        path: PathBuf,
        /// Why.
        cause: io::Error,
    },
    /// The root lies inside the own folder.
    #[error("failed to use the agent's own folder `{path}`: the manifests are inside it")]
    Inside {
        /// The own folder.
        path: PathBuf,
    },
}
