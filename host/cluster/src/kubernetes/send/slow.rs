//! Kinds whose requests are slow: they leave room for the others.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Duration, Instant};
use transom_core::share::lock::MutexExt as _;

/// When an attempt was slow.
const SLOW: Duration = Duration::from_secs(5);
/// How many requests for one slow kind run at once.
const PLACES: usize = 2;
/// For how long after its last slow attempt a kind stays slow: others of its requests may be quick.
const STAYS: Duration = Duration::from_secs(30);

/// A group and a plural.
type KindOfPath = (String, String);

/// The kinds with slow attempts, such as those with a webhook that does not answer. Each has a few places, so that it
/// does not take those of all other kinds.
#[derive(Default)]
pub(super) struct SlowKinds(Mutex<BTreeMap<KindOfPath, SlowKind>>);

/// The places of a slow kind, and when its last slow attempt ended.
struct SlowKind {
    places: Arc<Semaphore>,
    last: Instant,
}

impl SlowKinds {
    /// Waits for a place if the kind is slow.
    pub(super) async fn place(&self, kind: &KindOfPath) -> Option<OwnedSemaphorePermit> {
        let places = {
            let kinds = self.0.locked();
            Arc::clone(&kinds.get(kind)?.places)
        };
        // Nobody closes it.
        places.acquire_owned().await.ok()
    }

    /// An attempt for a kind took so long.
    pub(super) fn note(&self, kind: &KindOfPath, took: Duration) {
        let mut kinds = self.0.locked();
        let now = Instant::now();
        if took >= SLOW {
            let slow = kinds.entry(kind.clone()).or_insert_with(|| SlowKind {
                places: Arc::new(Semaphore::new(PLACES)),
                last: now,
            });
            slow.last = now;
        } else if kinds.get(kind).is_some_and(|slow| slow.last + STAYS <= now) {
            kinds.remove(kind);
        }
    }
}

#[cfg(test)]
impl SlowKinds {
    /// Whether no kind is slow.
    pub(super) fn has_none(&self) -> bool {
        self.0.locked().is_empty()
    }
}

/// What tells the kind in a path: its group and its plural, without version, namespace and name.
pub(super) fn kind_of(path: &str) -> KindOfPath {
    let mut parts = path.split('/').skip(1);
    let group = match parts.next() {
        Some("apis") => parts.next(),
        _ => None,
    };
    let rest: Vec<&str> = parts.skip(1).collect();
    let plural = match rest.as_slice() {
        ["namespaces", _, plural, ..] => Some(*plural),
        [plural, ..] => Some(*plural),
        [] => None,
    };
    let [group, plural] = [group, plural].map(|part| part.unwrap_or_default().to_owned());
    (group, plural)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_tells_the_kind_whatever_its_version_namespace_and_name() {
        for (path, kind) in [
            ("/api/v1/namespaces/n/configmaps/c", ("", "configmaps")),
            ("/api/v1/namespaces/n", ("", "namespaces")),
            (
                "/apis/apps/v1/namespaces/n/deployments/d",
                ("apps", "deployments"),
            ),
            (
                "/apis/apps/v1/namespaces/n/deployments",
                ("apps", "deployments"),
            ),
            ("/apis/a.b/v1/things/t/status", ("a.b", "things")),
            ("/", ("", "")),
        ] {
            let (group, plural) = kind_of(path);
            assert_eq!((group.as_str(), plural.as_str()), kind, "{path}");
        }
    }
}
