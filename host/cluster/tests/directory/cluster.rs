//! A directory as the agent uses it: through the trait that it shares with API servers.

use crate::support::{Folder, apply, create, done, map, map_ref, secret, secret_ref};
use futures::{FutureExt as _, StreamExt as _};
use serde_json::{Value, json};
use transom_api::KnownReason;
use transom_cluster::directory::{Directory, DirectoryOptions, SizeLimits};
use transom_cluster::{Cluster, ReadResult};
use transom_core::observation::Observation;
use transom_core::plan::Step;
use transom_core::policy::selector::Selector;
use transom_core::reference::ObjectRef;
use transom_core::stamp::{SourceRef, Stamp};
use transom_core::watches::{Keep, Scope};
use transom_core::work::Key;

const SECRET_FILE: &str = ".transom/objects/n/Secret.s.yaml";

/// A directory answers every read at once.
fn confirm(cluster: &dyn Cluster, object: &ObjectRef) -> ReadResult {
    cluster.confirm(object).now_or_never().unwrap()
}

fn value(read: ReadResult) -> Option<Value> {
    Some(read.unwrap()?.body["data"]["x"].clone())
}

/// The text of the agent's file of a Secret.
fn made(value: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Secret\nmetadata: {{name: s, namespace: n}}\ndata: {{x: {value}}}\n"
    )
}

#[test]
fn confirm_reads_the_files_of_the_agent_again() {
    let folder = Folder::new(&[]);
    let directory = folder.open();
    done(&directory, create("s", "b25l"));
    let cluster: &dyn Cluster = &directory;
    let object = secret_ref("s");
    let read = || value(cluster.read(&object).now_or_never().unwrap());
    folder.write(SECRET_FILE, made("dHdv"));
    assert_eq!(read(), Some(json!("b25l")), "no watch has reported it");
    assert_eq!(value(confirm(cluster, &object)), Some(json!("dHdv")));
    assert_eq!(read(), Some(json!("dHdv")), "the answer is kept");
    folder.remove(SECRET_FILE);
    assert_eq!(value(confirm(cluster, &object)), None);
}

#[test]
fn a_resync_confirms_what_only_the_own_write_has_reported() {
    let folder = Folder::new(&[]);
    let directory = folder.open();
    done(&directory, create("s", "b25l"));
    folder.write(SECRET_FILE, made("dHdv"));
    let cluster: &dyn Cluster = &directory;
    let object = secret_ref("s");
    let read = cluster.read_confirmed(&object).now_or_never().unwrap();
    assert_eq!(value(read), Some(json!("dHdv")));
}

#[test]
fn a_users_file_that_is_being_written_counts_as_it_was_last_whole() {
    let folder = Folder::new(&[("a.yaml", &map("a", "1"))]);
    let directory = folder.open();
    // Half of a file, as while it is written.
    folder.write("a.yaml", "apiVersion: v1\nkind: Conf");
    assert_eq!(value(confirm(&directory, &map_ref("a"))), Some(json!(1)));
}

#[test]
fn what_several_files_define_is_missing_from_no_list() {
    let folder = Folder::new(&[
        ("a.yaml", &map("a", "1")),
        ("b.yaml", &map("b", "1")),
        ("copy.yaml", &map("b", "1")),
    ]);
    let directory = folder.open();
    let place = |name: &str| ObjectRef {
        name: name.to_owned(),
        ..map_ref("")
    };
    let listed = |name: &str| {
        let (cluster, place): (&dyn Cluster, _) = (&directory, place(name));
        let every = Selector::default();
        let listed = cluster.list_metadata(&place, &every, &|_| true);
        listed.now_or_never().unwrap()
    };
    let failure = directory.complete(&Scope::of(&place(""))).unwrap_err();
    assert_eq!(failure.reason, KnownReason::DuplicateObject);
    for name in ["", "b"] {
        let failure = listed(name).unwrap_err();
        assert_eq!(failure.reason, KnownReason::DuplicateObject, "{name}");
    }
    assert_eq!(listed("a").unwrap().len(), 1);
    let elsewhere = ObjectRef {
        namespace: Some("other".to_owned()),
        ..place("")
    };
    assert_eq!(directory.complete(&Scope::of(&elsewhere)), Ok(()));
}

#[test]
fn nothing_is_absent_while_a_file_cannot_be_read() {
    let folder = Folder::new(&[("a.yaml", &map("a", "1")), ("b.yaml", "{")]);
    let directory = folder.open();
    assert_eq!(value(confirm(&directory, &map_ref("a"))), Some(json!(1)));
    let failure = confirm(&directory, &map_ref("b")).unwrap_err();
    assert!(
        failure.reason == KnownReason::ReadFailed && failure.message.contains("b.yaml"),
        "{failure:?}"
    );
}

#[test]
fn nothing_is_gone_while_the_root_is_away() {
    let folder = Folder::new(&[("fleet/a.yaml", &map("a", "1"))]);
    let (here, away) = (folder.path("fleet"), folder.path("away"));
    let options = DirectoryOptions {
        watch: false,
        ..DirectoryOptions::new("local", &here)
    };
    let directory = Directory::open(options).unwrap();
    done(&directory, create("s", "b25l"));
    std::fs::rename(&here, &away).unwrap();
    let confirmed = confirm(&directory, &secret_ref("s"));
    assert_eq!(value(confirmed), Some(json!("b25l")));
}

#[test]
fn a_directory_that_may_not_be_written_confirms_what_it_would_have_written() {
    let folder = Folder::new(&[]);
    let options = DirectoryOptions {
        writable: false,
        ..folder.options()
    };
    let directory = Directory::open(options).unwrap();
    done(&directory, create("s", "b25l"));
    let confirmed = confirm(&directory, &secret_ref("s"));
    assert_eq!(value(confirmed), Some(json!("b25l")));
}

/// A ConfigMap that carries the agent's stamp.
fn stamped(name: &str) -> String {
    let primary = secret("s", "b25l");
    let mut body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "n"}});
    let key = Key::new(&"p".into(), &primary.reference);
    Stamp::of(&key, SourceRef::of(&primary, ""), "inputs", "component").put(&mut body);
    body.to_string()
}

#[test]
fn observes_the_wanted_kinds_and_what_the_agent_made() {
    let directory = Directory::from_bytes("local", "-", b"", SizeLimits::default());
    let cluster: &dyn Cluster = &directory;
    let scope = |kind: &str| Scope {
        api_version: "v1".to_owned(),
        kind: kind.to_owned(),
        namespace: None,
        name: None,
        fields: None,
        labels: None,
    };
    let watch = |kind: &str| cluster.watch([(scope(kind), Keep::default())].into());
    let mut changes = cluster.changes();
    let mut next = || match changes.next().now_or_never().flatten() {
        Some(Observation::Present(object)) => object.reference.to_string(),
        other => format!("{other:?}"),
    };
    watch("Secret");
    directory.take("a.json", map("a", "1").as_bytes());
    assert_eq!(next(), "None");
    directory.take("b.json", stamped("b").as_bytes());
    assert_eq!(next(), "ConfigMap n/b");
    watch("ConfigMap");
    directory.take("a.json", map("a", "2").as_bytes());
    assert_eq!(next(), "ConfigMap n/a");
    let found = cluster.stamped().into_iter();
    let found: Vec<ObjectRef> = found.map(|(object, _)| object).collect();
    assert_eq!(found, [map_ref("b")]);
}

#[test]
fn no_file_of_a_user_passes_for_a_record_of_the_agent() {
    let of_user = map("a", "1").replace("name: a", "labels: {l: v}, name: a");
    let shadow = |value: &str| {
        made(value)
            .replace("apiVersion", "# of a user\napiVersion")
            .replace("name: s", "labels: {l: v}, name: s")
    };
    let folder = Folder::new(&[
        ("a.yaml", &of_user),
        (
            SECRET_FILE,
            &made("b25l").replace("name: s", "labels: {l: v}, name: s"),
        ),
        ("one.yaml", &shadow("dHdv")),
    ]);
    let records = |folder: &Folder| {
        let directory = folder.open();
        let cluster: &dyn Cluster = &directory;
        let one = |object| value(cluster.read_record(&object).now_or_never().unwrap());
        let listed = |like| {
            let listed = cluster.list_records(&like, ("l", "v")).now_or_never();
            let listed = listed.unwrap().unwrap().into_iter();
            let values: Vec<_> = listed
                .map(|object| object.body["data"]["x"].clone())
                .collect();
            values
        };
        let like = |object: ObjectRef| ObjectRef {
            name: String::new(),
            ..object
        };
        assert_eq!(one(map_ref("a")), None);
        assert_eq!(listed(like(map_ref("a"))), Vec::<Value>::new());
        (one(secret_ref("s")), listed(like(secret_ref("s"))))
    };
    let own = (Some(json!("b25l")), vec![json!("b25l")]);
    assert_eq!(records(&folder), own, "beside a file of a user");
    folder.write("two.yaml", shadow("dGhyZWU="));
    assert_eq!(records(&folder), own, "beside two of them");
}

#[test]
fn a_record_beside_a_file_of_a_user_is_not_changed_in_that_file() {
    let folder = Folder::new(&[]);
    done(&folder.open(), create("s", "b25l"));
    folder.write("mine.yaml", made("dHdv"));
    let directory = folder.open();
    let cluster: &dyn Cluster = &directory;
    let record = cluster.read_record(&secret_ref("s")).now_or_never();
    let record = record.unwrap().unwrap().unwrap();
    let patch = Step::Patch {
        reference: record.reference.clone(),
        version: record.version.clone(),
        fields: vec![("metadata.annotations.barred".to_owned(), json!("why"))],
    };
    for step in [patch, create("s", "dGhyZWU=")] {
        let outcome = apply(&directory, vec![step]);
        let (_, failure) = outcome.failure().unwrap();
        assert_eq!(failure.reason, KnownReason::WriteConflict);
        let told = "it is defined in mine.yaml, a file of the user";
        assert!(failure.message.ends_with(told), "{}", failure.message);
    }
    assert!(!folder.path(".transom/patches/n/Secret.s.yaml").exists());
}
