//! A policy that has been checked: patterns parsed, grants sorted by purpose. The catalogue has its components.

pub mod ask;
pub mod bound;
pub mod budget;
pub mod check;
pub mod component;
mod depends;
pub mod manifest;
pub mod rbac;
mod rule;
pub mod selector;
pub mod suggest;
pub mod values;
pub mod verify;
mod writes;

use crate::digest::Digest;
use crate::failure::Failure;
use crate::limits::PolicyLimits;
use crate::object::Object;
use crate::reference::LOCAL;
use crate::world::World;
use ask::AskRule;
use component::ComponentSource;
pub use rule::{EveryRule, HoleRule, PrimaryRule, ReadRule, Target, WriteRule};
use std::sync::Arc;
use transom_api::policy::{
    BudgetSpec, GuestSpec, ModeSpec, OnFailureSpec, OwnSpec, PauseSpec, PolicySpec, VerifySpec,
};
use transom_api::{KnownReason, labels};

/// A checked policy; made by [`check::policy`].
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    /// Its name: a DNS subdomain of at most 63 bytes, so that it fits a label.
    pub name: Arc<str>,
    /// Whether the policy is suspended: no write and no prune.
    pub suspend: bool,
    /// Which objects are its primaries.
    pub primary: PrimaryRule,
    /// The trigger guest, which decides when to reconcile, if there is one.
    pub trigger: Option<GuestSpec>,
    /// The guest that decides what to write.
    pub decide: GuestSpec,
    /// Which keys have to have signed the components, if any.
    pub verify: Option<VerifySpec>,
    /// The world of that guest; the write grants choose it.
    pub world: &'static dyn World,
    /// What may be read, by role; roles are unique.
    pub reads: Vec<ReadRule>,
    /// What the API server may be asked.
    pub asks: Vec<AskRule>,
    /// What may be written.
    pub writes: Vec<WriteRule>,
    /// The finalizer that the guest may keep on the primary, if any.
    pub finalizer: Option<String>,
    /// How the policy treats the objects that it made.
    pub own: OwnSpec,
    /// How much may change in an interval.
    pub limits: PolicyLimits,
    /// What happens to the applied state of a primary while its guest fails.
    pub on_failure: OnFailureSpec,
    /// What one call of its guests may use, within what the agent allows.
    pub budget: BudgetSpec,
    /// Seconds between two resyncs, 0 for none.
    pub resync_seconds: u32,
    /// What it was made from.
    pub spec: Arc<PolicySpec>,
    /// Digest of what makes a revision of the policy, without the bytes of its components.
    pub identity: Digest,
}

impl Policy {
    /// Each field that names a connection, with that connection.
    pub fn clusters(&self) -> impl Iterator<Item = (String, &str)> {
        let line = |list, at| format!("spec.grant.{list}[{at}].cluster");
        let reads = self.reads.iter().enumerate();
        let reads = reads.map(move |(at, rule)| (line("read", at), rule.cluster.as_str()));
        let writes = self.beside();
        let writes = writes.map(move |(at, rule)| (line("write", at), rule.cluster.as_str()));
        let primary = (
            "spec.primary.cluster".to_owned(),
            self.primary.cluster.as_str(),
        );
        let sources = self.sources().into_iter();
        let components = sources
            .filter(|(_, source)| !source.objects().is_empty())
            .map(|(field, _)| (field, LOCAL));
        std::iter::once(primary)
            .chain(components)
            .chain(reads)
            .chain(writes)
    }

    /// Whether it names a component by a tag alone.
    pub fn has_tags(&self) -> bool {
        let is_tag = |source: &ComponentSource| matches!(source, ComponentSource::Image(image) if image.digest.is_none());
        self.sources().iter().any(|(_, source)| is_tag(source))
    }

    /// Each field that names a component or a trusted key, with its source.
    pub fn sources(&self) -> Vec<(String, ComponentSource)> {
        let fields = [
            "spec.guests.decide.component",
            "spec.guests.trigger.component",
        ];
        let guests = std::iter::once(&self.decide).chain(&self.trigger);
        let parsed = fields.into_iter().zip(guests);
        let components = parsed.filter_map(|(field, guest)| {
            Some((
                field.to_owned(),
                ComponentSource::parse(&guest.component).ok()?,
            ))
        });
        let keys = self.verify.iter().flat_map(|verify| &verify.keys);
        let keys = keys
            .enumerate()
            .filter_map(|(at, key)| Some((verify::field(at), verify::source(key)?)));
        components.chain(keys).collect()
    }
}

impl Policy {
    /// Checks that a primary is not held: for a held one nothing is written and nothing pruned.
    ///
    /// # Errors
    /// `Suspended`, `Shadowing` or `Paused`.
    pub fn held(&self, primary: &Object) -> Result<(), Failure> {
        self.works()?;
        if primary.paused() && self.primary.pause == PauseSpec::Honor {
            let message = format!(
                "{} has the annotation {}",
                primary.reference,
                labels::PAUSED
            );
            return Err(Failure::known(KnownReason::Paused, message));
        }
        Ok(())
    }

    /// Whether the policy writes at all.
    ///
    /// # Errors
    /// `Suspended` or `Shadowing`.
    pub fn works(&self) -> Result<(), Failure> {
        let compares = self.spec.rollout.mode == ModeSpec::Shadow && !self.spec.suspend;
        let (reason, message) = match (self.suspend, compares) {
            (false, _) => return Ok(()),
            (true, true) => (
                KnownReason::Shadowing,
                "the policy only compares, as its mode Shadow says",
            ),
            (true, false) => (KnownReason::Suspended, "the policy is suspended"),
        };
        Err(Failure::known(reason, message))
    }

    /// The read grant of a role.
    pub fn read(&self, role: &str) -> Option<&ReadRule> {
        self.reads.iter().find(|rule| rule.role == role)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference::ObjectRef;
    use crate::sample::{object, policy, taints_manifest, with};
    use serde_json::json;

    #[test]
    fn a_pause_holds_a_primary_where_the_policy_honors_it() {
        let place = ObjectRef::local("v1", "ManagedCluster", None, "c");
        let annotations = json!({(labels::PAUSED): "true"});
        let paused = object(place, json!({"metadata": {"annotations": annotations}}));
        let held = |changes: &[_]| policy(&with(taints_manifest(), changes)).held(&paused);
        let why = held(&[]).unwrap_err().reason;
        assert_eq!(why, KnownReason::Paused.into());
        assert!(held(&[("/spec/primary/pause", json!("Ignore"))]).is_ok());
    }
}
