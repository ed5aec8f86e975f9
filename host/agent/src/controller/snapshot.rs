//! What the metrics and the admin server show of the agent, as one value. It holds no content of objects: states,
//! reasons and messages are those of status and log.

use super::Controller;
use super::memory::LastResult;
use super::workqueue::Swapped;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use transom_api::status::UsageStatus;
use transom_api::{Reason, State};
use transom_cluster::kubernetes::{Kubernetes, Purpose, RequestVerb, WatchHealth};
use transom_core::metrics;
use transom_core::summary;
use transom_core::work::Key;

/// Maximum number of primaries with a message.
const LISTED: usize = 1_000;

/// The agent at one moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Snapshot {
    /// Why the agent is not ready; `None` when it is.
    pub(crate) unready: Option<&'static str>,
    /// Whether this replica leads.
    pub(crate) leads: bool,
    /// The active policies.
    pub(crate) policies: Vec<PolicySnapshot>,
    /// The API servers.
    pub(crate) servers: Vec<ServerSnapshot>,
    /// The number of primaries for each policy, state and reason.
    pub(crate) primaries: Vec<PrimaryCount>,
    /// The primaries that are not `Applied`, at most 1,000 of them.
    pub(crate) listed: Vec<(Key, LastResult)>,
    /// When the first client certificate expires in what a policy made, in seconds since 1970.
    pub(crate) ends_seconds: BTreeMap<Arc<str>, i64>,
}

/// One active policy.
#[derive(Clone, Debug)]
pub(crate) struct PolicySnapshot {
    /// Its name.
    pub(crate) policy: Arc<str>,
    /// Whether it copies kubeconfigs.
    pub(crate) copies: bool,
    /// Whether it is suspended.
    pub(crate) suspend: bool,
    /// The digest of the guest that decides.
    pub(crate) decide: Arc<str>,
    /// The digest of the trigger guest.
    pub(crate) trigger: Option<Arc<str>>,
    /// How many primaries may run now or are being reconciled.
    pub(crate) left: usize,
    /// How long the primary that waits longest has waited.
    pub(crate) oldest: Duration,
    /// The swaps of its revisions.
    pub(crate) swapped: Swapped,
    /// How much of its budget its calls used.
    pub(crate) usage: Vec<UsageStatus>,
}

/// One API server.
#[derive(Clone, Debug)]
pub(crate) struct ServerSnapshot {
    /// The name of its connection.
    pub(crate) name: String,
    /// How often each verb was used for each purpose, where it was.
    pub(crate) requests: Vec<(RequestVerb, Purpose, u64)>,
    /// Its watches.
    pub(crate) watches: Vec<WatchHealth>,
}

/// The primaries of a policy that are in one state for one reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PrimaryCount {
    pub(crate) policy: Arc<str>,
    pub(crate) state: State,
    pub(crate) reason: String,
    /// How many there are.
    pub(crate) primaries: usize,
    /// How many of them have been so for longer than that takes when nothing is wrong.
    pub(crate) overdue: usize,
}

impl Controller {
    /// Why the agent is not ready; `None` when it is. A connection that does not answer holds up nothing while another
    /// one can be used.
    pub(crate) fn unready(&self) -> Option<&'static str> {
        if !self.queues.are_complete() {
            return Some(
                "the policies are being loaded, or the objects that they watch are being listed",
            );
        }
        if self.connections.all_away() {
            return Some("no API server has answered since the start");
        }
        let unread = self.connections.policies_unread();
        unread.then_some("the FleetPolicy objects could not be read since the start; see the log")
    }

    /// The agent as it is now. Locks what it knows for a few primaries at a time.
    pub(crate) fn snapshot(&self) -> Snapshot {
        let now_seconds = self.clock.now_seconds();
        let mut tally = Tally::default();
        self.memory
            .each_result_of_all(|key, last| tally.add(key, last, now_seconds));
        let ends_seconds = self.memory.first_ends();
        let (primaries, listed) = tally.finish();
        let policies = self.queues().into_iter().map(|queue| {
            let loaded = queue.loaded();
            let revision = &loaded.revision;
            let trigger = revision.trigger.as_ref();
            PolicySnapshot {
                policy: Arc::clone(&queue.policy),
                copies: metrics::copies(&revision.policy),
                suspend: revision.policy.suspend,
                decide: Arc::clone(&revision.decide.digest),
                trigger: trigger.map(|guest| Arc::clone(&guest.digest)),
                left: queue.left(),
                oldest: queue.oldest(),
                swapped: queue.swapped(),
                usage: loaded.usage().status(&[]),
            }
        });
        Snapshot {
            unready: self.unready(),
            leads: self.leading.leads(),
            policies: policies.collect(),
            servers: self.connections.servers().map(of_server).collect(),
            primaries,
            listed,
            ends_seconds,
        }
    }
}

fn of_server(server: &Kubernetes) -> ServerSnapshot {
    let counts = server.writer().counts();
    let uses = RequestVerb::ALL
        .into_iter()
        .flat_map(|verb| Purpose::ALL.map(|purpose| (verb, purpose)));
    let requests = uses.map(|(verb, purpose)| (verb, purpose, counts.of(verb, purpose)));
    ServerSnapshot {
        name: server.name().to_owned(),
        requests: requests.filter(|(_, _, count)| *count > 0).collect(),
        watches: server.health().watches,
    }
}

/// What is counted and listed of the primaries, added one by one in the order of their keys.
#[derive(Default)]
struct Tally {
    counts: BTreeMap<(Arc<str>, State, Reason), (usize, usize)>,
    listed: Vec<(Key, LastResult)>,
}

impl Tally {
    fn add(&mut self, key: &Key, last: &LastResult, now_seconds: i64) {
        let of = (Arc::clone(&key.policy), last.state, last.reason.clone());
        let (primaries, overdue) = self.counts.entry(of).or_default();
        *primaries += 1;
        let is_overdue =
            summary::is_overdue(last.state, &last.reason, last.since_seconds, now_seconds);
        *overdue += usize::from(is_overdue);
        if last.state != State::Applied && self.listed.len() < LISTED {
            self.listed.push((key.clone(), last.clone()));
        }
    }

    fn finish(self) -> (Vec<PrimaryCount>, Vec<(Key, LastResult)>) {
        let count = |((policy, state, reason), (primaries, overdue)): (_, _)| {
            let reason: Reason = reason;
            PrimaryCount {
                policy,
                state,
                reason: reason.to_string(),
                primaries,
                overdue,
            }
        };
        (self.counts.into_iter().map(count).collect(), self.listed)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::controller::memory::Pause;
    use transom_api::KnownReason;
    use transom_api::policy::Budgeted;
    use transom_core::failure::Class;
    use transom_core::reference::ObjectRef;
    use transom_core::report::End;
    use transom_core::watches::Scope;

    fn key(policy: &str, primary: usize) -> Key {
        let primary = ObjectRef::local("v1", "Thing", None, &primary.to_string());
        Key::new(&policy.into(), &primary)
    }

    fn last(state: State, reason: KnownReason, since_seconds: i64) -> LastResult {
        LastResult {
            state,
            message: "m".to_owned(),
            ..LastResult::sample(End::Ended(Class::Held), reason, since_seconds)
        }
    }

    fn tally(
        results: &BTreeMap<Key, LastResult>,
        now_seconds: i64,
    ) -> (Vec<PrimaryCount>, Vec<(Key, LastResult)>) {
        let mut tally = Tally::default();
        for (key, last) in results {
            tally.add(key, last, now_seconds);
        }
        tally.finish()
    }

    /// The state of a leader with one policy, one API server and ten primaries, of which one is listed.
    #[expect(clippy::too_many_lines, reason = "a test tells its story in one piece")]
    pub(crate) fn sample() -> Snapshot {
        let policy = PolicySnapshot {
            policy: "p".into(),
            copies: true,
            suspend: false,
            decide: "d".into(),
            trigger: None,
            left: 3,
            oldest: Duration::from_millis(1_500),
            swapped: Swapped {
                swaps: 2,
                pause: Pause {
                    longest: Duration::from_micros(3),
                    p999: Duration::from_micros(2),
                },
            },
            usage: vec![UsageStatus {
                budget: Budgeted::MemoryBytes,
                p50: 5,
                p99: 10,
                max: 100,
            }],
        };
        let count = |state, reason: &str, primaries, overdue| PrimaryCount {
            policy: "p".into(),
            state,
            reason: reason.to_owned(),
            primaries,
            overdue,
        };
        let forbidden = (KnownReason::ReadForbidden, "not allowed".to_owned());
        let watch = |namespace: &str, objects, failure| WatchHealth {
            scope: Scope {
                api_version: "v1".to_owned(),
                kind: "Secret".to_owned(),
                namespace: Some(namespace.to_owned()),
                name: None,
                fields: None,
                labels: None,
            },
            synced: true,
            failure,
            objects,
            restarts: 1,
            silent_seconds: 0,
        };
        Snapshot {
            unready: None,
            leads: true,
            policies: vec![policy],
            servers: vec![ServerSnapshot {
                name: "hub".to_owned(),
                requests: vec![(RequestVerb::List, Purpose::Lease, 7)],
                watches: vec![watch("a", 2, None), watch("b", 4, Some(forbidden))],
            }],
            primaries: vec![
                count(State::Applied, "InSync", 5, 0),
                count(State::Held, "Paused", 2, 0),
                count(State::Waiting, "Slow", 2, 1),
                count(State::Failed, "Bad", 1, 0),
            ],
            listed: vec![(key("p", 0), last(State::Failed, KnownReason::ReadFailed, 0))],
            ends_seconds: BTreeMap::from([("p".into(), 1_000)]),
        }
    }

    #[test]
    fn counts_every_primary_and_those_that_are_overdue() {
        let waits = |since| last(State::Waiting, KnownReason::OwnershipPending, since);
        let results = BTreeMap::from([
            (key("p", 0), waits(0)),
            (key("p", 1), waits(99_999)),
            (key("p", 2), last(State::Applied, KnownReason::InSync, 0)),
            (key("q", 0), waits(0)),
        ]);
        let (counts, _) = tally(&results, 100_000);
        let told: Vec<_> = counts
            .iter()
            .map(|one| (&*one.policy, one.state, one.primaries, one.overdue))
            .collect();
        let expected = [
            ("p", State::Applied, 1, 0),
            ("p", State::Waiting, 2, 1),
            ("q", State::Waiting, 1, 1),
        ];
        assert_eq!(told, expected);
        assert_eq!(counts[0].reason, "InSync");
    }

    #[test]
    fn lists_a_limited_number_of_primaries_that_are_not_applied() {
        let paused = (1..3_000).map(|at| (key("p", at), last(State::Held, KnownReason::Paused, 0)));
        let mut results: BTreeMap<_, _> = paused.collect();
        results.insert(key("a", 0), last(State::Applied, KnownReason::InSync, 0));
        let (counts, listed) = tally(&results, 0);
        assert_eq!(listed.len(), LISTED);
        assert!(listed.iter().all(|(key, _)| *key.policy == *"p"));
        assert_eq!(counts[1].primaries, 2_999);
    }
}
