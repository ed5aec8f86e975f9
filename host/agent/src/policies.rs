//! Which policies are written, in a folder, a file or the binary itself. Never judges one.

pub(crate) mod load;
pub(crate) mod objects;
pub(crate) mod swap;
pub(crate) mod watch;

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::{fs, io};
use transom_core::document::{Limits, flatten_list, parse_many};
use transom_core::policy::manifest;

/// The policies that ship with the binary.
const BUILTIN: [(&str, &str); 2] = [
    ("builtin:built-in-taints", include_str!("../../../policies/built-in-taints/policy.yaml")),
    ("builtin:external-managed-kubeconfig", include_str!("../../../policies/external-managed-kubeconfig/policy.yaml")),
];

/// What one file of policies may cost.
const LIMITS: Limits = Limits { bytes: 1 << 20, nodes: 100_000, depth: 64 };

/// Where policies come from.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    /// The binary itself.
    Builtin,
    /// A folder or a file.
    Path(PathBuf),
    /// What was read before, such as objects of an API server.
    Given(Found),
}

/// A manifest of kind `Policy`, as it is written.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Written {
    /// File and document, or object, for people.
    pub(crate) place: String,
    /// Where relative component paths start.
    pub(crate) folder: PathBuf,
    /// The manifest.
    pub(crate) value: Value,
}

/// What was found at a source.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Found {
    /// Manifests of kind `Policy`, in order of their place.
    pub(crate) policies: Vec<Written>,
    /// Files or documents that cannot be read, and why.
    pub(crate) broken: Vec<(String, String)>,
}

impl Source {
    /// The source that a flag names; the binary itself when it names none.
    pub(crate) fn new(path: Option<&Path>) -> Self {
        path.map_or(Self::Builtin, |path| Self::Path(path.to_owned()))
    }

    /// What it is, for people.
    pub(crate) fn place(&self) -> String {
        match self {
            Self::Builtin => "builtin".to_owned(),
            Self::Path(path) => path.display().to_string(),
            Self::Given(_) => "the API server".to_owned(),
        }
    }

    /// Reads everything that is written there. Folders named `cases` and hidden ones hold no policies.
    ///
    /// # Errors
    /// When the path itself cannot be read.
    pub(crate) fn read(&self) -> io::Result<Found> {
        let mut found = Found::default();
        match self {
            Self::Builtin => {
                for (place, text) in BUILTIN {
                    take(&mut found, place, Path::new("."), text.as_bytes());
                }
            }
            Self::Given(given) => found.clone_from(given),
            Self::Path(path) if path.is_dir() => walk(&mut found, path)?,
            Self::Path(path) => {
                let text = read_file(path)?;
                take(&mut found, &path.display().to_string(), path.parent().unwrap_or(Path::new(".")), &text);
            }
        }
        Ok(found)
    }
}

/// A file that is one: to read a pipe or a device might never end.
fn read_file(path: &Path) -> io::Result<Vec<u8>> {
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    fs::read(path)
}

/// Every manifest file below a folder, in order of name.
fn walk(found: &mut Found, folder: &Path) -> io::Result<()> {
    let mut entries = fs::read_dir(folder)?.collect::<io::Result<Vec<_>>>()?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let (path, name) = (entry.path(), entry.file_name());
        let hidden = name.to_string_lossy().starts_with('.');
        if hidden || name == "cases" {
            continue;
        }
        if path.is_dir() {
            walk(found, &path)?;
        } else if path.extension().is_some_and(|end| end == "yaml" || end == "yml" || end == "json") {
            let place = path.display().to_string();
            match read_file(&path) {
                Ok(text) => take(found, &place, folder, &text),
                Err(error) => found.broken.push((place, error.to_string())),
            }
        }
    }
    Ok(())
}

/// The policies in one text; other kinds are somebody else's.
fn take(found: &mut Found, place: &str, folder: &Path, text: &[u8]) {
    for document in parse_many(text, LIMITS) {
        match document.value {
            Err(error) => found.broken.push((format!("{place}, document {}", document.number), error.to_string())),
            Ok(value) => {
                let policies = flatten_list(value).into_iter().filter(manifest::is_policy);
                found.policies.extend(policies.map(|value| Written {
                    place: place.to_owned(),
                    folder: folder.to_owned(),
                    value,
                }));
            }
        }
    }
}
