//! From the text in a policy to bytes with a digest. Never fetches from a network; that is a later source.

use crate::builtin;
use sha2::{Digest as _, Sha256};
use std::borrow::Cow;
use std::fmt;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use transom_api::Word;

/// Largest component that is read, in bytes.
const MAX_BYTES: u64 = 8 << 20;

/// Where a component lies.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Location {
    /// In the binary, by name.
    Builtin(String),
    /// In a file.
    File(PathBuf),
}

impl Location {
    /// Reads `builtin:<name>` or a path, which is relative to `folder`.
    pub fn parse(text: &str, folder: &Path) -> Self {
        match text.strip_prefix("builtin:") {
            Some(name) => Self::Builtin(name.to_owned()),
            None => Self::File(folder.join(text)),
        }
    }

    /// The file to watch, if it is one.
    pub fn file(&self) -> Option<&Path> {
        match self {
            Self::Builtin(_) => None,
            Self::File(path) => Some(path),
        }
    }

    /// Brings the bytes and compares their digest with the expected one (`sha256:<hex>`).
    ///
    /// # Errors
    /// When the component is not there, too large, or another one than expected.
    pub fn fetch(&self, expected: Option<&str>) -> Result<Artifact, FetchError> {
        let bytes = match self {
            Self::Builtin(name) => {
                Cow::Borrowed(builtin::bytes(name).ok_or_else(|| FetchError::NotBuiltin(name.clone()))?)
            }
            Self::File(path) => Cow::Owned(read_bounded(path)?),
        };
        let digest = format!("sha256:{:x}", HexDigest(&Sha256::digest(&bytes)));
        match expected {
            Some(wanted) if wanted != digest => {
                Err(FetchError::Digest { location: self.to_string(), wanted: wanted.to_owned(), found: digest })
            }
            _ => Ok(Artifact { bytes, digest }),
        }
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Builtin(name) => write!(f, "builtin:{name}"),
            Self::File(path) => path.display().fmt(f),
        }
    }
}

/// The bytes of a component, named by their digest.
pub struct Artifact {
    /// The component.
    pub bytes: Cow<'static, [u8]>,
    /// `sha256:<hex>` of the bytes.
    pub digest: String,
}

/// Why a component could not be brought.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// The binary was built without it, or there is no such guest.
    #[error(
        "failed to find builtin component `{0}`: this binary does not hold it; run `cargo xtask guests` and build again"
    )]
    NotBuiltin(String),
    /// The file cannot be read.
    #[error("failed to read component `{}`", .0.display())]
    File(PathBuf, #[source] std::io::Error),
    /// The file is too large to be a component.
    #[error("failed to read component `{}`: it is larger than {MAX_BYTES} bytes", .0.display())]
    TooLarge(PathBuf),
    /// Another component than the policy names.
    #[error("failed to accept component `{location}`: its digest is {found}, the policy names {wanted}")]
    Digest {
        /// Where it lies.
        location: String,
        /// What the policy names.
        wanted: String,
        /// What lies there.
        found: String,
    },
}

impl FetchError {
    /// The reason to show.
    pub fn word(&self) -> Word {
        match self {
            Self::NotBuiltin(_) | Self::File(..) => Word::ComponentNotFound,
            Self::TooLarge(_) => Word::ComponentTooLarge,
            Self::Digest { .. } => Word::DigestMismatch,
        }
    }
}

/// Reads at most one byte more than is allowed, so that a huge file costs nothing.
fn read_bounded(path: &Path) -> Result<Vec<u8>, FetchError> {
    let failed = |error| FetchError::File(path.to_owned(), error);
    let mut bytes = Vec::new();
    if !std::fs::metadata(path).map_err(failed)?.is_file() {
        // To read a pipe might never end.
        return Err(failed(std::io::Error::other("it is no regular file")));
    }
    std::fs::File::open(path).map_err(failed)?.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(FetchError::TooLarge(path.to_owned()));
    }
    Ok(bytes)
}

/// Bytes in hexadecimal.
struct HexDigest<'a>(&'a [u8]);

impl fmt::LowerHex for HexDigest<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_brought_and_its_digest_checked() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("guest.wasm"), b"abc").unwrap();
        let location = Location::parse("guest.wasm", folder.path());
        let artifact = location.fetch(None).unwrap();
        assert_eq!(artifact.digest, "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        assert!(location.fetch(Some(&artifact.digest)).is_ok());
        let refused = location.fetch(Some("sha256:00")).err().unwrap();
        assert_eq!(refused.word(), Word::DigestMismatch);
    }

    #[test]
    fn what_is_not_there_is_named() {
        let missing = Location::parse("no.wasm", Path::new("/nowhere")).fetch(None).err().unwrap();
        assert_eq!(missing.word(), Word::ComponentNotFound);
        assert!(missing.to_string().contains("/nowhere/no.wasm"));
        let unknown = Location::parse("builtin:nothing", Path::new("/")).fetch(None).err().unwrap();
        assert!(unknown.to_string().contains("cargo xtask guests"));
    }
}
