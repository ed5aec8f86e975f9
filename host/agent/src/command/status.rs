//! `transom status`: why a primary is in its state, and what the agent would do about it, computed by the agent's own
//! code. Writes nothing: no object, no status and no Event.

mod show;

use crate::args::run::StatusArgs;
use crate::command::run::{self, Prepared};
use crate::command::{block_on, explain, summary};
use crate::controller::Controller;
use crate::controller::account::Account;
use crate::output::{CommandEnd, Screen};
use anyhow::{Context as _, bail};
use transom_api::policy::ModeSpec;
use transom_api::reason::Class;
use transom_api::status::{ConditionType, LimitsStatus, PolicyStatus, PrimaryStatus, UsageStatus};
use transom_api::{KnownReason, Reason, State};
use transom_core::catalogue::Revision;
use transom_core::failure::Failure;
use transom_core::reference::ObjectRef;
use transom_core::rollout::history::RevisionRecord;
use transom_core::summary as core_summary;
use transom_core::work::Key;

/// One primary under one policy.
struct Row {
    key: Key,
    standing: PrimaryState,
    reason: String,
    message: String,
    meaning: String,
    remedy: String,
    /// Who signed the components, when the policy demands it.
    verified: Option<String>,
    /// How much of its budget the policy uses, as the running agent last published it.
    used: Vec<UsageStatus>,
    /// What the running agent last published about it.
    reported: Option<PrimaryStatus>,
    account: Account,
}

/// The state of a primary, worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum PrimaryState {
    Failed,
    Waiting,
    Held,
    /// Something would be written.
    WouldApply,
    Applied,
}

impl PrimaryState {
    fn as_str(self) -> &'static str {
        match self {
            Self::WouldApply => "WouldApply",
            Self::Failed => State::Failed.as_str(),
            Self::Waiting => State::Waiting.as_str(),
            Self::Held => State::Held.as_str(),
            Self::Applied => State::Applied.as_str(),
        }
    }

    fn of(state: State, account: &Account) -> Self {
        match state {
            State::Failed => Self::Failed,
            State::Held => Self::Held,
            State::Waiting if account.steps.is_empty() => Self::Waiting,
            State::Applied if account.steps.is_empty() => Self::Applied,
            // Also before it waits, as for what it deletes.
            State::Waiting | State::Applied => Self::WouldApply,
        }
    }
}

impl Row {
    /// Since when the primary has been in its state, as the running agent published it.
    fn since(&self) -> Option<&str> {
        let told = self.reported.as_ref()?;
        let same = told.state.as_str() == self.standing.as_str() && told.reason == self.reason;
        same.then_some(told.since.as_str())
    }
}

/// Prints one primary, or all of them.
///
/// # Errors
/// When a cluster, the policies or the engine cannot be used at all, or nothing is known of the primary.
pub(crate) fn status(args: &StatusArgs, screen: &Screen) -> anyhow::Result<CommandEnd> {
    block_on(work(args, screen))?
}

async fn work(args: &StatusArgs, screen: &Screen) -> anyhow::Result<CommandEnd> {
    let run = args.as_run();
    run::check_policies(&run.reconcile)?;
    let Prepared {
        controller,
        swap,
        begun,
        opening: _opening,
        ..
    } = run::prepare(&run).await?;
    begun.await.context("failed to start the policies")?;
    run::drive(&controller, screen).await;
    controller.stop();
    let mut rows = rows(&controller);
    let one = args.kind.as_deref().zip(args.name.as_deref());
    if let Some((kind, name)) = one {
        rows.retain(|row| names(kind, name, &row.key.primary));
        if rows.is_empty() {
            // What cannot be read may hold it.
            if !summary::unreadable(&controller, screen).is_empty() {
                screen.note(format_args!(
                    "failed to find {kind} {name}: not everything could be read, so it may exist"
                ));
                return Ok(CommandEnd::Failed);
            }
            bail!(
                "failed to find {kind} {name}: {}",
                why_absent(&controller, kind)
            );
        }
    }
    show::print(&rows, one.is_some(), args.output, screen);
    let unread = !summary::unreadable(&controller, screen).is_empty();
    let refused = summary::refused(swap.active(), screen);
    let failed = rows.iter().any(|row| row.standing == PrimaryState::Failed);
    Ok(CommandEnd::failed_if(failed || refused || unread))
}

/// Every primary under every policy, worst first.
fn rows(controller: &Controller) -> Vec<Row> {
    let accounts = controller.accounts.all();
    let row = |(key, account)| row(controller, key, account);
    let mut rows: Vec<Row> = accounts.into_iter().map(row).collect();
    rows.sort_by_cached_key(|row| (row.standing, row.reason.clone(), row.key.clone()));
    rows
}

/// Why a policy removes nothing of what it made for a primary that is gone.
fn keeps(controller: &Controller, key: &Key) -> Option<Failure> {
    let is_made = controller.memory.lock().outputs.of(key).next().is_some();
    let queue = controller.queue(&key.policy).filter(|_| is_made)?;
    queue.loaded().revision.policy.works().err()
}

fn row(controller: &Controller, key: Key, account: Account) -> Row {
    use PrimaryState::{Failed, Held, WouldApply};

    let told = controller.memory.lock().results.get(&key).cloned();
    // A primary that is gone has no result, only an account of what is left to remove.
    let gone = || match keeps(controller, &key) {
        Some(failure) => (State::Held, failure.reason, failure.message),
        None => {
            let reason = KnownReason::SourceDeleted.into();
            (State::Applied, reason, String::new())
        }
    };
    let (state, reason, message) =
        told.map_or_else(gone, |told| (told.state, told.reason, told.message));
    let published = controller.published(&key.policy);
    let used = published.as_ref().map(|one| one.usage.clone());
    let reported = controller.reported(&key);
    let failed = reported.as_ref().filter(|told| told.state == State::Failed);
    let (standing, reason, message) = match (PrimaryState::of(state, &account), failed) {
        // The running agent would write it as well; its failure says why it does not.
        (WouldApply, Some(told)) => {
            let declared = || Reason::Declared(told.reason.as_str().into());
            let reason = KnownReason::named(&told.reason).map_or_else(declared, Reason::from);
            (Failed, reason, told.message.clone())
        }
        (WouldApply, None) => match held(controller, &key, &account, published) {
            Some((reason, message)) => (Held, reason.into(), message),
            // Why it waits is what follows then.
            None if state == State::Waiting => (WouldApply, KnownReason::ReadOnly.into(), message),
            None => (WouldApply, KnownReason::ReadOnly.into(), String::new()),
        },
        (standing, _) => (standing, reason, message),
    };
    let (meaning, remedy) = match standing {
        WouldApply => would_apply(),
        _ => explained(controller, &key, &reason),
    };
    let queue = controller.queue(&key.policy);
    let verified = queue.and_then(|queue| core_summary::signers(&queue.loaded().revision));
    Row {
        used: used.unwrap_or_default(),
        key,
        standing,
        reason: reason.as_str().to_owned(),
        message,
        meaning,
        remedy,
        verified,
        reported,
        account,
    }
}

/// Why the running agent does not write what would be written: its limits, or a policy that is not active.
fn held(
    controller: &Controller,
    key: &Key,
    account: &Account,
    published: Option<PolicyStatus>,
) -> Option<(KnownReason, String)> {
    let limits = published.as_ref().and_then(|one| one.limits.as_ref());
    let message = limits.and_then(|limits| withheld(limits, account));
    message
        .map(|message| (KnownReason::LimitReached, message))
        .or_else(|| waits(controller, key, published))
}

fn withheld(limits: &LimitsStatus, account: &Account) -> Option<String> {
    let mut changes = limits.changes.iter();
    let one = changes.find(|one| one.withheld > 0 && account.limited.contains(&one.limit))?;
    let (limit, approve) = (one.limit.as_str(), &limits.approve);
    Some(format!(
        "withheld: {limit} {} of {} in this interval; to let {} primaries pass, approve {approve}",
        one.done, one.most, limits.withheld
    ))
}

/// Why the revision that is asked here is not the active one of the running agent; nothing when it is, or when that is
/// not known.
fn waits(
    controller: &Controller,
    key: &Key,
    published: Option<PolicyStatus>,
) -> Option<(KnownReason, String)> {
    let loaded = controller.queue(&key.policy)?.loaded();
    let local = controller.connections.local();
    let published = match published {
        Some(published) => published,
        // Nothing was ever active in this folder.
        None if local.is_some_and(|local| local.server().is_none()) => PolicyStatus::default(),
        None => return None,
    };
    waits_as(&loaded.revision, &published)
}

/// The same by what the running agent published. It may be of another version, with other builtin components.
fn waits_as(revision: &Revision, published: &PolicyStatus) -> Option<(KnownReason, String)> {
    let this = RevisionRecord::of(revision);
    let candidate = this.candidate_in(published);
    let told = candidate.and_then(|one| KnownReason::named(&one.reason));
    // What was published may be of another mode.
    let reason = match revision.policy.spec.rollout.mode {
        ModeSpec::Shadow => KnownReason::Shadowing,
        _ if this.is_active_in(published) => return None,
        ModeSpec::Preview => {
            let held = |told: &KnownReason| Class::of(*told) == Class::Held;
            let told = told.filter(|told| held(told) && *told != KnownReason::Shadowing);
            told.unwrap_or(KnownReason::ApprovalRequired)
        }
        // It is refused, or waits.
        ModeSpec::Automatic => told.filter(|told| *told != KnownReason::Trying)?,
    };
    let mut loaded = published.conditions.iter();
    let loaded =
        loaded.find(|one| one.kind == ConditionType::Loaded && one.reason == reason.as_str());
    let not_active = "the newest revision of the policy is not active";
    let message = match (candidate.and_then(|one| one.approve.as_ref()), loaded) {
        (Some(digest), _) => format!("{not_active}; approve {digest}"),
        (None, Some(loaded)) => format!("{not_active}: {}", loaded.message),
        (None, None) => reason.meaning().to_owned(),
    };
    Some((reason, message))
}

/// Meaning and remedy of [`PrimaryState::WouldApply`].
fn would_apply() -> (String, String) {
    (
        "The objects differ from the desired state; `transom status` writes nothing.".to_owned(),
        "Nothing if an agent is running: it writes this next. Otherwise start an agent, or look at its log.".to_owned(),
    )
}

/// Meaning and remedy of a reason, as the agent or the policy's guests declare it.
fn explained(controller: &Controller, key: &Key, reason: &Reason) -> (String, String) {
    let loaded = controller.queue(&key.policy).map(|queue| queue.loaded());
    let revision = loaded.as_ref().map(|loaded| &loaded.revision);
    explain::declared(revision.into_iter().flat_map(|one| one.guests()), reason)
}

/// Whether a kind and a name are those of a primary.
fn names(kind: &str, name: &str, primary: &ObjectRef) -> bool {
    let whole = match &primary.namespace {
        Some(namespace) => format!("{namespace}/{}", primary.name),
        None => primary.name.clone(),
    };
    primary.kind.eq_ignore_ascii_case(kind) && whole == name
}

/// Why no primary of this kind was found.
fn why_absent(controller: &Controller, kind: &str) -> String {
    let mut why = "no policy has this kind as its primary".to_owned();
    for queue in controller.queues() {
        let primary = &queue.loaded().revision.policy.primary;
        if primary.kind.eq_ignore_ascii_case(kind) {
            return "no policy has such a primary; expected NAMESPACE/NAME, or NAME for a cluster-scoped kind".to_owned();
        }
        let (policy, kind, version) = (&queue.policy, &primary.kind, &primary.api_version);
        why.push_str(&format!("; the primary of {policy} is {kind} of {version}"));
    }
    why
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;
    use crate::command::session;
    use std::sync::Arc;
    use transom_api::status::{CandidateStatus, Condition, ConditionStatus, RevisionStatus};
    use transom_core::digest::Digest;
    use transom_core::rollout::short;

    /// A status with this active revision.
    fn active(revision: &Revision) -> PolicyStatus {
        PolicyStatus {
            revision: Some(RevisionStatus {
                id: short(&revision.id()),
                generation: None,
                decide: revision.decide.digest.to_string(),
                trigger: (revision.trigger.as_ref()).map(|guest| guest.digest.to_string()),
            }),
            ..PolicyStatus::default()
        }
    }

    #[tokio::test]
    async fn nothing_waits_that_is_active_under_an_agent_of_another_version() {
        let policy = "external-managed-kubeconfig";
        let (_folder, session, _) = session::of_case(policy, Clock::new(None)).await;
        let queue = session.controller.queue(policy).unwrap();
        let mut ours = (*queue.loaded().revision).clone();
        Arc::make_mut(&mut ours.policy.spec).rollout.mode = ModeSpec::Preview;
        let mut theirs = ours.clone();
        theirs.decide.digest = "sha256:0".into();
        let mut other = theirs.clone();
        other.policy.identity = Digest::of_bytes(b"another manifest");
        for (revision, waits) in [(&ours, false), (&theirs, false), (&other, true)] {
            let reason = waits_as(&ours, &active(revision)).map(|(reason, _)| reason);
            assert_eq!(reason, waits.then_some(KnownReason::ApprovalRequired));
        }
        // The candidate of that agent is this one, too: its digest is to be approved.
        let told = active(&theirs).revision.unwrap();
        let waiting = PolicyStatus {
            candidate: Some(CandidateStatus {
                id: told.id,
                decide: told.decide,
                trigger: told.trigger,
                reason: KnownReason::ApprovalRequired.as_str().to_owned(),
                approve: Some("sha256:plan".to_owned()),
                ..CandidateStatus::default()
            }),
            ..active(&other)
        };
        let (_, message) = waits_as(&ours, &waiting).unwrap();
        assert!(message.contains("sha256:plan"), "{message}");
        // In another mode it is active, or the agent refused it.
        Arc::make_mut(&mut ours.policy.spec).rollout.mode = ModeSpec::Automatic;
        assert_eq!(waits_as(&ours, &active(&ours)), None);
        let told = |reason: KnownReason| {
            let mut refused = waiting.clone();
            let candidate = refused.candidate.as_mut().unwrap();
            (candidate.reason, candidate.approve) = (reason.as_str().to_owned(), None);
            refused.conditions = vec![Condition {
                kind: ConditionType::Loaded,
                status: ConditionStatus::False,
                observed_generation: None,
                reason: reason.as_str().to_owned(),
                message: "it fails for one".to_owned(),
                last_transition_time: String::new(),
            }];
            waits_as(&ours, &refused)
        };
        assert_eq!(told(KnownReason::Trying), None);
        let (reason, message) = told(KnownReason::ValueNotGranted).unwrap();
        assert_eq!(reason, KnownReason::ValueNotGranted);
        assert!(
            message.ends_with("not active: it fails for one"),
            "{message}"
        );
    }
}
