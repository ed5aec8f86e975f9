//! Resolves kinds to API paths and caches the paths. That a kind is missing is remembered for a moment and for writes
//! only: it may be installed at any time, and a read may take it as proof that an object is gone.

use super::counts::{Purpose, RequestCounts, RequestVerb};
use kube::Client;
use kube::api::{Api, DynamicObject};
use kube::core::{ApiResource, GroupVersion, GroupVersionKind};
use kube::discovery::{self, ApiCapabilities, Scope};
use kube::error::DiscoveryError;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use tokio::time::{Duration, Instant};
use transom_core::share::lock::MutexExt as _;

/// How often a kind is resolved again because its subresources may have changed.
const DOUBTED: Duration = Duration::from_secs(30);

/// How long writes go by the answer that a kind is missing. Very many primaries may want to write it.
const MISSING: Duration = Duration::from_secs(5);

/// The path of one kind.
#[derive(Clone, Debug)]
pub(super) struct Resource {
    /// Group, version, kind and plural.
    pub(super) api: ApiResource,
    /// Whether the kind is namespaced.
    pub(super) namespaced: bool,
    /// Its subresources: `status`.
    subresources: Vec<String>,
}

impl Resource {
    /// Whether it has a subresource.
    pub(super) fn has(&self, subresource: &str) -> bool {
        self.subresources.iter().any(|name| name == subresource)
    }
}

/// Why a kind has no known path.
#[derive(Debug)]
pub(super) enum Unresolved {
    /// The API server does not know the kind.
    Missing,
    /// It serves the kind only in this other version of its group.
    Elsewhere(String),
    /// The request failed.
    Failed(kube::Error),
}

/// By `apiVersion` and kind.
type ByKind<T> = Arc<Mutex<BTreeMap<(String, String), T>>>;

/// When a kind was found missing, and in which other version of its group it is served.
type FoundMissing = (Instant, Option<String>);

/// The kinds of one API server. Cheap to clone; all clones share one cache.
#[derive(Clone)]
pub(super) struct Resources {
    client: Client,
    counts: Arc<RequestCounts>,
    known: ByKind<Arc<Resource>>,
    missing: ByKind<FoundMissing>,
    /// Held while a write asks for a kind.
    turns: ByKind<Arc<tokio::sync::Mutex<()>>>,
    /// When the subresources of a kind were doubted last.
    doubted: ByKind<Instant>,
}

impl Resources {
    /// An empty cache.
    pub(super) fn new(client: Client, counts: Arc<RequestCounts>) -> Self {
        Self {
            client,
            counts,
            known: Arc::default(),
            missing: Arc::default(),
            turns: Arc::default(),
            doubted: Arc::default(),
        }
    }

    /// The path of a kind; `api_version` is group and version, `v1` for the core group.
    pub(super) async fn resolve(
        &self,
        api_version: &str,
        kind: &str,
    ) -> Result<Arc<Resource>, Unresolved> {
        let name = (api_version.to_owned(), kind.to_owned());
        if let Some(known) = self.known(&name) {
            return Ok(known);
        }
        let version: GroupVersion = api_version.parse().map_err(|_| Unresolved::Missing)?;
        let kind = GroupVersionKind::gvk(&version.group, &version.version, kind);
        self.count();
        let (api, capabilities) = match discovery::pinned_kind(&self.client, &kind).await {
            Ok(found) => found,
            Err(error) => {
                let unresolved = self.unresolved(error, &kind).await;
                self.found_missing(name, &unresolved);
                return Err(unresolved);
            }
        };
        let resource = Arc::new(Resource {
            api,
            namespaced: capabilities.scope == Scope::Namespaced,
            subresources: subresources(&capabilities),
        });
        self.missing.locked().remove(&name);
        self.known.locked().insert(name, Arc::clone(&resource));
        Ok(resource)
    }

    /// The same for a write. Writes that ask at the same time share one answer, and a kind that was missing a moment
    /// ago is not asked for again. As soon as a read or a watch finds it, it is known to writes, too.
    pub(super) async fn resolve_for_write(
        &self,
        api_version: &str,
        kind: &str,
    ) -> Result<Arc<Resource>, Unresolved> {
        let name = (api_version.to_owned(), kind.to_owned());
        if let Some(known) = self.known(&name) {
            return Ok(known);
        }
        let turn = Arc::clone(self.turns.locked().entry(name.clone()).or_default());
        let asks = turn.try_lock();
        if asks.is_err() {
            // Another write asks. Should it get no answer, all that waited for it ask at once.
            drop(turn.lock().await);
            if let Some(known) = self.known(&name) {
                return Ok(known);
            }
        }
        let missing = self.missing.locked().get(&name).cloned();
        match missing.filter(|(since, _)| since.elapsed() < MISSING) {
            Some((_, Some(version))) => Err(Unresolved::Elsewhere(version)),
            Some((_, None)) => Err(Unresolved::Missing),
            None => self.resolve(api_version, kind).await,
        }
    }

    fn known(&self, name: &(String, String)) -> Option<Arc<Resource>> {
        self.known.locked().get(name).cloned()
    }

    /// Remembers that a kind is missing, if it certainly is.
    fn found_missing(&self, name: (String, String), unresolved: &Unresolved) {
        let served = match unresolved {
            Unresolved::Missing => None,
            Unresolved::Elsewhere(version) => Some(version.clone()),
            Unresolved::Failed(_) => return,
        };
        self.missing.locked().insert(name, (Instant::now(), served));
    }

    /// Counts a request for what is served.
    fn count(&self) {
        self.counts.add(RequestVerb::Get, Purpose::Discovery);
    }

    /// Forgets the path of a kind, because the API server may have removed the kind or changed its path.
    pub(super) fn forget(&self, api_version: &str, kind: &str) {
        let name = (api_version.to_owned(), kind.to_owned());
        self.known.locked().remove(&name);
    }

    /// Forgets the path of a kind, because its CRD may have got a subresource or lost one. Not twice in 30 s: a policy
    /// for a kind that never has the subresource must not resolve it with every write. Whether it was forgotten.
    pub(super) fn doubt(&self, api_version: &str, kind: &str) -> bool {
        let name = (api_version.to_owned(), kind.to_owned());
        let mut doubted = self.doubted.locked();
        if doubted
            .get(&name)
            .is_some_and(|since| since.elapsed() < DOUBTED)
        {
            return false;
        }
        doubted.insert(name, Instant::now());
        self.forget(api_version, kind);
        true
    }

    /// The objects of a kind: those of a namespace, of all namespaces, or of the cluster.
    pub(super) fn api(&self, resource: &Resource, namespace: Option<&str>) -> Api<DynamicObject> {
        match namespace {
            Some(namespace) if resource.namespaced => {
                Api::namespaced_with(self.client.clone(), namespace, &resource.api)
            }
            _ => Api::all_with(self.client.clone(), &resource.api),
        }
    }

    /// Why a kind was not found. Something between the agent and the API server may have answered 404, so the 404
    /// counts only if the server also lists its groups.
    async fn unresolved(&self, error: kube::Error, kind: &GroupVersionKind) -> Unresolved {
        let not_found = match &error {
            kube::Error::Api(status) => status.code == 404,
            kube::Error::Discovery(DiscoveryError::InvalidGroupVersion(_)) => false,
            kube::Error::Discovery(_) => true,
            _ => false,
        };
        if !not_found {
            return Unresolved::Failed(error);
        }
        match self.elsewhere(kind).await {
            Ok(Some(version)) => Unresolved::Elsewhere(version),
            Ok(None) => Unresolved::Missing,
            Err(error) => Unresolved::Failed(error),
        }
    }

    /// Another version of its group in which a kind is served. Its objects exist, but cannot be requested in the
    /// version that was named.
    async fn elsewhere(&self, kind: &GroupVersionKind) -> Result<Option<String>, kube::Error> {
        self.count();
        let groups = self.client.list_api_groups().await?.groups;
        let group = groups.into_iter().find(|group| group.name == kind.group);
        for version in group.into_iter().flat_map(|group| group.versions) {
            if version.version == kind.version {
                continue;
            }
            self.count();
            let served = self
                .client
                .list_api_group_resources(&version.group_version)
                .await?;
            if served.resources.iter().any(|one| one.kind == kind.kind) {
                return Ok(Some(version.group_version));
            }
        }
        Ok(None)
    }
}

/// The names of the subresources of a kind; discovery may name each with its resource before it.
fn subresources(capabilities: &ApiCapabilities) -> Vec<String> {
    let all = capabilities.subresources.iter();
    let name = |plural: &str| plural.rsplit('/').next().unwrap_or_default().to_owned();
    all.map(|(resource, _)| name(&resource.plural)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::future::join_all;
    use http::{Request, Response, StatusCode};
    use kube::client::Body;
    use serde_json::{Value, json};
    use std::convert::Infallible;
    use std::sync::atomic::{AtomicU16, Ordering};
    use tower::service_fn;

    const VERSION: &str = "example.org/v1";
    const KIND: &str = "Thing";

    /// The status code of the answer for the version of the group; with 200 it serves a Thing.
    type Serves = Arc<AtomicU16>;

    fn server() -> (Resources, Arc<RequestCounts>, Serves) {
        let serves = Serves::new(404.into());
        let code = Arc::clone(&serves);
        let answer = move |request: Request<Body>| {
            let of_version = code.load(Ordering::Relaxed);
            async move {
                // As between processes, others run before the answer is there.
                tokio::task::yield_now().await;
                let (code, body) = match request.uri().path() {
                    "/apis" => (200, json!({"kind": "APIGroupList", "groups": []})),
                    "/apis/example.org/v1" => (of_version, kinds(of_version)),
                    other => panic!("{other}"),
                };
                let mut answer = Response::new(Body::from(body.to_string().into_bytes()));
                *answer.status_mut() = StatusCode::from_u16(code).unwrap();
                Ok::<_, Infallible>(answer)
            }
        };
        let client = Client::new(service_fn(answer), "default");
        let counts = Arc::default();
        (Resources::new(client, Arc::clone(&counts)), counts, serves)
    }

    fn kinds(code: u16) -> Value {
        let things = json!({"name": "things", "singularName": "thing", "namespaced": true, "kind": KIND, "verbs": ["patch"]});
        match code {
            200 => json!({"groupVersion": VERSION, "resources": [things]}),
            code => {
                json!({"kind": "Status", "status": "Failure", "code": code, "reason": "X", "message": ""})
            }
        }
    }

    fn asked(counts: &RequestCounts) -> u64 {
        counts.of(RequestVerb::Get, Purpose::Discovery)
    }

    /// As many writes at the same time; how many of them found the kind, was told that it is missing, or failed.
    async fn write(resources: &Resources, writes: usize) -> [usize; 3] {
        let all = (0..writes).map(|_| resources.resolve_for_write(VERSION, KIND));
        let mut ends = [0; 3];
        for end in join_all(all).await {
            ends[match end {
                Ok(_) => 0,
                Err(Unresolved::Missing) => 1,
                Err(_) => 2,
            }] += 1;
        }
        ends
    }

    #[tokio::test(start_paused = true)]
    async fn a_missing_kind_is_asked_for_once_in_a_while_however_many_writes_want_it() {
        let (resources, counts, serves) = server();
        for asked_so_far in [2, 4] {
            for _ in 0..3 {
                assert_eq!(write(&resources, 1_000).await, [0, 1_000, 0]);
                assert_eq!(asked(&counts), asked_so_far);
            }
            tokio::time::advance(MISSING).await;
        }
        serves.store(200, Ordering::Relaxed);
        assert_eq!(write(&resources, 1_000).await, [1_000, 0, 0]);
        assert_eq!(asked(&counts), 5);
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_asks_for_a_missing_kind_itself_and_writes_know_it_as_soon_as_it_finds_it() {
        let (resources, counts, serves) = server();
        assert_eq!(write(&resources, 1).await, [0, 1, 0]);
        let watch = || resources.resolve(VERSION, KIND);
        assert!(matches!(watch().await, Err(Unresolved::Missing)));
        assert_eq!(asked(&counts), 4);
        serves.store(200, Ordering::Relaxed);
        assert_eq!(write(&resources, 1).await, [0, 1, 0]);
        assert!(watch().await.is_ok());
        assert_eq!(write(&resources, 10).await, [10, 0, 0]);
        assert_eq!(asked(&counts), 5);
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_does_not_say_whether_the_kind_is_served_is_not_remembered() {
        let (resources, _, serves) = server();
        serves.store(503, Ordering::Relaxed);
        assert_eq!(write(&resources, 1_000).await, [0, 0, 1_000]);
        serves.store(200, Ordering::Relaxed);
        assert_eq!(write(&resources, 2).await, [2, 0, 0]);
    }
}
