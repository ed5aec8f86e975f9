//! A directory in a temporary folder, with helpers. Waits only for states.

use futures::FutureExt as _;
use serde_json::Value;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use tempfile::TempDir;
use transom_api::{KnownReason, Reason, State};
use transom_cluster::directory::{Directory, DirectoryOptions};
use transom_core::object::Object;
use transom_core::plan::{Outcome, Plan, Step, WriteKind};
use transom_core::reference::ObjectRef;
use transom_core::report::{End, Report};

/// A temporary folder of manifests, removed with the test.
pub(crate) struct Folder {
    pub(crate) temp: TempDir,
}

impl Folder {
    pub(crate) fn new(files: &[(&str, &str)]) -> Self {
        let folder = Self {
            temp: tempfile::tempdir().unwrap(),
        };
        for (path, text) in files {
            folder.write(path, text);
        }
        folder
    }

    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.temp.path().join(path)
    }

    pub(crate) fn write(&self, path: &str, text: impl AsRef<[u8]>) {
        let is_own = path.starts_with(".transom/") && !self.path(".transom").exists();
        let path = self.path(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        if is_own {
            self.mark();
        }
        std::fs::write(path, text).unwrap();
    }

    /// Marks the folder as created by the agent.
    pub(crate) fn mark(&self) {
        std::fs::set_permissions(self.path(".transom"), Permissions::from_mode(0o1700)).unwrap();
    }

    /// Puts a file in place by rename, as careful programs do.
    pub(crate) fn rename_in(&self, path: &str, text: &str) {
        self.write(".new", text);
        std::fs::create_dir_all(self.path(path).parent().unwrap()).unwrap();
        std::fs::rename(self.path(".new"), self.path(path)).unwrap();
    }

    pub(crate) fn remove(&self, path: &str) {
        std::fs::remove_file(self.path(path)).unwrap();
    }

    pub(crate) fn text(&self, path: &str) -> String {
        std::fs::read_to_string(self.path(path)).unwrap()
    }

    pub(crate) fn options(&self) -> DirectoryOptions {
        DirectoryOptions {
            watch: false,
            ..DirectoryOptions::new("local", self.temp.path())
        }
    }

    pub(crate) fn open(&self) -> Directory {
        Directory::open(self.options()).unwrap()
    }

    /// Every file of the agent's own folder with its bytes.
    pub(crate) fn own_files(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let mut files = Vec::new();
        collect(&self.path(".transom"), &mut files);
        files.sort();
        files
    }
}

fn collect(folder: &Path, files: &mut Vec<(PathBuf, Vec<u8>)>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, files);
        } else {
            files.push((path.clone(), std::fs::read(&path).unwrap()));
        }
    }
}

/// A ConfigMap with one value.
pub(crate) fn map(name: &str, value: &str) -> String {
    format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}, namespace: n}}\ndata: {{x: {value}}}\n"
    )
}

/// The ConfigMap's reference.
pub(crate) fn map_ref(name: &str) -> ObjectRef {
    ObjectRef::local("v1", "ConfigMap", Some("n"), name)
}

pub(crate) fn secret_ref(name: &str) -> ObjectRef {
    ObjectRef::local("v1", "Secret", Some("n"), name)
}

/// A Secret as the agent creates it.
pub(crate) fn secret(name: &str, value: &str) -> Object {
    Object {
        reference: secret_ref(name),
        version: String::new(),
        body: serde_json::json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": "n"}, "data": {"x": value},
        }),
    }
}

pub(crate) fn read(directory: &Directory, reference: &ObjectRef) -> Option<Object> {
    directory
        .read(std::slice::from_ref(reference))
        .remove(0)
        .unwrap()
}

/// `data.x` of an object.
pub(crate) fn value(directory: &Directory, reference: &ObjectRef) -> Value {
    read(directory, reference)
        .map(|object| object.body["data"]["x"].clone())
        .unwrap_or_default()
}

pub(crate) fn apply(directory: &Directory, steps: Vec<Step>) -> Outcome {
    let plan = Plan {
        policy: "p".to_owned(),
        primary: map_ref("primary"),
        steps,
        pruned: Default::default(),
        remade: Default::default(),
    };
    transom_cluster::apply(plan, |_| Ok(directory))
        .now_or_never()
        .unwrap()
}

/// Applies one step that must succeed.
pub(crate) fn done(directory: &Directory, step: Step) {
    let target = step.target().clone();
    let outcome = apply(directory, vec![step]);
    assert_eq!(outcome.steps.len(), 1);
    assert_eq!(outcome.failure(), None);
    // What a patch says that it left is what a read gives.
    if outcome.steps[0].kind == WriteKind::Patch {
        let left = outcome.steps[0].left.as_deref();
        assert!(left.is_some() && left == read(directory, &target).as_ref());
    }
}

/// An update of an object in its current state.
pub(crate) fn update(directory: &Directory, mut desired: Object) -> Step {
    desired.version = read(directory, &desired.reference).unwrap().version;
    Step::Update {
        desired,
        changed: vec!["data.x".to_owned()],
    }
}

/// A patch of one field of an object in its current state.
pub(crate) fn patch(
    directory: &Directory,
    reference: &ObjectRef,
    path: &str,
    value: Value,
) -> Step {
    let version = read(directory, reference).unwrap().version;
    Step::Patch {
        reference: reference.clone(),
        version,
        fields: vec![(path.to_owned(), value)],
    }
}

/// A patch of the taints of the ConfigMap `a`.
pub(crate) fn taint(directory: &Directory, taints: Value) -> Step {
    patch(directory, &map_ref("a"), "spec.taints", taints)
}

/// The creation of a Secret.
pub(crate) fn create(name: &str, value: &str) -> Step {
    let desired = secret(name, value);
    Step::Create { desired }
}

/// The deletion of an object at a version.
pub(crate) fn delete(reference: ObjectRef, version: impl Into<String>) -> Step {
    Step::Delete {
        reference,
        version: version.into(),
        uid: String::new(),
        why: String::new(),
    }
}

/// The report of a primary.
pub(crate) fn report(primary: &str, end: End, state: State) -> Report {
    Report {
        policy: "p".to_owned(),
        primary: map_ref(primary),
        end,
        state,
        reason: Reason::Known(KnownReason::InSync),
        message: String::new(),
        target: None,
        writes: Vec::new(),
        inputs: None,
        failing: None,
        observed_generation: None,
        at_seconds: 0,
        again_after_ms: None,
        resync_after_ms: None,
        failures: 0,
    }
}
