//! Decides when a changed path is quiet enough to be read. Instants come as arguments: does no I/O.

use super::signals::MOST;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The most settling times that a change waits for other changes.
const RESTLESS: u32 = 5;
/// How long a file must be quiet before it is read, unless [`super::DirectoryOptions`] says otherwise.
pub const SETTLE: Duration = Duration::from_millis(100);
/// How many settling times no file of the user changes before objects that no file has any more are gone. Longer than
/// files settle: a program that moves files may write the first one long after it removed the last one.
pub const QUIET: u32 = 20;
/// How many settling times a file that a program keeps open must be quiet before it is read as it is.
pub const OPEN: u32 = 600;
/// After how many settling times it is read as it is although the program goes on writing.
const ENDLESS: u32 = 10 * OPEN;

/// What happened to a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Touch {
    /// Bytes were written, and the writer has not closed the file yet.
    Writing,
    /// The file is complete: closed, renamed or removed.
    Whole,
    /// Anything else.
    Other,
}

/// A path that changed and was not read since, or that a program keeps open.
struct PendingPath {
    first: Instant,
    last: Instant,
    writing: bool,
    /// When it was read as it was, although a program keeps it open. Nothing waits for that program any more.
    read: Option<Instant>,
}

/// The paths that changed and were not read since.
pub(super) struct SettlingPaths {
    settle: Duration,
    changes: BTreeMap<PathBuf, PendingPath>,
}

impl SettlingPaths {
    /// With no change yet; `settle` is how long a path must be quiet.
    pub(super) fn new(settle: Duration) -> Self {
        Self {
            settle,
            changes: BTreeMap::new(),
        }
    }

    /// Records what happened to a path.
    pub(super) fn note(&mut self, path: PathBuf, touch: Touch, now: Instant) {
        let change = self.changes.entry(path).or_insert(PendingPath {
            first: now,
            last: now,
            writing: false,
            read: None,
        });
        change.last = now;
        match touch {
            Touch::Writing => change.writing = true,
            Touch::Whole => (change.writing, change.read) = (false, None),
            Touch::Other => {}
        }
    }

    /// If there are too many paths, forgets the complete ones and returns true: then everything must be scanned.
    pub(super) fn crowd(&mut self) -> bool {
        let crowded = self.changes.len() > MOST;
        if crowded {
            self.changes.retain(|_, change| change.writing);
        }
        crowded
    }

    /// Whether one of these paths changed and was not read since.
    pub(super) fn any(&self, which: impl Fn(&Path) -> bool) -> bool {
        let mut unread = self.changes.iter().filter(|(_, one)| one.read.is_none());
        unread.any(|(path, _)| which(path))
    }

    /// Whether a path changed and was not read since.
    pub(super) fn contains(&self, path: &Path) -> bool {
        let change = self.changes.get(path);
        change.is_some_and(|change| change.read.is_none())
    }

    /// Whether one of these files is being written and was not read since.
    pub(super) fn writes(&self, which: impl Fn(&Path) -> bool) -> bool {
        let unread = |change: &PendingPath| change.writing && change.read.is_none();
        let mut written = self.changes.iter().filter(|(_, change)| unread(change));
        written.any(|(path, _)| which(path))
    }

    /// Takes the complete paths, although more may follow.
    pub(super) fn take_whole(&mut self) -> Vec<PathBuf> {
        let whole = self.changes.extract_if(.., |_, change| !change.writing);
        whole.map(|(path, _)| path).collect()
    }

    /// When the next path is due.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.whole_due()
            .into_iter()
            .chain(
                self.changes
                    .values()
                    .filter_map(|change| self.writing_due(change)),
            )
            .min()
    }

    /// Takes the paths that are due. Complete paths are taken together, so that a file and its new name, or everything
    /// that one command wrote, are one change.
    pub(super) fn take_due(&mut self, now: Instant) -> Vec<PathBuf> {
        let whole = self.whole_due().is_some_and(|due| due <= now);
        let is_due = |change: &PendingPath| match change.writing {
            true => self.writing_due(change).is_some_and(|due| due <= now),
            false => whole,
        };
        let due: Vec<PathBuf> = self
            .changes
            .iter()
            .filter(|(_, change)| is_due(change))
            .map(|(path, _)| path.clone())
            .collect();
        for path in &due {
            match self.changes.get_mut(path) {
                Some(change) if change.writing => change.read = Some(now),
                _ => drop(self.changes.remove(path)),
            }
        }
        due
    }

    /// When the complete paths are due: after all of them were quiet for one settling time, or when the first of them
    /// has waited long enough.
    fn whole_due(&self) -> Option<Instant> {
        let whole = || self.changes.values().filter(|change| !change.writing);
        let quiet = whole().map(|change| change.last).max()? + self.settle;
        let first = whole().map(|change| change.first).min()?;
        Some(quiet.min(first + self.settle * RESTLESS))
    }

    /// When a file is read although its writer has not closed it.
    fn writing_due(&self, change: &PendingPath) -> Option<Instant> {
        let is_due = change.writing && change.read.is_none_or(|read| read < change.last);
        let since = change.read.unwrap_or(change.first);
        let quiet = change.last + self.settle * OPEN;
        is_due.then(|| quiet.min(since + self.settle * ENDLESS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: Duration = Duration::from_millis(100);

    /// After how many settling times a path is due that was touched at these times.
    fn due(touches: &[(u32, Touch)]) -> u32 {
        let start = Instant::now();
        let mut settling = SettlingPaths::new(STEP);
        for (at, touch) in touches {
            settling.note("a".into(), *touch, start + STEP * *at);
        }
        let due = settling.next_due().unwrap();
        assert_eq!(
            settling.take_due(due - Duration::from_nanos(1)),
            Vec::<PathBuf>::new()
        );
        assert!(settling.contains(Path::new("a")));
        assert_eq!(settling.take_due(due), [Path::new("a")]);
        assert_eq!(settling.next_due(), None);
        u32::try_from((due - start).as_millis() / STEP.as_millis()).unwrap()
    }

    #[test]
    fn a_path_is_due_once_quiet() {
        assert_eq!(due(&[(0, Touch::Other)]), 1);
        assert_eq!(due(&[(0, Touch::Other), (1, Touch::Whole)]), 2);
    }

    #[test]
    fn a_path_that_is_never_quiet_becomes_due_eventually() {
        let restless: Vec<_> = (0..20).map(|at| (at, Touch::Whole)).collect();
        assert_eq!(due(&restless), 5);
    }

    #[test]
    fn paths_that_change_together_are_due_together() {
        let start = Instant::now();
        let mut settling = SettlingPaths::new(STEP);
        settling.note("a".into(), Touch::Whole, start);
        settling.note("b".into(), Touch::Whole, start + STEP / 2);
        settling.note("c".into(), Touch::Writing, start + STEP / 2);
        assert_eq!(settling.take_due(start + STEP), Vec::<PathBuf>::new());
        assert_eq!(
            settling.take_due(start + STEP * 2),
            [Path::new("a"), Path::new("b")]
        );
        assert!(settling.contains(Path::new("c")));
    }

    #[test]
    fn too_many_paths_are_not_tracked_individually() {
        let mut settling = SettlingPaths::new(STEP);
        settling.note("open".into(), Touch::Writing, Instant::now());
        let crowded = (0..=MOST).filter(|index| {
            settling.note(index.to_string().into(), Touch::Whole, Instant::now());
            settling.crowd()
        });
        assert_eq!(crowded.count(), 1);
        assert!(settling.contains(Path::new("open")) && settling.changes.len() <= MOST);
    }

    #[test]
    fn a_program_that_writes_one_file_all_the_time_holds_nothing_up_for_ever() {
        let start = Instant::now();
        let at = |steps: u32| start + STEP * steps;
        let mut settling = SettlingPaths::new(STEP);
        let path = Path::new("log.json");
        let mut reads = Vec::new();
        for step in (0..15_000).step_by(100) {
            settling.note(path.into(), Touch::Writing, at(step));
            if !settling.take_due(at(step)).is_empty() {
                reads.push(step);
            }
            let waits = reads.is_empty();
            assert_eq!(settling.writes(|_| true), waits, "{step}");
            assert_eq!(settling.any(|_| true), waits, "{step}");
            assert_eq!(settling.contains(path), waits, "{step}");
        }
        assert_eq!(reads, [6_000, 12_000]);
        // Once it is closed, it is read like any other file.
        settling.note(path.into(), Touch::Whole, at(15_000));
        assert!(settling.contains(path) && !settling.writes(|_| true));
        assert_eq!(settling.take_due(at(15_001)), [path]);
        assert_eq!(settling.next_due(), None);
        assert!(settling.changes.is_empty());
    }

    #[test]
    fn a_file_that_is_still_open_for_writing_is_not_due() {
        assert_eq!(due(&[(0, Touch::Writing)]), 600);
        assert_eq!(due(&[(0, Touch::Writing), (3, Touch::Other)]), 603);
        assert_eq!(due(&[(0, Touch::Writing), (3, Touch::Whole)]), 4);
    }
}
