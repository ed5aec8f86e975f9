//! Which components policies may name, and how those are read that lie in a cluster or a registry.

use crate::clock::Clock;
use crate::policies::cases::PassedCases;
use crate::policies::component_cache::{ComponentCache, ComponentRequest, NoRoom};
use crate::policies::images::Images;
use crate::policies::load::Inputs;
use crate::policies::revisions::Revisions;
use crate::policies::verify;
use crate::policies::wanted::WantedReads;
use futures::FutureExt as _;
use std::collections::{BTreeMap, BTreeSet};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use tokio::sync::watch;
use transom_api::KnownReason;
use transom_artifacts::{
    Contents, GatheredComponents, HeldComponent, Location, MAX_BYTES, Pulled, Sources, Unread,
};
use transom_cluster::Cluster;
use transom_core::catalogue::Refusal;
use transom_core::policy::component::Image;
use transom_core::reference::ObjectRef;

/// What is in each object that holds a part of a component, as a digest; `None` when it does not exist or cannot be
/// read.
pub(crate) type PartVersions = BTreeMap<ObjectRef, Option<String>>;

/// The cluster whose objects hold components.
#[derive(Clone, Default)]
pub(super) enum Local {
    /// Not opened yet.
    #[default]
    Opening,
    /// There is none.
    Nowhere,
    /// This one.
    At(Arc<dyn Cluster>),
    /// One that lists nothing, for this reason.
    #[cfg(test)]
    Refusing(KnownReason),
}

/// The allowed sources of components, the cluster and the registries that hold some of them, and those that were
/// loaded. Clones share all of it.
#[derive(Clone)]
pub(crate) struct Components {
    sources: Arc<Sources>,
    local: Arc<watch::Sender<Local>>,
    images: Option<Images>,
    kept: ComponentCache,
    /// Where the revisions of policies are kept.
    pub(super) revisions: Option<Arc<Revisions>>,
}

impl Components {
    /// Reads no object before [`Components::opened`] was called, and pulls nothing.
    pub(crate) fn new(sources: &Sources) -> Self {
        Self {
            sources: Arc::new(sources.clone()),
            local: Arc::default(),
            images: None,
            kept: ComponentCache::default(),
            revisions: None,
        }
    }

    /// Also pulls from registries, and keeps what was loaded.
    pub(crate) fn pulling(self, images: Images, kept: ComponentCache) -> Self {
        Self {
            images: Some(images),
            kept,
            ..self
        }
    }

    /// Also keeps the revisions of policies, as objects in this namespace of the local cluster.
    pub(crate) fn remembering(self, namespace: &str, clock: Clock) -> Self {
        Self {
            revisions: Some(Arc::new(Revisions::new(namespace, clock))),
            ..self
        }
    }

    /// Has the cluster list nothing, for this reason.
    #[cfg(test)]
    pub(super) fn refusing(&self, reason: KnownReason) {
        self.local.send_replace(Local::Refusing(reason));
    }

    /// Tells that components are not kept for the next start, if they are not.
    pub(crate) fn tell_unusable(&self) {
        self.kept.tell_unusable();
    }

    /// The components that were loaded.
    pub(super) fn kept(&self) -> &ComponentCache {
        &self.kept
    }

    /// The registries, if any are asked.
    pub(super) fn images(&self) -> Option<&Images> {
        self.images.as_ref()
    }

    /// Whether a component has to be pulled from a registry now.
    pub(super) fn must_pull(&self, component: &Location, asker: ComponentRequest<'_>) -> bool {
        component.image().is_some() && self.allow(component) && !self.kept.has(component, asker)
    }

    /// Keeps components that were loaded from elsewhere and have one of these digests. A file is read again for that,
    /// and may be another one by now, which nothing has checked.
    ///
    /// # Errors
    /// When one of them is new and finds no room.
    pub(super) fn keep(
        &self,
        wanted: &WantedReads,
        gathered: &GatheredComponents,
        loaded: &BTreeSet<&str>,
    ) -> Result<(), Refusal> {
        let fetch = |component: &Location| {
            let fetched = component.fetch(None, gathered).ok();
            fetched.filter(|artifact| loaded.contains(artifact.digest.as_str()))
        };
        let full = |component: &Location, why: NoRoom| {
            Refusal::new(
                KnownReason::CacheFull,
                format!("component `{component}`: {why}"),
            )
        };
        // What was kept before is as it was.
        let is_new = |one: &&Location| one.is_remote() && !gathered.kept.contains_key(one);
        let is_other = |one: &&Location| self.remembers() && !matches!(one, Location::Builtin(_));
        for component in wanted.components.iter().filter(is_other) {
            let asker = wanted.asker(component);
            let evidence = component.evidence(gathered).ok().filter(|_| asker.signed);
            if let Some(artifact) = fetch(component) {
                self.kept
                    .keep_digest(component, asker, &artifact, evidence.as_ref())
                    .map_err(|why| full(component, why))?;
            }
        }
        for component in wanted.components.iter().filter(is_new) {
            let pulled = |image| gathered.images.get(image)?.as_ref().ok();
            let pulled = component.image().and_then(pulled);
            let manifest = pulled.map(|pulled| pulled.manifest.as_str());
            let asker = wanted.asker(component);
            let evidence = component.evidence(gathered).ok().filter(|_| asker.signed);
            if let Some(artifact) = fetch(component) {
                self.kept
                    .keep(component, asker, &artifact, manifest, evidence.as_ref())
                    .map_err(|why| full(component, why))?;
            }
        }
        Ok(())
    }

    /// Sets the cluster whose objects hold components; `None` when there is none.
    pub(crate) fn opened(&self, cluster: Option<Arc<dyn Cluster>>) {
        self.local
            .send_replace(cluster.map_or(Local::Nowhere, Local::At));
    }

    /// The allowed sources.
    pub(super) fn sources(&self) -> &Sources {
        &self.sources
    }

    /// Whether a policy may name a component.
    pub(super) fn allow(&self, component: &Location) -> bool {
        self.sources.allow(component)
    }

    pub(super) async fn local(&self) -> Local {
        let mut local = self.local.subscribe();
        let opened = local.wait_for(|local| !matches!(local, Local::Opening));
        // Fails only without a sender, and `self` holds it.
        opened.await.map_or(Local::Nowhere, |local| local.clone())
    }

    /// Reads what lies in a cluster or a registry, as far as it is allowed. `None` when a registry has to be asked, and
    /// that is not wanted now.
    pub(super) async fn read(
        &self,
        wanted: &WantedReads,
        may_pull: bool,
    ) -> Option<GatheredComponents> {
        let allowed: Vec<_> = wanted.all().filter(|one| self.allow(one)).collect();
        let mut gathered = GatheredComponents::default();
        if allowed.iter().any(|one| !one.parts().is_empty()) {
            self.read_objects(&allowed, &mut gathered).await;
        }
        let Some(images) = &self.images else {
            return Some(gathered);
        };
        let (mut gathered, absent) = self.find_kept(wanted.clone(), gathered).await;
        if !absent.is_empty() && !may_pull {
            return None;
        }
        for (component, Absent { unsigned, manifest }) in absent {
            let Some(image) = component.image() else {
                continue;
            };
            let asker = wanted.asker(&component);
            let pulled = match silent(&gathered, image) {
                Some(unread) => Err(unread),
                None => pull(images, image, manifest, asker.signed).await,
            };
            match (pulled, unsigned) {
                // Only the signatures are missing. The failure of the pull says why.
                (Err(unread), Some(held)) => {
                    gathered.images.insert(image.clone(), Err(unread));
                    gathered.kept.insert(component, held);
                }
                (pulled, _) => drop(gathered.images.insert(image.clone(), pulled)),
            }
        }
        Some(gathered)
    }

    /// Takes the artifacts that were kept and have the demanded signatures; returns those that are left. Reads files,
    /// in a thread for that.
    async fn find_kept(
        &self,
        wanted: WantedReads,
        mut gathered: GatheredComponents,
    ) -> (GatheredComponents, BTreeMap<Location, Absent>) {
        let this = self.clone();
        let is_image = |one: &&Location| one.image().is_some() && self.allow(one);
        let images: BTreeSet<_> = wanted.components.iter().filter(is_image).cloned().collect();
        if images.is_empty() {
            return (gathered, BTreeMap::new());
        }
        let finding = tokio::task::spawn_blocking(move || {
            let mut absent = BTreeMap::new();
            for component in images {
                let asker = wanted.asker(&component);
                let unsigned = match this.kept.find(&component, asker) {
                    Some(held) => {
                        gathered.kept.insert(component.clone(), held);
                        let inputs = Inputs {
                            sources: &this.sources,
                            base: &wanted.base,
                            gathered: &gathered,
                            passed: PassedCases::All,
                        };
                        let spec = wanted.verify.as_ref();
                        if spec.is_none_or(|spec| verify::is_signed(spec, &component, inputs)) {
                            continue;
                        }
                        // There may be other signatures by now.
                        gathered.kept.remove(&component)
                    }
                    None => None,
                };
                // A tag means what it meant when it was first pulled.
                let record = this.kept.record(&component, asker);
                let record = record.filter(|_| asker.digest.is_none());
                let manifest = record.and_then(|record| record.manifest);
                let manifest = manifest.or_else(|| wanted.manifest(&component).cloned());
                absent.insert(component, Absent { unsigned, manifest });
            }
            (gathered, absent)
        });
        // Fails only when the runtime ends.
        finding.await.unwrap_or_default()
    }

    /// Reads the objects that hold components. Nothing when there is no cluster.
    async fn read_objects(&self, allowed: &[&Location], gathered: &mut GatheredComponents) {
        let Local::At(cluster) = self.local().await else {
            return;
        };
        let mut keys: BTreeMap<&ObjectRef, BTreeSet<&str>> = BTreeMap::new();
        for part in allowed.iter().copied().flat_map(Location::parts) {
            keys.entry(&part.object).or_default().insert(&part.key);
        }
        // More can be of no use.
        let most = MAX_BYTES * allowed.len() as u64;
        for (reference, keys) in keys {
            let left = most.saturating_sub(gathered.bytes() as u64);
            let read = AssertUnwindSafe(cluster.read_whole(reference));
            let read = match read.catch_unwind().await {
                Ok(Ok(object)) => Ok(object.map(|object| Contents::of(&object, &keys, left))),
                Ok(Err(failure)) => Err(Unread::new(failure.reason, failure.message)),
                Err(_) => {
                    let message = format!("a bug in the agent made reading {reference} fail");
                    Err(Unread::new(KnownReason::AgentFailed, message))
                }
            };
            gathered.objects.insert(reference.clone(), read);
        }
    }
}

/// Pulls an artifact. A tag stands for the manifest that it named when it was first pulled, if that is known.
async fn pull(
    images: &Images,
    image: &Image,
    manifest: Option<String>,
    signed: bool,
) -> Result<Pulled, Unread> {
    let Some(manifest) = manifest.filter(|_| image.digest.is_none()) else {
        return images.pull(image, signed).await;
    };
    let first = Image {
        digest: Some(manifest),
        ..image.clone()
    };
    images.pull(&first, signed).await.map_err(|unread| Unread {
        message: format!(
            "{}; `oci:{image}` pointed to this artifact when it was first pulled, and a tag that moved is not followed",
            unread.message
        ),
        ..unread
    })
}

/// Why an artifact is not requested: its registry failed as a whole just now, and may take as long again.
fn silent(gathered: &GatheredComponents, image: &Image) -> Option<Unread> {
    let is_silent = |(other, pulled): &(&Image, &Result<Pulled, Unread>)| {
        other.registry == image.registry && pulled.as_ref().is_err_and(|unread| unread.silent)
    };
    let (other, _) = gathered.images.iter().find(is_silent)?;
    let message = format!(
        "failed to pull `oci:{image}`: its registry was not asked, because it did not give `oci:{other}` just now"
    );
    Some(Unread::silent(KnownReason::RegistryUnavailable, message))
}

/// An artifact that has to be pulled.
struct Absent {
    /// What was kept of it without the demanded signatures.
    unsigned: Option<HeldComponent>,
    /// The manifest that its tag named when it was first pulled.
    manifest: Option<String>,
}

/// The versions of objects that were read.
pub(super) fn versions(gathered: &GatheredComponents) -> PartVersions {
    let version = |read: &Result<Option<Contents>, Unread>| {
        Some(read.as_ref().ok()?.as_ref()?.version.clone())
    };
    let each = gathered.objects.iter();
    let each = each.map(|(reference, read)| (reference.clone(), version(read)));
    each.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policies::{BUILTIN, FoundPolicies, load};
    use serde_json::json;
    use transom_artifacts::signature::{Demand, TrustedKey};
    use transom_artifacts::{Artifact, Base};

    const KEY: &str = "-----BEGIN PUBLIC KEY-----\n\
        MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEnvXr/nR8QhkxBC+1/aUJA54sDNaC\n\
        tiMNTrVI97l5EUVEpKbrNlQGWGlakbqcNmnpHBCrmy6jI0TtAvOogL7QxA==\n\
        -----END PUBLIC KEY-----\n";

    #[tokio::test]
    async fn a_silent_registry_is_told_when_only_its_signatures_are_missing() {
        let folder = tempfile::tempdir().unwrap();
        let mut found = FoundPolicies::default();
        found.take("a", &Base::Nowhere, BUILTIN[0].1.as_bytes());
        let mut written = found.policies.remove(0);
        let spec = &mut written.value["spec"];
        spec["guests"]["decide"]["component"] = json!("oci:registry.example/a:v1");
        spec["verify"] = json!({"keys": [{"name": "k", "configMap": "transom/keys/k"}]});
        let policy = load::check(&written.value).ok().unwrap();
        let wanted = WantedReads::new(&policy, &written, false);
        let at = written.components().next().unwrap();
        let kept = ComponentCache::new(Some(folder.path()));
        let digest = transom_core::digest::Digest::of_bytes(b"one").to_string();
        let artifact = Artifact {
            bytes: b"one".into(),
            digest: digest.clone(),
        };
        kept.keep(&at, wanted.asker(&at), &artifact, None, None)
            .unwrap();
        let answer =
            r#"{"reason": "RegistryUnavailable", "message": "it is gone", "silent": true}"#;
        let words = ["sh", "-c", &format!("echo '{answer}'")].map(Into::into);
        let sources: Sources = "oci:*".parse().unwrap();
        let components = Components::new(&sources).pulling(Images::new(words.to_vec()), kept);
        components.opened(None);
        let gathered = components.read(&wanted, true).await.unwrap();
        assert!(gathered.kept.contains_key(&at) && gathered.is_incomplete());
        let inputs = Inputs {
            sources: &sources,
            base: &wanted.base,
            gathered: &gathered,
            passed: PassedCases::All,
        };
        let demand = Demand {
            mode: policy.verify.as_ref().unwrap().mode,
            keys: vec![TrustedKey::parse("k", KEY.as_bytes()).unwrap()],
        };
        let (reason, why) = verify::signers(&demand, &at, &digest, inputs).unwrap_err();
        assert_eq!(reason, KnownReason::RegistryUnavailable);
        assert!(why.contains("it is gone"), "{why}");
    }

    #[test]
    fn a_file_that_was_replaced_since_it_was_loaded_is_not_kept() {
        let folder = tempfile::tempdir().unwrap();
        let base = Base::Components(folder.path().join("files"));
        let mut found = FoundPolicies::default();
        found.take("a", &base, BUILTIN[0].1.as_bytes());
        let mut written = found.policies.remove(0);
        written.value["spec"]["guests"]["decide"]["component"] = json!("a.wasm");
        let policy = load::check(&written.value).ok().unwrap();
        let wanted = WantedReads::new(&policy, &written, false);
        let at = Location::parse("a.wasm", &base).unwrap();
        let file = folder.path().join("files/a.wasm");
        std::fs::create_dir(folder.path().join("files")).unwrap();
        std::fs::write(file, "replaced").unwrap();
        let kept = ComponentCache::new(Some(&folder.path().join("cache")));
        let components = Components::new(&Sources::default())
            .pulling(Images::new(Vec::new()), kept.clone())
            .remembering("transom", Clock::new(None));
        let gathered = GatheredComponents::default();
        let digest = at.fetch(None, &gathered).ok().unwrap().digest;
        let keep = |loaded: &str| {
            let loaded = BTreeSet::from([loaded]);
            components.keep(&wanted, &gathered, &loaded).ok().unwrap();
            kept.has_from(&at, wanted.asker(&at), &digest)
        };
        assert!(!keep("sha256:of what was loaded"));
        assert!(keep(&digest));
    }
}
