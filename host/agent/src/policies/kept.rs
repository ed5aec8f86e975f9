//! Keeps the components that were loaded, by their digest, so that a restart needs no registry, ConfigMap or network; and
//! which digest a tag had when it was first pulled.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use transom_artifacts::{Artifact, Location, MAX_BYTES};
use transom_core::digest::Digest;
use transom_engine::PrivateFolder;

/// How many files are kept, and how many bytes; beyond that those are removed that were not used for longest. The chart
/// gives 256 MiB to all caches.
const FILES: usize = 512;
const BYTES: u64 = 96 << 20;
/// The most bytes of a record.
const RECORD_BYTES: u64 = 16 << 10;

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
    folder: Option<PrivateFolder>,
    records: Arc<Mutex<BTreeMap<String, Record>>>,
}

impl Kept {
    /// Keeps components in a folder; only what tags mean, and only for this run, when it cannot be used.
    pub(crate) fn new(folder: Option<&Path>) -> Self {
        Self {
            folder: folder.and_then(PrivateFolder::open),
            ..Self::default()
        }
    }

    /// What was loaded from a place for a policy.
    pub(super) fn record(&self, component: &Location, owner: &str) -> Option<Record> {
        let text = key(component, owner);
        let known = || {
            let records = self.records.lock().unwrap_or_else(PoisonError::into_inner);
            records.get(&text).cloned()
        };
        let on_disk = || {
            let bytes = self
                .folder
                .as_ref()?
                .read(&record_name(&text), RECORD_BYTES);
            let record: Record = serde_json::from_slice(&bytes.ok()?).ok()?;
            (record.component == text).then_some(record)
        };
        known().or_else(on_disk)
    }

    /// The bytes that were loaded from a place, if they have the expected digest.
    pub(super) fn find(
        &self,
        component: &Location,
        owner: &str,
        expected: Option<&str>,
    ) -> Option<Vec<u8>> {
        let record = self.record(component, owner)?;
        if expected.is_some_and(|expected| expected != record.digest) {
            return None;
        }
        let folder = self.folder.as_ref()?;
        let bytes = folder.read(&name(&record.digest), MAX_BYTES).ok()?;
        folder.touch(&name(&record.digest));
        folder.touch(&record_name(&record.component));
        (Digest::of_bytes(&bytes).to_string() == record.digest).then_some(bytes)
    }

    /// Keeps a component that was loaded.
    pub(super) fn keep(
        &self,
        component: &Location,
        owner: &str,
        artifact: &Artifact,
        manifest: Option<&str>,
    ) {
        let record = Record {
            component: key(component, owner),
            digest: artifact.digest.clone(),
            manifest: manifest.map(str::to_owned),
        };
        if self.record(component, owner).as_ref() == Some(&record)
            && self
                .find(component, owner, Some(&artifact.digest))
                .is_some()
        {
            return;
        }
        if let Some(folder) = &self.folder {
            folder.write(&name(&record.digest), &[&artifact.bytes]);
            if let Ok(text) = serde_json::to_vec(&record) {
                folder.write(&record_name(&record.component), &[&text]);
            }
            folder.prune(FILES, BYTES);
        }
        let mut records = self.records.lock().unwrap_or_else(PoisonError::into_inner);
        records.insert(record.component.clone(), record);
    }
}

/// The name of a component. A registry is the same everywhere; a ConfigMap of the same name lies in other clusters, too, so
/// the policy counts that owns the record.
fn key(component: &Location, owner: &str) -> String {
    match component.image() {
        Some(_) => component.to_string(),
        None => format!("{component} of {owner}"),
    }
}

/// The file of a component.
fn name(digest: &str) -> String {
    format!("{}.wasm", digest.trim_start_matches("sha256:"))
}

/// The file of a record.
fn record_name(component: &str) -> String {
    let digest = Digest::of_bytes(component.as_bytes()).to_string();
    format!("{}.json", digest.trim_start_matches("sha256:"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::borrow::Cow;
    use std::fs;
    use transom_artifacts::Base;

    fn artifact(bytes: &[u8]) -> Artifact {
        Artifact {
            bytes: Cow::Owned(bytes.to_vec()),
            digest: Digest::of_bytes(bytes).to_string(),
        }
    }

    #[test]
    fn a_restart_finds_what_was_loaded_and_nothing_that_was_changed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("components");
        let one = Location::parse("oci:registry.example/a:v1", &Base::Nowhere).unwrap();
        let other = Location::parse("oci:registry.example/b:v1", &Base::Nowhere).unwrap();
        let component = artifact(b"one");
        Kept::new(Some(&path)).keep(&one, "p", &component, Some("sha256:m"));
        let again = || Kept::new(Some(&path));
        assert_eq!(again().find(&one, "p", None).as_deref(), Some(&b"one"[..]));
        assert_eq!(
            again().find(&one, "p", Some(&component.digest)).unwrap(),
            b"one"
        );
        assert_eq!(
            again().record(&one, "p").unwrap().manifest.as_deref(),
            Some("sha256:m")
        );
        assert!(
            again().find(&one, "p", Some("sha256:00")).is_none()
                && again().find(&other, "p", None).is_none()
        );
        let file = path.join(name(&component.digest));
        let record = path.join(record_name(&key(&one, "p")));
        for damage in ["two", "on", "", "ones"] {
            fs::write(&file, damage).unwrap();
            assert!(again().find(&one, "p", None).is_none(), "{damage}");
        }
        // The record still says what the tag means.
        assert!(again().record(&one, "p").is_some());
        fs::remove_file(&file).unwrap();
        std::os::unix::fs::symlink(&record, &file).unwrap();
        assert!(again().find(&one, "p", None).is_none());
        again().keep(&one, "p", &component, Some("sha256:m"));
        assert!(again().find(&one, "p", None).is_some());
        // The record of another component counts as none.
        fs::copy(&record, path.join(record_name(&key(&other, "p")))).unwrap();
        assert!(again().record(&other, "p").is_none());
        fs::write(&record, "{").unwrap();
        assert!(again().find(&one, "p", None).is_none());
    }

    #[test]
    fn a_config_map_counts_only_for_its_policy_and_a_tag_for_all() {
        let folder = tempfile::tempdir().unwrap();
        let kept = Kept::new(Some(&folder.path().join("components")));
        for (text, shared) in [
            ("oci:registry.example/a:v1", true),
            ("configmap:transom/a/k", false),
        ] {
            let component = Location::parse(text, &Base::Nowhere).unwrap();
            kept.keep(&component, "one", &artifact(b"x"), None);
            assert!(kept.find(&component, "one", None).is_some());
            assert_eq!(
                kept.find(&component, "other", None).is_some(),
                shared,
                "{text}"
            );
        }
    }

    #[test]
    fn without_a_folder_only_the_meaning_of_a_tag_is_known() {
        let kept = Kept::new(None);
        let one = Location::parse("oci:registry.example/a:v1", &Base::Nowhere).unwrap();
        kept.keep(&one, "p", &artifact(b"one"), Some("sha256:m"));
        assert!(kept.find(&one, "p", None).is_none() && kept.record(&one, "p").is_some());
    }
}
