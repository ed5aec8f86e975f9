//! Keeps the components that were loaded, by their digest, so that a restart needs no registry, ConfigMap or network;
//! and which digest a tag had when it was first pulled.

mod in_use;
mod known;
mod names;
mod write;

use crate::telemetry;
use in_use::InUse;
use known::KnownRecords;
use names::{beside, evidence_names, file, key, name, origin};
use serde::{Deserialize, Serialize};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use transom_api::KnownReason;
use transom_artifacts::signature::Evidence;
use transom_artifacts::{HeldComponent, Location, MAX_BYTES};
use transom_core::digest::Digest;
use transom_core::share::lock::MutexExt as _;
use transom_engine::PrivateFolder;
pub(super) use write::NoRoom;

/// How many components are kept, and how many bytes; beyond that those are removed that no policy uses and that were
/// not used for longest. The same for what verifies them. The chart gives 320 MiB to all caches, and each file takes
/// whole blocks of 4 KiB.
const MOST: Most = Most {
    files: 512,
    bytes: 96 << 20,
    evidence: 24 << 20,
};
/// The most records of loads, the most places that components were loaded from, and the most bytes of one of either.
const RECORDS: usize = 1_024;
const RECORD_BYTES: u64 = 16 << 10;
/// The most files of what verifies components, two for each and each policy.
const EVIDENCE_FILES: usize = 4_096;
/// The most bytes of what verifies one component: ten usual signatures have a tenth of them.
const EVIDENCE_BYTES: u64 = 512 << 10;

/// Who names a component, and which digest it demands of it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ComponentRequest<'a> {
    /// The name of the policy.
    pub(super) policy: &'a str,
    /// The uid of the policy, if it is an object: only then is a ConfigMap known to lie in the same cluster.
    pub(super) uid: Option<&'a str>,
    /// The digest that the policy demands.
    pub(super) digest: Option<&'a str>,
    /// Whether the policy demands signatures.
    pub(super) signed: bool,
}

/// What was loaded from one place.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct LoadRecord {
    /// The component, as [`key`] names it.
    component: String,
    /// `sha256:<hex>` of its bytes.
    digest: String,
    /// `sha256:<hex>` of the manifest in the registry.
    pub(super) manifest: Option<String>,
}

/// How many files of components may be kept, and how many bytes.
#[derive(Clone, Copy, Debug)]
struct Most {
    files: usize,
    bytes: u64,
    /// Bytes of all that verifies components.
    evidence: u64,
}

impl Default for Most {
    fn default() -> Self {
        MOST
    }
}

/// The components that were loaded. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct ComponentCache {
    components: Option<PrivateFolder>,
    records: Option<PrivateFolder>,
    /// The places that each component was loaded from. Only there may its digest stand for its bytes.
    origins: Option<PrivateFolder>,
    /// What verifies each component for each policy, so that it can be verified again.
    evidence: Option<PrivateFolder>,
    /// Which digest each tag had, for as long as the agent runs.
    known: Arc<Mutex<KnownRecords>>,
    /// Held while room is made.
    in_use: Arc<Mutex<InUse>>,
    most: Most,
    /// Why a folder cannot be used.
    unusable: Option<String>,
    /// Whether it was told that something could not be kept.
    told: Arc<AtomicBool>,
}

impl ComponentCache {
    /// Keeps components in a folder. If it cannot be used, only keeps in memory which digest each tag had. A caller
    /// that relies on the folder [logs that](ComponentCache::tell_unusable).
    pub(crate) fn new(folder: Option<&Path>) -> Self {
        let mut unusable = None;
        let mut open = |name: &str| {
            let Some(folder) = folder else {
                let why = "neither XDG_CACHE_HOME nor HOME names a folder for it";
                unusable = Some(why.to_owned());
                return None;
            };
            let folder = folder.join(name);
            let opened = PrivateFolder::open(&folder);
            let failed =
                |error| unusable = Some(format!("failed to use `{}`: {error}", folder.display()));
            opened.map_err(failed).ok()
        };
        let (components, records) = (open("bytes"), open("records"));
        let (origins, evidence) = (open("origins"), open("signatures"));
        Self {
            components,
            records,
            origins,
            evidence,
            unusable,
            ..Self::default()
        }
    }

    /// Why components are not kept, if they are not.
    fn unusable(&self) -> Option<String> {
        let why = self.unusable.as_ref()?;
        Some(format!(
            "components are not kept for the next start, which will need their registries: {why}"
        ))
    }

    /// Tells that components are not kept, if they are not.
    pub(crate) fn tell_unusable(&self) {
        self.unusable().iter().for_each(|why| tell(why));
    }

    /// Tells once that something of a component could not be kept for a policy.
    fn take_written(
        &self,
        component: &Location,
        asker: ComponentRequest<'_>,
        written: io::Result<()>,
    ) {
        if let Err(error) = written
            && !self.told.swap(true, Ordering::Relaxed)
        {
            tell(&unkept(component, asker, &error));
        }
    }

    /// What was loaded from a place.
    pub(super) fn record(
        &self,
        component: &Location,
        asker: ComponentRequest<'_>,
    ) -> Option<LoadRecord> {
        let key = key(component, asker)?;
        let known = || {
            let known = self.known.locked();
            known.get(&key).cloned()
        };
        self.on_disk(&key).or_else(known)
    }

    fn on_disk(&self, key: &str) -> Option<LoadRecord> {
        let bytes = self
            .records
            .as_ref()?
            .read(&file(key, "json"), RECORD_BYTES);
        let record: LoadRecord = serde_json::from_slice(&bytes.ok()?).ok()?;
        (record.component == key).then_some(record)
    }

    /// The record for the demanded digest, else the one for no demand; `None` if it has another digest.
    fn fitting(&self, component: &Location, asker: ComponentRequest<'_>) -> Option<LoadRecord> {
        let any = ComponentRequest {
            digest: None,
            ..asker
        };
        let record = self.record(component, asker);
        let record = record.or_else(|| self.record(component, any))?;
        let fits = asker.digest.is_none_or(|digest| digest == record.digest);
        fits.then_some(record)
    }

    /// Whether the bytes were loaded from a place and are still there; they may be damaged.
    pub(super) fn has(&self, component: &Location, asker: ComponentRequest<'_>) -> bool {
        let Some(record) = self.fitting(component, asker) else {
            return false;
        };
        let is_signed = || {
            let mut names = evidence_names(&record.digest, component, asker);
            let folder = self.evidence.as_ref();
            folder.is_some_and(|folder| names.any(|name| folder.has(&name)))
        };
        self.has_digest(&record.digest) && (!asker.signed || is_signed())
    }

    /// The bytes that were loaded from a place, if they have the demanded digest, and what was kept for verifying them.
    /// Reads files.
    pub(super) fn find(
        &self,
        component: &Location,
        asker: ComponentRequest<'_>,
    ) -> Option<HeldComponent> {
        let record = self.fitting(component, asker)?;
        let (name, folder) = (name(&record.digest), self.components.as_ref()?);
        let bytes = folder.read(&name, MAX_BYTES).ok()?;
        folder.touch(&name);
        if let Some(records) = &self.records {
            records.touch(&file(&record.component, "json"));
        }
        let is_same = Digest::of_bytes(&bytes).to_string() == record.digest;
        let evidence = asker
            .signed
            .then(|| self.evidence(&record.digest, component, asker));
        is_same.then(|| HeldComponent {
            bytes,
            manifest: record.manifest,
            evidence: evidence.flatten(),
        })
    }

    /// What verified a component for a policy, or else for another one: each load checks it against its own demand.
    fn evidence(
        &self,
        digest: &str,
        component: &Location,
        asker: ComponentRequest<'_>,
    ) -> Option<Evidence> {
        let folder = self.evidence.as_ref()?;
        evidence_names(digest, component, asker).find_map(|name| {
            let text = folder.read(&name, EVIDENCE_BYTES).ok()?;
            folder.touch(&name);
            Evidence::from_json(&serde_json::from_slice(&text).ok()?)
        })
    }

    fn has_digest(&self, digest: &str) -> bool {
        let folder = self.components.as_ref();
        folder.is_some_and(|folder| folder.has(&name(digest)))
    }

    /// Whether the component with a digest was loaded from this place.
    fn is_from(&self, component: &Location, asker: ComponentRequest<'_>, digest: &str) -> bool {
        let at = || {
            let (folder, origin) = (self.origins.as_ref()?, origin(component, asker)?);
            let name = beside(digest, &origin);
            let text = folder.read(&name, RECORD_BYTES).ok()?;
            folder.touch(&name);
            Some(text == origin.as_bytes())
        };
        // Earlier versions of the agent wrote only the record.
        let is_recorded = || {
            let demands = ComponentRequest {
                digest: Some(digest),
                ..asker
            };
            component.is_remote() && self.fitting(component, demands).is_some()
        };
        at().unwrap_or_default() || is_recorded()
    }

    /// Whether the component with a digest was loaded from a place and is still there; it may be damaged.
    pub(super) fn has_from(
        &self,
        component: &Location,
        asker: ComponentRequest<'_>,
        digest: &str,
    ) -> bool {
        self.has_digest(digest) && self.is_from(component, asker, digest)
    }

    /// The component with this digest and its evidence, if it was ever loaded from this place. From elsewhere it does
    /// not count, because its source may not be allowed. Reads files.
    pub(super) fn by_digest(
        &self,
        component: &Location,
        asker: ComponentRequest<'_>,
        digest: &str,
    ) -> Option<HeldComponent> {
        let (name, folder) = (name(digest), self.components.as_ref()?);
        if !self.is_from(component, asker, digest) {
            return None;
        }
        let bytes = folder.read(&name, MAX_BYTES).ok()?;
        folder.touch(&name);
        let is_same = Digest::of_bytes(&bytes).to_string() == digest;
        is_same.then(|| HeldComponent {
            bytes,
            manifest: None,
            evidence: self.evidence(digest, component, asker),
        })
    }
}

/// What could not be kept, for which policy, and why.
fn unkept(component: &Location, asker: ComponentRequest<'_>, why: &io::Error) -> String {
    let policy = asker.policy;
    format!("failed to keep component `{component}` of policy `{policy}` for the next start: {why}")
}

/// Tells that the cache cannot be used as it should.
fn tell(message: &str) {
    telemetry::unreadable("the cache of components", KnownReason::ReadFailed, message);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::engine;
    use crate::policies::{BUILTIN, FoundPolicies, load};
    use std::borrow::Cow;
    use std::collections::{BTreeMap, BTreeSet};
    use std::fs;
    use std::time::UNIX_EPOCH;
    use transom_artifacts::{Artifact, Base, Sources};
    use transom_core::rollout::history::{self, History};

    fn artifact(bytes: &[u8]) -> Artifact {
        Artifact {
            bytes: Cow::Owned(bytes.to_vec()),
            digest: Digest::of_bytes(bytes).to_string(),
        }
    }

    fn location(text: &str) -> Location {
        Location::parse(text, &Base::Nowhere).unwrap()
    }

    const ANY: ComponentRequest<'_> = ComponentRequest {
        policy: "a",
        uid: None,
        digest: None,
        signed: false,
    };

    /// Where a component lies.
    fn place() -> Location {
        location("oci:registry.example/any:v1")
    }

    #[test]
    fn a_restart_finds_what_was_loaded_and_nothing_that_was_changed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("components");
        let (one, other) = (
            location("oci:registry.example/a:v1"),
            location("oci:registry.example/b:v1"),
        );
        let component = artifact(b"one");
        ComponentCache::new(Some(&path))
            .keep(&one, ANY, &component, Some("sha256:m"), None)
            .unwrap();
        let again = || ComponentCache::new(Some(&path));
        assert_eq!(again().find(&one, ANY).unwrap().bytes, b"one");
        assert_eq!(
            again().record(&one, ANY).unwrap().manifest.as_deref(),
            Some("sha256:m")
        );
        assert!(again().find(&other, ANY).is_none());
        let file_of = path.join("bytes").join(name(&component.digest));
        let record_of = |one| {
            path.join("records")
                .join(file(&key(one, ANY).unwrap(), "json"))
        };
        for damage in ["two", "on", "", "ones"] {
            fs::write(&file_of, damage).unwrap();
            assert!(again().find(&one, ANY).is_none(), "{damage}");
        }
        // The record still says what the tag means.
        assert!(again().record(&one, ANY).is_some());
        fs::remove_file(&file_of).unwrap();
        std::os::unix::fs::symlink(record_of(&one), &file_of).unwrap();
        assert!(again().find(&one, ANY).is_none());
        again()
            .keep(&one, ANY, &component, Some("sha256:m"), None)
            .unwrap();
        assert!(again().find(&one, ANY).is_some());
        // The record of another component counts as none.
        fs::copy(record_of(&one), record_of(&other)).unwrap();
        assert!(again().record(&other, ANY).is_none());
        fs::write(record_of(&one), "{").unwrap();
        assert!(again().find(&one, ANY).is_none());
    }

    #[test]
    fn a_tag_keeps_its_meaning_whoever_pulls_it_with_a_digest() {
        let folder = tempfile::tempdir().unwrap();
        let kept = ComponentCache::new(Some(&folder.path().join("components")));
        let (tag, first, moved) = (
            location("oci:registry.example/a:v1"),
            artifact(b"one"),
            artifact(b"two"),
        );
        kept.keep(&tag, ANY, &first, Some("sha256:1"), None)
            .unwrap();
        let pinned = ComponentRequest {
            digest: Some(&moved.digest),
            ..ANY
        };
        assert!(kept.find(&tag, pinned).is_none());
        kept.keep(&tag, pinned, &moved, Some("sha256:2"), None)
            .unwrap();
        kept.keep(&tag, ANY, &moved, Some("sha256:2"), None)
            .unwrap();
        let same = ComponentRequest {
            digest: Some(&first.digest),
            ..ANY
        };
        assert!(kept.has(&tag, same) && kept.find(&tag, same).unwrap().bytes == b"one");
        assert_eq!(kept.find(&tag, ANY).unwrap().bytes, b"one");
        assert_eq!(kept.find(&tag, pinned).unwrap().bytes, b"two");
        // Other bytes than the demanded ones are not recorded as those.
        let other = ComponentRequest {
            digest: Some("sha256:0"),
            ..ANY
        };
        kept.keep(&tag, other, &moved, None, None).unwrap();
        assert!(kept.record(&tag, other).is_none());
        // With the digest of a manifest the tag does not count.
        let digest = format!("sha256:{}", "0a".repeat(32));
        let (one, two) = (
            format!("oci:r.example/a:v1@{digest}"),
            format!("oci:r.example/a:v2@{digest}"),
        );
        assert_eq!(key(&location(&one), ANY), key(&location(&two), ANY));
    }

    #[test]
    fn a_config_map_counts_only_for_its_policy_object() {
        let folder = tempfile::tempdir().unwrap();
        let kept = ComponentCache::new(Some(&folder.path().join("components")));
        let component = location("configmap:transom/a/k");
        let of = |uid| ComponentRequest { uid, ..ANY };
        for uid in [Some("one"), None] {
            kept.keep(&component, of(uid), &artifact(b"x"), None, None)
                .unwrap();
        }
        assert!(kept.find(&component, of(Some("one"))).is_some());
        assert!(kept.find(&component, of(Some("two"))).is_none());
        assert!(kept.find(&component, of(None)).is_none());
        // A ConfigMap changes: the last one that was loaded counts.
        kept.keep(&component, of(Some("one")), &artifact(b"y"), None, None)
            .unwrap();
        assert_eq!(kept.find(&component, of(Some("one"))).unwrap().bytes, b"y");
    }

    #[test]
    fn what_verifies_a_component_is_kept_with_it() {
        let folder = tempfile::tempdir().unwrap();
        let kept = ComponentCache::new(Some(&folder.path().join("components")));
        let signed = |uid| ComponentRequest {
            uid: Some(uid),
            signed: true,
            ..ANY
        };
        let evidence = Evidence::beside(b"signature".to_vec());
        for place in ["oci:registry.example/a:v1", "configmap:transom/a/k"] {
            let (at, asker) = (location(place), signed("one"));
            let component = artifact(place.as_bytes());
            // Without a signature it counts as absent where one is demanded.
            kept.keep(&at, asker, &component, Some("sha256:1"), None)
                .unwrap();
            assert!(!kept.has(&at, asker) && kept.find(&at, asker).unwrap().evidence.is_none());
            kept.keep(&at, asker, &component, Some("sha256:1"), Some(&evidence))
                .unwrap();
            assert!(kept.has(&at, asker));
            assert_eq!(
                kept.find(&at, asker).unwrap().evidence,
                Some(evidence.clone())
            );
            // A load that demanded none leaves it there.
            kept.keep(&at, asker, &component, Some("sha256:1"), None)
                .unwrap();
            assert_eq!(
                kept.find(&at, asker).unwrap().evidence,
                Some(evidence.clone())
            );
        }
        // That of other bytes counts no more.
        let at = location("configmap:transom/a/k");
        kept.keep(&at, signed("one"), &artifact(b"other"), None, None)
            .unwrap();
        let found = kept.find(&at, signed("one")).unwrap();
        assert_eq!(found.evidence, None);
    }

    #[test]
    fn what_is_used_by_its_digest_is_not_the_oldest() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("components");
        let kept = ComponentCache::new(Some(&root));
        let component = artifact(b"one");
        kept.keep_digest(&place(), ANY, &component, None).unwrap();
        let file = root.join("bytes").join(name(&component.digest));
        let uses: [&dyn Fn(); 2] = [
            &|| drop(kept.by_digest(&place(), ANY, &component.digest).unwrap()),
            &|| kept.keep_digest(&place(), ANY, &component, None).unwrap(),
        ];
        for used in uses {
            let open = fs::File::open(&file).unwrap();
            open.set_modified(UNIX_EPOCH).unwrap();
            used();
            assert_ne!(open.metadata().unwrap().modified().unwrap(), UNIX_EPOCH);
        }
    }

    #[test]
    fn what_cannot_be_kept_is_told_with_its_component_and_policy() {
        let error = io::ErrorKind::StorageFull.into();
        let told = unkept(&place(), ANY, &error);
        assert!(
            told.contains(&format!("`{}` of policy `a`", place())),
            "{told}"
        );
    }

    #[test]
    fn a_folder_that_cannot_be_used_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        assert_eq!(
            ComponentCache::new(Some(&folder.path().join("good"))).unusable(),
            None
        );
        let why = ComponentCache::new(Some(&file)).unusable().unwrap();
        assert!(why.contains(&file.display().to_string()), "{why}");
        let why = ComponentCache::new(None).unusable().unwrap();
        assert!(why.contains("XDG_CACHE_HOME"), "{why}");
        assert_eq!(ComponentCache::default().unusable(), None, "none is wanted");
    }

    #[test]
    fn without_a_folder_only_the_meaning_of_a_tag_is_known() {
        let kept = ComponentCache::new(None);
        let one = location("oci:registry.example/a:v1");
        kept.keep(&one, ANY, &artifact(b"one"), Some("sha256:m"), None)
            .unwrap();
        assert!(kept.find(&one, ANY).is_none() && kept.record(&one, ANY).is_some());
    }

    /// A folder with room for so many bytes.
    fn small(root: &Path, bytes: u64) -> ComponentCache {
        let most = Most { bytes, ..MOST };
        ComponentCache {
            most,
            ..ComponentCache::new(Some(root))
        }
    }

    #[test]
    fn what_a_policy_uses_is_never_removed_for_a_new_component() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("components");
        let kept = small(&root, 10);
        let by = |policy| ComponentRequest { policy, ..ANY };
        let (used, padded) = (artifact(b"1234"), artifact(b"123456789"));
        kept.keep_digest(&place(), by("good"), &used, None).unwrap();
        // It is by far the oldest, and stays.
        let open = fs::File::open(root.join("bytes").join(name(&used.digest))).unwrap();
        open.set_modified(UNIX_EPOCH).unwrap();
        let (at, other) = (location("oci:registry.example/a:v1"), by("padding"));
        // Nothing is removed for what cannot fit.
        let idle = artifact(b"idle");
        kept.keep_digest(&place(), by("idle"), &idle, None).unwrap();
        kept.forget("idle");
        let refused = kept
            .keep_digest(&place(), other, &padded, None)
            .unwrap_err();
        assert!(kept.has_digest(&idle.digest));
        assert_eq!(refused, NoRoom { size: 9, most: 10 });
        let refused = kept.keep(&at, other, &padded, None, None).unwrap_err();
        assert!(refused.to_string().contains("9 bytes"), "{refused}");
        assert!(kept.record(&at, other).is_none());
        assert!(kept.has_digest(&used.digest) && !kept.has_digest(&padded.digest));
        // One that fits is kept. It goes once its policy uses another one, and not before.
        let (small, next) = (artifact(b"123"), artifact(b"12345"));
        kept.keep_digest(&place(), other, &small, None).unwrap();
        assert!(kept.keep_digest(&place(), other, &next, None).is_err());
        kept.use_loaded("padding", BTreeSet::new());
        kept.keep_digest(&place(), other, &next, None).unwrap();
        assert!(kept.has_digest(&used.digest) && !kept.has_digest(&small.digest));
        // What goes with its policy makes room.
        kept.forget("good");
        kept.use_loaded("padding", BTreeSet::new());
        kept.keep_digest(&place(), other, &padded, None).unwrap();
        assert!(!kept.has_digest(&used.digest));
    }

    #[test]
    fn what_verifies_components_in_use_fills_no_volume() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("components");
        let most = Most {
            evidence: 1_000,
            ..MOST
        };
        let kept = ComponentCache {
            most,
            ..ComponentCache::new(Some(&root))
        };
        let keep = |policy: &str, bytes: usize| {
            let by = ComponentRequest {
                policy,
                signed: true,
                ..ANY
            };
            let (at, component) = (location("oci:r.example/a:v1"), artifact(policy.as_bytes()));
            let evidence = Evidence::beside(vec![b'x'; bytes]);
            kept.keep_digest(&at, by, &component, Some(&evidence))
                .unwrap();
            let held = kept.by_digest(&at, by, &component.digest);
            held.unwrap().evidence.is_some()
        };
        assert!(keep("a", 200));
        let kept_of = (0..20).filter(|at| keep(&format!("b{at}"), 100)).count();
        let files = fs::read_dir(root.join("signatures")).unwrap();
        let bytes: u64 = files
            .map(|file| file.unwrap().metadata().unwrap().len())
            .sum();
        assert!(
            kept_of < 3 && bytes <= 1_000,
            "{kept_of} kept, {bytes} bytes"
        );
        // What was there first stays, and may be replaced; what nobody uses any more makes room.
        assert!(keep("a", 201));
        kept.forget("a");
        assert!(keep("c", 200));
        let large = usize::try_from(EVIDENCE_BYTES).unwrap();
        assert!(!keep("d", large));
    }

    #[test]
    fn what_the_active_and_the_previous_revision_use_stays_after_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("components");
        let all = [b"11", b"22", b"33"].map(|bytes| artifact(bytes));
        let sample = sample();
        let record = |number: usize| {
            let mut record = sample.clone();
            record.number = i64::try_from(number).unwrap();
            record.id = Digest::of_bytes(&[u8::try_from(number).unwrap()]);
            record.decide.clone_from(&all[number - 1].digest);
            // Revisions with builtin components are one for all versions of the agent.
            let mut spec = (*record.spec).clone();
            "guest.wasm".clone_into(&mut spec.guests.decide.component);
            record.spec = Arc::new(spec);
            record
        };
        let mut history = History::default();
        for number in 1..=3 {
            history.put(&record(number).name(), Some(record(number)));
        }
        for component in &all {
            small(&root, 6)
                .keep_digest(&place(), ANY, component, None)
                .unwrap();
        }
        let kept = small(&root, 6);
        kept.use_histories(&BTreeMap::from([("a".to_owned(), history)]));
        kept.keep_digest(&place(), ANY, &artifact(b"44"), None)
            .unwrap();
        assert_eq!(
            all.each_ref().map(|one| kept.has_digest(&one.digest)),
            [false, true, true]
        );
        kept.use_loaded("a", BTreeSet::new());
        assert!(
            kept.keep_digest(&place(), ANY, &artifact(b"4444"), None)
                .is_err()
        );
        // What a history names is no new component: without room it works all the same, and is not kept.
        let full = small(&folder.path().join("full"), 1);
        let histories = |history: History| BTreeMap::from([("a".to_owned(), history)]);
        let mut history = History::default();
        history.put(&record(2).name(), Some(record(2)));
        full.use_histories(&histories(history));
        full.keep_digest(&place(), ANY, &artifact(b"22"), None)
            .unwrap();
        assert!(!full.has_digest(&artifact(b"22").digest));
    }

    /// A kept revision.
    fn sample() -> history::RevisionRecord {
        let mut found = FoundPolicies::default();
        found.take("a", &Base::Nowhere, BUILTIN[0].1.as_bytes());
        let engine = engine::of_tests();
        let loaded = load::load(&engine, &found.policies[0], &Sources::default());
        history::RevisionRecord::of(&loaded.ok().unwrap().revision)
    }

    #[test]
    fn a_digest_stands_for_a_component_only_where_that_was_loaded_from() {
        let folder = tempfile::tempdir().unwrap();
        let kept = ComponentCache::new(Some(&folder.path().join("components")));
        let of = |uid| ComponentRequest {
            uid: Some(uid),
            ..ANY
        };
        let files = Base::Components("/components".into());
        let file = |text: &str, base: &Base| Location::parse(text, base).unwrap();
        // What was loaded, who else may have it by its digest, and who may not.
        let image = location("oci:registry.example/team/a:v1");
        let own = [image.clone(), location("oci:registry.example/team/a:v2")];
        let others = [
            location("oci:registry.example/team/b:v1"),
            location("oci:registry.example/team/a/b:v1"),
            location("configmap:transom/a/k"),
            file("a.wasm", &files),
            location("a.wasm"),
        ];
        let component = artifact(b"one");
        kept.keep_digest(&image, of("u"), &component, None).unwrap();
        let has = |at: &Location, uid| {
            let found = kept.by_digest(at, of(uid), &component.digest);
            assert_eq!(
                found.is_some(),
                kept.has_from(at, of(uid), &component.digest)
            );
            found.is_some()
        };
        assert!(own.iter().all(|at| has(at, "u") && has(at, "other")));
        assert!(!others.iter().any(|at| has(at, "u")));
        // Nor may a policy without files name what another one loaded from a file.
        let loaded = file("a.wasm", &files);
        kept.keep_digest(&loaded, of("u"), &component, None)
            .unwrap();
        assert!(has(&loaded, "other"));
        for text in ["a.wasm", "/components/a.wasm", "file a.wasm in /components"] {
            assert!(!has(&file(text, &Base::Nowhere), "u"), "{text}");
        }
        assert!(!has(&file("../components/a.wasm", &files), "u"));
        // A ConfigMap belongs to one policy.
        let map = location("configmap:transom/a/k");
        kept.keep_digest(&map, of("u"), &component, None).unwrap();
        assert!(has(&map, "u") && !has(&map, "other"));
    }

    #[test]
    fn no_policy_replaces_what_verified_a_component_for_another_one_and_a_new_one_finds_it() {
        let folder = tempfile::tempdir().unwrap();
        let kept = ComponentCache::new(Some(&folder.path().join("components")));
        let at = location("oci:registry.example/a:v1");
        let by = |policy| ComponentRequest {
            policy,
            signed: true,
            ..ANY
        };
        let component = artifact(b"one");
        let strong = Evidence::beside(b"strong".to_vec());
        let weak = Evidence::beside(b"weak".to_vec());
        let keep = |policy, evidence: &Evidence| {
            let evidence = Some(evidence);
            kept.keep_digest(&at, by(policy), &component, evidence)
                .unwrap();
            kept.keep(&at, by(policy), &component, None, evidence)
                .unwrap();
        };
        let found = |policy| {
            let by_digest = kept.by_digest(&at, by(policy), &component.digest).unwrap();
            let found = kept.find(&at, by(policy)).unwrap();
            assert_eq!(by_digest.evidence, found.evidence);
            assert_eq!(kept.has(&at, by(policy)), found.evidence.is_some());
            found.evidence
        };
        keep("strong", &strong);
        // A policy that has loaded nothing yet is given what another one has: it is checked against its own demand.
        assert_eq!(found("weak"), Some(strong.clone()));
        let anew = ComponentRequest {
            uid: Some("made anew"),
            ..by("strong")
        };
        assert!(kept.has(&at, anew) && kept.find(&at, anew).unwrap().evidence.is_some());
        keep("weak", &weak);
        keep("none", &Evidence::default());
        assert_eq!(found("strong"), Some(strong));
        assert_eq!(found("weak"), Some(weak));
    }

    #[test]
    fn what_an_earlier_version_of_the_agent_kept_counts() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("components");
        let kept = ComponentCache::new(Some(&root));
        let at = location("oci:registry.example/a:v1");
        let asker = ComponentRequest {
            signed: true,
            ..ANY
        };
        let (component, evidence) = (artifact(b"one"), Evidence::beside(b"signed".to_vec()));
        kept.keep(&at, ANY, &component, None, None).unwrap();
        // It wrote no origins, and what verified a component by its digest.
        for origin in fs::read_dir(root.join("origins")).unwrap() {
            fs::remove_file(origin.unwrap().path()).unwrap();
        }
        let (name, text) = (file(&component.digest, "json"), evidence.to_json());
        let signatures = kept.evidence.as_ref().unwrap();
        signatures
            .write(&name, &[text.to_string().as_bytes()])
            .unwrap();
        assert!(kept.has(&at, asker) && kept.has_from(&at, asker, &component.digest));
        let held = kept.by_digest(&at, asker, &component.digest).unwrap();
        assert_eq!(held.evidence, Some(evidence));
        let elsewhere = location("oci:registry.example/b:v1");
        assert!(!kept.has_from(&elsewhere, asker, &component.digest));
        assert!(!kept.has_from(&at, asker, &artifact(b"two").digest));
    }
}
