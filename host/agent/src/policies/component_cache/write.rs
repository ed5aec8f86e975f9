//! Keeps what was loaded. Room is made by removing what no policy uses.

use super::names::{beside, digest_beside, digest_of, file, key, name, origin, verified};
use super::{
    ComponentCache, ComponentRequest, EVIDENCE_BYTES, EVIDENCE_FILES, LoadRecord, Most,
    RECORD_BYTES, RECORDS,
};
use std::collections::{BTreeMap, BTreeSet};
use std::{fmt, io};
use transom_artifacts::signature::Evidence;
use transom_artifacts::{Artifact, Location, MAX_BYTES};
use transom_core::rollout::history::History;
use transom_core::share::lock::MutexExt as _;
use transom_engine::PrivateFolder;

/// That a new component finds no room.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::policies) struct NoRoom {
    pub(super) size: u64,
    pub(super) most: u64,
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

impl ComponentCache {
    /// Never removes what the active and previous revisions of these policies use, from now on; nor what was loaded.
    pub(in crate::policies) fn use_histories(&self, histories: &BTreeMap<String, History>) {
        self.in_use.locked().kept(histories);
    }

    /// The same for one policy whose history has changed.
    pub(in crate::policies) fn use_history(&self, policy: &str, history: &History) {
        self.in_use.locked().kept_of(policy, history);
    }

    /// The same for what a policy has loaded and may put to work.
    pub(in crate::policies) fn use_loaded(&self, policy: &str, digests: BTreeSet<String>) {
        self.in_use.locked().loaded(policy, digests);
    }

    /// A policy is gone, and uses nothing any more.
    pub(in crate::policies) fn forget(&self, policy: &str) {
        self.in_use.locked().forget(policy);
    }

    /// Writes the bytes of a component that a policy has loaded, unless they are there, and from where; makes room for
    /// them.
    ///
    /// # Errors
    /// When a new component finds no room. One that a policy uses already works without being kept.
    fn keep_bytes(
        &self,
        component: &Location,
        asker: ComponentRequest<'_>,
        artifact: &Artifact,
    ) -> Result<(), NoRoom> {
        let Some(folder) = &self.components else {
            return Ok(());
        };
        let name = name(&artifact.digest);
        let mut in_use = self.in_use.locked();
        let there = folder.read(&name, MAX_BYTES);
        if there.is_ok_and(|bytes| *bytes == *artifact.bytes) {
            folder.touch(&name);
        } else {
            let (size, Most { files, bytes, .. }) = (artifact.bytes.len() as u64, self.most);
            let left = bytes.saturating_sub(size);
            let is_spared = |name: &str| digest_of(name).is_some_and(|digest| in_use.has(&digest));
            let files = files.saturating_sub(1);
            let fits = size <= bytes && folder.make_room(files, left, is_spared);
            match fits {
                true => {
                    let written = folder.write(&name, &[&artifact.bytes]);
                    self.take_written(component, asker, written);
                }
                false if in_use.has(&artifact.digest) => {}
                false => return Err(NoRoom { size, most: bytes }),
            }
        }
        in_use.add(asker.policy, &artifact.digest);
        drop(in_use);
        if let (Some(folder), Some(origin)) = (&self.origins, origin(component, asker)) {
            let name = beside(&artifact.digest, &origin);
            self.take_written(component, asker, folder.write(&name, &[origin.as_bytes()]));
            self.prune_origins(folder);
        }
        Ok(())
    }

    /// Keeps what verified a component for a policy, if there is room for it: without it the next start asks for the
    /// signatures again.
    fn keep_evidence(
        &self,
        component: &Location,
        asker: ComponentRequest<'_>,
        artifact: &Artifact,
        evidence: Option<&Evidence>,
    ) {
        let names = verified(&artifact.digest, component, asker);
        if let (Some(folder), Some(names), Some(evidence)) = (&self.evidence, names, evidence) {
            let text = evidence.to_json().to_string();
            let size = text.len() as u64;
            let full = || {
                let why = format!(
                    "the {size} bytes of what verifies it are too many: the cache takes {EVIDENCE_BYTES} bytes of one \
                     component and {} of all",
                    self.most.evidence
                );
                Err(io::Error::other(why))
            };
            for name in names {
                let written = match self.make_room_beside(folder, &name, size) {
                    true => folder.write(&name, &[text.as_bytes()]),
                    false => full(),
                };
                self.take_written(component, asker, written);
            }
        }
    }

    /// Makes room for a file of what verifies a component; returns whether that was possible without removing one about
    /// another component that a policy uses.
    fn make_room_beside(&self, folder: &PrivateFolder, name: &str, size: u64) -> bool {
        let in_use = self.in_use.locked();
        let is_spared = |other: &str| other != name && in_use.has(&digest_beside(other));
        let (files, left) = (EVIDENCE_FILES - 1, self.most.evidence.saturating_sub(size));
        size <= EVIDENCE_BYTES && folder.make_room(files, left, is_spared)
    }

    /// Removes the origins that were not used for longest and are not of a component that a policy uses.
    fn prune_origins(&self, folder: &PrivateFolder) {
        let in_use = self.in_use.locked();
        folder.prune(RECORDS, u64::MAX, |name| in_use.has(&digest_beside(name)));
    }

    /// Removes the records that were not used for longest and are not of a component that a policy uses.
    fn prune_records(&self, folder: &PrivateFolder) {
        let in_use = self.in_use.locked();
        let is_spared = |name: &str| {
            let record = folder.read(name, RECORD_BYTES).ok();
            let record = record.and_then(|text| serde_json::from_slice::<LoadRecord>(&text).ok());
            record.is_some_and(|record| in_use.has(&record.digest))
        };
        folder.prune(RECORDS, u64::MAX, is_spared);
    }

    /// Keeps a component that was loaded, and what verified it, by its digest: its place may hold another one soon.
    ///
    /// # Errors
    /// When a new component finds no room.
    pub(in crate::policies) fn keep_digest(
        &self,
        component: &Location,
        asker: ComponentRequest<'_>,
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
    pub(in crate::policies) fn keep(
        &self,
        component: &Location,
        asker: ComponentRequest<'_>,
        artifact: &Artifact,
        manifest: Option<&str>,
        evidence: Option<&Evidence>,
    ) -> Result<(), NoRoom> {
        let Some(key) = key(component, asker) else {
            return Ok(());
        };
        // A place may hold other bytes than those that are demanded: nothing is recorded of it.
        if asker.digest.is_some_and(|digest| digest != artifact.digest) {
            return Ok(());
        }
        let record = LoadRecord {
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
        let mut known = self.known.locked();
        // Another policy may have pulled the tag meanwhile.
        let first =
            |before: &LoadRecord| component.image().is_none() || before.digest == record.digest;
        if !known.get(&key).is_none_or(first) {
            return Ok(());
        }
        if let (Some(folder), Ok(text)) = (&self.records, serde_json::to_vec(&record)) {
            let written = folder.write(&file(&key, "json"), &[&text]);
            self.take_written(component, asker, written);
            self.prune_records(folder);
        }
        known.insert(key, record, &self.in_use.locked());
        drop(known);
        self.keep_evidence(component, asker, artifact, evidence);
        Ok(())
    }
}
