//! What a run came to: counts by state and reason, and the worst by name. Never more than a screen.

use crate::agent::Agent;
use crate::agent::connections::Cluster;
use crate::output::{Ending, Screen, Tint};
use crate::policies::swap::Swap;
use std::collections::BTreeMap;
use transom_api::{State, Word};

/// How many failed subjects are named.
const NAMED: usize = 10;

/// Prints the summary on standard error; failed when any subject, policy or file is.
pub(crate) fn tell(agent: &Agent, swap: &Swap, screen: &Screen) -> Ending {
    let (mut counts, mut failed) = (BTreeMap::new(), Vec::new());
    let known = agent.known.lock();
    for (key, told) in &known.told {
        *counts.entry((told.state, told.reason.clone())).or_insert(0_usize) += 1;
        if told.state == State::Failed {
            failed.push((key, told));
        }
    }
    for ((state, reason), count) in &counts {
        screen.note(format_args!("{count:>7}  {} {reason}", screen.tinted(&format!("{state:?}"), tint(*state), 8)));
    }
    for (key, told) in failed.iter().take(NAMED) {
        screen.note(format_args!("{} [{}]: {}: {}", key.subject, key.policy, told.reason, told.message));
    }
    if failed.len() > NAMED {
        screen.note(format_args!("... and {} more", failed.len() - NAMED));
    }
    for (policy, refusal) in swap.refusals() {
        screen.note(format_args!("policy {policy}: {}: {}", refusal.word.as_str(), refusal.message));
    }
    for (place, message) in swap.broken() {
        screen.note(format_args!("{place}: {}: {message}", Word::ManifestInvalid.as_str()));
    }
    let unreadable: Vec<_> = agent.connections.all().flat_map(Cluster::unreadable).collect();
    for one in &unreadable {
        screen.note(format_args!("{}: {}: {}", one.place, one.reason.as_str(), one.message));
    }
    let right = failed.is_empty() && unreadable.is_empty() && swap.refused() == 0;
    if right { Ending::Right } else { Ending::Failed }
}

/// What colour a state has.
pub(crate) fn tint(state: State) -> Tint {
    match state {
        State::Applied => Tint::Green,
        State::Held | State::Waiting => Tint::Yellow,
        State::Failed => Tint::Red,
    }
}
