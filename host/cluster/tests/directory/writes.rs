//! What a directory writes: objects, patches, status; through the public API.

use crate::support::{
    self, Folder, apply, create, delete, done, map, map_ref, patch, read, secret, secret_ref,
    taint, update, value,
};
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use transom_api::status::{Condition, ConditionStatus, ConditionType, PolicyStatus};
use transom_api::{KnownReason, State};
use transom_cluster::Cluster as _;
use transom_cluster::directory::{Directory, DirectoryOptions};
use transom_core::plan::{Step, WriteKind};
use transom_core::report::{End, Report};

const TAINTED: &str =
    "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: n}\nspec: {taints: [one]}\n";
const SECRET_FILE: &str = ".transom/objects/n/Secret.s.yaml";
const PATCH_FILE: &str = ".transom/patches/n/ConfigMap.a.yaml";

fn reason(directory: &Directory, step: Step) -> KnownReason {
    apply(directory, vec![step]).failure().unwrap().1.reason
}

fn taints(directory: &Directory) -> Value {
    read(directory, &map_ref("a")).unwrap().body["spec"]["taints"].clone()
}

#[test]
fn creates_changes_and_deletes_an_object() {
    let folder = Folder::new(&[]);
    let directory = folder.open();
    done(&directory, create("s", "b25l"));
    assert_eq!(
        std::fs::metadata(folder.path(SECRET_FILE))
            .unwrap()
            .permissions()
            .mode()
            & 0o777,
        0o600
    );
    assert_eq!(
        std::fs::metadata(folder.path(".transom"))
            .unwrap()
            .permissions()
            .mode()
            & 0o777,
        0o700
    );
    assert_eq!(value(&directory, &secret_ref("s")), json!("b25l"));
    done(&directory, update(&directory, secret("s", "dHdv")));
    assert_eq!(value(&directory, &secret_ref("s")), json!("dHdv"));
    drop(directory);
    let again = folder.open();
    assert_eq!(
        value(&again, &secret_ref("s")),
        json!("dHdv"),
        "it is there after a restart"
    );
    assert!(again.made(&secret_ref("s")));
    let version = read(&again, &secret_ref("s")).unwrap().version;
    done(&again, delete(secret_ref("s"), version));
    assert_eq!(read(&again, &secret_ref("s")), None);
    assert!(!folder.path(".transom/objects/n").exists());
}

/// As on an API server: a removal waits for the finalizers, and the object goes with the last of them.
#[test]
fn an_object_with_finalizers_goes_once_they_are_off() {
    let folder = Folder::new(&[]);
    let now = Some(1_000);
    let open = || {
        let options = folder.options();
        Directory::open(DirectoryOptions { now, ..options }).unwrap()
    };
    let mut held = secret("s", "b25l");
    held.body["metadata"]["finalizers"] = json!(["one", "two"]);
    done(&open(), Step::Create { desired: held });
    let finalizers = "metadata.finalizers";
    // The second removal comes after a restart, and changes nothing.
    for _ in 0..2 {
        let directory = open();
        let version = read(&directory, &secret_ref("s")).unwrap().version;
        let step = delete(secret_ref("s"), version);
        let outcome = apply(&directory, vec![step]);
        assert_eq!(outcome.failure(), None);
        let there = read(&directory, &secret_ref("s")).unwrap();
        assert_eq!(outcome.steps[0].left.as_deref(), Some(&there));
        let since = &there.body["metadata"]["deletionTimestamp"];
        assert_eq!(*since, "1970-01-01T00:16:40Z");
    }
    let directory = open();
    done(
        &directory,
        patch(&directory, &secret_ref("s"), finalizers, json!(["two"])),
    );
    assert!(folder.path(SECRET_FILE).exists());
    let last = patch(&directory, &secret_ref("s"), finalizers, Value::Null);
    let outcome = apply(&directory, vec![last]);
    assert_eq!((outcome.failure(), &outcome.steps[0].left), (None, &None));
    assert_eq!(read(&directory, &secret_ref("s")), None);
    assert!(!folder.path(SECRET_FILE).exists());
    // Finalizers alone do not end an object.
    done(&directory, create("t", "b25l"));
    for names in [json!(["one"]), json!([])] {
        done(
            &directory,
            patch(&directory, &secret_ref("t"), finalizers, names),
        );
    }
    assert!(read(&directory, &secret_ref("t")).is_some());
}

#[test]
fn does_not_rewrite_equal_content() {
    let folder = Folder::new(&[]);
    let directory = folder.open();
    done(&directory, create("s", "b25l"));
    let mark = format!("# someone's comment\n{}", folder.text(SECRET_FILE));
    folder.write(SECRET_FILE, &mark);
    done(&directory, update(&directory, secret("s", "b25l")));
    assert_eq!(folder.text(SECRET_FILE), mark);
}

#[test]
fn an_outdated_step_conflicts_and_ends_the_plan() {
    let folder = Folder::new(&[("a.yaml", &map("a", "1"))]);
    let directory = folder.open();
    done(&directory, create("s", "b25l"));
    assert_eq!(
        reason(&directory, create("s", "b25l")),
        KnownReason::WriteConflict
    );
    let stale = update(&directory, secret("s", "dHdv"));
    done(&directory, update(&directory, secret("s", "dGhyZWU=")));
    let before = folder.own_files();
    let outcome = apply(&directory, vec![stale, create("t", "eA==")]);
    assert_eq!(
        outcome.steps.len(),
        1,
        "steps after a failed one are not tried"
    );
    assert_eq!(
        outcome.failure().unwrap().1.reason,
        KnownReason::WriteConflict
    );
    for step in [
        Step::Update {
            desired: secret("none", "eA=="),
            changed: Vec::new(),
        },
        delete(secret_ref("s"), "0"),
        delete(secret_ref("none"), ""),
        Step::Patch {
            reference: map_ref("a"),
            version: "0".to_owned(),
            fields: Vec::new(),
        },
    ] {
        assert_eq!(reason(&directory, step), KnownReason::WriteConflict);
    }
    assert_eq!(folder.own_files(), before);
}

#[test]
fn never_deletes_an_object_of_the_user() {
    let folder = Folder::new(&[("a.yaml", &map("a", "1"))]);
    let directory = folder.open();
    let version = read(&directory, &map_ref("a")).unwrap().version;
    assert_eq!(
        reason(&directory, delete(map_ref("a"), version)),
        KnownReason::WriteFailed
    );
    assert_eq!(folder.text("a.yaml"), map("a", "1"));
}

#[test]
fn an_adopted_object_overlays_the_users_until_the_user_changes_it() {
    let users =
        "apiVersion: v1\nkind: Secret\nmetadata: {name: s, namespace: n}\ndata: {x: eA==}\n";
    let folder = Folder::new(&[("s.yaml", users)]);
    let directory = folder.open();
    done(&directory, update(&directory, secret("s", "b3Vycw==")));
    assert_eq!(value(&directory, &secret_ref("s")), json!("b3Vycw=="));
    assert_eq!(folder.text("s.yaml"), users);
    drop(directory);
    assert_eq!(
        value(&folder.open(), &secret_ref("s")),
        json!("b3Vycw=="),
        "it is there after a restart"
    );
    folder.write("s.yaml", users.replace("eA==", "eQ=="));
    assert_eq!(value(&folder.open(), &secret_ref("s")), json!("eQ=="));
    folder.remove("s.yaml");
    assert_eq!(value(&folder.open(), &secret_ref("s")), json!("b3Vycw=="));
}

#[test]
fn overlays_fields_on_an_object_of_the_user() {
    let folder = Folder::new(&[("a.yaml", TAINTED)]);
    let directory = folder.open();
    done(&directory, taint(&directory, json!(["one", "ours"])));
    assert_eq!(taints(&directory), json!(["one", "ours"]));
    assert!(folder.path(PATCH_FILE).exists() && !directory.made(&map_ref("a")));
    drop(directory);
    assert_eq!(taints(&folder.open()), json!(["one", "ours"]));
    folder.write("a.yaml", TAINTED.replace("[one]", "[one, two]"));
    let directory = folder.open();
    assert_eq!(
        taints(&directory),
        json!(["one", "two", "ours"]),
        "a change of the user is seen beside ours"
    );
    done(&directory, taint(&directory, json!(["one", "two"])));
    assert_eq!(taints(&directory), json!(["one", "two"]));
    assert!(
        !folder.path(PATCH_FILE).exists(),
        "nothing of ours is left over it"
    );
}

#[test]
fn managed_fields_disappear_with_their_object() {
    let folder = Folder::new(&[("a.yaml", TAINTED)]);
    let directory = folder.open();
    done(&directory, taint(&directory, json!(["one", "ours"])));
    drop(directory);
    folder.write("a.yaml", "{");
    drop(folder.open());
    assert!(
        folder.path(PATCH_FILE).exists(),
        "the object may be in the file that cannot be read"
    );
    folder.remove("a.yaml");
    let directory = folder.open();
    assert!(!folder.path(PATCH_FILE).exists());
    drop(directory);
    folder.write("a.yaml", TAINTED);
    assert_eq!(taints(&folder.open()), json!(["one"]));
}

#[test]
fn only_one_of_many_concurrent_equal_writes_succeeds() {
    let folder = Folder::new(&[]);
    let directory = folder.open();
    for round in 0..20 {
        let name = format!("s-{round}");
        let won: Vec<bool> = std::thread::scope(|scope| {
            let write = || {
                apply(&directory, vec![create(&name, "eA==")])
                    .failure()
                    .is_none()
            };
            let writers: Vec<_> = (0..4).map(|_| scope.spawn(write)).collect();
            writers
                .into_iter()
                .map(|writer| writer.join().unwrap())
                .collect()
        });
        assert_eq!(won.iter().filter(|won| **won).count(), 1);
    }
}

#[test]
fn a_field_that_cannot_be_set_fails() {
    let folder = Folder::new(&[("a.yaml", &TAINTED.replace("{taints: [one]}", "text"))]);
    let directory = folder.open();
    assert_eq!(
        reason(&directory, taint(&directory, json!([1]))),
        KnownReason::WriteFailed
    );
    assert!(!folder.path(PATCH_FILE).exists());
}

#[test]
fn patches_an_object_that_we_created() {
    let folder = Folder::new(&[]);
    let directory = folder.open();
    done(&directory, create("s", "b25l"));
    done(
        &directory,
        patch(&directory, &secret_ref("s"), "data.x", json!("dHdv")),
    );
    assert_eq!(value(&directory, &secret_ref("s")), json!("dHdv"));
    assert!(folder.text(SECRET_FILE).contains("dHdv"));
}

#[test]
fn foreign_files_in_our_folder_hold_no_objects() {
    let folder = Folder::new(&[
        (".transom/objects/n/ConfigMap.other.yaml", &map("a", "1")),
        (".transom/objects/n/ConfigMap.b.yaml", "{"),
        (
            ".transom/objects/n/ConfigMap.c.yaml",
            &format!("{}---\n{}", map("c", "1"), map("d", "1")),
        ),
        (".transom/tmp/3", "half a secret"),
        (PATCH_FILE, "fields: canary"),
        ("a.yaml", TAINTED),
    ]);
    let directory = folder.open();
    assert_eq!(directory.list("v1", "ConfigMap", None), [map_ref("a")]);
    assert_eq!(
        (taints(&directory), directory.unreadable()),
        (json!(["one"]), Vec::new())
    );
    assert_eq!(
        std::fs::read_dir(folder.path(".transom/tmp"))
            .unwrap()
            .count(),
        0
    );
    let broken = secret("s", "eA==");
    done(&directory, Step::Create { desired: broken });
}

#[test]
fn two_kinds_of_one_name_do_not_overwrite_each_other() {
    let folder = Folder::new(&[]);
    let directory = folder.open();
    done(&directory, create("s", "b25l"));
    let mut other = secret("s", "dHdv");
    other.reference.api_version = "example.dev/v1".to_owned();
    other.body["apiVersion"] = json!("example.dev/v1");
    let reference = other.reference.clone();
    done(&directory, Step::Create { desired: other });
    assert_eq!(value(&directory, &secret_ref("s")), json!("b25l"));
    assert_eq!(value(&directory, &reference), json!("dHdv"));
}

fn report(state: State, message: &str, at_seconds: i64) -> Report {
    Report {
        message: message.to_owned(),
        target: Some(secret_ref("s")),
        failing: None,
        observed_generation: Some(3),
        at_seconds,
        ..support::report("a", End::InSync, state)
    }
}

const STATUS_FILE: &str = ".transom/status/p/n.a.yaml";

fn status(folder: &Folder) -> Value {
    serde_yaml::from_str(&folder.text(STATUS_FILE)).unwrap()
}

#[test]
fn a_status_that_was_published_often_is_written_again_when_somebody_changes_it() {
    let folder = Folder::new(&[]);
    let directory = folder.open();
    let publish = || directory.publish(&report(State::Failed, "broken", 60), "");
    publish().unwrap();
    let (path, written) = (folder.path(STATUS_FILE), folder.text(STATUS_FILE));
    // The stamp of an older file proves that it is unchanged.
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    file.set_modified(std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000))
        .unwrap();
    for change in [None, Some("someone's own text")] {
        publish().unwrap();
        publish().unwrap();
        match change {
            None => std::fs::remove_file(&path).unwrap(),
            Some(text) => folder.write(STATUS_FILE, text),
        }
        publish().unwrap();
        assert_eq!(folder.text(STATUS_FILE), written, "{change:?}");
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "a test tells its story in one piece")]
fn writes_a_status_only_if_more_than_its_time_differs() {
    let folder = Folder::new(&[]);
    let directory = folder.open();
    let created = vec![(WriteKind::Create, secret_ref("s"))];
    directory
        .publish(
            &Report {
                writes: created,
                ..report(State::Applied, "created it", 0)
            },
            "",
        )
        .unwrap();
    let first = folder.text(STATUS_FILE);
    assert_eq!(
        status(&folder)["conditions"],
        json!([{
            "type": "Applied", "status": "True", "reason": "InSync", "message": KnownReason::InSync.meaning(),
            "observedGeneration": 3, "lastTransitionTime": "1970-01-01T00:00:00Z",
        }])
    );
    drop(directory);
    let directory = folder.open();
    let marked = format!("{first}# a comment\n");
    folder.write(STATUS_FILE, &marked);
    directory
        .publish(&report(State::Applied, "nothing to do", 60), "")
        .unwrap();
    assert_eq!(
        folder.text(STATUS_FILE),
        marked,
        "equal by its first line: not written"
    );
    directory
        .publish(&report(State::Failed, "broken", 60), "")
        .unwrap();
    assert_eq!(
        status(&folder)["conditions"][0]["lastTransitionTime"],
        "1970-01-01T00:01:00Z"
    );
    directory
        .publish(&report(State::Failed, "still broken", 120), "")
        .unwrap();
    assert_eq!(status(&folder)["conditions"][0]["message"], "still broken");
    assert_eq!(
        status(&folder)["conditions"][0]["lastTransitionTime"],
        "1970-01-01T00:01:00Z",
        "kept"
    );
    folder.write(STATUS_FILE, "someone's own text");
    directory
        .publish(&report(State::Failed, "still broken", 180), "")
        .unwrap();
    assert_eq!(status(&folder)["state"], "Failed");
    directory
        .publish(&report(State::Applied, "nothing to do", 0), "")
        .unwrap();
    assert_eq!(
        folder.text(STATUS_FILE),
        first,
        "the same after any way to it"
    );
}

#[test]
fn deletes_a_status_with_its_primary() {
    let folder = Folder::new(&[]);
    let directory = folder.open();
    for name in ["a", "b", "c"] {
        directory
            .publish(
                &Report {
                    primary: map_ref(name),
                    ..report(State::Applied, "", 0)
                },
                "",
            )
            .unwrap();
    }
    for policy in ["p", "q"] {
        directory
            .publish_policy(
                policy,
                &policy_status("PolicyInvalid", "1970-01-01T00:00:00Z"),
            )
            .unwrap();
    }
    assert!(
        folder
            .text(".transom/status/q.yaml")
            .contains("PolicyInvalid")
    );
    let gone = Report {
        end: End::Gone,
        ..report(State::Applied, "", 0)
    };
    directory.publish(&gone, "").unwrap();
    directory.publish(&gone, "").unwrap();
    let left = |primaries: Option<&str>| {
        let primaries = primaries.map(|one| [map_ref(one)].into());
        directory
            .retain(&[("p".to_owned(), primaries)].into())
            .unwrap();
        let name = |(path, _): (PathBuf, _)| path.file_name().unwrap().display().to_string();
        folder.own_files().into_iter().map(name).collect::<Vec<_>>()
    };
    assert_eq!(left(None), [".gitignore", "n.b.yaml", "n.c.yaml", "p.yaml"]);
    assert_eq!(left(Some("b")), [".gitignore", "n.b.yaml", "p.yaml"]);
}

#[test]
fn a_status_stays_while_its_primary_may_be_in_a_file_that_cannot_be_read() {
    let folder = Folder::new(&[("bad.yaml", "a: b: c")]);
    let directory = folder.open();
    let published = report(State::Failed, "broken", 0);
    directory.publish(&published, "").unwrap();
    let kept = [("p".to_owned(), Some([].into()))].into();
    directory.retain(&kept).unwrap();
    assert_eq!(status(&folder)["state"], "Failed");
    directory.retain(&[].into()).unwrap();
    assert!(!folder.path(STATUS_FILE).exists());
}

fn policy_status(reason: &str, since: &str) -> PolicyStatus {
    let condition = Condition {
        kind: ConditionType::Loaded,
        status: ConditionStatus::False,
        observed_generation: None,
        reason: reason.to_owned(),
        message: "spec.guests: is missing".to_owned(),
        last_transition_time: since.to_owned(),
    };
    PolicyStatus {
        conditions: vec![condition],
        ..PolicyStatus::default()
    }
}

#[test]
fn a_policy_status_reads_back_and_is_not_rewritten_for_its_times() {
    const FILE: &str = ".transom/status/p.yaml";
    let folder = Folder::new(&[]);
    let directory = folder.open();
    assert_eq!(directory.policy_status("p"), None);
    let first = policy_status("PolicyInvalid", "1970-01-01T00:00:00Z");
    directory.publish_policy("p", &first).unwrap();
    assert_eq!(directory.policy_status("p"), Some(first.clone()));
    directory
        .publish_policy("p", &policy_status("PolicyInvalid", "1970-01-01T00:01:00Z"))
        .unwrap();
    assert_eq!(directory.policy_status("p"), Some(first));
    let other = policy_status("SettingsRefused", "1970-01-01T00:01:00Z");
    directory.publish_policy("p", &other).unwrap();
    assert_eq!(directory.policy_status("p"), Some(other.clone()));
    folder.write(FILE, "someone's own text");
    directory.publish_policy("p", &other).unwrap();
    assert_eq!(directory.policy_status("p"), Some(other));
}
