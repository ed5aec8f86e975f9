//! The folder to which the given path leads. The path may lead through links, and other programs exchange these for
//! another version of all files: git-sync, the kubelet, a release script.

use super::Tree;
use rustix::fs::{Access, AtFlags, CWD};
use std::ffi::OsString;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// The most links on a path; the system follows no more either.
const LINKS: usize = 40;
/// The sticky bit, which marks a folder that the agent made.
const MARK: u32 = 0o1000;

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

/// The default path of the agent's own folder. If the given path is a link to one version of the files, it is beside
/// the link, because it would go with that version. It is inside if the agent made one there before, or can make none
/// beside the link.
pub(in crate::directory) fn own_folder(given: &Path, root: &Path) -> PathBuf {
    choose(given, root, can_write)
}

fn choose(given: &Path, root: &Path, can_write: impl Fn(&Path) -> bool) -> PathBuf {
    let inside = root.join(".transom");
    // Without a slash at its end, which would follow the link.
    let given: PathBuf = given.components().collect();
    let link = given
        .is_symlink()
        .then(|| given.parent().zip(given.file_name()));
    let Some((parent, name)) = link.flatten() else {
        return inside;
    };
    let mut own = OsString::from(".transom-");
    own.push(name);
    let beside = parent.join(own);
    // Anything with this name is used, or refused with a reason.
    if beside.symlink_metadata().is_ok() || (!is_made(&inside) && can_write(parent)) {
        beside
    } else {
        inside
    }
}

/// Whether the agent made a folder: a version of the files may come with one of the same name.
fn is_made(folder: &Path) -> bool {
    let marked = |about: Metadata| about.is_dir() && about.mode() & MARK != 0;
    folder.symlink_metadata().is_ok_and(marked)
}

/// Whether the agent may make a folder in another one.
fn can_write(folder: &Path) -> bool {
    let needed = Access::WRITE_OK | Access::EXEC_OK;
    rustix::fs::accessat(CWD, folder, needed, AtFlags::EACCESS).is_ok()
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
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

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

    #[test]
    fn an_own_folder_of_before_stays() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let inside = root.join("v1/.transom");
        std::fs::create_dir_all(inside.join("objects")).unwrap();
        symlink("v1", root.join("current")).unwrap();
        let own = |can_write: bool| choose(&root.join("current"), &root.join("v1"), |_| can_write);
        let beside = root.join(".transom-current");
        // One that came with the files is not the agent's.
        assert_eq!(own(true), beside);
        // Nothing can be made beside the link.
        assert_eq!(own(false), inside);
        std::fs::set_permissions(&inside, Permissions::from_mode(0o1700)).unwrap();
        assert_eq!(own(true), inside);
        std::fs::create_dir(&beside).unwrap();
        assert_eq!([own(true), own(false)], [beside.clone(), beside]);
    }
}
