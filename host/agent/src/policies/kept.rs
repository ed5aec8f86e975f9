//! Keeps the components that were loaded, by their digest, so that a restart needs no registry, ConfigMap or network; and
//! which digest a tag had when it was first pulled.

mod in_use;

use in_use::InUse;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use transom_artifacts::signature::Evidence;
use transom_artifacts::{Artifact, Held, Location, MAX_BYTES};
use transom_core::digest::Digest;
use transom_core::policy::component::Image;
use transom_core::rollout::history::History;
use transom_engine::PrivateFolder;

/// How many components are kept, and how many bytes; beyond that those are removed that no policy uses and that were not
/// used for longest. The chart gives 256 MiB to all caches.
const MOST: Most = Most {
    files: 512,
    bytes: 96 << 20,
};
/// The same for records, which say what a tag means.
const RECORDS: usize = 4_096;
const RECORD_BYTES: u64 = 16 << 10;
/// The same for what verifies components.
const EVIDENCE_BYTES: u64 = 2 << 20;
const ALL_EVIDENCE_BYTES: u64 = 32 << 20;

/// Who names a component, and which digest it demands of it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Asker<'a> {
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
pub(super) struct Record {
    /// The component, as [`key`] names it.
    component: String,
    /// `sha256:<hex>` of its bytes.
    digest: String,
    /// `sha256:<hex>` of the manifest in the registry.
    pub(super) manifest: Option<String>,
}

/// How many files may be kept, and how many bytes.
#[derive(Clone, Copy, Debug)]
struct Most {
    files: usize,
    bytes: u64,
}

impl Default for Most {
    fn default() -> Self {
        MOST
    }
}

/// That a new component finds no room.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct NoRoom {
    size: u64,
    most: u64,
}

impl fmt::Display for NoRoom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { size, most } = self;
        write!(
            f,
            "failed to keep its {size} bytes: the cache takes {most} bytes, and what the active and the previous revisions of \
             policies use stays there"
        )
    }
}

/// The components that were loaded. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct Kept {
    components: Option<PrivateFolder>,
    records: Option<PrivateFolder>,
    /// From where each component was loaded: only there does its digest stand for its bytes.
    origins: Option<PrivateFolder>,
    /// What verifies each component for each policy, so that it can be verified again.
    evidence: Option<PrivateFolder>,
    known: Arc<Mutex<BTreeMap<String, Record>>>,
    /// Held while room is made.
    in_use: Arc<Mutex<InUse>>,
    most: Most,
}

impl Kept {
    /// Keeps components in a folder; only what tags mean, and only for this run, when it cannot be used.
    pub(crate) fn new(folder: Option<&Path>) -> Self {
        let open = |name: &str| PrivateFolder::open(&folder?.join(name));
        Self {
            components: open("bytes"),
            records: open("records"),
            origins: open("origins"),
            evidence: open("signatures"),
            ..Self::default()
        }
    }

    /// What was loaded from a place.
    pub(super) fn record(&self, component: &Location, asker: Asker<'_>) -> Option<Record> {
        let key = key(component, asker)?;
        let known = || {
            let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            known.get(&key).cloned()
        };
        self.on_disk(&key).or_else(known)
    }

    fn on_disk(&self, key: &str) -> Option<Record> {
        let bytes = self
            .records
            .as_ref()?
            .read(&file(key, "json"), RECORD_BYTES);
        let record: Record = serde_json::from_slice(&bytes.ok()?).ok()?;
        (record.component == key).then_some(record)
    }

    /// The record that has the demanded digest: that of the policy, or of all that demand none.
    fn fitting(&self, component: &Location, asker: Asker<'_>) -> Option<Record> {
        let any = Asker {
            digest: None,
            ..asker
        };
        let record = self.record(component, asker);
        let record = record.or_else(|| self.record(component, any))?;
        let fits = asker.digest.is_none_or(|digest| digest == record.digest);
        fits.then_some(record)
    }

    /// Whether the bytes were loaded from a place and are still there; they may be damaged.
    pub(super) fn has(&self, component: &Location, asker: Asker<'_>) -> bool {
        let Some(record) = self.fitting(component, asker) else {
            return false;
        };
        let is_signed = || {
            let evidence = verified(&record.digest, component, asker);
            let folder = self.evidence.as_ref().zip(evidence);
            folder.is_some_and(|(folder, name)| folder.has(&name))
        };
        self.has_digest(&record.digest) && (!asker.signed || is_signed())
    }

    /// The bytes that were loaded from a place, if they have the demanded digest, and what was kept for verifying them.
    /// Reads files.
    pub(super) fn find(&self, component: &Location, asker: Asker<'_>) -> Option<Held> {
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
        is_same.then(|| Held {
            bytes,
            evidence: evidence.flatten(),
        })
    }

    /// What verified a component for a policy.
    fn evidence(&self, digest: &str, component: &Location, asker: Asker<'_>) -> Option<Evidence> {
        let folder = self.evidence.as_ref()?;
        let name = verified(digest, component, asker)?;
        let text = folder.read(&name, EVIDENCE_BYTES).ok()?;
        folder.touch(&name);
        Evidence::from_json(&serde_json::from_slice(&text).ok()?)
    }

    fn has_digest(&self, digest: &str) -> bool {
        let folder = self.components.as_ref();
        folder.is_some_and(|folder| folder.has(&name(digest)))
    }

    /// Whether the component with a digest was loaded from this place.
    fn is_from(&self, component: &Location, asker: Asker<'_>, digest: &str) -> bool {
        let at = || {
            let (folder, origin) = (self.origins.as_ref()?, origin(component, asker)?);
            let name = beside(digest, &origin);
            let text = folder.read(&name, RECORD_BYTES).ok()?;
            folder.touch(&name);
            Some(text == origin.as_bytes())
        };
        at().unwrap_or_default()
    }

    /// Whether the component with a digest was loaded from a place and is still there; it may be damaged.
    pub(super) fn has_from(&self, component: &Location, asker: Asker<'_>, digest: &str) -> bool {
        self.has_digest(digest) && self.is_from(component, asker, digest)
    }

    /// The component with a digest that was loaded from a place, which may hold another one by now; and what verified it
    /// for this policy. What was loaded from elsewhere is none: its source may not be allowed. Reads files.
    pub(super) fn by_digest(
        &self,
        component: &Location,
        asker: Asker<'_>,
        digest: &str,
    ) -> Option<Held> {
        let (name, folder) = (name(digest), self.components.as_ref()?);
        if !self.is_from(component, asker, digest) {
            return None;
        }
        let bytes = folder.read(&name, MAX_BYTES).ok()?;
        folder.touch(&name);
        let is_same = Digest::of_bytes(&bytes).to_string() == digest;
        is_same.then(|| Held {
            bytes,
            evidence: self.evidence(digest, component, asker),
        })
    }

    fn in_use(&self) -> MutexGuard<'_, InUse> {
        self.in_use.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Never removes what the active and previous revisions of these policies use, from now on; nor what was loaded.
    pub(super) fn use_histories(&self, histories: &BTreeMap<String, History>) {
        self.in_use().kept(histories);
    }

    /// The same for one policy whose history has changed.
    pub(super) fn use_history(&self, policy: &str, history: &History) {
        self.in_use().kept_of(policy, history);
    }

    /// The same for what a policy has loaded and may put to work.
    pub(super) fn use_loaded(&self, policy: &str, digests: BTreeSet<String>) {
        self.in_use().loaded(policy, digests);
    }

    /// A policy is gone, and uses nothing any more.
    pub(super) fn forget(&self, policy: &str) {
        self.in_use().forget(policy);
    }

    /// Writes the bytes of a component that a policy has loaded, unless they are there, and from where; makes room for them.
    ///
    /// # Errors
    /// When a new component finds no room. One that a policy uses already is not kept then, and works all the same.
    fn keep_bytes(
        &self,
        component: &Location,
        asker: Asker<'_>,
        artifact: &Artifact,
    ) -> Result<(), NoRoom> {
        let Some(folder) = &self.components else {
            return Ok(());
        };
        let name = name(&artifact.digest);
        let mut in_use = self.in_use();
        let there = folder.read(&name, MAX_BYTES);
        if there.is_ok_and(|bytes| *bytes == *artifact.bytes) {
            folder.touch(&name);
        } else {
            let (size, Most { files, bytes }) = (artifact.bytes.len() as u64, self.most);
            let left = bytes.saturating_sub(size);
            let is_spared = |name: &str| digest_of(name).is_some_and(|digest| in_use.has(&digest));
            let fits = size <= bytes && folder.prune(files.saturating_sub(1), left, is_spared);
            match fits {
                true => folder.write(&name, &[&artifact.bytes]),
                false if in_use.has(&artifact.digest) => {}
                false => return Err(NoRoom { size, most: bytes }),
            }
        }
        in_use.add(asker.policy, &artifact.digest);
        drop(in_use);
        if let (Some(folder), Some(origin)) = (&self.origins, origin(component, asker)) {
            let name = beside(&artifact.digest, &origin);
            folder.write(&name, &[origin.as_bytes()]);
            self.prune_beside(folder, u64::MAX);
        }
        Ok(())
    }

    /// Keeps what verified a component for a policy.
    fn keep_evidence(
        &self,
        component: &Location,
        asker: Asker<'_>,
        artifact: &Artifact,
        evidence: Option<&Evidence>,
    ) {
        let name = verified(&artifact.digest, component, asker);
        if let (Some(folder), Some(name), Some(evidence)) = (&self.evidence, name, evidence) {
            let text = evidence.to_json().to_string();
            folder.write(&name, &[text.as_bytes()]);
            self.prune_beside(folder, ALL_EVIDENCE_BYTES);
        }
    }

    /// Removes what was not used for longest and is not about a component that a policy uses.
    fn prune_beside(&self, folder: &PrivateFolder, bytes: u64) {
        let in_use = self.in_use();
        let is_spared = |name: &str| {
            let digest = name.split('-').next().unwrap_or_default();
            in_use.has(&format!("sha256:{digest}"))
        };
        folder.prune(RECORDS, bytes, is_spared);
    }

    /// Removes the records that were not used for longest and are not of a component that a policy uses.
    fn prune_records(&self, folder: &PrivateFolder) {
        let in_use = self.in_use();
        let is_spared = |name: &str| {
            let record = folder.read(name, RECORD_BYTES).ok();
            let record = record.and_then(|text| serde_json::from_slice::<Record>(&text).ok());
            record.is_some_and(|record| in_use.has(&record.digest))
        };
        folder.prune(RECORDS, u64::MAX, is_spared);
    }

    /// Keeps a component that was loaded, and what verified it, by its digest: its place may hold another one soon.
    ///
    /// # Errors
    /// When a new component finds no room.
    pub(super) fn keep_digest(
        &self,
        component: &Location,
        asker: Asker<'_>,
        artifact: &Artifact,
        evidence: Option<&Evidence>,
    ) -> Result<(), NoRoom> {
        self.keep_bytes(component, asker, artifact)?;
        self.keep_evidence(component, asker, artifact, evidence);
        Ok(())
    }

    /// Keeps a component that was loaded. A tag keeps the meaning that it had first.
    ///
    /// # Errors
    /// When a new component finds no room.
    pub(super) fn keep(
        &self,
        component: &Location,
        asker: Asker<'_>,
        artifact: &Artifact,
        manifest: Option<&str>,
        evidence: Option<&Evidence>,
    ) -> Result<(), NoRoom> {
        let Some(key) = key(component, asker) else {
            return Ok(());
        };
        let record = Record {
            component: key.clone(),
            digest: artifact.digest.clone(),
            manifest: manifest.map(str::to_owned),
        };
        let before = self.record(component, asker);
        let is_other = before.is_some_and(|before| before.digest != record.digest);
        if component.image().is_some() && is_other {
            return Ok(());
        }
        self.keep_bytes(component, asker, artifact)?;
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        // Another policy may have pulled the tag meanwhile.
        let first = |before: &Record| component.image().is_none() || before.digest == record.digest;
        if !known.get(&key).is_none_or(first) {
            return Ok(());
        }
        if let (Some(folder), Ok(text)) = (&self.records, serde_json::to_vec(&record)) {
            folder.write(&file(&key, "json"), &[&text]);
            self.prune_records(folder);
        }
        known.insert(key, record);
        drop(known);
        self.keep_evidence(component, asker, artifact, evidence);
        Ok(())
    }
}

/// The name of a component; `None` when it cannot be told from others. An artifact is the same everywhere, and one with a
/// digest needs no tag. A ConfigMap of the same name lies in other clusters, too: it belongs to one policy.
fn key(component: &Location, Asker { uid, digest, .. }: Asker<'_>) -> Option<String> {
    match component.image() {
        Some(image) => {
            let tag = image.tag.clone().filter(|_| image.digest.is_none());
            let image = Image {
                tag,
                ..image.clone()
            };
            Some(format!("{image} {}", digest.unwrap_or("first pulled")))
        }
        None => Some(format!("{component} of {}", uid?)),
    }
}

/// From where a component is loaded, as precisely as its source is allowed: the repository, the keys of ConfigMaps of the
/// policy's cluster, the file below its folder. `None` for one that cannot be loaded from a file.
fn origin(component: &Location, asker: Asker<'_>) -> Option<String> {
    match component {
        Location::Builtin(_) => None,
        Location::Image(image) => Some(format!("oci:{}", image.name())),
        Location::ConfigMap(_) => {
            let uid = asker.uid.unwrap_or_default();
            Some(format!("{component} of {uid}"))
        }
        Location::File(..) => {
            let (root, path) = component.file()?;
            Some(format!("file {} in {}", path.display(), root.display()))
        }
    }
}

/// The file of something about a component with a digest; its name begins with the digest.
fn beside(digest: &str, what: &str) -> String {
    let digest = digest.trim_start_matches("sha256:");
    format!("{digest}-{}", file(what, "json"))
}

/// The file of what verified a component for one policy: others may demand other signatures.
fn verified(digest: &str, component: &Location, asker: Asker<'_>) -> Option<String> {
    let (policy, uid) = (asker.policy, asker.uid.unwrap_or_default());
    let origin = origin(component, asker)?;
    Some(beside(digest, &format!("{origin} for {policy} {uid}")))
}

/// The file of a component.
fn name(digest: &str) -> String {
    format!("{}.wasm", digest.trim_start_matches("sha256:"))
}

/// The digest of the component in a file.
fn digest_of(name: &str) -> Option<String> {
    Some(format!("sha256:{}", name.strip_suffix(".wasm")?))
}

/// The file of a record.
fn file(key: &str, form: &str) -> String {
    let digest = Digest::of_bytes(key.as_bytes()).to_string();
    format!("{}.{form}", digest.trim_start_matches("sha256:"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policies::{BUILTIN, Found, load};
    use std::borrow::Cow;
    use std::fs;
    use std::time::UNIX_EPOCH;
    use transom_artifacts::{Base, Sources};
    use transom_core::rollout::history;
    use transom_engine::{Engine, EngineOptions};

    fn artifact(bytes: &[u8]) -> Artifact {
        Artifact {
            bytes: Cow::Owned(bytes.to_vec()),
            digest: Digest::of_bytes(bytes).to_string(),
        }
    }

    fn location(text: &str) -> Location {
        Location::parse(text, &Base::Nowhere).unwrap()
    }

    const ANY: Asker<'_> = Asker {
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
        Kept::new(Some(&path))
            .keep(&one, ANY, &component, Some("sha256:m"), None)
            .unwrap();
        let again = || Kept::new(Some(&path));
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
        let kept = Kept::new(Some(&folder.path().join("components")));
        let (tag, first, moved) = (
            location("oci:registry.example/a:v1"),
            artifact(b"one"),
            artifact(b"two"),
        );
        kept.keep(&tag, ANY, &first, Some("sha256:1"), None)
            .unwrap();
        let pinned = Asker {
            digest: Some(&moved.digest),
            ..ANY
        };
        assert!(kept.find(&tag, pinned).is_none());
        kept.keep(&tag, pinned, &moved, Some("sha256:2"), None)
            .unwrap();
        kept.keep(&tag, ANY, &moved, Some("sha256:2"), None)
            .unwrap();
        let same = Asker {
            digest: Some(&first.digest),
            ..ANY
        };
        assert!(kept.has(&tag, same) && kept.find(&tag, same).unwrap().bytes == b"one");
        assert_eq!(kept.find(&tag, ANY).unwrap().bytes, b"one");
        assert_eq!(kept.find(&tag, pinned).unwrap().bytes, b"two");
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
        let kept = Kept::new(Some(&folder.path().join("components")));
        let component = location("configmap:transom/a/k");
        let of = |uid| Asker { uid, ..ANY };
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
        let kept = Kept::new(Some(&folder.path().join("components")));
        let signed = |uid| Asker {
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
        let kept = Kept::new(Some(&root));
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
    fn without_a_folder_only_the_meaning_of_a_tag_is_known() {
        let kept = Kept::new(None);
        let one = location("oci:registry.example/a:v1");
        kept.keep(&one, ANY, &artifact(b"one"), Some("sha256:m"), None)
            .unwrap();
        assert!(kept.find(&one, ANY).is_none() && kept.record(&one, ANY).is_some());
    }

    /// A folder with room for so many bytes.
    fn small(root: &Path, bytes: u64) -> Kept {
        let most = Most { bytes, ..MOST };
        Kept {
            most,
            ..Kept::new(Some(root))
        }
    }

    #[test]
    fn what_a_policy_uses_is_never_removed_for_a_new_component() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("components");
        let kept = small(&root, 10);
        let by = |policy| Asker { policy, ..ANY };
        let (used, padded) = (artifact(b"1234"), artifact(b"123456789"));
        kept.keep_digest(&place(), by("good"), &used, None).unwrap();
        // It is by far the oldest, and stays.
        let open = fs::File::open(root.join("bytes").join(name(&used.digest))).unwrap();
        open.set_modified(UNIX_EPOCH).unwrap();
        let (at, other) = (location("oci:registry.example/a:v1"), by("padding"));
        let refused = kept
            .keep_digest(&place(), other, &padded, None)
            .unwrap_err();
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
    fn sample() -> history::Record {
        let mut found = Found::default();
        found.take("a", &Base::Nowhere, BUILTIN[0].1.as_bytes());
        let engine = Engine::new(EngineOptions::default()).unwrap();
        let loaded = load::load(&engine, &found.policies[0], &Sources::default());
        history::Record::of(&loaded.ok().unwrap().revision)
    }

    #[test]
    fn a_digest_stands_for_a_component_only_where_that_was_loaded_from() {
        let folder = tempfile::tempdir().unwrap();
        let kept = Kept::new(Some(&folder.path().join("components")));
        let of = |uid| Asker {
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
    fn no_policy_replaces_or_borrows_what_verified_a_component_for_another_one() {
        let folder = tempfile::tempdir().unwrap();
        let kept = Kept::new(Some(&folder.path().join("components")));
        let at = location("oci:registry.example/a:v1");
        let by = |policy| Asker {
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
        assert_eq!(found("weak"), None);
        keep("weak", &weak);
        keep("none", &Evidence::default());
        assert_eq!(found("strong"), Some(strong));
        assert_eq!(found("weak"), Some(weak));
    }
}
