//! The plan for an answer about a managed cluster, as the agent makes it. Tests of other crates include this file.

use serde_json::Map;
use transom_core::catalogue::guest::GuestFacts;
use transom_core::contract::AgentFacts;
use transom_core::contract::description::{Description, SuggestedGrant};
use transom_core::failure::Failure;
use transom_core::inputs::kubeconfigs::Kubeconfigs;
use transom_core::inputs::secrets::Secrets;
use transom_core::kubeconfig::KubeconfigLimits;
use transom_core::object::Object;
use transom_core::pattern::TemplateData;
use transom_core::plan::contention::Contentions;
use transom_core::plan::{Feasible, Other, Plan, PlanInput, TimeAdded, plan};
use transom_core::policy::Policy;
use transom_core::stamp::{SourceRef, Stamp};
use transom_core::work::Key;
use transom_core::world::{Answer, Lowering};

/// The plan for what a guest answered about a primary that nobody else wants, if all of it has a step.
pub(crate) fn planned(
    policy: &Policy,
    primary: &Object,
    answer: &dyn Answer,
    time_added: TimeAdded,
    planning: (&Contentions, i64),
) -> Result<Plan, Failure> {
    let feasible = feasible(policy, (primary, &[]), answer, time_added, planning);
    feasible.and_then(|feasible| feasible.waits.map_or(Ok(feasible.plan), Err))
}

/// The same with objects that others made.
pub(crate) fn feasible(
    policy: &Policy,
    (primary, others): (&Object, &[Other]),
    answer: &dyn Answer,
    time_added: TimeAdded,
    (contentions, now_seconds): (&Contentions, i64),
) -> Result<Feasible, Failure> {
    let key = Key::new(&policy.name, &primary.reference);
    let agent = AgentFacts::new("local-cluster", None);
    let data = TemplateData {
        object: primary,
        agent: &agent,
    };
    let description = Description {
        name: "taints".to_owned(),
        version: "1".to_owned(),
        reads: Vec::new(),
        reasons: Vec::new(),
        settings_schema: "{}".to_owned(),
        grant: SuggestedGrant::default(),
    };
    let guest = GuestFacts::load("sha256:1", description, &Map::new())?;
    let view = guest.declared("", "").primary(primary);
    let kubeconfigs = Kubeconfigs::new(KubeconfigLimits::default());
    let secrets = Secrets::default();
    let desired = answer.lower(&Lowering {
        policy,
        guest: &guest,
        data,
        primary: &view,
        target: &primary.reference,
        inputs: &[],
        kubeconfigs: &kubeconfigs,
        secrets: &secrets,
        now_seconds,
    })?;
    let wanting = PlanInput {
        policy,
        key: &key,
        data,
        primary,
        targets: &[],
        others,
        stamp: &Stamp::of(&key, SourceRef::of(primary, ""), "", ""),
        time_added,
        now_seconds,
    };
    plan(&wanting, &desired, contentions)
}
