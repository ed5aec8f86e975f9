//! One sandboxed call with a fresh instance against an empty one of the same engine, and against a native rewrite.
//! Excludes the host's handling of the answer.

use crate::rounds::{Times, times};
use crate::scene::{Asked, Scene};
use crate::table::{Figure, Row, Table};
use crate::way::rewrite;
use crate::way::{Objects, SERVER};
use anyhow::{Result, anyhow, bail};
use std::hint::black_box;
use transom_core::contract::taints::ManagedCluster;
use transom_core::contract::{Change, Context, TriggerVerdict};
use transom_core::managed_cluster;
use transom_core::object::Object;
use transom_core::policy::budget::usage::Usage;
use transom_core::reference::ObjectRef;
use transom_core::trigger::{self, Evaluator, LastSeen, Predicate, PredicateResult};
use transom_engine::CallLimits;

/// Measures them.
pub(crate) fn measure(scene: &Scene, table: &mut Table) -> Result<()> {
    let empty = managed(&scene.calm, &bare(&scene.managed.reference))?;
    let cluster = managed(&scene.taints, &scene.managed)?;
    let (change, gathered) = (change(scene)?, Objects::of(scene).gather()?);
    let (calm, taints) = (Scene::context(&scene.calm), Scene::context(&scene.taints));
    let asked = Scene::context(&scene.trigger);
    let limits = CallLimits::default();
    let compute = |asked: &Asked, context: &Context, cluster: &ManagedCluster| -> Result<()> {
        let answer = asked.guest.compute(&limits, context, cluster).result?;
        answer
            .map(unused)
            .map_err(|refusal| anyhow!("the guest refused: {refusal:?}"))
    };
    let receipt = scene.calm.guest.compute(&limits, &calm, &empty).receipt;
    let mut usage = Usage::default();
    let [base, transformed, reconciled, computed, native, counted] = times([
        &mut || compute(&scene.calm, &calm, &empty),
        &mut || gathered.transform(scene).map(unused),
        &mut || evaluate(scene, &limits, &asked, &change),
        &mut || compute(&scene.taints, &taints, &cluster),
        &mut || rewrite(scene.text(), SERVER).map(unused),
        &mut || {
            for _ in 0..COUNTED {
                usage.add(|what| black_box(&receipt).used(what, &limits));
            }
            Ok(())
        },
    ])?;
    let named = |what: &str, times: Times, against: &str, floor: Times, target| Row {
        what: format!("call with a fresh instance: {what}"),
        figure: Figure::Micros(times.median),
        against: against.to_owned(),
        floor: Figure::Micros(floor.median),
        fastest: Some(times.min / floor.min),
        target: Some(target),
    };
    let transform = "kubeconfig `transform`";
    table.add(named(transform, transformed, EMPTY, base, 3.0))?;
    table.add(Row {
        what: "counting the receipt of a call for the usage of its policy".to_owned(),
        figure: Figure::Micros(counted.median / f64::from(COUNTED)),
        against: EMPTY.to_owned(),
        floor: Figure::Micros(base.median),
        fastest: Some(counted.min / f64::from(COUNTED) / base.min),
        target: Some(0.03),
    })?;
    table.add(named("trigger `evaluate`", reconciled, EMPTY, base, 3.0))?;
    table.add(named("taints `compute`", computed, EMPTY, base, 2.0))?;
    let rewritten = "native parse, edit, write";
    table.add(named(transform, transformed, rewritten, native, 0.1))
}

/// Asks the trigger guest about an upgrade.
fn evaluate(scene: &Scene, limits: &CallLimits, context: &Context, change: &Change) -> Result<()> {
    let guest = &scene.trigger.guest;
    match black_box(guest.evaluate(limits, context, change).result?) {
        TriggerVerdict::Run(_) => Ok(()),
        TriggerVerdict::Ignore => bail!("the trigger guest ignores an upgrade"),
    }
}

/// Drops an answer that the compiler has to make.
fn unused<T>(answer: T) {
    drop(black_box(answer));
}

/// Receipts that are counted in one run: one alone is shorter than a look at the clock.
const COUNTED: u32 = 100;

/// The baseline of calls.
const EMPTY: &str = "empty call";

pub(crate) fn managed(asked: &Asked, object: &Object) -> Result<ManagedCluster> {
    let declared = asked
        .described
        .declared(&object.reference.api_version, &object.reference.kind);
    managed_cluster::view(object, declared)
        .map_err(|invalid| anyhow!("{} is not {}", invalid.path, invalid.expected))
}

/// A ManagedCluster without anything.
fn bare(reference: &ObjectRef) -> Object {
    let body = serde_json::json!({"metadata": {"name": reference.name}});
    Object {
        reference: reference.clone(),
        version: String::new(),
        body,
    }
}

/// The HostedCluster is upgraded, and its conditions change: the guest has to read both sides.
fn change(scene: &Scene) -> Result<Change> {
    let before = scene.hosted()?.clone();
    let mut after = before.clone();
    after.body["status"]["version"]["history"][0]["version"] = "4.17.9".into();
    after.body["status"]["conditions"][4]["reason"] = "Upgraded".into();
    let described = &scene.trigger.described;
    let declared = described.declared(&before.reference.api_version, &before.reference.kind);
    let predicate = Predicate {
        evaluator: Evaluator::Guest,
        declared,
        written: &[],
        finalizer: None,
    };
    match trigger::observe(predicate, Some(&LastSeen::of(&before, predicate)), &after) {
        PredicateResult::Ask { change, .. } => Ok(*change),
        _ => bail!("the upgrade is not put to the trigger guest"),
    }
}
