//! The worlds: the kinds of guests that decide. A world says which grants it takes and what its guest is asked, and
//! lowers an answer to [`Desired`] objects; everything after that exists once. A new world is one file in this folder
//! and one line in [`ALL`].

#[cfg(feature = "facts")]
mod facts;
mod kubeconfig;
mod objects;
mod taints;

#[cfg(feature = "facts")]
pub use facts::{FACTS, Facts};
pub use kubeconfig::KUBECONFIG;
pub use objects::OBJECTS;
pub use taints::TAINTS;

use crate::catalogue::guest::GuestFacts;
use crate::contract::Primary;
use crate::contract::decide::Input;
use crate::failure::Failure;
use crate::inputs::kubeconfigs::Kubeconfigs;
use crate::inputs::secrets::Secrets;
use crate::pattern::TemplateData;
use crate::pattern::template::TemplateNames;
use crate::plan::desired::{Desired, Fields};
use crate::policy::manifest::PolicyError;
use crate::policy::{Policy, ReadRule, Target, WriteRule};
use crate::reference::ObjectRef;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use transom_api::policy::{PrimarySpec, WriteGrantSpec, WriteVerb};

/// Every world. The first one that takes the write grants of a policy is the policy's world.
pub const ALL: &[&dyn World] = &[
    KUBECONFIG,
    #[cfg(feature = "facts")]
    FACTS,
    TAINTS,
    OBJECTS,
];

/// The world of policies that grant no write: its guests may only observe, and in the others every answer is a write.
pub const OBSERVING: &dyn World = OBJECTS;

/// A kind of guest that decides.
pub trait World: fmt::Debug + Sync {
    /// Its name in `wit/`: `kubeconfig-guest`.
    fn name(&self) -> &'static str;

    /// Whether the write grants of a policy are meant for a guest of this world. They need not be valid.
    fn takes(&self, grants: &[WriteGrantSpec]) -> bool;

    /// Checks one write grant.
    ///
    /// # Errors
    /// The first invalid field, with its path.
    fn rule(&self, grant: &Granted<'_>) -> Result<WriteRule, PolicyError>;

    /// Whether the guest is asked what it needs and which object it wants to write. One that is not asked needs
    /// nothing. Where no object is named, the target is the primary.
    fn requires(&self) -> bool;

    /// The fields of the primary that a policy owns, with nothing wanted, as they are after a withdrawal. Empty when a
    /// guest of this world only makes objects.
    fn nothing(&self, _policy: &Policy, _primary: &ObjectRef) -> Vec<Fields> {
        Vec::new()
    }

    /// Whether its guest says when the finalizer of its policy is taken off.
    fn finalizes(&self) -> bool {
        false
    }

    /// Whether what a policy wrote can be told from what others wrote, so that it can be taken back.
    fn withdraws(&self) -> bool {
        true
    }
}

impl PartialEq for dyn World {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

impl Eq for dyn World {}

/// A write grant to check, with what the check depends on.
#[derive(Clone, Copy)]
pub struct Granted<'a> {
    /// Path of the grant: `spec.grant.write[0]`.
    pub field: &'a str,
    /// The grant.
    pub grant: &'a WriteGrantSpec,
    /// All write grants of the policy.
    pub grants: &'a [WriteGrantSpec],
    /// The primary of the policy.
    pub primary: &'a PrimarySpec,
    /// What the policy may read.
    pub reads: &'a [ReadRule],
    /// The named templates of the policy.
    pub names: &'a TemplateNames,
}

impl Granted<'_> {
    /// The rule about such objects, which allows no field yet.
    pub(crate) fn rule(&self, target: Target) -> WriteRule {
        let (grant, primary) = (self.grant, self.primary);
        let (cluster, api_version, kind) = match target {
            Target::Primary => (&primary.cluster, &primary.api_version, Some(&primary.kind)),
            _ => (&grant.cluster, &grant.api_version, grant.kind.as_ref()),
        };
        WriteRule {
            cluster: cluster.clone(),
            api_version: api_version.clone(),
            kind: kind.cloned().unwrap_or_default(),
            target,
            verbs: grant.verbs.iter().copied().collect(),
            fields: Vec::new(),
            values: Vec::new(),
            holes: BTreeMap::new(),
            taint_keys: BTreeSet::new(),
            conditions: BTreeSet::new(),
            signers: BTreeSet::new(),
            kubeconfig: None,
            hands_on: Vec::new(),
        }
    }

    /// Checks that the grant names no object beside `target: primary`, and only patches it.
    pub(crate) fn patches_primary(&self) -> Result<(), PolicyError> {
        let Self { field, grant, .. } = *self;
        for (name, given) in [
            ("kind", &grant.kind),
            ("namespace", &grant.namespace),
            ("name", &grant.name),
        ] {
            if given.is_some() {
                let why = "must be absent with `target: primary`";
                return Err(PolicyError::new(format!("{field}.{name}"), why));
            }
        }
        match grant.verbs == [WriteVerb::Patch] {
            true => Ok(()),
            false => Err(PolicyError::new(
                format!("{field}.verbs"),
                "a primary can only be patched",
            )),
        }
    }
}

/// A guest's answer, before anything is checked.
pub trait Answer: fmt::Debug + Send {
    /// Checks the answer against the grant and for sense, and turns it into what the policy wants to be there.
    ///
    /// # Errors
    /// The reason, when the answer is not granted, makes no sense, or says to hold.
    fn lower<'a>(&'a self, given: &Lowering<'a>) -> Result<Vec<Desired<'a>>, Failure>;

    /// What the answer waits for once it is applied; `None` when it is complete.
    ///
    /// # Errors
    /// `ReadNotGranted`, `ContractBroken`.
    fn waits(&self, _given: &Lowering<'_>) -> Result<Option<Failure>, Failure> {
        Ok(None)
    }

    /// The answer for people, without what may hide a credential. `None` when there is nothing to show.
    fn shown(&self) -> Option<Value>;
}

/// What an answer is lowered with.
#[derive(Clone, Copy)]
pub struct Lowering<'a> {
    /// The policy.
    pub policy: &'a Policy,
    /// The guest that answered.
    pub guest: &'a GuestFacts,
    /// The values for the templates of the grant.
    pub data: TemplateData<'a>,
    /// The primary as the guest saw it.
    pub primary: &'a Primary,
    /// The object that the guest wants to write.
    pub target: &'a ObjectRef,
    /// The inputs as the guest saw them.
    pub inputs: &'a [Input],
    /// The kubeconfigs among the inputs.
    pub kubeconfigs: &'a Kubeconfigs,
    /// The bytes of Secrets among the inputs.
    pub secrets: &'a Secrets,
    /// Seconds since 1970.
    pub now_seconds: i64,
}
