//! A changed policy or component becomes a new revision beside the old one, and takes over whole or is refused.
//! Never holds up an evaluation: everything is loaded before anything is swapped.

use crate::agent::Agent;
use crate::policies::load::{self, Loaded};
use crate::policies::{Found, Source, Written};
use crate::telemetry;
use anyhow::Context as _;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use tokio::task::JoinHandle;
use transom_api::Word;
use transom_core::catalogue::overlap::{self, Candidate};
use transom_core::catalogue::{Catalogue, Change, Entry, Place, Refusal};
use transom_core::policy::Policy;
use transom_core::signal::Signal;
use transom_core::time::parse_rfc3339;
use transom_engine::Engine;

/// Loads policies and puts them to work.
#[derive(Clone)]
pub(crate) struct Swap {
    engine: Engine,
    source: Source,
    catalogue: Catalogue,
    loaded: BTreeMap<Arc<str>, Arc<Loaded>>,
    /// Files of the components that policies name, refused ones too: what is missing or broken may be put right.
    components: BTreeSet<PathBuf>,
    /// Files and documents that could not be read the last time.
    broken: Vec<(String, String)>,
    /// The connections that policies may name.
    connections: BTreeSet<String>,
}

/// What became of each policy that is not as it was.
pub(crate) type Changes = Vec<(Arc<str>, Change)>;

/// Policies that are being loaded in the background.
pub(crate) struct Loading(JoinHandle<(Swap, Changes)>);

impl Loading {
    /// The policies, once they are loaded, and what changed with them: for [`Swap::publish`].
    ///
    /// # Errors
    /// When loading ended by a fault of ours.
    pub(crate) async fn done(self) -> anyhow::Result<(Swap, Changes)> {
        self.0.await.context("failed to load the policies")
    }
}

impl Swap {
    /// Loads policies while the caller goes on: compiling takes a core for a while, and manifests can be read meanwhile.
    pub(crate) fn loading(engine: Engine, source: Source, connections: BTreeSet<String>) -> Loading {
        Loading(tokio::task::spawn_blocking(|| {
            let mut swap = Self::new(engine, source, connections);
            let changes = swap.load();
            (swap, changes)
        }))
    }

    /// With nothing loaded yet.
    fn new(engine: Engine, source: Source, connections: BTreeSet<String>) -> Self {
        Self {
            engine,
            source,
            catalogue: Catalogue::default(),
            loaded: BTreeMap::new(),
            components: BTreeSet::new(),
            broken: Vec::new(),
            connections,
        }
    }

    /// Takes these policies in place of those before; false when they are the same.
    pub(crate) fn give(&mut self, policies: Found) -> bool {
        if matches!(&self.source, Source::Given(before) if *before == policies) {
            return false;
        }
        self.source = Source::Given(policies);
        true
    }

    /// Reads every policy again and loads what differs; takes as long as compiling takes.
    /// What changed is for [`Swap::publish`].
    pub(crate) fn load(&mut self) -> Changes {
        let found = match self.source.read() {
            Ok(found) => found,
            Err(error) => {
                self.tell_broken(vec![(self.source.place(), error.to_string())]);
                return Vec::new();
            }
        };
        let unread: BTreeSet<String> = found.broken.iter().map(|(place, _)| place.clone()).collect();
        self.tell_broken(found.broken);
        let named = found.policies.iter().flat_map(|written| load::components(&written.value, &written.folder));
        self.components = named.collect();
        let before = self.catalogue.clone();
        let mut by_name: BTreeMap<String, Vec<Written>> = BTreeMap::new();
        for written in found.policies {
            by_name.entry(name(&written)).or_default().push(written);
        }
        // What stands in a file that cannot be read now is not gone, and nobody knows in which it stands.
        let may_stay = |entry: &Entry| match &self.source {
            Source::Given(_) => unread.contains(&entry.place.text),
            Source::Builtin | Source::Path(_) => !unread.is_empty(),
        };
        let gone = before.entries().filter(|(name, entry)| !by_name.contains_key(&***name) && !may_stay(entry));
        let gone: Vec<_> = gone.map(|(name, _)| Arc::clone(name)).collect();
        for name in &gone {
            self.catalogue = self.catalogue.without(name);
            self.loaded.remove(name);
        }
        let mut loaded: BTreeMap<_, _> = by_name.iter().map(|(name, written)| (name, self.try_load(written))).collect();
        let taken = self.taken(&by_name, &loaded);
        for (name, written) in &by_name {
            let loaded = match taken.get(name.as_str()) {
                Some(refusal) => Err(refusal.clone()),
                None => loaded.remove(name).unwrap_or_else(|| self.try_load(written)),
            };
            self.take(name, written, loaded);
        }
        self.catalogue.since(&before)
    }

    /// The policies that may not work beside others, whether those are new or at work.
    fn taken(
        &self,
        written: &BTreeMap<String, Vec<Written>>,
        loaded: &BTreeMap<&String, Result<Loaded, Refusal>>,
    ) -> BTreeMap<Arc<str>, Refusal> {
        let at_work = |name: &str| self.catalogue.revision(name).map(|revision| &revision.policy);
        let created = |name: &String| written.get(name).and_then(|written| created_seconds(written.first()?));
        let candidates = loaded.iter().filter_map(|(name, loaded)| {
            let at_work = at_work(name);
            let newest = loaded.as_ref().ok().map(|loaded| &loaded.revision.policy).or(at_work)?;
            Some(Candidate { newest, at_work, created_seconds: created(name) })
        });
        // What stands in a file that cannot be read now goes on as it is.
        let others = self.catalogue.entries().filter(|(name, _)| !written.contains_key(&***name));
        let others = others.filter_map(|(name, _)| at_work(name));
        let others = others.map(|policy| Candidate { newest: policy, at_work: Some(policy), created_seconds: None });
        overlap::refused(&candidates.chain(others).collect::<Vec<_>>())
    }

    /// Loads what is written under one name.
    fn try_load(&self, written: &[Written]) -> Result<Loaded, Refusal> {
        match written {
            [one] => load::load(&self.engine, &one.value, &one.folder)
                .and_then(|loaded| self.connected(&loaded.revision.policy).map(|()| loaded)),
            _ => {
                let (count, places) = (written.len(), places(written));
                let message = format!("metadata.name: the policy stands in {count} places: {places}");
                Err(Refusal { word: Word::PolicyInvalid, message })
            }
        }
    }

    fn take(&mut self, name: &str, written: &[Written], loaded: Result<Loaded, Refusal>) {
        let generation = written.first().and_then(|one| one.value.pointer("/metadata/generation")?.as_i64());
        let place = Place { text: places(written), generation };
        match loaded {
            Ok(loaded) => {
                let unchanged = self.catalogue.revision(name).is_some_and(|revision| *revision == loaded.revision);
                self.catalogue = self.catalogue.with((*loaded.revision).clone(), place);
                if !unchanged {
                    self.loaded.insert(name.into(), Arc::new(loaded));
                }
            }
            Err(refusal) => self.catalogue = self.catalogue.refusing(name, refusal, place),
        }
    }

    /// Refuses a policy about a cluster that nobody is connected to.
    fn connected(&self, policy: &Policy) -> Result<(), Refusal> {
        let mut clusters = policy.clusters();
        let absent = clusters.find(|(_, cluster)| !self.connections.contains(*cluster));
        let Some((field, cluster)) = absent else { return Ok(()) };
        let known: Vec<_> = self.connections.iter().map(|name| format!("`{name}`")).collect();
        let message = format!("{field}: there is no connection `{cluster}`, only {}", known.join(", "));
        Err(Refusal { word: Word::PolicyInvalid, message })
    }

    /// Puts loaded revisions to work, and tells what was loaded, refused or removed.
    pub(crate) fn publish(&self, agent: &Arc<Agent>, changes: &[(Arc<str>, Change)]) {
        for (policy, change) in changes {
            let loaded = self.loaded.get(policy);
            match (change, loaded) {
                (Change::Loaded, Some(loaded)) => agent.begin(Arc::clone(loaded)),
                (Change::Swapped, Some(loaded)) => agent.resume(policy, Arc::clone(loaded)),
                (Change::Removed, _) => agent.remove_lane(policy),
                (Change::Refused | Change::Mended | Change::Loaded | Change::Swapped, _) => {}
            }
            self.tell(policy, *change);
        }
        if changes.iter().any(|(_, change)| *change == Change::Removed) {
            agent.tidy_status(&self.names());
        }
        telemetry::policies(self.loaded.len(), self.refused());
        // Also without a change: what was refused may be mended by putting back what is at work.
        agent.catalogue_changed(&self.catalogue);
    }

    fn tell(&self, policy: &Arc<str>, change: Change) {
        let entry = self.catalogue.entries().find(|(name, _)| *name == policy).map(|(_, entry)| entry);
        let refused = entry.and_then(|entry| entry.refused.as_ref());
        let policy = Arc::clone(policy);
        let signal = match (change, refused) {
            (Change::Loaded, _) => Signal::PolicyLoaded { policy },
            (Change::Swapped, _) => Signal::Swapped { policy },
            (Change::Mended, _) => Signal::PolicyMended { policy },
            (Change::Removed, _) => Signal::PolicyRemoved { policy },
            (Change::Refused, refused) => {
                let earlier_goes_on = entry.is_some_and(|entry| entry.revision.is_some());
                let (reason, message) = refused
                    .map_or((Word::PolicyInvalid, String::new()), |refused| (refused.word, refused.message.clone()));
                Signal::SwapRefused { policy, reason, message, earlier_goes_on }
            }
        };
        telemetry::tell(&signal);
    }

    /// Tells what cannot be read, each thing once for as long as it lasts.
    pub(crate) fn tell_broken(&mut self, broken: Vec<(String, String)>) {
        for (place, message) in broken.iter().filter(|one| !self.broken.contains(one)) {
            let (place, message) = (place.clone(), message.clone());
            telemetry::tell(&Signal::Unreadable { place, reason: Word::ManifestInvalid, message });
        }
        self.broken = broken;
    }

    /// What is known of every policy.
    pub(crate) fn catalogue(&self) -> &Catalogue {
        &self.catalogue
    }

    /// How many policies have no revision at work, or a newer one that was refused.
    pub(crate) fn refused(&self) -> usize {
        self.catalogue.entries().filter(|(_, entry)| entry.refused.is_some()).count() + self.broken.len()
    }

    /// Why each refused policy was refused.
    pub(crate) fn refusals(&self) -> impl Iterator<Item = (&str, &Refusal)> {
        self.catalogue.entries().filter_map(|(name, entry)| Some((&**name, entry.refused.as_ref()?)))
    }

    /// Files and documents of policies that cannot be read, and why.
    pub(crate) fn broken(&self) -> &[(String, String)] {
        &self.broken
    }

    /// Every policy that is written, refused ones too.
    pub(crate) fn names(&self) -> BTreeSet<String> {
        self.catalogue.entries().map(|(name, _)| name.to_string()).collect()
    }

    /// The revisions that are at work.
    pub(crate) fn loaded(&self) -> impl Iterator<Item = &Arc<Loaded>> {
        self.loaded.values()
    }

    /// Files whose change calls for another look.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        let own = match &self.source {
            Source::Builtin | Source::Given(_) => None,
            Source::Path(path) => Some(path.clone()),
        };
        own.into_iter().chain(self.components.iter().cloned()).collect()
    }
}

/// When a policy was made, where an API server says so.
pub(crate) fn created_seconds(written: &Written) -> Option<i64> {
    parse_rfc3339(written.value.pointer("/metadata/creationTimestamp")?.as_str()?)
}

fn places(written: &[Written]) -> String {
    written.iter().map(|written| written.place.as_str()).collect::<Vec<_>>().join(", ")
}

/// The name of a policy as it is written; one without a name is refused under its place.
fn name(written: &Written) -> String {
    let name = written.value.pointer("/metadata/name").and_then(serde_json::Value::as_str);
    name.map_or_else(|| written.place.clone(), str::to_owned)
}
