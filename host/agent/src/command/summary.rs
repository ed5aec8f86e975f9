//! The summary of a run: counts by state and reason, and the worst primaries by name.

use crate::command::case;
use crate::controller::Controller;
use crate::controller::memory::LastResult;
use crate::output::{CommandEnd, Screen, Tint, Tinted};
use crate::policies::active::Active;
use serde_json::json;
use std::collections::BTreeMap;
use transom_api::labels::APPROVED;
use transom_api::policy::ModeSpec;
use transom_api::reason::Class;
use transom_api::{KnownReason, State};
use transom_cluster::Cluster;
use transom_core::catalogue::PolicyPlace;
use transom_core::observation::Unreadable;
use transom_core::policy::Policy;
use transom_core::work::Key;

/// Maximum number of primaries of a state that are named.
const NAMED: usize = 10;

/// Where the results of a run went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WrittenTo {
    /// They were written to the clusters.
    Written,
    /// They were laid over what was read, in memory only.
    InMemory,
}

/// Prints the summary on standard error; names what is not `Applied`, and the policies that wait. `Failed` when any
/// primary, policy or file failed.
pub(crate) fn tell(
    controller: &Controller,
    active: &Active,
    done: WrittenTo,
    screen: &Screen,
) -> CommandEnd {
    let (mut counts, mut named) = (BTreeMap::new(), BTreeMap::<State, Vec<_>>::new());
    let memory = controller.memory.lock();
    for (key, told) in &memory.results {
        let writes = told.wrote && matches!(told.state, State::Applied | State::Waiting);
        let would = done == WrittenTo::InMemory && writes;
        *counts
            .entry((told.state, would, told.reason.clone()))
            .or_insert(0_usize) += 1;
        if told.state != State::Applied {
            named.entry(told.state).or_default().push((key, told));
        }
    }
    for ((state, would, reason), count) in &counts {
        let fields = [
            ("state", json!(state)),
            ("reason", json!(reason.as_str())),
            ("primaries", json!(count)),
        ];
        let would = if *would { "would be " } else { "" };
        let count = format!("{count:>7}  {would}{:<8}", state.as_str());
        let word = Tinted::new(&count, tint(*state), 0);
        screen.tell_of(&word, format_args!(" {reason}"), fields);
    }
    for (state, named) in named.iter().rev() {
        name(*state, named, screen);
    }
    let failed = named.contains_key(&State::Failed);
    let nothing = counts.is_empty();
    drop(memory);
    if nothing {
        without_primaries(controller, active, screen);
    }
    reaches(controller, active, screen);
    if done == WrittenTo::Written {
        withheld(controller, active, screen);
    }
    let untried = waiting(active, screen);
    let refused = refused(active, screen);
    let unreadable = unreadable(controller, screen);
    CommandEnd::failed_if(failed || untried || refused || !unreadable.is_empty())
}

/// Prints the first primaries of a state by name.
fn name(state: State, named: &[(&Key, &LastResult)], screen: &Screen) {
    for (key, told) in named.iter().take(NAMED) {
        let (primary, policy, reason) =
            (key.primary.to_string(), &*key.policy, told.reason.as_str());
        let fields = [
            ("primary", json!(primary)),
            ("policy", json!(policy)),
            ("reason", json!(reason)),
        ];
        let line = format_args!("{primary} [{policy}]: {reason}: {}", told.message);
        screen.tell(line, fields);
    }
    if named.len() > NAMED {
        let (more, state) = (named.len() - NAMED, state.as_str());
        screen.note(format_args!("... and {more} more with state {state}"));
    }
}

/// Prints the policies whose newest revision is not active, with what it waits for and how to go on. True when the
/// trial of one failed: to wait for an approval, or to be only compared, is no failure.
fn waiting(active: &Active, screen: &Screen) -> bool {
    let mut failed = false;
    for (place, candidate) in active.waiting() {
        let reason = candidate.reason;
        if reason == KnownReason::Trying {
            continue;
        }
        failed |= Class::of(reason).state() == State::Failed;
        let (policy, message) = (&*candidate.revision.policy.name, &candidate.message);
        let word = reason.as_str();
        let next = match candidate.status().approve {
            Some(digest) => approving("To let it become active", policy, &digest, &place),
            None => reason.remedy().to_owned(),
        };
        let fields = [("policy", json!(policy)), ("reason", json!(word))];
        screen.tell(
            format_args!("policy {policy}: {word}: {message}. {next}"),
            fields,
        );
    }
    failed
}

/// Prints what the limits of policies withhold, and how to let it pass.
fn withheld(controller: &Controller, active: &Active, screen: &Screen) {
    for (policy, entry) in active.catalogue().entries() {
        let published = controller.published(policy);
        let Some(limits) = published.and_then(|status| status.limits) else {
            continue;
        };
        let (count, reached) = (limits.withheld, limits.reached());
        let next = approving("To let it pass", policy, &limits.approve, &entry.place);
        let word = KnownReason::LimitReached.as_str();
        let fields = [("policy", json!(**policy)), ("reason", json!(word))];
        screen.tell(
            format_args!(
                "policy {policy}: {word}: {count} withheld by spec.limits ({reached}). {next}"
            ),
            fields,
        );
    }
}

/// How to approve a digest: that of an object by a command, that of a file in the file.
fn approving(what: &str, policy: &str, digest: &str, place: &PolicyPlace) -> String {
    match place.generation {
        Some(_) => format!("{what}: `transom approve {policy} {digest}`."),
        None => format!(
            "{what}, put the digest {digest} into the annotation {APPROVED} in {}.",
            place.text
        ),
    }
}

/// Says what of a policy only its mode keeps from being written: a command that computes what it would write asks no
/// candidate and no approval.
pub(crate) fn mode(policy: &Policy, screen: &Screen) {
    let Some((reason, message)) = withheld_by(policy.spec.rollout.mode) else {
        return;
    };
    let (name, reason) = (&*policy.name, reason.as_str());
    let fields = [("policy", json!(name)), ("reason", json!(reason))];
    screen.tell(format_args!("policy {name}: {reason}: {message}"), fields);
}

/// Why the agent does not write at once what a policy in this mode wants.
fn withheld_by(mode: ModeSpec) -> Option<(KnownReason, &'static str)> {
    match mode {
        ModeSpec::Automatic => None,
        ModeSpec::Preview => Some((
            KnownReason::ApprovalRequired,
            "in the mode Preview a revision that is not active writes only once its plan is approved",
        )),
        ModeSpec::Shadow => Some((
            KnownReason::Shadowing,
            "in the mode Shadow the policy writes nothing of this",
        )),
    }
}

/// Says which primaries there are none of: the folder may be another one than was meant.
fn without_primaries(controller: &Controller, active: &Active, screen: &Screen) {
    if !controller.connections.watch_errors().is_empty() {
        return;
    }
    for loaded in active.loaded() {
        let policy = &loaded.revision.policy;
        let (name, kind) = (&policy.name, &policy.primary.kind);
        let version = &policy.primary.api_version;
        screen.note(format_args!(
            "policy {name}: there is no {kind} ({version}) for it"
        ));
    }
}

/// Prints the files, objects and watches of any cluster that cannot be read, and returns them.
pub(crate) fn unreadable(controller: &Controller, screen: &Screen) -> Vec<Unreadable> {
    let clusters = controller.connections.all();
    let unreadable: Vec<_> = clusters.flat_map(Cluster::unreadable).collect();
    for one in &unreadable {
        let (place, reason) = (&one.place, one.reason.as_str());
        // Messages that begin with the place need not repeat it.
        let message = one.message.strip_prefix(place.as_str());
        let message = message.and_then(|message| message.strip_prefix(": "));
        let message = message.unwrap_or(&one.message);
        // An object of several files, or of standard input, is one line in memory; its place says its document.
        let of_document = place.contains(case::DOCUMENT);
        let message = match message.strip_prefix("document 1, line 1: ") {
            Some(message) if of_document => message,
            _ => message,
        };
        screen.tell(
            format_args!("{place}: {reason}: {message}"),
            [("place", json!(place)), ("reason", json!(reason))],
        );
    }
    unreadable
}

/// Prints which bounds of the grants RBAC cannot enforce; no plan shows that.
fn reaches(controller: &Controller, active: &Active, screen: &Screen) {
    for loaded in active.loaded() {
        let policy = &*loaded.revision.policy.name;
        for message in controller.reach(&loaded) {
            let fields = [("policy", json!(policy))];
            screen.tell(format_args!("policy {policy}: {message}"), fields);
        }
    }
}

/// Tries once more to write what could not be written, and prints what is left; true when something is.
pub(crate) fn unwritten(controller: &Controller, screen: &Screen) -> bool {
    controller.publish_policies();
    let (primaries, policies) = (controller.write_left(), controller.unwritten_policies());
    if let Some((count, error)) = &primaries {
        screen.note(format_args!(
            "failed to write the status of {count} primaries: {error}"
        ));
    }
    if policies > 0 {
        screen.note(format_args!(
            "failed to write the status of {policies} policies"
        ));
    }
    primaries.is_some() || policies > 0
}

/// Prints the policies that are refused or cannot be read; true when there is one.
pub(crate) fn refused(active: &Active, screen: &Screen) -> bool {
    for (policy, refusal) in active.refusals() {
        let (reason, message) = (refusal.reason.as_str(), refusal.message);
        let fields = [("policy", json!(policy)), ("reason", json!(reason))];
        screen.tell(format_args!("policy {policy}: {reason}: {message}"), fields);
    }
    for (place, message) in active.broken() {
        let reason = KnownReason::ManifestInvalid.as_str();
        let fields = [("place", json!(place)), ("reason", json!(reason))];
        screen.tell(format_args!("{place}: {reason}: {message}"), fields);
    }
    active.refused() > 0
}

/// The colour of a state.
pub(crate) fn tint(state: State) -> Tint {
    match state {
        State::Applied => Tint::Green,
        State::Held | State::Waiting => Tint::Yellow,
        State::Failed => Tint::Red,
    }
}
