//! A watched directory whose path leads through a link that is exchanged, as git-sync and release scripts do.

use crate::support::{Folder, create, done, map, read, secret_ref};
use crate::watch::Watched;
use transom_cluster::Cluster as _;

/// Two versions of a fleet, and a link to the first one.
fn versions() -> Folder {
    let folder = Folder::new(&[
        ("trees/1/fleet/a.yaml", &map("a", "1")),
        ("trees/1/fleet/b.yaml", &map("b", "1")),
        ("trees/1/fleet/same/c.yaml", &map("c", "1")),
        ("trees/2/fleet/moved/a.yaml", &map("a", "2")),
        ("trees/2/fleet/same/c.yaml", &map("c", "1")),
    ]);
    std::os::unix::fs::symlink("trees/1", folder.path("current")).unwrap();
    folder
}

/// Has the link lead to another folder, at once.
fn exchange(folder: &Folder, to: &str, link: &str) {
    std::os::unix::fs::symlink(to, folder.path("next")).unwrap();
    std::fs::rename(folder.path("next"), folder.path(link)).unwrap();
}

#[test]
fn an_exchanged_link_is_followed_as_one_change() {
    let folder = versions();
    exchange(&folder, "trees/1/fleet", "current");
    let mut watched = Watched::below(folder, "current");
    done(&watched.directory, create("s", "b25l"));
    exchange(&watched.folder, "trees/2/fleet", "current");
    std::fs::remove_dir_all(watched.folder.path("trees/1")).unwrap();
    watched.expect(&["ConfigMap n/a 2", "gone ConfigMap n/b"]);
    assert_eq!(watched.directory.unreadable(), []);
    watched
        .folder
        .write("trees/2/fleet/moved/a.yaml", map("a", "3"));
    watched.expect(&["ConfigMap n/a 3"]);
    // The agent's own folder did not go with the old files, and is written as before.
    let file = |name: &str| format!(".transom-current/objects/n/Secret.{name}.yaml");
    assert!(read(&watched.directory, &secret_ref("s")).is_some());
    done(&watched.directory, create("t", "b25l"));
    watched.folder.remove(&file("t"));
    watched.expect(&["gone Secret n/t"]);
    assert!(watched.folder.path(&file("s")).exists());
    assert!(!watched.folder.path("trees/2/fleet/.transom").exists());
    // Back, by a folder that is made again.
    watched
        .folder
        .write("trees/1/fleet/same/c.yaml", map("c", "2"));
    exchange(&watched.folder, "trees/1/fleet", "current");
    watched.expect(&["ConfigMap n/c 2", "gone ConfigMap n/a"]);
}

#[test]
fn a_link_amid_the_path_is_followed_and_the_own_folder_is_made_again() {
    let mut watched = Watched::below(versions(), "current/fleet");
    done(&watched.directory, create("s", "b25l"));
    exchange(&watched.folder, "trees/2", "current");
    watched.expect(&["ConfigMap n/a 2", "gone ConfigMap n/b", "gone Secret n/s"]);
    done(&watched.directory, create("s", "b25l"));
    let file = "trees/2/fleet/.transom/objects/n/Secret.s.yaml";
    watched.folder.remove(file);
    watched.expect(&["gone Secret n/s"]);
}

#[test]
fn a_folder_that_becomes_a_link_to_its_next_version_is_followed() {
    let mut watched = Watched::below(versions(), "trees/1");
    std::fs::rename(
        watched.folder.path("trees/1"),
        watched.folder.path("trees/0"),
    )
    .unwrap();
    exchange(&watched.folder, "2", "trees/1");
    // For a moment there was no folder.
    let about_root = |told: &String| told == "ReadFailed ." || told == "followed .";
    let mut told: Vec<String> = std::iter::repeat_with(|| watched.next())
        .filter(|told| !about_root(told))
        .take(2)
        .collect();
    told.sort();
    assert_eq!(told, ["ConfigMap n/a 2", "gone ConfigMap n/b"]);
}
