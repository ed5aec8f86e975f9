//! What a user changes and takes back again in a file, where the agent had laid fields over it: what gave way to the
//! user stays away, also after a restart.

use crate::support::{Folder, done, map_ref, patch, read};
use crate::watch::Watched;
use serde_json::{Value, json};
use transom_cluster::directory::{Directory, DirectoryOptions};

const PATCH_FILE: &str = ".transom/patches/n/ConfigMap.a.yaml";

/// The user's object, with a value in its data.
fn users(value: &Value) -> String {
    let metadata = json!({"name": "a", "namespace": "n"});
    let data = match value {
        Value::Null => json!({}),
        value => json!({"x": value}),
    };
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}).to_string()
}

fn value(directory: &Directory) -> Value {
    read(directory, &map_ref("a")).unwrap().body["data"]["x"].clone()
}

fn read_only(folder: &Folder) -> Directory {
    Directory::open(DirectoryOptions {
        writable: false,
        ..folder.options()
    })
    .unwrap()
}

/// A folder in which the agent made `ours` of the user's value.
fn laid(base: &Value, ours: &Value) -> Folder {
    let folder = Folder::new(&[("a.yaml", &users(base))]);
    let directory = folder.open();
    done(
        &directory,
        patch(&directory, &map_ref("a"), "data.x", ours.clone()),
    );
    folder
}

#[test]
fn a_user_who_returns_to_an_earlier_value_has_it() {
    let timed = |time: Value| json!([{"key": "a", "effect": "NoSelect", "timeAdded": time}]);
    let plain = json!([{"key": "a", "effect": "NoSelect"}]);
    for (base, ours, edited) in [
        (json!(false), json!(true), json!(true)),
        (json!("a"), json!("prod"), json!("b")),
        (json!("a"), json!("prod"), Value::Null),
        (Value::Null, json!("prod"), json!("a")),
        (plain.clone(), timed(json!("1")), json!([])),
        (plain.clone(), json!([]), Value::Null),
    ] {
        let folder = laid(&base, &ours);
        assert_eq!(value(&folder.open()), ours);
        for now in [&edited, &base] {
            folder.write("a.yaml", users(now));
            assert_eq!(value(&read_only(&folder)), *now, "{ours}");
            assert_eq!(value(&folder.open()), *now, "{ours}");
            assert!(
                !folder.path(PATCH_FILE).exists(),
                "{now} leaves nothing of {ours}"
            );
        }
    }
}

#[test]
fn what_the_agent_added_to_a_list_stays_beside_the_users_changes() {
    let folder = laid(&json!(["one"]), &json!(["one", "ours"]));
    for (now, seen) in [
        (json!(["one", "two"]), json!(["one", "two", "ours"])),
        (json!([]), json!(["ours"])),
        (Value::Null, json!(["ours"])),
        (json!(["one"]), json!(["one", "ours"])),
        // The user has it, too: it is the user's now.
        (json!(["ours"]), json!(["ours"])),
        (json!(["one"]), json!(["one"])),
    ] {
        folder.write("a.yaml", users(&now));
        assert_eq!(value(&folder.open()), seen, "{now}");
    }
    assert!(!folder.path(PATCH_FILE).exists());
}

#[test]
fn a_run_that_only_reads_writes_nothing() {
    let folder = laid(&json!("a"), &json!("prod"));
    folder.write("a.yaml", users(&json!("b")));
    let before = folder.own_files();
    assert_eq!(value(&read_only(&folder)), json!("b"));
    assert_eq!(folder.own_files(), before);
}

#[test]
fn a_patch_outlasts_a_file_that_says_nothing_of_its_fields() {
    let base = json!("a");
    let folder = laid(&base, &json!("prod"));
    let before = folder.own_files();
    let patch_of = |files: &[(std::path::PathBuf, Vec<u8>)]| {
        let mut files = files.iter();
        let patch = files.find(|(path, _)| path.ends_with("patches/n/ConfigMap.a.yaml"));
        patch.unwrap().clone()
    };
    let whole = users(&base);
    let half = whole.get(..whole.len() / 2).unwrap();
    let twice = format!("{whole}\n---\n{}", users(&json!("b")));
    for other in [half, &twice] {
        folder.write("a.yaml", other);
        drop(folder.open());
    }
    // In no file, while another one may have it.
    folder.write("b.yaml", "{");
    folder.remove("a.yaml");
    drop(folder.open());
    folder.remove("b.yaml");
    // Another field of the object is no concern of the patch.
    let more = whole.replace("\"data\":{", "\"data\":{\"y\":\"more\",");
    for text in [&whole, &more] {
        folder.write("a.yaml", text);
        assert_eq!(value(&folder.open()), json!("prod"));
        assert_eq!(patch_of(&folder.own_files()), patch_of(&before), "no write");
    }
}

#[test]
fn a_running_agent_has_what_a_user_changed_back() {
    let mut watched = Watched::new(&[("a.yaml", &users(&json!("a")))]);
    let ours = patch(&watched.directory, &map_ref("a"), "data.x", json!("prod"));
    done(&watched.directory, ours);
    watched.folder.rename_in("a.yaml", &users(&json!("b")));
    watched.expect(&["ConfigMap n/a \"b\""]);
    watched.folder.rename_in("a.yaml", &users(&json!("a")));
    watched.expect(&["ConfigMap n/a \"a\""]);
    assert!(!watched.folder.path(PATCH_FILE).exists());
}

#[test]
fn a_running_agent_keeps_a_patch_while_its_file_is_away() {
    let mut watched = Watched::new(&[("a.yaml", &users(&json!("a")))]);
    let ours = patch(&watched.directory, &map_ref("a"), "data.x", json!("prod"));
    done(&watched.directory, ours);
    watched.folder.remove("a.yaml");
    watched.expect_silence();
    watched.folder.rename_in("a.yaml", "{");
    watched.expect(&["ManifestInvalid a.yaml"]);
    watched.folder.rename_in("a.yaml", &users(&json!("a")));
    watched.expect(&["readable a.yaml"]);
    assert_eq!(value(&watched.directory), json!("prod"));
    assert!(watched.folder.path(PATCH_FILE).exists());
}
