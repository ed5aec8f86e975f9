//! Kinds whose requests are slow: they leave room for the others.

use std::collections::BTreeSet;
use std::sync::Mutex;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Duration;
use transom_core::share::lock::MutexExt as _;

/// When an attempt was slow.
const SLOW: Duration = Duration::from_secs(5);
/// How many requests for slow kinds run at once.
const PLACES: usize = 4;

/// The kinds for which the last attempt was slow, such as those with a webhook that does not answer. They share a few
/// places, so that they do not take those of all other kinds.
pub(super) struct SlowKinds {
    /// By group and plural.
    kinds: Mutex<BTreeSet<(String, String)>>,
    places: Semaphore,
}

impl Default for SlowKinds {
    fn default() -> Self {
        Self {
            kinds: Mutex::default(),
            places: Semaphore::new(PLACES),
        }
    }
}

impl SlowKinds {
    /// Waits for a place if the kind is slow.
    pub(super) async fn place(&self, kind: &(String, String)) -> Option<SemaphorePermit<'_>> {
        let is_slow = self.kinds.locked().contains(kind);
        match is_slow {
            // Nobody closes it.
            true => self.places.acquire().await.ok(),
            false => None,
        }
    }

    /// An attempt for a kind took so long.
    pub(super) fn note(&self, kind: &(String, String), took: Duration) {
        let mut kinds = self.kinds.locked();
        match took >= SLOW {
            true => drop(kinds.insert(kind.clone())),
            false => drop(kinds.remove(kind)),
        }
    }
}

#[cfg(test)]
impl SlowKinds {
    /// Whether no kind is slow.
    pub(super) fn has_none(&self) -> bool {
        self.kinds.locked().is_empty()
    }
}

/// What tells the kind in a path: its group and its plural, without version, namespace and name.
pub(super) fn kind_of(path: &str) -> (String, String) {
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
