//! Performs steps of plans on the agent's own folder: whole objects and field patches, each as one atomic rename.
//! Does not write a user's file.

mod fields;

use super::SharedDirectory;
use super::change::{DirectoryNews, Edit, FileContent, Print};
use super::load::made_file;
use super::names::{digest, object_file};
use super::patch::{get, set};
use super::shared::version_text;
use super::slot::{Effective, MadeObject, SlotState, version};
use super::store::DirectoryStore;
use super::tree::{FilePlace, Layer, OBJECTS, PATCHES};
use serde_json::Value;
use std::hash::BuildHasher as _;
use std::path::Path;
use std::sync::Arc;
use transom_api::KnownReason;
use transom_core::document::emit::to_yaml_in_order;
use transom_core::object::Object;
use transom_core::plan::{Step, WriteFailure};
use transom_core::reference::ObjectRef;
use transom_core::share::room;
use transom_core::time::format_rfc3339;

/// Where an object says since when it is being deleted.
const DELETED: &str = "metadata.deletionTimestamp";
/// Where it names who has to agree to its end.
const FINALIZERS: &str = "metadata.finalizers";

/// Writes what users' changes left of field patches, also for the next run, and removes those of objects that are
/// gone: an object that comes back starts without them.
pub(super) fn write_patches(shared: &SharedDirectory) {
    if shared.own.is_none() {
        return;
    }
    let outdated = shared.store().outdated();
    for target in outdated {
        let file = object_file(&target);
        let _writing = shared.stripe(&file);
        let (patch, seen) = {
            let store = shared.store();
            (store.outdated_by(&target), store.seen(&target))
        };
        if let Some(patch) = patch {
            let writer = OwnWriter {
                shared,
                target: &target,
                file: &file,
            };
            // A failed write is retried with the next change; meanwhile the file has no effect.
            drop(writer.put_patch(patch, &seen));
        }
    }
}

/// Performs one step, with exclusive access to the own files of the object. Gives an object that was patched, or whose
/// removal waits for finalizers, as the step left it: the caller needs no other state.
pub(super) fn perform(
    shared: &SharedDirectory,
    target: &ObjectRef,
    step: Step,
) -> Result<Option<Object>, WriteFailure> {
    let file = object_file(target);
    let _writing = shared.stripe(&file);
    let writer = OwnWriter {
        shared,
        target,
        file: &file,
    };
    match step {
        Step::Create { desired } => writer.make(&desired.body, None).map(|_| None),
        Step::Update { desired, .. } => {
            let version = Some(desired.version.as_str());
            writer.make(&desired.body, version).map(|_| None)
        }
        Step::Patch {
            version, fields, ..
        } => writer.patch(&fields, &version),
        Step::Delete { version, .. } => writer.delete(&version),
    }
}

/// Writes the own files of one object.
struct OwnWriter<'a> {
    shared: &'a SharedDirectory,
    target: &'a ObjectRef,
    file: &'a Path,
}

impl OwnWriter<'_> {
    /// Fails if the object is not as it was read; `None` means that it must be absent. What is written is made from the
    /// same `store`: a user's file may change at any time.
    fn expect(&self, store: &DirectoryStore, version: Option<&str>) -> Result<(), WriteFailure> {
        let seen = store.seen(self.target);
        match (&seen, version) {
            (SlotState::Absent, None) => Ok(()),
            (SlotState::Value(_), Some(version)) if version_text(&seen) == version => Ok(()),
            (SlotState::Absent, Some(_)) => Err(self.conflict("it no longer exists")),
            (SlotState::Value(_), None) => {
                Err(self.conflict(&self.of_user(store, "it already exists")))
            }
            (SlotState::Value(_), Some(_)) => {
                Err(self.conflict(&self.of_user(store, "it changed since it was read")))
            }
            (SlotState::Duplicate(files), _) => {
                Err(self.conflict(&format!("it is defined in {files}")))
            }
        }
    }

    /// Why a write fails, with the user's file that defines the object, if there is one.
    fn of_user(&self, store: &DirectoryStore, why: &str) -> String {
        let is_users = matches!(store.effective(self.target), Effective::Users(..));
        let file = store.users_file(self.target).filter(|_| is_users);
        file.map_or_else(
            || why.to_owned(),
            |file| {
                let place = FilePlace::new(Layer::User, file);
                format!("{why}: it is defined in {place}, a file of the user")
            },
        )
    }

    /// The failure of a write because the object changed.
    fn conflict(&self, why: &str) -> WriteFailure {
        WriteFailure {
            reason: KnownReason::WriteConflict,
            message: format!("failed to write {}: {why}", self.target),
        }
    }

    /// The failure of a write for another reason.
    fn failed(&self, why: impl std::fmt::Display) -> WriteFailure {
        WriteFailure {
            reason: KnownReason::WriteFailed,
            message: format!("failed to write {}: {why}", self.target),
        }
    }

    /// Writes the whole object, in place of one that the agent made or laid over a user's object, if it still has this
    /// version.
    fn make(&self, body: &Value, expected: Option<&str>) -> Result<SlotState, WriteFailure> {
        let text = body.to_string();
        if text.len() > self.shared.limits.object_bytes {
            return Err(WriteFailure {
                reason: KnownReason::ObjectTooLarge,
                message: format!(
                    "failed to write {}: it has {} bytes",
                    self.target,
                    text.len()
                ),
            });
        }
        let seen = SlotState::Value(version(&self.shared.key, &text));
        let over = {
            let store = self.shared.store();
            self.expect(&store, expected)?;
            let users = store.slot(self.target).and_then(|slot| slot.users.first());
            if matches!(store.effective(self.target), Effective::Made(_))
                && store.seen(self.target) == seen
            {
                return Ok(seen);
            }
            users.map(|user| digest(user.text.as_bytes()).into())
        };
        let made = MadeObject {
            text: text.into(),
            weight: room::of_value(body),
            over,
        };
        let file = self.written(|| made_file(&made, &object_text(body)));
        self.put(
            Layer::Made,
            file.as_deref(),
            FileContent::Made(Arc::new(self.target.clone()), made),
            &seen,
        )?;
        Ok(seen)
    }

    /// Removes an object that the agent made; one with finalizers is only marked as being deleted. A user's object is
    /// only hidden in memory, if nothing may be written; else this fails.
    fn delete(&self, version: &str) -> Result<Option<Object>, WriteFailure> {
        let (effective, file) = {
            let store = self.shared.store();
            self.expect(&store, Some(version))?;
            let file = store.users_file(self.target);
            let file = file.map(|file| file.display().to_string());
            (store.effective(self.target), file.unwrap_or_default())
        };
        match (effective, &self.shared.own) {
            (Effective::Made(text), _) if self.is_folder() => {
                let mut body = self.parse(&text)?;
                if get(&body, DELETED).is_none() {
                    let now = format_rfc3339(self.shared.now_seconds());
                    set(&mut body, DELETED, Some(now.into()));
                }
                self.remake(body, version)
            }
            (Effective::Users(..), Some(_)) => {
                Err(self.failed(format!("it is defined in {file}, a file of the user")))
            }
            (Effective::Users(..), None) => {
                let mut store = self.shared.store_mut();
                let news = store.hide(self.target);
                self.tell(&store, news, None);
                Ok(None)
            }
            _ => self.end(),
        }
    }

    /// Whether it is a folder, also one that is not written: a render shows what a run does. Objects that were given
    /// otherwise, as in a case, are gone as soon as they are deleted: nobody would take their finalizers off.
    fn is_folder(&self) -> bool {
        self.shared.tree().own.is_some()
    }

    /// Writes an object that the agent made. As on an API server, what is being deleted is gone with its last
    /// finalizer.
    fn remake(&self, body: Value, version: &str) -> Result<Option<Object>, WriteFailure> {
        let finalizers = get(&body, FINALIZERS).and_then(Value::as_array);
        let is_held = finalizers.is_some_and(|names| !names.is_empty());
        if self.is_folder() && get(&body, DELETED).is_some() && !is_held {
            return self.end();
        }
        let seen = self.make(&body, Some(version))?;
        Ok(self.left(body, &seen))
    }

    /// Removes the file of an object that the agent made. As on an API server its end is told: a guest may wait for it.
    fn end(&self) -> Result<Option<Object>, WriteFailure> {
        self.remove(Layer::Made, None).map(|()| None)
    }

    /// The text of an own file; `None` in a directory that may not be written.
    fn written(&self, text: impl FnOnce() -> String) -> Option<String> {
        self.shared.own.is_some().then(text)
    }

    /// Writes one own file and updates the state; a file without text is only in the state.
    fn put(
        &self,
        layer: Layer,
        text: Option<&str>,
        content: FileContent,
        expected: &SlotState,
    ) -> Result<(), WriteFailure> {
        let place = FilePlace::new(layer, self.file);
        self.check_free(&place)?;
        if let Some((own, text)) = self.shared.own.as_ref().zip(text) {
            own.write(&own_file(layer, self.file), text.as_bytes())
                .map_err(|cause| self.failed(cause))?;
        }
        let print = Print {
            bytes: text.map_or(0, |text| self.shared.key.hash_one(text.as_bytes())),
            stamp: None,
        };
        let mut store = self.shared.store_mut();
        let news = store.change([(place, Edit::Put(print, content))]);
        self.tell(&store, news, Some(expected));
        Ok(())
    }

    /// Removes one own file and updates the state.
    fn remove(&self, layer: Layer, expected: Option<&SlotState>) -> Result<(), WriteFailure> {
        if let Some(own) = &self.shared.own {
            own.remove(&own_file(layer, self.file))
                .map_err(|cause| self.failed(cause))?;
        }
        let mut store = self.shared.store_mut();
        let news = store.change([(FilePlace::new(layer, self.file), Edit::Remove)]);
        self.tell(&store, news, expected);
        Ok(())
    }

    /// Notifies listeners of a write, without the object itself if it is as the writer expects it.
    fn tell(
        &self,
        store: &DirectoryStore,
        mut news: Vec<DirectoryNews>,
        expected: Option<&SlotState>,
    ) {
        if expected.is_some_and(|expected| store.seen(self.target) == *expected) {
            news.retain(
                |news| !matches!(news, DirectoryNews::Object(reference) if **reference == *self.target),
            );
        }
        self.shared.tell(store, &news);
    }

    /// Fails if the file holds another object: two versions of one kind share a file.
    fn check_free(&self, place: &FilePlace) -> Result<(), WriteFailure> {
        match self.shared.store().holder(place) {
            Some(other) if *other != *self.target => Err(self.failed(format!(
                "its file already contains the {} of {}",
                other.kind, other.api_version
            ))),
            _ => Ok(()),
        }
    }
}

/// The text of an object in a file of the agent.
pub(super) fn object_text(body: &Value) -> String {
    to_yaml_in_order(body, &["apiVersion", "kind", "metadata", "type"])
}

/// A file below the own folder.
fn own_file(layer: Layer, file: &Path) -> std::path::PathBuf {
    Path::new(if layer == Layer::Patch {
        PATCHES
    } else {
        OBJECTS
    })
    .join(file)
}
