//! From the text in a policy to component bytes with a digest. Reads the binary and files; sends no request.

use crate::builtin;
use crate::fetch::{Artifact, FetchError};
use crate::folder::{FileIdentity, Folder, leads_out};
use crate::gathered::{self, GatheredComponents};
use crate::signature::{Evidence, MAX_SIGNATURE_BYTES};
use crate::sources::Sources;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use transom_core::digest::Digest;
use transom_core::policy::component::{ComponentPart, ComponentSource, Image};
use transom_core::reference::ObjectRef;

/// Largest component that is read, in bytes.
pub const MAX_BYTES: u64 = 8 << 20;

/// How the name of a signature ends.
const SIGNATURE: &str = ".sig";

/// Where the files lie that a policy may name as components.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Base {
    /// Nowhere: only builtin components are taken.
    Nowhere,
    /// Below the folder that `--components` names.
    Components(PathBuf),
    /// In a folder on the way to a file that a person names.
    Given(PathBuf),
    /// Beside the policy's own file, and anywhere below the folder of policies.
    Beside {
        /// The folder of policies.
        root: PathBuf,
        /// The folder of the policy's file, from there.
        below: PathBuf,
    },
    /// Files that the user of a command names, and the base of the policy for all others.
    Named {
        /// The files, each by the text that stands for it in the policy.
        files: BTreeMap<String, PathBuf>,
        /// The base of everything else.
        base: Box<Base>,
    },
}

impl Base {
    /// Where the file lies that a policy names by this text.
    fn at(&self, text: String) -> Location {
        match self {
            Self::Named { files, base } => match files.get(&text) {
                Some(file) => file_anywhere(file),
                None => base.at(text),
            },
            _ => Location::File(self.clone(), text),
        }
    }

    /// Where a relative path starts, for the message about a file that is not there.
    fn hint(&self) -> &'static str {
        match self {
            Self::Nowhere | Self::Given(_) | Self::Named { .. } => "",
            Self::Components(_) => " (paths are relative to `--components`)",
            Self::Beside { .. } => {
                " (paths are relative to the policy's own file; `--components` sets another folder)"
            }
        }
    }
}

/// Where a component lies.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Location {
    /// In the binary, by name.
    Builtin(String),
    /// In a file: the path as the policy writes it.
    File(Base, String),
    /// In keys of ConfigMaps.
    ConfigMap(Vec<ComponentPart>),
    /// In a registry.
    Image(Image),
}

impl Location {
    /// Parses the text by which a policy names a component.
    ///
    /// # Errors
    /// As for [`ComponentSource::parse`].
    pub fn parse(text: &str, base: &Base) -> Result<Self, String> {
        ComponentSource::parse(text).map(|source| Self::of(source, base))
    }

    /// Where a source lies for a policy whose files lie at `base`.
    pub fn of(source: ComponentSource, base: &Base) -> Self {
        match source {
            ComponentSource::Builtin(name) => Self::Builtin(name),
            ComponentSource::File(path) => base.at(path),
            ComponentSource::ConfigMap(parts) => Self::ConfigMap(parts),
            ComponentSource::Image(image) => Self::Image(image),
        }
    }

    /// A component as a policy names it, or a path that the operator names: it may lie anywhere.
    ///
    /// # Errors
    /// As for [`ComponentSource::parse`], but not for a path; with the text in front.
    pub fn anywhere(text: &str) -> Result<Self, String> {
        if ComponentSource::is_prefixed(text) {
            return Self::parse(text, &Base::Nowhere).map_err(|why| format!("`{text}` {why}"));
        }
        Ok(file_anywhere(Path::new(text)))
    }

    /// The keys of objects that hold the component; none where it does not lie in objects.
    pub fn parts(&self) -> &[ComponentPart] {
        match self {
            Self::Builtin(_) | Self::File(..) | Self::Image(_) => &[],
            Self::ConfigMap(parts) => parts,
        }
    }

    /// The artifact that holds the component.
    pub fn image(&self) -> Option<&Image> {
        match self {
            Self::Builtin(_) | Self::File(..) | Self::ConfigMap(_) => None,
            Self::Image(image) => Some(image),
        }
    }

    /// The objects that hold the component.
    pub fn objects(&self) -> BTreeSet<&ObjectRef> {
        self.parts().iter().map(|part| &part.object).collect()
    }

    /// Where its signature lies, if that is a file or a key beside it: the same name with `.sig`. A component in
    /// several keys has it beside the first.
    pub fn signature(&self) -> Option<Self> {
        let suffixed = |text: &str| format!("{text}{SIGNATURE}");
        match self {
            Self::Builtin(_) | Self::Image(_) => None,
            Self::File(base, path) => Some(Self::File(base.clone(), suffixed(path))),
            Self::ConfigMap(parts) => {
                let ComponentPart { object, key } = parts.first()?.clone();
                let key = suffixed(&key);
                Some(Self::ConfigMap(vec![ComponentPart { object, key }]))
            }
        }
    }

    /// What is known for verifying the component. An absent signature is none; so is that of a builtin component, which
    /// needs none.
    ///
    /// # Errors
    /// When there is a signature that cannot be read.
    pub fn evidence(&self, gathered: &GatheredComponents) -> Result<Evidence, FetchError> {
        if let Some(kept) = gathered.kept.get(self) {
            return Ok(kept.evidence.clone().unwrap_or_default());
        }
        if let Some(Ok(pulled)) = self.image().and_then(|image| gathered.images.get(image)) {
            return Ok(pulled.evidence.clone().unwrap_or_default());
        }
        let Some(beside) = self.signature() else {
            return Ok(Evidence::default());
        };
        match beside.bytes(gathered) {
            Ok(text) if text.len() > MAX_SIGNATURE_BYTES => {
                Err(FetchError::TooLarge(beside.to_string()))
            }
            Ok(text) => Ok(Evidence::beside(text.into_owned())),
            Err(FetchError::Absent(..)) => Ok(Evidence::default()),
            Err(FetchError::File(_, _, error)) if error.kind() == io::ErrorKind::NotFound => {
                Ok(Evidence::default())
            }
            Err(error) => Err(error),
        }
    }

    /// `sha256:<hex>` of the manifest by which it was pulled from a registry, where that is known.
    pub fn manifest(&self, gathered: &GatheredComponents) -> Option<String> {
        if let Some(kept) = gathered.kept.get(self) {
            return kept.manifest.clone();
        }
        let pulled = gathered.images.get(self.image()?)?;
        Some(pulled.as_ref().ok()?.manifest.clone())
    }

    /// Whether it lies elsewhere, and has to be read by a request.
    pub fn is_remote(&self) -> bool {
        matches!(self, Self::ConfigMap(_) | Self::Image(_))
    }

    /// Checks that the component may come from there.
    ///
    /// # Errors
    /// When the operator did not allow it.
    pub fn check(&self, sources: &Sources) -> Result<(), FetchError> {
        match sources.allow(self) {
            true => Ok(()),
            false => Err(FetchError::NotAllowed(self.to_string(), sources.clone())),
        }
    }

    /// The folder that the file must stay below, and its path from there; `None` where there is no file to watch.
    pub fn file(&self) -> Option<(&Path, PathBuf)> {
        match self {
            Self::Builtin(_)
            | Self::ConfigMap(_)
            | Self::Image(_)
            | Self::File(Base::Nowhere | Base::Named { .. }, _) => None,
            Self::File(Base::Components(root) | Base::Given(root), text) => {
                Some((root, PathBuf::from(text)))
            }
            // `join` lets an absolute path replace `below`, so that `Folder` still sees and refuses an absolute path.
            Self::File(Base::Beside { root, below }, text) => Some((root, below.join(text))),
        }
    }

    /// The fingerprint of the file's content now; `None` where there is no file, or none that a policy may name.
    pub fn fingerprint(&self) -> Option<FileIdentity> {
        let (root, path) = self.file()?;
        Folder::open(root)
            .and_then(|folder| folder.stat(&path))
            .ok()
            .map(|(_, fingerprint)| fingerprint)
    }

    /// Reads the bytes and compares their digest with the expected one (`sha256:<hex>`). `gathered` is
    /// what requests gave, for a component that [lies elsewhere](Self::is_remote).
    ///
    /// # Errors
    /// When the component is missing, is too large, or has another digest than expected; and when a policy names a
    /// file that it may not name. The last error does not tell whether that file exists.
    pub fn fetch(
        &self,
        expected: Option<&str>,
        gathered: &GatheredComponents,
    ) -> Result<Artifact, FetchError> {
        let bytes = match (self, gathered.kept.get(self)) {
            // A builtin component needs no signature, so its bytes are only those of the agent.
            (Self::Builtin(_), _) | (_, None) => self.bytes(gathered)?,
            (_, Some(kept)) => Cow::Owned(kept.bytes.clone()),
        };
        let digest = match self {
            Self::Builtin(name) => builtin::find(name).map(|(digest, _)| digest.to_owned()),
            _ => None,
        };
        let digest = digest.unwrap_or_else(|| Digest::of_bytes(&bytes).to_string());
        match expected {
            Some(wanted) if wanted != digest => Err(FetchError::Digest {
                location: self.to_string(),
                wanted: wanted.to_owned(),
                found: digest,
            }),
            _ => Ok(Artifact { bytes, digest }),
        }
    }

    fn bytes(&self, gathered: &GatheredComponents) -> Result<Cow<'static, [u8]>, FetchError> {
        Ok(match self {
            Self::Builtin(name) => match builtin::find(name) {
                Some((_, bytes)) => Cow::Borrowed(bytes),
                None => return Err(FetchError::NotBuiltin { name: name.clone() }),
            },
            Self::File(..) => Cow::Owned(self.read()?),
            Self::ConfigMap(parts) => Cow::Owned(gathered::bytes(self, parts, gathered)?),
            Self::Image(image) => match gathered.images.get(image) {
                Some(Ok(pulled)) => Cow::Owned(pulled.bytes.clone()),
                Some(Err(unread)) => {
                    return Err(FetchError::Unread(self.to_string(), unread.clone()));
                }
                None => return Err(FetchError::NotPulled(self.to_string())),
            },
        })
    }

    fn read(&self) -> Result<Vec<u8>, FetchError> {
        let place = self.to_string();
        let (Self::File(base, name), Some((root, path))) = (self, self.file()) else {
            return Err(FetchError::NoFiles(place));
        };
        let read = Folder::open(root).and_then(|folder| folder.read(&path, MAX_BYTES));
        read.map(|(bytes, _)| bytes)
            .map_err(|error| match error.kind() {
                // A link that a person names and that leads nowhere: the system says why.
                _ if leads_out(&error) && matches!(base, Base::Given(_)) => {
                    let why = root.join(&path).metadata().err();
                    FetchError::File(place, base.hint(), why.unwrap_or(error))
                }
                _ if leads_out(&error) => FetchError::Outside(place),
                io::ErrorKind::FileTooLarge => FetchError::TooLarge(place),
                io::ErrorKind::NotFound if builtin::find(name).is_some() => {
                    FetchError::Unprefixed(place, name.clone())
                }
                _ => FetchError::File(place, base.hint(), error),
            })
    }
}

/// A file that the operator names: it may lie anywhere.
fn file_anywhere(given: &Path) -> Location {
    // Resolve a link first: the folder of its target counts.
    let path = match given.is_symlink() {
        true => given.canonicalize().unwrap_or(given.to_owned()),
        false => given.to_owned(),
    };
    let root = path.parent().unwrap_or(Path::new("")).to_owned();
    let name = path.file_name().unwrap_or(given.as_os_str());
    Location::File(Base::Given(root), name.to_string_lossy().into_owned())
}

/// Shows it as it is written; a path after the folder where it starts.
impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Builtin(name) => write!(f, "builtin:{name}"),
            Self::Image(image) => write!(f, "oci:{image}"),
            Self::File(Base::Nowhere | Base::Named { .. }, text) => f.write_str(text),
            Self::File(Base::Components(root) | Base::Given(root), text) => {
                root.join(text).display().fmt(f)
            }
            Self::File(Base::Beside { root, below }, text) => {
                root.join(below).join(text).display().fmt(f)
            }
            Self::ConfigMap(parts) => {
                let namespace = parts
                    .first()
                    .and_then(|part| part.object.namespace.as_deref());
                write!(f, "configmap:{}", namespace.unwrap_or_default())?;
                parts
                    .iter()
                    .enumerate()
                    .try_for_each(|(index, ComponentPart { object, key })| {
                        let mark = if index == 0 { '/' } else { '+' };
                        write!(f, "{mark}{}/{key}", object.name)
                    })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builtin_names;
    use transom_api::KnownReason;

    /// The base for a policy's file in a folder of policies.
    fn beside(root: &Path) -> Base {
        Base::Beside {
            root: root.to_owned(),
            below: PathBuf::from("team"),
        }
    }

    #[test]
    fn reads_a_file_and_checks_its_digest() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("team")).unwrap();
        std::fs::write(folder.path().join("guest.wasm"), b"abc").unwrap();
        let location = Location::parse("../guest.wasm", &beside(folder.path())).unwrap();
        let artifact = location
            .fetch(None, &GatheredComponents::default())
            .unwrap();
        assert_eq!(
            artifact.digest,
            "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
        assert!(
            location
                .fetch(Some(&artifact.digest), &GatheredComponents::default())
                .is_ok()
                && location.fingerprint().is_some()
        );
        let refused = location
            .fetch(Some("sha256:00"), &GatheredComponents::default())
            .err()
            .unwrap();
        assert_eq!(refused.reason(), KnownReason::DigestMismatch);
        let anywhere =
            Location::anywhere(folder.path().join("guest.wasm").to_str().unwrap()).unwrap();
        assert_eq!(
            anywhere
                .fetch(None, &GatheredComponents::default())
                .unwrap()
                .digest,
            artifact.digest
        );
    }

    #[test]
    fn a_file_that_a_user_names_widens_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let named = folder.path().join("mine.wasm");
        std::fs::write(&named, b"abc").unwrap();
        std::fs::write(folder.path().join("other.wasm"), b"def").unwrap();
        let text = named.to_str().unwrap().to_owned();
        for inner in [Base::Nowhere, beside(folder.path())] {
            let base = Base::Named {
                files: BTreeMap::from([(text.clone(), named.clone())]),
                base: Box::new(inner.clone()),
            };
            let fetch = |text: &str| {
                let location = Location::parse(text, &base).unwrap();
                location.fetch(None, &GatheredComponents::default())
            };
            assert_eq!(&*fetch(&text).unwrap().bytes, b"abc");
            let other = text.replace("mine", "other");
            assert!(fetch(&other).is_err(), "another absolute path");
            let of_inner = Location::parse("x.wasm", &inner).unwrap();
            assert_eq!(Location::parse("x.wasm", &base).unwrap(), of_inner);
        }
    }

    #[test]
    fn a_builtin_component_is_never_one_that_was_kept() {
        let at = Location::Builtin("nothing".to_owned());
        let held = crate::HeldComponent {
            bytes: b"abc".to_vec(),
            manifest: None,
            evidence: None,
        };
        let gathered = GatheredComponents {
            kept: BTreeMap::from([(at.clone(), held)]),
            ..GatheredComponents::default()
        };
        let refused = at.fetch(None, &gathered).err().unwrap();
        assert_eq!(refused.reason(), KnownReason::ComponentNotFound);
    }

    #[test]
    fn names_a_missing_file() {
        let components = Base::Components("/nowhere".into());
        for (location, hint) in [
            (Location::parse("no.wasm", &components), "`--components`"),
            (
                Location::parse("no.wasm", &beside(Path::new("/nowhere"))),
                "the policy's own file",
            ),
            (Location::anywhere("/nowhere/no.wasm"), ""),
        ] {
            let location = location.unwrap();
            let missing = location.fetch(None, &GatheredComponents::default());
            let missing = missing.err().unwrap();
            assert_eq!(missing.reason(), KnownReason::ComponentNotFound);
            let said = missing.to_string();
            let starts = said.starts_with(&format!("failed to read component `{location}`"));
            let why = ": No such file or directory (os error 2)";
            assert!(
                starts && said.ends_with(why) && said.contains(hint),
                "{said}"
            );
            assert_eq!(said.contains("paths are relative"), !hint.is_empty());
        }
        for name in builtin_names() {
            let missing = Location::parse(name, &Base::Components("/nowhere".into())).unwrap();
            let missing = missing.fetch(None, &GatheredComponents::default());
            let hint = format!("the builtin component is `builtin:{name}`");
            assert!(missing.err().unwrap().to_string().contains(&hint));
        }
        let unknown = Location::parse("builtin:nothing", &Base::Nowhere)
            .unwrap()
            .fetch(None, &GatheredComponents::default())
            .err()
            .unwrap()
            .to_string();
        let all = builtin_names().all(|name| unknown.contains(name));
        assert!(
            all && (unknown.contains("cargo xtask guests") || builtin_names().next().is_some()),
            "{unknown}"
        );
    }

    #[test]
    fn says_of_a_link_of_a_person_why_it_leads_nowhere() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for (target, name, why) in [
            (at("loop"), "loop", "Too many levels of symbolic links"),
            ("here".into(), "here", "Too many levels of symbolic links"),
            (at("none"), "dangling", "No such file or directory"),
        ] {
            std::os::unix::fs::symlink(target, at(name)).unwrap();
            let location = Location::anywhere(at(name).to_str().unwrap()).unwrap();
            let refused = location.fetch(None, &GatheredComponents::default());
            let refused = refused.err().unwrap();
            assert!(refused.to_string().contains(why), "{name}: {refused}");
        }
    }

    #[test]
    fn reveals_nothing_about_a_forbidden_file() {
        let outer = tempfile::tempdir().unwrap();
        let root = outer.path().join("components");
        std::fs::create_dir_all(root.join("team")).unwrap();
        std::fs::write(outer.path().join("secret"), b"abc").unwrap();
        std::os::unix::fs::symlink("../secret", root.join("link.wasm")).unwrap();
        let there = outer.path().join("secret").display().to_string();
        let bases = [Base::Nowhere, Base::Components(root.clone()), beside(&root)];
        let digest = format!("sha256:{}", "0".repeat(64));
        for base in bases {
            // A file that exists, one that does not, a folder, an unreadable file: all give the same answer.
            for path in [
                &there,
                "/no/such/file",
                "/",
                "/etc/shadow",
                "/proc/self/environ",
                "../../secret",
                "../../no",
            ] {
                let location = Location::parse(path, &base).unwrap();
                for expected in [None, Some(digest.as_str())] {
                    let refused = location
                        .fetch(expected, &GatheredComponents::default())
                        .err()
                        .unwrap();
                    assert_eq!(
                        (refused.reason(), location.fingerprint()),
                        (KnownReason::ComponentNotAllowed, None),
                        "{base:?} {path}"
                    );
                    let other = Location::parse("/no/such/file", &base)
                        .unwrap()
                        .fetch(expected, &GatheredComponents::default())
                        .err()
                        .unwrap()
                        .to_string();
                    let said = refused
                        .to_string()
                        .replace(&location.to_string(), "/no/such/file");
                    assert_eq!(said, other, "{base:?} {path}");
                }
            }
        }
        let linked = Location::parse("link.wasm", &Base::Components(root))
            .unwrap()
            .fetch(None, &GatheredComponents::default())
            .err()
            .unwrap();
        assert_eq!(linked.reason(), KnownReason::ComponentNotAllowed);
    }
}
