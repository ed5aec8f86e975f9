//! Counts requests to the API server by verb and purpose.

use std::sync::atomic::{AtomicU64, Ordering};

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verb {
    /// Creates an object.
    Create,
    /// Replaces fields of an object that the agent made.
    Update,
    /// Sets fields of a user's object.
    Patch,
    /// Removes an object.
    Delete,
    /// Reads one object.
    Get,
    /// Reads a page of objects.
    List,
    /// Starts a watch.
    Watch,
}

impl Verb {
    /// Every verb.
    pub const ALL: [Self; 7] = [
        Self::Create,
        Self::Update,
        Self::Patch,
        Self::Delete,
        Self::Get,
        Self::List,
        Self::Watch,
    ];

    /// The word for a metric's label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Delete => "delete",
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
        }
    }
}

/// What a request is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Purpose {
    /// Primaries, inputs and outputs of policies.
    Work,
    /// The lease of the leader.
    Lease,
    /// The status of policies.
    Status,
    /// Events.
    Event,
}

impl Purpose {
    /// Every purpose.
    pub const ALL: [Self; 4] = [Self::Work, Self::Lease, Self::Status, Self::Event];

    /// The word for a metric's label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Work => "work",
            Self::Lease => "lease",
            Self::Status => "status",
            Self::Event => "event",
        }
    }
}

/// The requests since the start.
#[derive(Debug, Default)]
pub struct Counts([[AtomicU64; Verb::ALL.len()]; Purpose::ALL.len()]);

impl Counts {
    /// Counts one request.
    pub(super) fn add(&self, verb: Verb, purpose: Purpose) {
        if let Some(count) = self
            .0
            .get(purpose as usize)
            .and_then(|of| of.get(verb as usize))
        {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The number of requests.
    pub fn of(&self, verb: Verb, purpose: Purpose) -> u64 {
        let count = self
            .0
            .get(purpose as usize)
            .and_then(|of| of.get(verb as usize));
        count.map_or(0, |count| count.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_each_verb_and_purpose_separately() {
        let counts = Counts::default();
        for (index, (verb, purpose)) in Verb::ALL
            .into_iter()
            .flat_map(|verb| Purpose::ALL.map(|purpose| (verb, purpose)))
            .enumerate()
        {
            (0..=index).for_each(|_| counts.add(verb, purpose));
            assert_eq!(
                counts.of(verb, purpose),
                index as u64 + 1,
                "{} {}",
                verb.as_str(),
                purpose.as_str()
            );
        }
    }
}
