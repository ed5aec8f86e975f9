//! What the system reports of manifests that changed: which one is being written, and which was replaced as a whole.
//! Reads no file.

use crate::policies::files::is_manifest;
use crate::policies::settling::SettlingTime;
use notify::event::{AccessKind, AccessMode, ModifyKind};
use notify::{Event, EventKind};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::{self, Path, PathBuf};
use std::sync::{Arc, Mutex};
use transom_core::share::lock::MutexExt as _;

/// Whether the system reports that a written file was closed.
const TELLS_CLOSE: bool = cfg!(target_os = "linux");

/// File names of the components that are followed.
pub(super) type ComponentNames = Arc<Mutex<BTreeSet<OsString>>>;

/// Whether an event may be about a manifest or a component. A write to another file, such as a log, is not.
pub(super) fn concerns(event: &Event, names: &ComponentNames) -> bool {
    let named = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default();
        is_manifest(name) || names.locked().contains(name)
    };
    match event.kind {
        EventKind::Access(AccessKind::Close(AccessMode::Write))
        | EventKind::Modify(ModifyKind::Data(_)) => event.paths.iter().any(named),
        EventKind::Access(_) => false,
        _ => true,
    }
}

/// What happened last to a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ManifestTouch {
    /// Bytes were written, and the writer has not closed the file yet.
    Writing,
    /// It was renamed, and is complete.
    Renamed,
    /// Anything else.
    Written,
}

impl ManifestTouch {
    fn of(kind: &EventKind) -> Option<Self> {
        match kind {
            EventKind::Modify(ModifyKind::Name(_)) => Some(Self::Renamed),
            EventKind::Modify(ModifyKind::Data(_)) if TELLS_CLOSE => Some(Self::Writing),
            EventKind::Modify(ModifyKind::Metadata(_)) => None,
            EventKind::Access(AccessKind::Close(AccessMode::Write))
            | EventKind::Create(_)
            | EventKind::Modify(_)
            | EventKind::Remove(_) => Some(Self::Written),
            _ => None,
        }
    }
}

/// What happened to the manifests with a change that does not count yet, and to folders above them.
#[derive(Debug, Default)]
pub(super) struct TouchedManifests(BTreeMap<PathBuf, ManifestTouch>);

impl TouchedManifests {
    /// Records an event; `None` when events were missed, and nothing is known any more.
    pub(super) fn note(&mut self, event: Option<Event>) {
        let Some(event) = event.filter(|event| !event.need_rescan()) else {
            return self.0.clear();
        };
        let Some(touch) = ManifestTouch::of(&event.kind) else {
            return;
        };
        // A renamed folder may hold manifests.
        let matters = |path: &PathBuf| {
            touch == ManifestTouch::Renamed || path.file_name().is_some_and(is_manifest)
        };
        let paths = event.paths.into_iter().filter(matters);
        self.0.extend(paths.map(|path| (path, touch)));
    }

    /// Forgets everything but what happened to these files and above them.
    pub(super) fn retain<'a>(&mut self, moving: impl Iterator<Item = &'a PathBuf>) {
        let moving: BTreeSet<PathBuf> = moving.map(|path| as_reported(path)).collect();
        self.0.retain(|path, _| {
            let mut from = moving.range::<PathBuf, _>(path..);
            from.next().is_some_and(|first| first.starts_with(path))
        });
    }

    /// Whether a manifest is being written.
    pub(super) fn any_written(&self) -> bool {
        self.0
            .values()
            .any(|touch| *touch == ManifestTouch::Writing)
    }

    /// How long a manifest takes to settle after what happened to it, or else to a folder above it.
    pub(super) fn time(&self, path: &Path) -> SettlingTime {
        let path = as_reported(path);
        match path.ancestors().find_map(|path| self.0.get(path)) {
            Some(ManifestTouch::Writing) => SettlingTime::OPEN,
            Some(ManifestTouch::Renamed) => SettlingTime::REPLACED,
            Some(ManifestTouch::Written) | None => SettlingTime::IN_PLACE,
        }
    }
}

/// A path as the system reports it.
fn as_reported(path: &Path) -> PathBuf {
    path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use notify::event::{CreateKind, DataChange, Flag, RenameMode};

    const DATA: EventKind = EventKind::Modify(ModifyKind::Data(DataChange::Any));
    const CLOSED: EventKind = EventKind::Access(AccessKind::Close(AccessMode::Write));
    const RENAMED: EventKind = EventKind::Modify(ModifyKind::Name(RenameMode::To));
    const CREATED: EventKind = EventKind::Create(CreateKind::File);

    #[test]
    fn what_happened_last_to_a_manifest_counts_or_else_to_its_folder() {
        let mut touched = TouchedManifests::default();
        let mut after = |kind, path: &str, of: &str| {
            touched.note(Some(Event::new(kind).add_path(path.into())));
            touched.time(Path::new(of))
        };
        let file = "/p/sub/a.yaml";
        assert_eq!(after(CREATED, file, file), SettlingTime::IN_PLACE);
        if TELLS_CLOSE {
            assert_eq!(after(DATA, file, file), SettlingTime::OPEN);
        }
        assert_eq!(after(CLOSED, file, file), SettlingTime::IN_PLACE);
        assert_eq!(after(RENAMED, file, file), SettlingTime::REPLACED);
        assert_eq!(after(CLOSED, file, file), SettlingTime::IN_PLACE);
        // A moved folder brings whole files, but not one that was written since.
        assert_eq!(after(RENAMED, "/p/sub", file), SettlingTime::IN_PLACE);
        let other = "/p/sub/b.yaml";
        assert_eq!(after(CREATED, "/p/sub/c", other), SettlingTime::REPLACED);
        assert_eq!(after(CREATED, "/p/x", "/p/x.yaml"), SettlingTime::IN_PLACE);
    }

    #[test]
    fn only_what_happened_to_files_that_are_settling_is_kept() {
        let mut touched = TouchedManifests::default();
        for path in ["/a.yaml", "/b.yaml", "/sub", "/su"] {
            touched.note(Some(Event::new(RENAMED).add_path(path.into())));
        }
        let moving = ["/b.yaml", "/sub/c.yaml"].map(PathBuf::from);
        touched.retain(moving.iter());
        assert!(
            touched
                .0
                .keys()
                .eq([Path::new("/b.yaml"), Path::new("/sub")])
        );
        touched.note(Some(Event::default().set_flag(Flag::Rescan)));
        assert_eq!(touched.time(&moving[0]), SettlingTime::IN_PLACE);
        // The system reports whole paths.
        let here = std::env::current_dir().unwrap();
        touched.note(Some(Event::new(RENAMED).add_path(here.join("d.yaml"))));
        assert_eq!(touched.time(Path::new("d.yaml")), SettlingTime::REPLACED);
        touched.retain([PathBuf::from("d.yaml")].iter());
        assert_eq!(touched.time(Path::new("d.yaml")), SettlingTime::REPLACED);
    }
}
