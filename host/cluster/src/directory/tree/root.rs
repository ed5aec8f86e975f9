//! The folder to which the given path leads. The path may lead through links, and other programs exchange these for
//! another version of all files: git-sync, the kubelet, a release script.

use super::Tree;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The most links on a path; the system follows no more either.
const LINKS: usize = 40;

impl Tree {
    /// The same folders at the place to which the given path leads now; `None` if that is the same place, or none.
    pub(in crate::directory) fn moved(&self) -> Option<Self> {
        let root = self.given.canonicalize().ok();
        let root = root.filter(|root| *root != self.root && root.is_dir())?;
        let own = self
            .own
            .as_ref()
            .map(|own| match own.strip_prefix(&self.root) {
                // It is made again in the new folder.
                Ok(inside) => root.join(inside),
                Err(_) => own.clone(),
            });
        let given = self.given.clone();
        Some(Self { given, root, own })
    }

    /// Whether the given path still leads to the root. While it does not, no file of the root counts as gone.
    pub(in crate::directory) fn is_there(&self) -> bool {
        let root = self.given.canonicalize();
        root.is_ok_and(|root| root == self.root && root.is_dir())
    }

    /// The links through which the given path leads, each in its real folder.
    pub(in crate::directory) fn links(&self) -> Vec<PathBuf> {
        links(&self.given)
    }
}

/// The default of the agent's own folder. A path that names a link leads to one version of the files, with which the
/// own folder would go, so the own folder is beside the link.
pub(in crate::directory) fn own_folder(given: &Path, root: &Path) -> PathBuf {
    // Without a slash at its end, which would follow the link.
    let given: PathBuf = given.components().collect();
    match given.file_name() {
        Some(name) if given.is_symlink() => {
            let mut own = OsString::from(".transom-");
            own.push(name);
            given.with_file_name(own)
        }
        _ => root.join(".transom"),
    }
}

/// The links of a path, as far as they can be followed.
fn links(given: &Path) -> Vec<PathBuf> {
    let parts = |path: &Path| -> Vec<OsString> {
        let parts = path.components().rev();
        parts.map(|part| part.as_os_str().to_owned()).collect()
    };
    let (mut links, mut at, mut rest) = (Vec::new(), PathBuf::new(), parts(given));
    while let Some(part) = rest.pop() {
        if part == ".." {
            at.pop();
            continue;
        }
        at.push(part);
        if let Ok(target) = at.read_link() {
            links.push(at.clone());
            at.pop();
            rest.extend(parts(&target));
        }
        if links.len() == LINKS {
            break;
        }
    }
    links
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn names_every_link_of_a_path_in_its_real_folder() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        std::fs::create_dir_all(root.join("trees/1/fleet")).unwrap();
        symlink("trees/1", root.join("current")).unwrap();
        symlink(root.join("trees/../current"), root.join("other")).unwrap();
        symlink("loop", root.join("loop")).unwrap();
        let of = |path: &str| links(&root.join(path));
        assert_eq!(of("trees/1/fleet"), [""; 0].map(PathBuf::from));
        assert_eq!(of("current/fleet"), [root.join("current")]);
        assert_eq!(
            of("other/fleet"),
            [root.join("other"), root.join("current")]
        );
        assert_eq!(of("loop/fleet").len(), LINKS);
    }

    #[test]
    fn the_own_folder_is_beside_a_link_and_in_a_folder() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        std::fs::create_dir(root.join("v1")).unwrap();
        symlink("v1", root.join("current")).unwrap();
        let own = |given: &str| own_folder(&root.join(given), &root.join("v1"));
        assert_eq!(own("v1"), root.join("v1/.transom"));
        for link in ["current", "current/", "current/."] {
            assert_eq!(own(link), root.join(".transom-current"), "{link}");
        }
    }
}
