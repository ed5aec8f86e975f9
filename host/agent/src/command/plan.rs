//! `transom plan`: what a changed policy would change on the whole fleet, computed by the agent's own code. Writes
//! nothing: no object, no status and no Event.

mod candidate;
mod page;
mod show;

use crate::args::plan::{PlanArgs, PlanFormat};
use crate::command::run::{self, Prepared};
use crate::command::{block_on, explain, summary};
use crate::controller::Controller;
use crate::controller::account::Account;
use crate::output::{CommandEnd, Screen};
use crate::policies::FoundPolicies;
use crate::policies::active::{Active, PolicyChanges};
use crate::policies::swap::Swap;
use anyhow::Context as _;
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;
use transom_api::policy::{Limited, ModeSpec};
use transom_api::{KnownReason, Reason, State};
use transom_core::catalogue::PolicyChange;
use transom_core::catalogue::guest::GuestFacts;
use transom_core::limits;
use transom_core::plan::fleet::{Beside, FleetPlan, Listed, PlannedPrimary, Writes};
use transom_core::policy::Policy;
use transom_core::rollout::history::RevisionRecord;
use transom_core::work::Key;

/// The maximum size of a plan that is printed, in bytes of JSON.
const MAX_BYTES: usize = 32 << 20;

/// A plan with what it is a plan of.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Told {
    #[serde(flatten)]
    plan: FleetPlan,
    guests: Guests,
    /// Compared with the policy as it is written; absent when nothing about it is changed, or it is not loaded.
    #[serde(skip_serializing_if = "Option::is_none")]
    active: Option<Beside>,
    /// What the running agent has active where that is not the policy as it is written.
    #[serde(skip_serializing_if = "Option::is_none")]
    not_active: Option<String>,
    /// What `spec.limits` withholds of it until that is approved, if no change was made before.
    #[serde(skip_serializing_if = "Option::is_none")]
    withheld: Option<String>,
    /// What the reasons of its refusals mean, and what to do.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    reasons: BTreeMap<String, Explained>,
}

/// The guests of the planned revision.
#[derive(Serialize)]
struct Guests {
    #[serde(skip_serializing_if = "Option::is_none")]
    trigger: Option<Component>,
    decide: Component,
}

/// A component by its source and digest.
#[derive(Serialize)]
struct Component {
    component: String,
    digest: String,
}

/// What a reason means.
#[derive(Serialize)]
struct Explained {
    meaning: String,
    remedy: String,
}

/// How the reconcile of each primary ended, and what it would write.
struct Results {
    writes: BTreeMap<Key, (State, Writes)>,
    told: BTreeMap<Key, (Reason, String)>,
    /// For how many primaries there is a kind of change that has a limit.
    limited: BTreeMap<Limited, u32>,
}

/// Prints the plan.
///
/// # Errors
/// When a cluster, the policies or the engine cannot be used at all, or there is no such policy.
pub(crate) fn plan(args: &PlanArgs, screen: &Screen) -> anyhow::Result<CommandEnd> {
    block_on(work(args, screen))?
}

async fn work(args: &PlanArgs, screen: &Screen) -> anyhow::Result<CommandEnd> {
    let mut run = args.as_run();
    run.reconcile.sources = candidate::sources(run.reconcile.sources, &args.candidate)?;
    run::check_policies(&run.reconcile)?;
    let Prepared {
        controller,
        mut swap,
        begun,
        opening: _opening,
        ..
    } = run::prepare(&run).await?;
    begun.await.context("failed to start the policies")?;
    if let Err(failure) = controller.connections.policies_listed() {
        screen.note(format_args!("{}", failure.message));
        return Ok(CommandEnd::Failed);
    }
    let written = swap.written().context("failed to read the policies")?;
    let components = run.reconcile.components.as_deref();
    let planned = candidate::lay(written, &args.candidate, components)?;
    let name = planned.name.clone();
    run::drive(&controller, screen).await;
    let instead = active_instead(&controller, swap.active(), &name);
    let results = results(&controller, &mut swap, planned, screen).await;
    controller.stop();
    let refusals = swap.active().refusals();
    let told = match refusals.iter().any(|(policy, _)| *policy == name) {
        true => None,
        false => told(&swap, &name, results, args.limit),
    };
    let told = told.map(|told| Told {
        not_active: instead.filter(|_| told.active.is_some()),
        ..told
    });
    match &told {
        Some(told) => print(told, args.output, screen)?,
        None => screen.note(format_args!(
            "the policy `{name}` is refused, so there is no plan"
        )),
    }
    let plan = told.as_ref().map(|told| &told.plan);
    let failed = plan.is_none_or(|plan| plan.primaries.failed > 0);
    let would_change = plan.is_some_and(FleetPlan::would_change);
    let lacks = notes(&controller, swap.active(), &name, screen);
    // The process ends next; to free a whole fleet object by object would only take time.
    std::mem::forget((controller, swap, told));
    Ok(match failed || lacks {
        true => CommandEnd::Failed,
        false if args.exit_code && would_change => CommandEnd::WouldChange,
        false => CommandEnd::Right,
    })
}

/// Prints what is wrong beside the plan; true when the planned policy lacks something that cannot be read. What only
/// other policies lack, and which of them are refused, does not count.
fn notes(controller: &Controller, active: &Active, policy: &str, screen: &Screen) -> bool {
    let loaded = active.loaded_of(policy);
    let planned = loaded.as_ref().map(|loaded| &loaded.revision.policy);
    if let Some(planned) = planned.filter(|one| one.spec.rollout.mode == ModeSpec::Shadow) {
        summary::mode(planned, screen);
    }
    let unread = summary::unreadable(controller, screen);
    summary::refused(active, screen);
    planned.is_some_and(|planned| unread.iter().any(|one| planned.lacks(one)))
}

/// What the running agent has active instead of the policy as it is written; nothing where that is active, or where it
/// is not known.
fn active_instead(controller: &Controller, active: &Active, policy: &str) -> Option<String> {
    let newest = RevisionRecord::of(&active.loaded_of(policy)?.revision);
    let published = controller.published(policy)?;
    let is_active = newest.is_active_in(&published);
    (!is_active).then(|| match published.revision {
        Some(active) => format!("the revision {} is active", active.id),
        None => "no revision is active".to_owned(),
    })
}

/// The results of the reconciles: under the policy as it is written, if the planned one differs from it, and under the
/// planned one.
async fn results(
    controller: &Arc<Controller>,
    swap: &mut Swap,
    planned: candidate::PlanRequest,
    screen: &Screen,
) -> (Option<Results>, Results) {
    let candidate::PlanRequest {
        name,
        policies,
        replaces,
    } = planned;
    let is_active = swap.active().loaded_of(&name).is_some();
    let before = (replaces && is_active).then(|| take_results(controller, &name));
    let mut exchanged = false;
    if replaces || controller.queue(&name).is_none() {
        let changes = exchange(controller, swap, policies).await;
        // No other change starts reconciles.
        let reconciles = |change| {
            matches!(
                change,
                PolicyChange::Loaded | PolicyChange::Swapped | PolicyChange::Bounded
            )
        };
        let mut of_policy = changes.iter().filter(|(changed, _)| **changed == *name);
        exchanged = of_policy.any(|(_, change)| reconciles(*change));
        run::drive(controller, screen).await;
    }
    match before {
        // A manifest that says the same in other words reconciles nothing anew: its plan is that of the policy as it
        // is.
        Some(before) if !exchanged => (None, before),
        before => (before, take_results(controller, &name)),
    }
}

/// Puts other policies to work, as if the agent had just seen them.
async fn exchange(
    controller: &Arc<Controller>,
    swap: &mut Swap,
    policies: FoundPolicies,
) -> PolicyChanges {
    controller.accounts.clear();
    let changes = swap.exchange(policies).await;
    let active = swap.active().clone();
    let begun = changes.clone();
    Arc::clone(controller).begin_policies(active, begun).await;
    let clusters = controller.connections.all();
    clusters.for_each(|cluster| controller.find_outputs(cluster));
    changes
}

/// Takes the result of the last reconcile of each primary of a policy.
fn take_results(controller: &Controller, policy: &str) -> Results {
    let memory = controller.memory.lock();
    let accounts = controller.accounts.take().into_iter();
    let accounts = accounts.filter(|(key, _)| *key.policy == *policy);
    let result = |(key, account): (Key, Account)| {
        let (state, reason, message) = match memory.results.get(&key) {
            Some(last) => (last.state, last.reason.clone(), last.message.clone()),
            // A primary that is gone has no result, only what is left to remove.
            None => (
                State::Applied,
                KnownReason::SourceDeleted.into(),
                String::new(),
            ),
        };
        let wrote = (key.clone(), (state, account.writes));
        (wrote, (key, (reason, message)))
    };
    let accounts: Vec<_> = accounts.collect();
    let limited = limits::counted(accounts.iter().map(|(_, account)| &account.limited));
    // In order, so that each map is made at once.
    let (writes, told): (Vec<_>, Vec<_>) = accounts.into_iter().map(result).unzip();
    Results {
        writes: writes.into_iter().collect(),
        told: told.into_iter().collect(),
        limited,
    }
}

/// The plan with everything about it; `None` when the policy is not active.
fn told(
    swap: &Swap,
    policy: &str,
    (before, results): (Option<Results>, Results),
    limit: usize,
) -> Option<Told> {
    let loaded = swap.active().loaded_of(policy)?;
    let revision = &loaded.revision;
    let Results {
        writes,
        told: reasons,
        limited,
    } = results;
    let planned =
        writes
            .iter()
            .zip(reasons.values())
            .map(
                |((key, (state, writes)), (reason, message))| PlannedPrimary {
                    key,
                    state: *state,
                    reason: reason.as_str(),
                    message,
                    writes,
                },
            );
    let plan = FleetPlan::of(policy, planned, listed(limit));
    let explained = |reason: &Reason| {
        let (meaning, remedy) = explain::declared(revision.guests(), reason);
        (reason.as_str().to_owned(), Explained { meaning, remedy })
    };
    let refused = writes
        .values()
        .zip(reasons.values())
        .filter(|((state, _), _)| *state != State::Applied);
    let spec = &revision.policy;
    let component = |text: &str, guest: &GuestFacts| Component {
        component: text.to_owned(),
        digest: guest.digest.to_string(),
    };
    let trigger = spec.trigger.as_ref().zip(revision.trigger.as_ref());
    Some(Told {
        plan,
        guests: Guests {
            trigger: trigger.map(|(spec, guest)| component(&spec.component, guest)),
            decide: component(&spec.decide.component, &revision.decide),
        },
        active: before.map(|before| Beside::of(&before.writes, &writes)),
        withheld: withheld(spec, &limited, writes.len()),
        not_active: None,
        reasons: refused.map(|(_, (reason, _))| explained(reason)).collect(),
    })
}

/// How much of a plan is listed, with so many primaries of each group.
fn listed(limit: usize) -> Listed {
    match limit == Listed::default().primaries {
        true => Listed::default(),
        false => Listed {
            primaries: limit,
            bytes: MAX_BYTES,
        },
    }
}

/// What the limits of a policy let pass at once of these changes, as far as that is not everything.
fn withheld(policy: &Policy, limited: &BTreeMap<Limited, u32>, primaries: usize) -> Option<String> {
    let primaries = u32::try_from(primaries).unwrap_or(u32::MAX);
    let beyond = policy.limits.beyond(limited, primaries);
    let each: Vec<_> = beyond
        .map(|(kind, count, most)| {
            let kind = kind.as_str();
            format!("{kind} for {most} of {count} primaries")
        })
        .collect();
    (!each.is_empty()).then(|| {
        let each = each.join(", ");
        format!("spec.limits lets pass {each}, and withholds the rest until it is approved")
    })
}

fn print(told: &Told, form: PlanFormat, screen: &Screen) -> anyhow::Result<()> {
    let data = || serde_json::to_value(told).context("failed to write the plan");
    match form {
        PlanFormat::Table => show::table(told, screen),
        PlanFormat::Json => screen.json(&data()?),
        PlanFormat::Yaml => screen.text(&show::yaml(&data()?)),
        PlanFormat::Html => screen.script(page::html(told).as_bytes()),
    }
    Ok(())
}
