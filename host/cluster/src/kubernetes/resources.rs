//! Resolves kinds to API paths and caches the paths. A missing kind is not cached, because it may be installed later.
//! Tells which names may be a part of a path.

use kube::Client;
use kube::api::{Api, DynamicObject};
use kube::core::{ApiResource, GroupVersion, GroupVersionKind};
use kube::discovery::{self, ApiCapabilities, Scope};
use kube::error::DiscoveryError;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use transom_core::share::lock::MutexExt as _;

/// How often a kind is resolved again because its subresources may have changed.
const DOUBTED: Duration = Duration::from_secs(30);

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

/// The kinds of one API server. Cheap to clone; all clones share one cache.
#[derive(Clone)]
pub(super) struct Resources {
    client: Client,
    known: ByKind<Arc<Resource>>,
    /// When the subresources of a kind were doubted last.
    doubted: ByKind<Instant>,
}

impl Resources {
    /// An empty cache.
    pub(super) fn new(client: Client) -> Self {
        Self {
            client,
            known: Arc::default(),
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
        let known = self.known.locked().get(&name).cloned();
        if let Some(known) = known {
            return Ok(known);
        }
        let version: GroupVersion = api_version.parse().map_err(|_| Unresolved::Missing)?;
        let kind = GroupVersionKind::gvk(&version.group, &version.version, kind);
        let (api, capabilities) = match discovery::pinned_kind(&self.client, &kind).await {
            Ok(found) => found,
            Err(error) => return Err(self.unresolved(error, &kind).await),
        };
        let resource = Arc::new(Resource {
            api,
            namespaced: capabilities.scope == Scope::Namespaced,
            subresources: subresources(&capabilities),
        });
        self.known.locked().insert(name, Arc::clone(&resource));
        Ok(resource)
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
        let groups = self.client.list_api_groups().await?.groups;
        let group = groups.into_iter().find(|group| group.name == kind.group);
        for version in group.into_iter().flat_map(|group| group.versions) {
            if version.version == kind.version {
                continue;
            }
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
