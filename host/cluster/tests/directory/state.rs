//! What a directory of manifests reports: files in, objects out, through the public API.

use crate::support::{Folder, create, done, map, map_ref, read, secret_ref, value};
use serde_json::json;
use std::path::Path;
use transom_api::KnownReason;
use transom_cluster::Cluster as _;
use transom_cluster::directory::{Directory, DirectoryOptions, OpenError, SizeLimits};
use transom_core::reference::ObjectRef;

/// What cannot be read, then the objects of the kinds that these tests use, as short texts.
fn held(directory: &Directory) -> Vec<String> {
    let unreadable = directory.unreadable().into_iter();
    let unreadable = unreadable.map(|one| format!("{} {}", one.reason.as_str(), one.place));
    let kinds = ["ConfigMap", "Namespace", "Secret"].into_iter();
    let objects = kinds.flat_map(|kind| directory.list("v1", kind, None));
    let objects = objects.map(|one| one.to_string());
    unreadable.chain(objects).collect()
}

#[test]
fn reads_every_layout() {
    let folder = Folder::new(&[
        (
            "a.yaml",
            &format!("{}---\n{}", map("a", "1"), map("b", "2")),
        ),
        ("deep/er/c.yml", &map("c", "3")),
        (
            "d.json",
            r#"{"apiVersion":"v1","kind":"List","items":[{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"d"}}]}"#,
        ),
        (
            "crlf.yaml",
            &format!("\u{feff}{}", map("crlf", "4").replace('\n', "\r\n")),
        ),
        (".hidden.yaml", &map("hidden", "x")),
        (".git/e.yaml", &map("git", "x")),
        ("a.yaml~", &map("backup", "x")),
        (".a.yaml.swp", "canary"),
        ("notes.txt", "canary"),
    ]);
    let directory = folder.open();
    assert_eq!(
        held(&directory),
        [
            "ConfigMap n/a",
            "ConfigMap n/b",
            "ConfigMap n/c",
            "ConfigMap n/crlf",
            "Namespace d"
        ]
    );
    assert_eq!(value(&directory, &map_ref("crlf")), json!(4));
    assert_eq!(directory.list("v1", "ConfigMap", Some("n")).len(), 4);
    assert_eq!(directory.list("v1", "ConfigMap", Some("m")).len(), 0);
    assert_eq!(
        directory.list("v1", "Namespace", None),
        [ObjectRef::local("v1", "Namespace", None, "d")]
    );
    assert_eq!(directory.list("v1", "Name", None), []);
}

#[test]
fn an_object_in_two_files_is_unreadable_in_both() {
    let folder = Folder::new(&[
        ("a.yaml", &map("a", "1")),
        ("b.yaml", &map("a", "1")),
        ("c.yaml", &map("c", "1")),
    ]);
    let directory = folder.open();
    assert_eq!(
        held(&directory),
        ["DuplicateObject a.yaml, b.yaml", "ConfigMap n/c"]
    );
    let failure = directory.read(&[map_ref("a")]).remove(0).err().unwrap();
    assert_eq!(failure.reason, KnownReason::DuplicateObject);
    assert!(failure.message.contains("a.yaml, b.yaml"), "{failure}");
    let unreadable = directory.unreadable();
    assert_eq!(unreadable[0].objects, [map_ref("a").into()]);
    assert!(
        folder
            .text(".transom/unreadable.yaml")
            .contains("ConfigMap n/a: defined more than once in a.yaml, b.yaml")
    );
}

#[test]
fn an_object_listed_twice_in_one_file_is_a_duplicate() {
    let folder = Folder::new(&[(
        "a.yaml",
        &format!("{}---\n{}", map("a", "1"), map("a", "2")),
    )]);
    assert_eq!(held(&folder.open()), ["DuplicateObject a.yaml (2 times)"]);
}

#[test]
fn shows_some_unreadable_objects_and_counts_the_rest() {
    let twice: String = (0..50)
        .map(|at| format!("---\n{}", map(&format!("twice-{at}"), "1")))
        .collect();
    let broken: Vec<(String, &str)> = (0..220)
        .map(|at| (format!("broken-{at:03}.yaml"), "{"))
        .collect();
    let mut files: Vec<(&str, &str)> = broken
        .iter()
        .map(|(name, text)| (name.as_str(), *text))
        .collect();
    files.extend([("a.yaml", twice.as_str()), ("b.yaml", twice.as_str())]);
    let folder = Folder::new(&files);
    assert_eq!(
        folder.open().unreadable().len(),
        221,
        "the agent knows them all"
    );
    let shown = folder.text(".transom/unreadable.yaml");
    let times = |text: &str| shown.matches(text).count();
    assert_eq!((times("place: broken-"), times("more: 21")), (200, 1));
    drop(folder);
    let folder = Folder::new(&[("a.yaml", twice.as_str()), ("b.yaml", twice.as_str())]);
    drop(folder.open());
    let shown = folder.text(".transom/unreadable.yaml");
    let times = |text: &str| shown.matches(text).count();
    assert_eq!(
        (
            times("name: twice-"),
            times("moreObjects: 40"),
            times("more: 0")
        ),
        (10, 1, 1),
        "{shown}"
    );
}

#[test]
fn a_file_that_does_not_parse_blocks_no_other() {
    let broken = "apiVersion: v1\nkind: Secret\nmetadata: {name: a}\ndata:\n  x: \"canary\n  y: canary: canary\n";
    let folder = Folder::new(&[
        ("a.yaml", broken),
        ("b.yaml", &map("b", "1")),
        ("c.yaml", "kind: canary\n"),
    ]);
    let directory = folder.open();
    assert_eq!(
        held(&directory),
        [
            "ManifestInvalid a.yaml",
            "ManifestInvalid c.yaml",
            "ConfigMap n/b"
        ]
    );
    for unreadable in directory.unreadable() {
        assert!(
            unreadable
                .message
                .starts_with(&format!("{}: document 1", unreadable.place)),
            "{unreadable:?}"
        );
        assert!(
            !format!("{unreadable:?}").contains("canary"),
            "{unreadable:?}"
        );
    }
    assert!(!folder.text(".transom/unreadable.yaml").contains("canary"));
}

#[test]
fn refuses_what_is_too_large() {
    let folder = Folder::new(&[
        ("a.yaml", &map("a", &"y".repeat(2000))),
        ("b.yaml", &map("b", "1")),
    ]);
    let limits = |limits| DirectoryOptions {
        limits,
        ..folder.options()
    };
    let object = Directory::open(limits(SizeLimits {
        object_bytes: 1000,
        ..SizeLimits::default()
    }))
    .unwrap();
    assert_eq!(held(&object), ["ObjectTooLarge a.yaml", "ConfigMap n/b"]);
    drop(object);
    let again = || {
        Directory::open(limits(SizeLimits {
            file_bytes: 1000,
            ..SizeLimits::default()
        }))
    };
    // Between its fork and its exec a program that another test starts holds the lock, too.
    let deadline = std::time::Duration::from_secs(60);
    let free = || match again() {
        Err(OpenError::InUse { .. }) => None,
        opened => Some(opened.unwrap()),
    };
    let file = transom_support::wait::until("the folder to be free", deadline, free).unwrap();
    assert_eq!(held(&file), ["ManifestInvalid a.yaml", "ConfigMap n/b"]);
}

#[test]
fn follows_links_to_files_but_not_into_its_own_folder() {
    let folder = Folder::new(&[
        ("..data/a.yaml", &map("a", "1")),
        (".transom/objects/n/ConfigMap.b.yaml", &map("b", "1")),
    ]);
    let link = |to: &str, at: &str| std::os::unix::fs::symlink(to, folder.path(at)).unwrap();
    link("..data/a.yaml", "a.yaml");
    link(".transom/objects/n/ConfigMap.b.yaml", "b.yaml");
    link(".", "loop");
    link("..data/notes.txt", "notes.txt");
    folder.write("..data/notes.txt", "x");
    let directory = folder.open();
    assert_eq!(held(&directory), ["ConfigMap n/a", "ConfigMap n/b"]);
    assert!(directory.made(&map_ref("b")) && !directory.made(&map_ref("a")));
}

#[test]
fn a_link_that_may_hide_objects_is_unreadable_and_nothing_of_it_is_read() {
    let folder = Folder::new(&[
        ("outside/secret.yaml", &map("secret", "1")),
        ("outside/notes.txt", "x"),
        ("fleet/a.yaml", &map("a", "1")),
        ("fleet/..data/x.yaml", &map("x", "1")),
    ]);
    let link = |to: &str, at: &str| std::os::unix::fs::symlink(to, folder.path(at)).unwrap();
    link("../outside/secret.yaml", "fleet/b.yaml");
    link("../outside", "fleet/folder.yaml");
    link("../outside", "fleet/sub");
    link("nowhere", "fleet/gone.yaml");
    link("nowhere", "fleet/gone");
    link("..data", "fleet/hidden");
    // A file that is no manifest is none outside, either.
    link("../outside/notes.txt", "fleet/notes.txt");
    // The user names the root, so it may be a link.
    link("fleet", "root");
    let options = || DirectoryOptions {
        root: folder.path("root"),
        watch: true,
        ..folder.options()
    };
    let directory = Directory::open(options()).unwrap();
    let unread = |directory: &Directory| -> Vec<(String, String)> {
        let all = directory.unreadable().into_iter();
        all.map(|one| (one.place, one.message)).collect()
    };
    let because = |place: &str, why: &str| {
        let message = format!("{place}: failed to read it: it is a link {why}");
        (place.to_owned(), message)
    };
    let why = |place: &str| because(place, "that leads out of the folder");
    let expected = [
        why("b.yaml"),
        why("folder.yaml"),
        because("gone", "that leads nowhere"),
        because("gone.yaml", "that leads nowhere"),
        because("hidden", "to a hidden folder"),
        why("sub"),
    ];
    assert_eq!(unread(&directory), expected);
    assert!(held(&directory).contains(&"ConfigMap n/a".to_owned()));
    assert_eq!(read(&directory, &map_ref("secret")), None);
    // A link that is put there later.
    link("../outside/secret.yaml", "fleet/c.yaml");
    let deadline = std::time::Duration::from_secs(60);
    let refused = || unread(&directory).contains(&why("c.yaml")).then_some(());
    transom_support::wait::until("the link refused", deadline, refused).unwrap();
}

#[test]
fn reading_only_leaves_no_trace() {
    let folder = Folder::new(&[("a.yaml", &map("a", "1")), ("broken.yaml", "{")]);
    let directory = Directory::open(DirectoryOptions {
        writable: false,
        ..folder.options()
    })
    .unwrap();
    assert_eq!(value(&directory, &map_ref("a")), json!(1));
    assert!(!folder.path(".transom").exists());
    done(&directory, create("s", "eA=="));
    assert_eq!(
        value(&directory, &secret_ref("s")),
        json!("eA=="),
        "a dry run sees what it would have written"
    );
    assert!(!folder.path(".transom").exists());
}

#[test]
fn reads_a_single_file_or_bytes_like_a_directory() {
    let folder = Folder::new(&[("a.yaml", &map("a", "1")), ("b.yaml", &map("b", "1"))]);
    let options = DirectoryOptions {
        root: folder.path("a.yaml"),
        writable: false,
        ..folder.options()
    };
    assert_eq!(held(&Directory::open(options).unwrap()), ["ConfigMap n/a"]);
    let bytes = Directory::from_bytes("hub", "-", map("a", "1").as_bytes(), SizeLimits::default());
    let there = ObjectRef {
        cluster: "hub".to_owned(),
        ..map_ref("a")
    };
    assert_eq!(read(&bytes, &there).unwrap().body["data"], json!({"x": 1}));
    let broken = Directory::from_bytes("hub", "stdin", b"{", SizeLimits::default());
    assert_eq!(held(&broken), ["ManifestInvalid stdin"]);
}

#[test]
fn explains_why_a_directory_cannot_be_used() {
    let folder = Folder::new(&[("sub/a.yaml", &map("a", "1"))]);
    let open = |options| Directory::open(options).err().unwrap();
    assert!(matches!(
        open(DirectoryOptions::new("local", folder.path("none"))),
        OpenError::Root { .. }
    ));
    let inside = DirectoryOptions {
        root: folder.path("sub"),
        own: Some(folder.temp.path().to_owned()),
        ..folder.options()
    };
    assert!(matches!(open(inside), OpenError::Inside { .. }));
    let _first = folder.open();
    assert!(matches!(open(folder.options()), OpenError::InUse { .. }));
    let reader = Directory::open(DirectoryOptions {
        writable: false,
        ..folder.options()
    });
    assert!(reader.is_ok(), "reading needs no lock");
    assert!(!Path::new("sub/.transom").exists());
}
