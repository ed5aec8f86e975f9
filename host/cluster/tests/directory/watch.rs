//! What a watched directory reports when files change. Every wait has a deadline and ends with the expected state.

use crate::support::{
    Folder, create, done, map, map_ref, patch, read, secret, secret_ref, update, value,
};
use notify::{EventKind, RecursiveMode, Watcher as _, event::AccessKind};
use serde_json::json;
use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, SystemTime};
use tokio::runtime::{Builder, Runtime};
use transom_cluster::Cluster as _;
use transom_cluster::directory::{Directory, DirectoryObservations, DirectoryOptions};
use transom_core::observation::Observation;

/// Long enough for any machine; only a failing test waits this long.
const DEADLINE: Duration = Duration::from_secs(60);

/// A watched folder and its observations.
pub(crate) struct Watched {
    pub(crate) folder: Folder,
    pub(crate) directory: Directory,
    observations: DirectoryObservations,
    runtime: Runtime,
    marks: usize,
}

impl Watched {
    pub(crate) fn new(files: &[(&str, &str)]) -> Self {
        Self::of(Folder::new(files))
    }

    fn of(folder: Folder) -> Self {
        Self::below(folder, "")
    }

    /// Of a path below the folder.
    pub(crate) fn below(folder: Folder, root: &str) -> Self {
        let settle = Duration::from_millis(20);
        let directory = Directory::open(DirectoryOptions {
            root: folder.path(root),
            watch: true,
            settle,
            ..folder.options()
        })
        .unwrap();
        let observations = directory.changes();
        let runtime = Builder::new_current_thread().enable_time().build().unwrap();
        Self {
            folder,
            directory,
            observations,
            runtime,
            marks: 0,
        }
    }

    /// The next observation in short.
    pub(crate) fn next(&mut self) -> String {
        let next = async { tokio::time::timeout(DEADLINE, self.observations.next()).await };
        match self.runtime.block_on(next).expect("an observation") {
            Observation::Present(object) => {
                format!("{} {}", object.reference, object.body["data"]["x"])
            }
            Observation::Changed(reference) => format!("changed {reference}"),
            Observation::Gone(reference) => format!("gone {reference}"),
            Observation::Unreadable(unreadable) => {
                format!("{} {}", unreadable.reason.as_str(), unreadable.place)
            }
            Observation::FileReadable(place) => format!("readable {place}"),
            // Also after a gap in the watch.
            Observation::Readable(place, _) | Observation::ObjectReadable(place) => {
                format!("followed {place}")
            }
            Observation::Answered => "answered".to_owned(),
        }
    }

    /// The next observations are exactly these, in any order.
    pub(crate) fn expect(&mut self, expected: &[&str]) {
        let mut told: Vec<String> = expected.iter().map(|_| self.next()).collect();
        told.sort();
        let mut expected = expected.to_vec();
        expected.sort_unstable();
        assert_eq!(told, expected);
    }

    /// Nothing so far is reported: a later change is the next observation.
    pub(crate) fn expect_silence(&mut self) {
        self.marks += 1;
        let name = format!("mark-{}", self.marks);
        self.folder
            .rename_in(&format!("{name}.yaml"), &map(&name, "0"));
        assert_eq!(self.next(), format!("ConfigMap n/{name} 0"));
    }
}

#[test]
fn reports_created_changed_and_deleted_files() {
    let mut watched = Watched::new(&[("a.yaml", &map("a", "1"))]);
    watched.folder.write("b.yaml", map("b", "1"));
    watched.expect(&["ConfigMap n/b 1"]);
    watched.folder.write("a.yaml", map("a", "2"));
    watched.expect(&["ConfigMap n/a 2"]);
    watched
        .folder
        .write("a.yaml", format!("{}---\n{}", map("a", "2"), map("c", "1")));
    watched.expect(&["ConfigMap n/c 1"]);
    watched.folder.remove("a.yaml");
    watched.expect(&["gone ConfigMap n/a", "gone ConfigMap n/c"]);
    assert_eq!(read(&watched.directory, &map_ref("a")), None);
}

#[test]
fn an_object_moved_to_another_file_is_not_deleted() {
    let mut watched = Watched::new(&[("a.yaml", &map("a", "1"))]);
    std::fs::rename(watched.folder.path("a.yaml"), watched.folder.path("b.yaml")).unwrap();
    watched.expect_silence();
    assert_eq!(value(&watched.directory, &map_ref("a")), json!(1));
}

#[test]
fn a_folder_that_becomes_a_link_is_not_read_through() {
    let folder = Folder::new(&[
        ("outside/x.yaml", &map("stolen", "1")),
        ("fleet/a/x.yaml", &map("a", "1")),
        ("fleet/prod/y.yaml", &map("y", "1")),
    ]);
    let mut watched = Watched::below(folder, "fleet");
    let root = watched.folder.path("fleet");
    let path = |name: &str| root.join(name);
    let exchange = |from: &str, to: &str, link: &str| {
        std::fs::rename(path(from), path(to)).unwrap();
        std::os::unix::fs::symlink(link, path(from)).unwrap();
    };
    // The files of a folder are read where it is now, and only there.
    exchange("prod", "prod-v2", "prod-v2");
    watched
        .folder
        .rename_in("fleet/prod-v2/y.yaml", &map("y", "2"));
    watched.expect(&["ConfigMap n/y 2"]);
    assert_eq!(watched.directory.unreadable(), []);
    // While a link leads to files that may not be read, the files that were there count as they were.
    exchange("a", "../a", "../outside");
    watched.expect(&["ReadFailed a"]);
    assert_eq!(value(&watched.directory, &map_ref("a")), json!(1));
    assert_eq!(read(&watched.directory, &map_ref("stolen")), None);
    std::fs::remove_file(path("a")).unwrap();
    std::fs::rename(path("../a"), path("a")).unwrap();
    watched.expect(&["followed a"]);
    watched.folder.rename_in("fleet/a/x.yaml", &map("a", "2"));
    watched.expect(&["ConfigMap n/a 2"]);
    // A folder that is gone for good takes its objects with it.
    exchange("a", "../a", "../nowhere");
    watched.expect(&["ReadFailed a"]);
    std::fs::remove_file(path("a")).unwrap();
    watched.expect(&["followed a", "gone ConfigMap n/a"]);
}

#[test]
fn does_not_report_equal_content() {
    let mut watched = Watched::new(&[("a.yaml", &map("a", "1"))]);
    watched.folder.write("a.yaml", map("a", "1"));
    watched.expect_silence();
    watched
        .folder
        .write("a.yaml", format!("# a comment\n{}", map("a", "1")));
    watched.expect_silence();
    watched.folder.write("notes.txt", "x");
    watched.folder.write(".git/b.yaml", map("b", "1"));
    watched.expect_silence();
}

#[test]
fn detects_every_way_in_which_editors_replace_files() {
    let mut watched = Watched::new(&[("a.yaml", &map("a", "1"))]);
    watched.folder.rename_in("a.yaml", &map("a", "2"));
    watched.expect(&["ConfigMap n/a 2"]);
    std::fs::rename(
        watched.folder.path("a.yaml"),
        watched.folder.path("a.yaml~"),
    )
    .unwrap();
    watched.folder.write("a.yaml", map("a", "3"));
    watched.folder.remove("a.yaml~");
    watched.expect(&["ConfigMap n/a 3"]);
}

#[cfg(target_os = "linux")]
#[test]
fn waits_for_the_writer_of_a_half_written_file() {
    let whole = format!("{}---\n{}", map("a", "1"), map("b", "1"));
    let mut watched = Watched::new(&[("a.yaml", &whole)]);
    let mut file = std::fs::File::create(watched.folder.path("a.yaml")).unwrap();
    watched.expect_silence();
    file.write_all(map("a", "2").as_bytes()).unwrap();
    watched.expect_silence();
    file.write_all(format!("---\n{}", map("b", "2")).as_bytes())
        .unwrap();
    drop(file);
    watched.expect(&["ConfigMap n/a 2", "ConfigMap n/b 2"]);
}

#[test]
fn follows_created_moved_and_deleted_folders() {
    let mut watched = Watched::new(&[("keep.yaml", &map("keep", "1"))]);
    watched.folder.write("one/two/a.yaml", map("a", "1"));
    watched.expect(&["ConfigMap n/a 1"]);
    watched.folder.write("one/two/b.yaml", map("b", "1"));
    watched.expect(&["ConfigMap n/b 1"]);
    std::fs::rename(watched.folder.path("one"), watched.folder.path("three")).unwrap();
    watched.expect_silence();
    watched.folder.write("three/two/b.yaml", map("b", "2"));
    watched.expect(&["ConfigMap n/b 2"]);
    std::fs::rename(watched.folder.path("three"), watched.folder.path(".aside")).unwrap();
    watched.expect(&["gone ConfigMap n/a", "gone ConfigMap n/b"]);
    std::fs::rename(watched.folder.path(".aside"), watched.folder.path("three")).unwrap();
    watched.expect(&["ConfigMap n/a 1", "ConfigMap n/b 2"]);
    std::fs::remove_dir_all(watched.folder.path("three")).unwrap();
    watched.expect(&["gone ConfigMap n/a", "gone ConfigMap n/b"]);
}

#[test]
fn a_duplicate_ends_when_one_file_is_deleted() {
    let mut watched = Watched::new(&[("a.yaml", &map("a", "1"))]);
    watched.folder.write("b.yaml", map("a", "2"));
    watched.expect(&["DuplicateObject a.yaml, b.yaml"]);
    watched.folder.write("c.yaml", map("a", "3"));
    watched.expect(&[
        "readable a.yaml, b.yaml",
        "DuplicateObject a.yaml, b.yaml, c.yaml",
    ]);
    assert!(watched.directory.read(&[map_ref("a")]).remove(0).is_err());
    watched.folder.remove("b.yaml");
    watched.expect(&[
        "readable a.yaml, b.yaml, c.yaml",
        "DuplicateObject a.yaml, c.yaml",
    ]);
    watched.folder.remove("a.yaml");
    watched.expect(&["readable a.yaml, c.yaml", "ConfigMap n/a 3"]);
}

#[test]
fn a_file_that_does_not_parse_keeps_its_last_good_state() {
    let mut watched = Watched::new(&[("a.yaml", &map("a", "1")), ("b.yaml", &map("b", "1"))]);
    watched.folder.write("a.yaml", "{");
    watched.expect(&["ManifestInvalid a.yaml"]);
    assert_eq!(value(&watched.directory, &map_ref("a")), json!(1));
    watched.folder.write("a.yaml", map("a", "1"));
    watched.expect(&["readable a.yaml"]);
    watched.folder.write("a.yaml", "{");
    watched.expect(&["ManifestInvalid a.yaml"]);
    watched.folder.write("a.yaml", map("a", "2"));
    watched.expect(&["readable a.yaml", "ConfigMap n/a 2"]);
    watched.folder.write("b.yaml", "{");
    watched.expect(&["ManifestInvalid b.yaml"]);
    watched.folder.remove("b.yaml");
    watched.expect(&["readable b.yaml", "gone ConfigMap n/b"]);
}

#[test]
fn own_writes_are_not_reported_but_later_changes_by_others_are() {
    const FILE: &str = ".transom/objects/n/Secret.s.yaml";
    let mut watched = Watched::new(&[]);
    done(&watched.directory, create("s", "b25l"));
    done(
        &watched.directory,
        update(&watched.directory, secret("s", "dHdv")),
    );
    watched.expect_silence();
    let ours = watched.folder.text(FILE);
    watched.folder.write(FILE, ours.replace("dHdv", "eHh4"));
    watched.expect(&["Secret n/s \"eHh4\""]);
    done(
        &watched.directory,
        update(&watched.directory, secret("s", "dHdv")),
    );
    watched.expect_silence();
    watched.folder.write(FILE, "{");
    watched.expect(&["gone Secret n/s"]);
    done(&watched.directory, create("s", "dHdv"));
    watched.folder.remove(FILE);
    watched.expect(&["gone Secret n/s"]);
    assert_eq!(watched.directory.unreadable(), []);
}

#[test]
fn its_own_folder_may_be_removed_entirely() {
    let mut watched = Watched::new(&[]);
    done(&watched.directory, create("s", "b25l"));
    watched.expect_silence();
    std::fs::remove_dir_all(watched.folder.path(".transom")).unwrap();
    watched.expect(&["gone Secret n/s"]);
    done(&watched.directory, create("s", "b25l"));
    watched.expect_silence();
    watched.folder.remove(".transom/objects/n/Secret.s.yaml");
    watched.expect(&["gone Secret n/s"]);
}

#[test]
fn managed_fields_and_user_fields_are_both_visible() {
    const TAINTED: &str =
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: n}\ndata: {x: [one]}\n";
    let mut watched = Watched::new(&[("a.yaml", TAINTED)]);
    done(
        &watched.directory,
        patch(
            &watched.directory,
            &map_ref("a"),
            "data.x",
            json!(["one", "ours"]),
        ),
    );
    watched.expect_silence();
    watched
        .folder
        .write("a.yaml", TAINTED.replace("[one]", "[one, two]"));
    watched.expect(&["ConfigMap n/a [\"one\",\"two\",\"ours\"]"]);
    // The patch follows right after; then nothing writes it any more.
    watched.expect_silence();
    watched.folder.remove(".transom/patches/n/ConfigMap.a.yaml");
    watched.expect(&["ConfigMap n/a [\"one\",\"two\"]"]);
}

#[test]
fn a_user_may_take_an_object_over() {
    let mut watched = Watched::new(&[]);
    done(&watched.directory, create("s", "b25l"));
    let users =
        "apiVersion: v1\nkind: Secret\nmetadata: {name: s, namespace: n}\nstringData: {x: users}\n";
    watched.folder.write("s.yaml", users);
    watched.expect(&["Secret n/s \"dXNlcnM=\""]);
    assert!(!watched.directory.made(&secret_ref("s")));
    watched.folder.remove("s.yaml");
    watched.expect(&["Secret n/s \"b25l\""]);
}

#[test]
fn follows_a_mounted_config_map() {
    let folder = Folder::new(&[
        ("..one/a.yaml", &map("a", "1")),
        ("..two/a.yaml", &map("a", "2")),
    ]);
    let link = |to: &str, at: &str| std::os::unix::fs::symlink(to, folder.path(at)).unwrap();
    link("..one", "..data");
    link("..data/a.yaml", "a.yaml");
    link("..two", "..data_tmp");
    let mut watched = Watched::of(folder);
    assert_eq!(value(&watched.directory, &map_ref("a")), json!(1));
    std::fs::rename(
        watched.folder.path("..data_tmp"),
        watched.folder.path("..data"),
    )
    .unwrap();
    watched.expect(&["ConfigMap n/a 2"]);
}

#[test]
fn a_missing_root_deletes_no_objects() {
    let folder = Folder::new(&[("sub/a.yaml", &map("a", "1"))]);
    let root = folder.path("sub");
    let own = Some(folder.path("own"));
    let settle = Duration::from_millis(5);
    let options = DirectoryOptions {
        root: root.clone(),
        own,
        settle,
        watch: true,
        ..folder.options()
    };
    let directory = Directory::open(options).unwrap();
    let observations = directory.changes();
    let runtime = Builder::new_current_thread().enable_time().build().unwrap();
    let mut watched = Watched {
        folder,
        directory,
        observations,
        runtime,
        marks: 0,
    };
    assert_eq!(value(&watched.directory, &map_ref("a")), json!(1));
    std::fs::rename(&root, watched.folder.path("elsewhere")).unwrap();
    watched.expect(&["ReadFailed ."]);
    assert_eq!(value(&watched.directory, &map_ref("a")), json!(1));
    std::fs::rename(watched.folder.path("elsewhere"), &root).unwrap();
    watched.expect(&["followed ."]);
    watched.folder.write("sub/a.yaml", map("a", "2"));
    watched.expect(&["ConfigMap n/a 2"]);
}

/// How many files are opened below the folder for one change in a fleet of this size.
#[cfg(target_os = "linux")]
fn opened_for_one_change(fleet: usize) -> Vec<String> {
    let folder = Folder::new(&[]);
    for index in 0..fleet {
        let name = format!("c-{index}");
        let path = format!("{}/{name}.yaml", index % 7);
        folder.write(&path, map(&name, "1"));
        // Files older than the watch are not read twice.
        let file = std::fs::File::open(folder.path(&path)).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH).unwrap();
    }
    let mut watched = Watched::of(folder);
    let (opened, list) = std::sync::mpsc::channel();
    let mut listener = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
        let event = event.unwrap();
        if matches!(event.kind, EventKind::Access(AccessKind::Open(_))) {
            let is_file = |path: &&std::path::PathBuf| path.extension().is_some();
            let names = event
                .paths
                .iter()
                .filter(is_file)
                .filter_map(|path| path.file_name());
            names.for_each(|name| opened.send(name.to_string_lossy().into_owned()).unwrap());
        }
    })
    .unwrap();
    listener
        .watch(watched.folder.temp.path(), RecursiveMode::Recursive)
        .unwrap();
    watched.folder.rename_in("3/c-3.yaml", &map("c-3", "2"));
    watched.expect(&["ConfigMap n/c-3 2"]);
    drop(listener);
    let mut names: Vec<String> = list
        .iter()
        .filter(|name| !Path::new(name).starts_with(".new"))
        .collect();
    names.sort();
    names
}

#[cfg(target_os = "linux")]
#[test]
fn one_change_reads_one_file_at_any_fleet_size() {
    assert_eq!(opened_for_one_change(10), ["c-3.yaml"]);
    assert_eq!(opened_for_one_change(2000), ["c-3.yaml"]);
}

#[test]
fn a_file_that_could_not_be_read_is_read_again_with_the_content_that_it_had() {
    let folder = Folder::new(&[
        ("fleet/a.yaml", &map("a", "1")),
        ("outside.yaml", &map("o", "1")),
    ]);
    let mut watched = Watched::below(folder, "fleet");
    let path = |name: &str| watched.folder.path(name);
    let (file, kept) = (path("fleet/a.yaml"), path("kept"));
    std::fs::rename(&file, &kept).unwrap();
    std::os::unix::fs::symlink("../outside.yaml", path("next")).unwrap();
    std::fs::rename(path("next"), &file).unwrap();
    watched.expect(&["ReadFailed a.yaml"]);
    assert_eq!(value(&watched.directory, &map_ref("a")), json!(1));
    std::fs::rename(&kept, &file).unwrap();
    watched.expect(&["readable a.yaml"]);
    assert_eq!(value(&watched.directory, &map_ref("a")), json!(1));
}

#[test]
fn two_names_that_are_no_text_have_faults_of_their_own() {
    use std::os::unix::ffi::OsStrExt as _;
    let folder = Folder::new(&[]);
    let path = |byte: u8| {
        let name = [b"a".as_slice(), &[byte], b".yaml"].concat();
        folder.path("").join(std::ffi::OsStr::from_bytes(&name))
    };
    std::fs::write(path(0xfe), "{").unwrap();
    std::fs::write(path(0xff), map("a", "1")).unwrap();
    let unreadable = folder.open().unreadable();
    let places: Vec<_> = unreadable.iter().map(|one| one.place.as_str()).collect();
    assert_eq!(places, ["a\\xfe.yaml"]);
}
