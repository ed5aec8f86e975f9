//! Keeps the components that were loaded, by their digest, so that a restart needs no registry, ConfigMap or network; and
//! which digest a tag had when it was first pulled.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use transom_artifacts::signature::Evidence;
use transom_artifacts::{Artifact, Held, Location, MAX_BYTES};
use transom_core::digest::Digest;
use transom_core::policy::component::Image;
use transom_engine::PrivateFolder;

/// How many components are kept, and how many bytes; beyond that those are removed that were not used for longest. The
/// chart gives 256 MiB to all caches.
const FILES: usize = 512;
const BYTES: u64 = 96 << 20;
/// The same for records, which say what a tag means.
const RECORDS: usize = 4_096;
const RECORD_BYTES: u64 = 16 << 10;
/// The same for what verifies components.
const EVIDENCE_BYTES: u64 = 2 << 20;
const ALL_EVIDENCE_BYTES: u64 = 32 << 20;

/// Who names a component, and which digest it demands of it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Asker<'a> {
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

/// The components that were loaded. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct Kept {
    components: Option<PrivateFolder>,
    records: Option<PrivateFolder>,
    /// What verifies each component, so that it can be verified again.
    evidence: Option<PrivateFolder>,
    known: Arc<Mutex<BTreeMap<String, Record>>>,
}

impl Kept {
    /// Keeps components in a folder; only what tags mean, and only for this run, when it cannot be used.
    pub(crate) fn new(folder: Option<&Path>) -> Self {
        let open = |name: &str| PrivateFolder::open(&folder?.join(name));
        Self {
            components: open("bytes"),
            records: open("records"),
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
            let evidence = file(&record.component, "json");
            let folder = self.evidence.as_ref();
            folder.is_some_and(|folder| folder.has(&evidence))
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
        let beside = file(&record.component, "json");
        for folder in self.records.iter().chain(&self.evidence) {
            folder.touch(&beside);
        }
        let evidence = || {
            let text = self.evidence.as_ref()?.read(&beside, EVIDENCE_BYTES).ok()?;
            Evidence::from_json(&serde_json::from_slice(&text).ok()?)
        };
        let is_same = Digest::of_bytes(&bytes).to_string() == record.digest;
        is_same.then(|| Held {
            bytes,
            evidence: asker.signed.then(evidence).flatten(),
        })
    }

    /// Whether the component with a digest was loaded and is still there; it may be damaged.
    pub(super) fn has_digest(&self, digest: &str) -> bool {
        let folder = self.components.as_ref();
        folder.is_some_and(|folder| folder.has(&name(digest)))
    }

    /// The component with a digest that was loaded, and what verified it. Reads files.
    pub(super) fn by_digest(&self, digest: &str) -> Option<Held> {
        let (name, folder) = (name(digest), self.components.as_ref()?);
        let bytes = folder.read(&name, MAX_BYTES).ok()?;
        folder.touch(&name);
        let evidence = || {
            let (beside, folder) = (file(digest, "json"), self.evidence.as_ref()?);
            let text = folder.read(&beside, EVIDENCE_BYTES).ok()?;
            folder.touch(&beside);
            Evidence::from_json(&serde_json::from_slice(&text).ok()?)
        };
        let is_same = Digest::of_bytes(&bytes).to_string() == digest;
        is_same.then(|| Held {
            bytes,
            evidence: evidence(),
        })
    }

    /// Keeps a component that was loaded, and what verified it, by its digest alone: its place may hold another one soon.
    pub(super) fn keep_digest(&self, artifact: &Artifact, evidence: Option<&Evidence>) {
        let name = name(&artifact.digest);
        if let Some(folder) = &self.components {
            match folder.has(&name) {
                true => folder.touch(&name),
                false => {
                    folder.write(&name, &[&artifact.bytes]);
                    folder.prune(FILES, BYTES);
                }
            }
        }
        if let (Some(folder), Some(evidence)) = (&self.evidence, evidence) {
            let text = evidence.to_json().to_string();
            folder.write(&file(&artifact.digest, "json"), &[text.as_bytes()]);
            folder.prune(RECORDS, ALL_EVIDENCE_BYTES);
        }
    }

    /// Keeps a component that was loaded. A tag keeps the meaning that it had first.
    pub(super) fn keep(
        &self,
        component: &Location,
        asker: Asker<'_>,
        artifact: &Artifact,
        manifest: Option<&str>,
        evidence: Option<&Evidence>,
    ) {
        let Some(key) = key(component, asker) else {
            return;
        };
        let record = Record {
            component: key.clone(),
            digest: artifact.digest.clone(),
            manifest: manifest.map(str::to_owned),
        };
        let before = self.record(component, asker);
        let is_other = before.is_some_and(|before| before.digest != record.digest);
        if component.image().is_some() && is_other {
            return;
        }
        if let Some(folder) = &self.components {
            folder.write(&name(&record.digest), &[&artifact.bytes]);
            folder.prune(FILES, BYTES);
        }
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        // Another policy may have pulled the tag meanwhile.
        let first = |before: &Record| component.image().is_none() || before.digest == record.digest;
        if !known.get(&key).is_none_or(first) {
            return;
        }
        if let (Some(folder), Ok(text)) = (&self.records, serde_json::to_vec(&record)) {
            folder.write(&file(&key, "json"), &[&text]);
            folder.prune(RECORDS, u64::MAX);
        }
        // What verified other bytes is dropped.
        let none = is_other.then(Evidence::default);
        if let (Some(folder), Some(evidence)) = (&self.evidence, evidence.or(none.as_ref())) {
            let text = evidence.to_json().to_string();
            folder.write(&file(&key, "json"), &[text.as_bytes()]);
            folder.prune(RECORDS, ALL_EVIDENCE_BYTES);
        }
        known.insert(key, record);
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

/// The file of a component.
fn name(digest: &str) -> String {
    format!("{}.wasm", digest.trim_start_matches("sha256:"))
}

/// The file of a record.
fn file(key: &str, form: &str) -> String {
    let digest = Digest::of_bytes(key.as_bytes()).to_string();
    format!("{}.{form}", digest.trim_start_matches("sha256:"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::borrow::Cow;
    use std::fs;
    use std::time::UNIX_EPOCH;
    use transom_artifacts::Base;

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
        uid: None,
        digest: None,
        signed: false,
    };

    #[test]
    fn a_restart_finds_what_was_loaded_and_nothing_that_was_changed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("components");
        let (one, other) = (
            location("oci:registry.example/a:v1"),
            location("oci:registry.example/b:v1"),
        );
        let component = artifact(b"one");
        Kept::new(Some(&path)).keep(&one, ANY, &component, Some("sha256:m"), None);
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
        again().keep(&one, ANY, &component, Some("sha256:m"), None);
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
        kept.keep(&tag, ANY, &first, Some("sha256:1"), None);
        let pinned = Asker {
            digest: Some(&moved.digest),
            ..ANY
        };
        assert!(kept.find(&tag, pinned).is_none());
        kept.keep(&tag, pinned, &moved, Some("sha256:2"), None);
        kept.keep(&tag, ANY, &moved, Some("sha256:2"), None);
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
            kept.keep(&component, of(uid), &artifact(b"x"), None, None);
        }
        assert!(kept.find(&component, of(Some("one"))).is_some());
        assert!(kept.find(&component, of(Some("two"))).is_none());
        assert!(kept.find(&component, of(None)).is_none());
        // A ConfigMap changes: the last one that was loaded counts.
        kept.keep(&component, of(Some("one")), &artifact(b"y"), None, None);
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
            kept.keep(&at, asker, &component, Some("sha256:1"), None);
            assert!(!kept.has(&at, asker) && kept.find(&at, asker).unwrap().evidence.is_none());
            kept.keep(&at, asker, &component, Some("sha256:1"), Some(&evidence));
            assert!(kept.has(&at, asker));
            assert_eq!(
                kept.find(&at, asker).unwrap().evidence,
                Some(evidence.clone())
            );
            // A load that demanded none leaves it there.
            kept.keep(&at, asker, &component, Some("sha256:1"), None);
            assert_eq!(
                kept.find(&at, asker).unwrap().evidence,
                Some(evidence.clone())
            );
        }
        // That of other bytes is dropped.
        let at = location("configmap:transom/a/k");
        kept.keep(&at, signed("one"), &artifact(b"other"), None, None);
        let found = kept.find(&at, signed("one")).unwrap();
        assert_eq!(found.evidence, Some(Evidence::default()));
    }

    #[test]
    fn what_is_used_by_its_digest_is_not_the_oldest() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("components");
        let kept = Kept::new(Some(&root));
        let component = artifact(b"one");
        kept.keep_digest(&component, None);
        let file = root.join("bytes").join(name(&component.digest));
        let uses: [&dyn Fn(); 2] = [
            &|| drop(kept.by_digest(&component.digest).unwrap()),
            &|| kept.keep_digest(&component, None),
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
        kept.keep(&one, ANY, &artifact(b"one"), Some("sha256:m"), None);
        assert!(kept.find(&one, ANY).is_none() && kept.record(&one, ANY).is_some());
    }
}
