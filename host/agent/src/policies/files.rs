//! Lists and reads the manifests in a folder of policies, or a file. Links are followed while they stay inside; files,
//! folders and bytes are bounded. Each folder is read once, and only manifests are read.

use super::{FoundPolicies, LIMITS, folder_of};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use transom_artifacts::Base;
use transom_artifacts::folder::{FileIdentity, FileKind, Folder, leads_out};

/// Maximum depth of folders.
const MAX_DEPTH: usize = 16;
/// Maximum number of manifests.
const MAX_MANIFESTS: usize = 10_000;
/// Maximum number of names that are looked at, manifests or not.
const MAX_NAMES: usize = 100_000;
/// Maximum size of all manifests, in bytes.
const MAX_BYTES: u64 = 32 << 20;

/// A folder of policies, or one file with them.
#[derive(Clone, Debug)]
pub(crate) struct PolicyFiles {
    path: PathBuf,
    components: Option<PathBuf>,
}

/// What there is to read.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    /// The manifests by path, each with the fingerprint of its content.
    pub(crate) manifests: BTreeMap<PathBuf, FileIdentity>,
    /// The folders that were listed, each with its fingerprint.
    pub(crate) folders: BTreeMap<PathBuf, FileIdentity>,
    /// What cannot be looked at, and why.
    pub(crate) broken: BTreeMap<PathBuf, String>,
    names: usize,
    seen: BTreeSet<(u64, u64)>,
}

impl PolicyFiles {
    /// The manifests at a path. Components lie in `components`, or else beside them.
    pub(crate) fn new(path: &Path, components: Option<&Path>) -> Self {
        Self {
            path: path.to_owned(),
            components: components.map(Path::to_owned),
        }
    }

    /// The folder or file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The folder that no path may lead out of, and the file in it when the path names a file. When that file is a
    /// link, both are those of its target, because the flag names that one.
    fn root(&self) -> io::Result<(PathBuf, Option<PathBuf>)> {
        if std::fs::metadata(&self.path)?.is_dir() {
            return Ok((self.path.clone(), None));
        }
        let file = match self.path.is_symlink() {
            true => self.path.canonicalize()?,
            false => self.path.clone(),
        };
        let name = file.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        Ok((folder_of(&file), Some(PathBuf::from(name))))
    }

    /// Lists what there is, without reading it. Hidden names and folders named `cases` hold no policies.
    ///
    /// # Errors
    /// When the path itself cannot be looked at, or there is more than the limits allow.
    pub(crate) fn list(&self) -> io::Result<Listing> {
        let (root, file) = self.root()?;
        let folder = Folder::open(&root)?;
        let fingerprint = |folder: &Folder| folder.stat(Path::new(".")).map(|(_, found)| found);
        let mut listing = Listing::default();
        match file {
            Some(name) => {
                let (kind, of_file) = folder.stat(&name)?;
                listing.take(&self.path, &name, kind, of_file);
                listing.folders.insert(root, fingerprint(&folder)?);
                let named = folder_of(&self.path);
                let of_named = fingerprint(&Folder::open(&named)?)?;
                listing.folders.insert(named, of_named);
            }
            None => {
                let of_root = fingerprint(&folder)?;
                listing.seen.insert(of_root.identity());
                listing.folders.insert(root, of_root);
                // An exchange of the link is an event of the folder that it lies in.
                let named = folder_of(&self.path);
                if self.path.is_symlink()
                    && let Ok(of_named) = Folder::open(&named).and_then(|it| fingerprint(&it))
                {
                    listing.folders.insert(named, of_named);
                }
                listing.walk(&folder, &self.path, Path::new(""), 0)?;
            }
        }
        let bytes: u64 = listing.manifests.values().map(FileIdentity::size).sum();
        match bytes > MAX_BYTES {
            true => Err(io::Error::other(format!(
                "its manifests have {bytes} bytes, the limit is {MAX_BYTES}"
            ))),
            false => Ok(listing),
        }
    }

    /// Reads a manifest by its path in the listing.
    pub(crate) fn read(&self, path: &Path) -> FoundPolicies {
        let mut found = FoundPolicies::default();
        let place = path.display().to_string();
        let read = || {
            let (root, file) = self.root()?;
            let below = match &file {
                Some(name) => name,
                None => path.strip_prefix(&root).map_err(io::Error::other)?,
            };
            Folder::open(&root)?.read(below, LIMITS.bytes as u64)
        };
        match read() {
            Ok((text, _)) => found.take(&place, &self.base(path), &text),
            Err(error) => found.miss(place.clone(), place, error.to_string()),
        }
        found
    }

    /// Where components of a manifest lie.
    fn base(&self, path: &Path) -> Base {
        match (&self.components, path.strip_prefix(&self.path)) {
            (Some(components), _) => Base::Components(components.clone()),
            (None, Ok(below)) if !below.as_os_str().is_empty() => Base::Beside {
                root: self.path.clone(),
                below: below.parent().unwrap_or(Path::new("")).to_owned(),
            },
            (None, _) => Base::Beside {
                root: folder_of(&self.path),
                below: PathBuf::new(),
            },
        }
    }

    /// Lists and reads everything.
    ///
    /// # Errors
    /// As for [`PolicyFiles::list`].
    pub(crate) fn read_all(&self) -> io::Result<FoundPolicies> {
        let listing = self.list()?;
        let mut found = listing.missed();
        for path in listing.manifests.keys() {
            found.add(self.read(path));
        }
        Ok(found)
    }
}

impl Listing {
    /// What cannot be looked at.
    pub(crate) fn missed(&self) -> FoundPolicies {
        let mut found = FoundPolicies::default();
        for (path, why) in &self.broken {
            let place = path.display().to_string();
            found.miss(place.clone(), place, why.clone());
        }
        found
    }

    fn take(&mut self, path: &Path, name: &Path, kind: FileKind, fingerprint: FileIdentity) {
        match kind {
            FileKind::File => drop(self.manifests.insert(path.to_owned(), fingerprint)),
            _ if is_manifest(name.as_os_str()) => {
                self.broken
                    .insert(path.to_owned(), "it is not a regular file".to_owned());
            }
            _ => {}
        }
    }

    /// Lists everything in a folder below the root, which lies at `top`.
    fn walk(&mut self, folder: &Folder, top: &Path, below: &Path, depth: usize) -> io::Result<()> {
        let names = folder.names(below, MAX_NAMES - self.names)?;
        self.names += names.len();
        for (name, hint) in names {
            let path = below.join(&name);
            let skipped = name.to_string_lossy().starts_with('.') || name == "cases";
            let is_manifest = is_manifest(&name);
            if skipped || (matches!(hint, Some(FileKind::File | FileKind::Special)) && !is_manifest)
            {
                continue;
            }
            match folder.stat(&path) {
                Ok((FileKind::Folder, fingerprint)) => {
                    self.enter(folder, top, &path, depth, fingerprint)?;
                }
                Ok((kind, fingerprint)) if is_manifest => {
                    self.take(&top.join(&path), &path, kind, fingerprint);
                }
                Err(error)
                    if is_manifest || leads_out(&error) || hint == Some(FileKind::Folder) =>
                {
                    self.broken.insert(top.join(&path), error.to_string());
                }
                Ok(_) | Err(_) => {}
            }
            if self.manifests.len() > MAX_MANIFESTS {
                return Err(io::Error::other(format!(
                    "it contains more than {MAX_MANIFESTS} manifests"
                )));
            }
        }
        Ok(())
    }

    /// Walks into a folder, unless it was walked before through another link.
    fn enter(
        &mut self,
        folder: &Folder,
        top: &Path,
        path: &Path,
        depth: usize,
        fingerprint: FileIdentity,
    ) -> io::Result<()> {
        let at = top.join(path);
        if !self.seen.insert(fingerprint.identity()) {
            return Ok(());
        }
        if depth == MAX_DEPTH {
            self.broken
                .insert(at, format!("it is more than {MAX_DEPTH} folders deep"));
            return Ok(());
        }
        self.folders.insert(at.clone(), fingerprint);
        match self.walk(folder, top, path, depth + 1) {
            // A folder that cannot be read hides only itself; an exceeded limit ends the whole listing.
            Err(error) if error.raw_os_error().is_some() => {
                drop(self.broken.insert(at, error.to_string()));
            }
            walked => walked?,
        }
        Ok(())
    }
}

/// Whether a file of this name is a manifest.
pub(super) fn is_manifest(name: &OsStr) -> bool {
    Path::new(name)
        .extension()
        .is_some_and(|end| end == "yaml" || end == "yml" || end == "json")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    const POLICY: &str =
        "apiVersion: transom.dev/v1alpha1\nkind: FleetPolicy\nmetadata: {name: a}\n";

    fn list(root: &Path) -> (Vec<String>, Vec<String>) {
        let listing = PolicyFiles::new(root, None).list().unwrap();
        let shown = |path: &PathBuf| path.strip_prefix(root).unwrap().display().to_string();
        (
            listing.manifests.keys().map(shown).collect(),
            listing.broken.keys().map(shown).collect(),
        )
    }

    #[test]
    fn reads_every_folder_once_and_nothing_outside() {
        let outer = tempfile::tempdir().unwrap();
        fs::create_dir_all(outer.path().join("elsewhere")).unwrap();
        fs::write(outer.path().join("elsewhere/x.yaml"), POLICY).unwrap();
        let root = outer.path().join("p");
        for folder in ["sub/deep", "cases", ".hidden"] {
            fs::create_dir_all(root.join(folder)).unwrap();
            fs::write(root.join(folder).join("a.yaml"), POLICY).unwrap();
        }
        fs::write(root.join("notes.txt"), "no manifest").unwrap();
        for (target, link) in [
            (".", "here"),
            (".", "here-too"),
            ("..", "sub/up"),
            ("..", "sub/deep/up"),
            ("../elsewhere", "out"),
            ("../elsewhere/x.yaml", "out.yaml"),
            ("nothing", "dangling"),
            ("nothing.yaml", "dangling.yaml"),
            ("sub/deep/a.yaml", "inside.yaml"),
        ] {
            symlink(target, root.join(link)).unwrap();
        }
        let (manifests, broken) = list(&root);
        assert_eq!(manifests, ["inside.yaml", "sub/deep/a.yaml"]);
        assert_eq!(broken, ["dangling.yaml", "out", "out.yaml"]);
        let found = PolicyFiles::new(&root, None).read_all().unwrap();
        assert!(
            found
                .policies
                .iter()
                .all(|one| !one.place.contains("elsewhere"))
                && found.policies.len() == 2
        );
        assert_eq!(
            found.why(&root.join("out/x.yaml").display().to_string()),
            Some("the path leads out of the folder")
        );
        let outer = found.unread_at(&root.join("outer.yaml").display().to_string());
        assert_eq!(outer, None);
    }

    #[test]
    fn reads_a_mounted_config_map_through_its_links() {
        let outer = tempfile::tempdir().unwrap();
        let root = outer.path();
        // As kubelet lays it out: `..data` is exchanged for another folder, all else are links through it.
        fs::create_dir_all(root.join("..2026_1/sub")).unwrap();
        symlink("..2026_1", root.join("..data")).unwrap();
        for (path, link) in [("a.yaml", "a.yaml"), ("sub/b.yaml", "sub")] {
            fs::write(root.join("..2026_1").join(path), POLICY).unwrap();
            symlink(format!("..data/{link}"), root.join(link)).unwrap();
        }
        assert_eq!(
            list(root),
            (vec!["a.yaml".to_owned(), "sub/b.yaml".to_owned()], vec![])
        );
        let before = PolicyFiles::new(root, None).list().unwrap();
        fs::create_dir_all(root.join("..2026_2/sub")).unwrap();
        for path in ["a.yaml", "sub/b.yaml"] {
            fs::write(root.join("..2026_2").join(path), POLICY).unwrap();
        }
        symlink("..2026_2", root.join("..data_tmp")).unwrap();
        fs::rename(root.join("..data_tmp"), root.join("..data")).unwrap();
        let after = PolicyFiles::new(root, None).list().unwrap();
        assert!(after.manifests.keys().eq(before.manifests.keys()));
        assert!(
            after
                .manifests
                .values()
                .zip(before.manifests.values())
                .all(|(after, before)| after != before)
        );
    }

    #[test]
    fn depth_and_number_are_bounded_with_a_clear_error() {
        let folder = tempfile::tempdir().unwrap();
        let deep = folder.path().join(["d"; MAX_DEPTH + 1].join("/"));
        fs::create_dir_all(deep.join("deeper")).unwrap();
        fs::write(deep.join("a.yaml"), POLICY).unwrap();
        let (manifests, broken) = list(folder.path());
        assert!(
            manifests.is_empty() && broken == [["d"; MAX_DEPTH + 1].join("/")],
            "{broken:?}"
        );
        let many = tempfile::tempdir().unwrap();
        for number in 0..=MAX_MANIFESTS {
            fs::write(many.path().join(format!("{number}.yaml")), "").unwrap();
        }
        let error = PolicyFiles::new(many.path(), None)
            .list()
            .unwrap_err()
            .to_string();
        assert_eq!(
            error,
            format!("it contains more than {MAX_MANIFESTS} manifests")
        );
    }

    #[test]
    fn a_single_file_may_be_a_link() {
        let folder = tempfile::tempdir().unwrap();
        let link = folder.path().join("link.yaml");
        fs::create_dir(folder.path().join("store")).unwrap();
        fs::write(folder.path().join("store/a.yaml"), POLICY).unwrap();
        symlink("store/a.yaml", &link).unwrap();
        let found = PolicyFiles::new(&link, None).read_all().unwrap();
        let base = Base::Beside {
            root: folder.path().to_owned(),
            below: PathBuf::new(),
        };
        assert_eq!(
            (found.policies[0].place.as_str(), &found.policies[0].base),
            (link.to_str().unwrap(), &base)
        );
        assert!(
            PolicyFiles::new(&folder.path().join("no.yaml"), None)
                .read_all()
                .is_err()
        );
    }
}
