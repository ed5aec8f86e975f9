//! What is read to load one policy: its components, and what verifies them.

use crate::policies::component_cache::ComponentRequest;
use crate::policies::{Written, revisions, verify};
use std::collections::{BTreeMap, BTreeSet};
use transom_api::policy::VerifySpec;
use transom_artifacts::{Base, Location};
use transom_core::policy::Policy;
use transom_core::rollout::history::History;

/// What is read to load one policy.
#[derive(Clone)]
pub(super) struct WantedReads {
    /// Its components.
    pub(super) components: BTreeSet<Location>,
    /// The signatures that lie beside them, and the trusted keys.
    pub(super) companions: BTreeSet<Location>,
    /// Where the files lie that it may name.
    pub(super) base: Base,
    /// The demanded signatures.
    pub(super) verify: Option<VerifySpec>,
    /// The name of the policy.
    policy: String,
    /// The uid of the policy, if it is an object.
    uid: Option<String>,
    /// The digests that it demands.
    digests: BTreeMap<Location, String>,
    /// The manifests by which components that it names by a tag were pulled for a kept revision.
    manifests: BTreeMap<Location, String>,
}

/// A component of a kept revision, as it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RecordedComponent {
    /// Its digest.
    pub(super) digest: String,
    /// The manifest by which it was pulled from a registry, where that is known.
    pub(super) manifest: Option<String>,
}

impl WantedReads {
    /// What a policy names. `of_server`: it is an object; a file may bear the uid of an object on another cluster.
    pub(super) fn new(policy: &Policy, written: &Written, of_server: bool) -> Self {
        let base = &written.base;
        let guests = policy.trigger.iter().chain([&policy.decide]);
        let digest = |spec: &transom_api::policy::GuestSpec| {
            let at = Location::parse(&spec.component, base).ok()?;
            Some((at, spec.digest.clone()?))
        };
        Self {
            components: written.components().collect(),
            companions: companions(policy.verify.as_ref(), written.components(), base),
            base: base.clone(),
            verify: policy.verify.clone(),
            policy: policy.name.to_string(),
            uid: written.uid().filter(|_| of_server).map(str::to_owned),
            // Where both guests name one component, that of `decide` counts.
            digests: guests.filter_map(digest).collect(),
            manifests: BTreeMap::new(),
        }
    }

    /// What is read to restore the revision that was active, when the newest manifests are refused: the keys that they
    /// trust. `None` when it is not understood whom they trust, or they do not trust the same keys.
    pub(super) fn to_restore(policy: &str, written: &[Written], of_server: bool) -> Option<Self> {
        let (first, others) = written.split_first()?;
        let verify = first.verify()?;
        let trusts_same = |other: &Written| {
            // The keys may lie beside the manifest.
            let is_same_place = verify.is_none() || other.base == first.base;
            is_same_place && other.verify().is_some_and(|other| other == verify)
        };
        if !others.iter().all(trusts_same) {
            return None;
        }
        Some(Self {
            components: BTreeSet::new(),
            companions: companions(verify.as_ref(), std::iter::empty(), &first.base),
            base: first.base.clone(),
            verify,
            policy: policy.to_owned(),
            uid: first.uid().filter(|_| of_server).map(str::to_owned),
            digests: BTreeMap::new(),
            manifests: BTreeMap::new(),
        })
    }

    /// What is read to restore an earlier revision with these components, which lie where they were loaded from, each
    /// as it was.
    pub(super) fn of_earlier(&self, components: BTreeMap<Location, RecordedComponent>) -> Self {
        let places = components.keys().cloned();
        let manifest = |(at, earlier): (&Location, &RecordedComponent)| {
            Some((at.clone(), earlier.manifest.clone()?))
        };
        Self {
            companions: companions(self.verify.as_ref(), places.clone(), &self.base),
            components: places.collect(),
            manifests: components.iter().filter_map(manifest).collect(),
            digests: (components.into_iter())
                .map(|(at, earlier)| (at, earlier.digest))
                .collect(),
            ..self.clone()
        }
    }

    /// Pins each tag to the manifest by which a kept revision was pulled, unless the policy demands another digest.
    pub(super) fn keep_meanings(&mut self, history: &History) {
        for component in self.components.clone() {
            let component = &component;
            let is_tag = component
                .image()
                .is_some_and(|image| image.digest.is_none());
            let pulled = is_tag.then(|| revisions::pulled(history, self, component));
            let Some(RecordedComponent { digest, manifest }) = pulled.flatten() else {
                continue;
            };
            let demanded = self.digests.get(component);
            if let Some(manifest) = manifest.filter(|_| demanded.is_none_or(|one| *one == digest)) {
                self.manifests.insert(component.clone(), manifest);
            }
        }
    }

    /// The digests that it demands.
    pub(super) fn digests(&self) -> impl Iterator<Item = &str> {
        self.digests.values().map(String::as_str)
    }

    /// The manifest by which a component was pulled for a kept revision.
    pub(super) fn manifest(&self, component: &Location) -> Option<&String> {
        self.manifests.get(component)
    }

    /// Everything that is read.
    pub(super) fn all(&self) -> impl Iterator<Item = &Location> {
        self.components.iter().chain(&self.companions)
    }

    /// The uid of the policy, if it is an object.
    pub(super) fn uid(&self) -> Option<&str> {
        self.uid.as_deref()
    }

    /// Who names a component.
    pub(super) fn asker(&self, component: &Location) -> ComponentRequest<'_> {
        ComponentRequest {
            policy: &self.policy,
            uid: self.uid.as_deref(),
            digest: self.digests.get(component).map(String::as_str),
            signed: self.verify.is_some(),
        }
    }
}

/// The signatures that lie beside components, and the trusted keys; nothing without a demand.
pub(super) fn companions(
    spec: Option<&VerifySpec>,
    components: impl Iterator<Item = Location>,
    base: &Base,
) -> BTreeSet<Location> {
    let Some(spec) = spec else {
        return BTreeSet::new();
    };
    let beside = components.filter_map(|component| component.signature());
    beside
        .chain(verify::places(spec, base).into_iter().flatten())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn several_manifests_have_a_revision_restored_only_if_they_trust_the_same_keys() {
        let manifest = |below: &str, verify: &serde_json::Value| Written {
            place: "a".to_owned(),
            document: None,
            base: Base::Beside {
                root: "p".into(),
                below: below.into(),
            },
            value: json!({"spec": {"verify": verify}}),
        };
        let trusts = |name: &str| json!({"keys": [{"name": name, "file": "k.pub"}]});
        let nobody = serde_json::Value::Null;
        let restores = |both: [Written; 2]| WantedReads::to_restore("a", &both, false).is_some();
        let (one, other) = (trusts("one"), trusts("other"));
        assert!(restores([manifest("x", &one), manifest("x", &one)]));
        assert!(!restores([manifest("x", &one), manifest("x", &other)]));
        assert!(!restores([manifest("x", &one), manifest("x", &nobody)]));
        // The file with the key is another one.
        assert!(!restores([manifest("x", &one), manifest("y", &one)]));
        assert!(restores([manifest("x", &nobody), manifest("y", &nobody)]));
        let unknown = json!({"keys": []});
        assert!(!restores([
            manifest("x", &unknown),
            manifest("x", &unknown)
        ]));
        assert!(WantedReads::to_restore("a", &[], false).is_none());
    }
}
