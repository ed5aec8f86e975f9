//! What a run came to: counts by state and reason, and the worst by name. Never more than a screen.

use crate::agent::Agent;
use crate::agent::connections::Cluster;
use crate::output::{Ending, Screen, Tint};
use crate::policies::swap::Swap;
use std::collections::BTreeMap;
use transom_api::{State, Word};

/// How many subjects of a state are named.
const NAMED: usize = 10;

/// What became of what was to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Done {
    /// It was written.
    Written,
    /// It was laid over what was read, in memory only.
    InMemory,
}

/// Prints the summary on standard error; failed when any subject, policy or file is. What is not `Applied` is named.
pub(crate) fn tell(agent: &Agent, swap: &Swap, done: Done, screen: &Screen) -> Ending {
    let (mut counts, mut named) = (BTreeMap::new(), BTreeMap::<State, Vec<_>>::new());
    let known = agent.known.lock();
    for (key, told) in &known.told {
        let would = done == Done::InMemory && told.state == State::Applied && told.wrote;
        *counts.entry((told.state, would, told.reason.clone())).or_insert(0_usize) += 1;
        if told.state != State::Applied {
            named.entry(told.state).or_default().push((key, told));
        }
    }
    for ((state, would, reason), count) in &counts {
        let word = screen.tinted(state.as_str(), tint(*state), 8);
        match would {
            true => screen.note(format_args!("{count:>7}  would be {word} {reason}")),
            false => screen.note(format_args!("{count:>7}  {word} {reason}")),
        }
    }
    for (state, named) in named.iter().rev() {
        for (key, told) in named.iter().take(NAMED) {
            screen.note(format_args!("{} [{}]: {}: {}", key.subject, key.policy, told.reason, told.message));
        }
        if named.len() > NAMED {
            screen.note(format_args!("... and {} more that are {}", named.len() - NAMED, state.as_str()));
        }
    }
    let failed = named.contains_key(&State::Failed);
    let refused = refused(swap, screen);
    let unreadable: Vec<_> = agent.connections.all().flat_map(Cluster::unreadable).collect();
    for one in &unreadable {
        screen.note(format_args!("{}: {}: {}", one.place, one.reason.as_str(), one.message));
    }
    let right = !failed && unreadable.is_empty() && !refused;
    if right { Ending::Right } else { Ending::Failed }
}

/// Prints the policies that are refused or cannot be read; true when there is one.
pub(crate) fn refused(swap: &Swap, screen: &Screen) -> bool {
    for (policy, refusal) in swap.refusals() {
        screen.note(format_args!("policy {policy}: {}: {}", refusal.word.as_str(), refusal.message));
    }
    for (place, message) in swap.broken() {
        screen.note(format_args!("{place}: {}: {message}", Word::ManifestInvalid.as_str()));
    }
    swap.refused() > 0
}

/// What colour a state has.
pub(crate) fn tint(state: State) -> Tint {
    match state {
        State::Applied => Tint::Green,
        State::Held | State::Waiting => Tint::Yellow,
        State::Failed => Tint::Red,
    }
}
