//! Counts requests to the API server by verb and purpose.

use std::sync::atomic::{AtomicU64, Ordering};

transom_api::words! {
    /// What a request does.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub enum RequestVerb {
        /// Creates an object.
        Create = "create",
        /// Replaces fields of an object that the agent made.
        Update = "update",
        /// Sets fields of a user's object.
        Patch = "patch",
        /// Removes an object.
        Delete = "delete",
        /// Reads one object.
        Get = "get",
        /// Reads a page of objects.
        List = "list",
        /// Starts a watch.
        Watch = "watch",
    }
}

transom_api::words! {
    /// What a request is for.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub enum Purpose {
        /// Primaries, inputs and outputs of policies.
        Work = "work",
        /// The lease of the leader.
        Lease = "lease",
        /// The status of policies.
        Status = "status",
        /// Events.
        Event = "event",
        /// Which kinds are served.
        Discovery = "discovery",
    }
}

/// The requests since the start.
#[derive(Debug, Default)]
pub struct RequestCounts([[AtomicU64; RequestVerb::ALL.len()]; Purpose::ALL.len()]);

impl RequestCounts {
    /// Counts one request.
    pub(super) fn add(&self, verb: RequestVerb, purpose: Purpose) {
        if let Some(count) = self
            .0
            .get(purpose as usize)
            .and_then(|of| of.get(verb as usize))
        {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The number of requests.
    pub fn of(&self, verb: RequestVerb, purpose: Purpose) -> u64 {
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
        let counts = RequestCounts::default();
        for (index, (verb, purpose)) in RequestVerb::ALL
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
