//! Watches the files of policies and components, and `Policy` objects, and has them swapped.
//! Never loads anything where an evaluation waits.

use crate::agent::Agent;
use crate::policies::swap::Swap;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

/// How often the files are looked at. There are a handful of them, and a change of policy may take this long.
const EVERY: Duration = Duration::from_millis(250);

/// Looks at the files until the task is ended. A change is loaded once the files have been quiet for one look; that of
/// an object at the next look. Components that `Policy` objects name as files lie in `components`.
pub(crate) async fn policies(agent: Arc<Agent>, mut swap: Swap, components: PathBuf) {
    // Nobody watched while the first revisions were loaded and put to work: what changed since then is in the first load.
    let mut loaded = BTreeMap::new();
    let mut seen = marks(&swap.files());
    let mut looks = tokio::time::interval(EVERY);
    loop {
        looks.tick().await;
        let given = take_objects(&agent, &mut swap, &components).await;
        let now = marks(&swap.files());
        if now != seen && !given {
            seen = now;
            continue;
        }
        if seen == loaded && !given {
            continue;
        }
        let work = tokio::task::spawn_blocking(move || {
            let changes = swap.load();
            (swap, changes)
        });
        let Ok((done, changes)) = work.await else { return };
        swap = done;
        agent.connections.watch(swap.catalogue()).await;
        swap.publish(&agent, &changes);
        loaded = seen.clone();
        seen = marks(&swap.files());
    }
}

/// Takes the `Policy` objects as they are now, when one of them was told of; false when they say the same.
async fn take_objects(agent: &Agent, swap: &mut Swap, components: &Path) -> bool {
    if !agent.policies_told.swap(false, Ordering::AcqRel) {
        return false;
    }
    let found = agent.given(components).await;
    swap.give(found)
}

/// Size and time of every file below some paths.
fn marks(paths: &[PathBuf]) -> BTreeMap<PathBuf, (u64, Option<SystemTime>)> {
    let mut all = BTreeMap::new();
    paths.iter().for_each(|path| mark(path, &mut all));
    all
}

fn mark(path: &Path, all: &mut BTreeMap<PathBuf, (u64, Option<SystemTime>)>) {
    let Ok(about) = std::fs::metadata(path) else { return };
    if !about.is_dir() {
        all.insert(path.to_owned(), (about.len(), about.modified().ok()));
        return;
    }
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| entry.file_name() != "cases") {
        mark(&entry.path(), all);
    }
}
