//! Elections step by step, and many candidates on a Lease that keeps versions as an API server does.

use super::*;
use proptest::prelude::*;

fn at(ms: u64) -> Now {
    Now {
        monotonic_ms: ms,
        wall_us: i64::try_from(ms).unwrap() * 1_000,
    }
}

fn lease(version: &str, holder: &str, renewed_us: i64) -> Lease {
    let record = LeaderElectionRecord {
        holder: Some(holder.to_owned()),
        acquired_us: Some(0),
        renewed_us: Some(renewed_us),
        seconds: Some(15),
        transitions: Some(3),
    };
    Lease {
        version: version.to_owned(),
        record,
    }
}

fn writing(step: LeaseStep) -> Write {
    match step {
        LeaseStep::Acquire(write) | LeaseStep::Renew(write) | LeaseStep::Release(write) => write,
        other => panic!("{other:?} writes nothing"),
    }
}

/// Takes the next step, successfully.
fn act(election: &mut Election, now: Now, version: &str) -> Write {
    let write = writing(election.next(now));
    election.sending(&write, now);
    election.wrote(&write, version, now);
    write
}

/// A candidate that leads since second 0, at version 1.
fn leader() -> Election {
    let mut election = Election::new("me", Timing::default());
    assert_eq!(election.next(at(0)), LeaseStep::Look);
    election.saw(None, at(0));
    let write = act(&mut election, at(0), "1");
    assert_eq!(
        (
            write.version,
            write.record.holder.as_deref(),
            write.record.transitions
        ),
        (None, Some("me"), Some(0))
    );
    election
}

#[test]
fn the_times_are_those_of_client_go() {
    assert_eq!(
        Timing::default(),
        Timing {
            lease_ms: 15_000,
            hold_ms: 10_000,
            retry_ms: 2_000
        }
    );
    let careless = Timing {
        hold_ms: 15_000,
        ..Timing::default()
    };
    assert_eq!(
        Election::new("me", careless).hold_ms(),
        12_000,
        "always ends before the lease"
    );
}

#[test]
fn a_leader_renews_in_time_and_writes_only_while_it_may() {
    let mut election = leader();
    assert!(election.leads(at(0)) && election.leads(at(9_999)) && !election.leads(at(10_000)));
    assert_eq!(election.next(at(1)), LeaseStep::Wait(2_000));
    let renewal = act(&mut election, at(2_000), "2");
    assert_eq!(
        (renewal.version.as_deref(), renewal.record.acquired_us),
        (Some("1"), Some(0))
    );
    assert_eq!(
        (renewal.record.renewed_us, renewal.record.seconds),
        (Some(2_000_000), Some(15))
    );
    assert_eq!(
        (election.leads_until(), election.others_from_ms()),
        (Some(at(12_000)), Some(17_000))
    );
}

#[test]
fn a_renewal_counts_from_when_it_was_sent() {
    let mut election = leader();
    let write = writing(election.next(at(2_000)));
    election.sending(&write, at(2_000));
    election.wrote(&write, "2", at(11_000));
    assert_eq!(election.leads_until(), Some(at(12_000)));
}

#[test]
fn a_dead_leader_is_replaced_after_its_lease_by_the_local_clock() {
    for renewed_us in [0, -1_000_000_000_000, i64::MAX] {
        let mut election = Election::new("me", Timing::default());
        election.saw(Some(lease("7", "other", renewed_us)), at(1_000));
        assert_eq!(
            election.next(at(1_000)),
            LeaseStep::Follow(3_000),
            "whatever its clock says"
        );
        assert_eq!(election.next(at(3_000)), LeaseStep::Look);
        election.saw(
            Some(lease("8", "other", renewed_us.wrapping_add(1))),
            at(3_000),
        );
        // A new label is no renewal.
        election.saw(
            Some(lease("9", "other", renewed_us.wrapping_add(1))),
            at(17_000),
        );
        assert_eq!(election.next(at(17_999)), LeaseStep::Follow(18_000));
        let LeaseStep::Acquire(write) = election.next(at(18_000)) else {
            panic!("not taken")
        };
        assert_eq!(
            (write.version.as_deref(), write.record.transitions),
            (Some("9"), Some(4))
        );
        assert!(!election.leads(at(18_000)), "not before it is written");
    }
}

#[test]
fn a_released_lease_is_acquired_at_once() {
    let mut election = Election::new("me", Timing::default());
    for holder in [None, Some(String::new())] {
        let mut released = lease("7", "", 0);
        released.record.holder = holder;
        election.saw(Some(released), at(5));
        assert!(matches!(election.next(at(5)), LeaseStep::Acquire(_)));
    }
}

#[test]
fn a_holder_that_was_frozen_does_not_write() {
    let mut election = leader();
    let prepared = writing(election.next(at(2_000)));
    election.sending(&prepared, at(2_000));
    // Frozen here; meanwhile another replica takes over.
    assert!(!election.leads(at(60_000)));
    election.conflicted(at(60_000));
    assert_eq!(election.next(at(60_000)), LeaseStep::Wait(60_200));
    assert_eq!(election.next(at(60_200)), LeaseStep::Look);
    election.saw(Some(lease("5", "other", 1)), at(60_001));
    assert!(!election.leads(at(60_001)));
    assert_eq!(election.next(at(60_001)), LeaseStep::Follow(62_001));
    // No other replica took over: the lease is renewed at the version that was seen, and only then leads again.
    let mut alone = leader();
    assert!(!alone.leads(at(60_000)));
    assert_eq!(
        act(&mut alone, at(60_000), "2").version.as_deref(),
        Some("1")
    );
    assert!(alone.leads(at(60_000)));
}

#[test]
fn either_clock_ends_a_leadership() {
    let election = leader();
    let now = |monotonic_ms, wall_us| Now {
        monotonic_ms,
        wall_us,
    };
    assert!(!election.leads(now(1, 10_000_000)), "the machine slept");
    assert!(
        !election.leads(now(10_000, -5_000_000)),
        "the clock was set back"
    );
    assert!(election.leads(now(9_000, -5_000_000)));
    let mut election = leader();
    let renewal = act(&mut election, now(2_000, -5_000_000), "2");
    assert_eq!(
        renewal.record.renewed_us,
        Some(1),
        "others still see a change"
    );
}

#[test]
fn detects_a_stolen_lease() {
    let mut election = leader();
    election.saw(Some(lease("4", "other", 1)), at(1_000));
    assert!(!election.leads(at(1_000)));
    assert_eq!(election.next(at(1_000)), LeaseStep::Follow(3_000));
    // Another candidate with this name is another one, too.
    election.saw(Some(lease("5", "me", 1)), at(3_000));
    assert!(!election.leads(at(3_000)));
    assert_eq!(election.next(at(3_000)), LeaseStep::Follow(5_000));
}

#[test]
fn learns_the_outcome_of_an_unanswered_write() {
    let mut election = leader();
    let first = writing(election.next(at(2_000)));
    election.sending(&first, at(2_000));
    election.failed(at(4_000));
    assert_eq!(election.next(at(4_000)), LeaseStep::Wait(6_000));
    assert_eq!(election.next(at(6_000)), LeaseStep::Look);
    // It has not arrived yet.
    let old = Lease {
        version: "1".to_owned(),
        record: LeaderElectionRecord {
            renewed_us: Some(0),
            ..first.record.clone()
        },
    };
    election.saw(Some(old), at(6_000));
    assert_eq!(election.leads_until(), Some(at(10_000)));
    let second = writing(election.next(at(6_000)));
    election.sending(&second, at(6_000));
    // Now it has arrived, so the second one fails.
    election.conflicted(at(6_000));
    election.saw(
        Some(Lease {
            version: "2".to_owned(),
            record: first.record,
        }),
        at(6_100),
    );
    assert_eq!(election.leads_until(), Some(at(12_000)));
    assert_eq!(
        writing(election.next(at(6_100))).version.as_deref(),
        Some("2")
    );
}

#[test]
fn releasing_ends_leadership_at_once_and_is_retried_until_done() {
    let mut election = leader();
    election.stop();
    assert!(!election.leads(at(1)));
    let release = writing(election.next(at(1)));
    assert_eq!(
        (release.record.holder.as_deref(), release.version.as_deref()),
        (None, Some("1"))
    );
    election.sending(&release, at(1));
    election.conflicted(at(1));
    assert_eq!(election.next(at(201)), LeaseStep::Look);
    election.saw(
        Some(Lease {
            version: "2".to_owned(),
            record: leader().attempts[0].write.record.clone(),
        }),
        at(201),
    );
    let again = act(&mut election, at(201), "3");
    assert_eq!(
        (again.version.as_deref(), again.record.transitions),
        (Some("2"), Some(0))
    );
    assert_eq!(election.next(at(201)), LeaseStep::Released);
    let mut follower = Election::new("me", Timing::default());
    follower.saw(Some(lease("7", "other", 0)), at(1));
    follower.stop();
    assert_eq!(follower.next(at(60_000)), LeaseStep::Released);
}

#[test]
fn a_malformed_lease_delays_an_election_only_briefly() {
    for (seconds, ends) in [
        (None, 15_000),
        (Some(0), 15_000),
        (Some(-7), 15_000),
        (Some(60), 60_000),
        (Some(i32::MAX), LONGEST_MS),
    ] {
        let record = LeaderElectionRecord {
            holder: Some("other".to_owned()),
            seconds,
            transitions: Some(-1),
            ..LeaderElectionRecord::default()
        };
        let mut election = Election::new("me", Timing::default());
        election.saw(
            Some(Lease {
                version: "7".to_owned(),
                record: record.clone(),
            }),
            at(0),
        );
        election.saw(
            Some(Lease {
                version: "8".to_owned(),
                record,
            }),
            at(ends - 1),
        );
        assert_eq!(
            election.next(at(ends - 1)),
            LeaseStep::Follow(ends),
            "{seconds:?}"
        );
        assert_eq!(writing(election.next(at(ends))).record.transitions, Some(1));
    }
    let mut election = Election::new("me", Timing::default());
    election.saw(
        Some(Lease {
            version: "7".to_owned(),
            record: LeaderElectionRecord::default(),
        }),
        at(0),
    );
    assert_eq!(writing(election.next(at(0))).record.transitions, Some(1));
}

/// The Lease with versions, and requests in flight.
#[derive(Default)]
struct World {
    version: u64,
    lease: Option<Lease>,
    under_way: Vec<(u64, usize, Write)>,
}

impl World {
    /// Writes when the write names the current version.
    fn put(&mut self, write: &Write) -> Option<String> {
        if write.version != self.lease.as_ref().map(|lease| lease.version.clone()) {
            return None;
        }
        self.version += 1;
        let version = self.version.to_string();
        self.lease = Some(Lease {
            version: version.clone(),
            record: write.record.clone(),
        });
        Some(version)
    }
}

/// What happens to a candidate at one of its turns.
#[derive(Clone, Copy, Debug)]
enum Luck {
    Good,
    /// The request never arrives.
    Lost,
    /// It arrives, and its answer does not.
    Unanswered,
    /// It arrives much later, unanswered.
    Late(u64),
    /// The candidate sleeps before its next turn.
    Frozen(u64),
}

fn luck() -> impl Strategy<Value = Luck> {
    prop_oneof![
        6 => Just(Luck::Good),
        1 => Just(Luck::Lost),
        1 => Just(Luck::Unanswered),
        1 => (0..20_000u64).prop_map(Luck::Late),
        1 => (0..40_000u64).prop_map(Luck::Frozen),
    ]
}

/// One candidate with its own clocks.
struct Candidate {
    election: Election,
    offset_ms: u64,
    /// Its clock runs so many thousandths faster.
    pace: u64,
    awake_ms: u64,
}

impl Candidate {
    fn now(&self, ms: u64) -> Now {
        at(self.offset_ms + ms + ms * self.pace / 1_000)
    }

    /// One turn at a time of the world.
    fn turn(&mut self, me: usize, ms: u64, luck: Luck, world: &mut World) {
        let now = self.now(ms);
        match self.election.next(now) {
            LeaseStep::Look if matches!(luck, Luck::Good | Luck::Frozen(_)) => {
                self.election.saw(world.lease.clone(), now);
            }
            LeaseStep::Look => self.election.failed(now),
            LeaseStep::Acquire(write) | LeaseStep::Renew(write) | LeaseStep::Release(write) => {
                self.election.sending(&write, now);
                match luck {
                    Luck::Good | Luck::Frozen(_) => match world.put(&write) {
                        Some(version) => self.election.wrote(&write, &version, now),
                        None => self.election.conflicted(now),
                    },
                    Luck::Lost => self.election.failed(now),
                    Luck::Unanswered => {
                        world.put(&write);
                        self.election.failed(now);
                    }
                    Luck::Late(by) => {
                        world.under_way.push((ms + by, me, write));
                        self.election.failed(now);
                    }
                }
            }
            LeaseStep::Wait(_) | LeaseStep::Follow(_) | LeaseStep::Released => {}
        }
        if let Luck::Frozen(by) = luck {
            self.awake_ms = ms + by;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn at_most_one_leads_and_in_quiet_times_exactly_one(
        offsets in proptest::collection::vec((0..100_000_000u64, 0..50u64), 2..4),
        fates in proptest::collection::vec(luck(), 300),
    ) {
        let candidate = |(me, (offset_ms, pace)): (usize, &(u64, u64))| Candidate {
            election: Election::new(&me.to_string(), Timing::default()),
            offset_ms: *offset_ms,
            pace: *pace,
            awake_ms: 0,
        };
        let mut candidates: Vec<_> = offsets.iter().enumerate().map(candidate).collect();
        let mut world = World::default();
        let mut fates = fates.into_iter();
        for ms in (0..240_000u64).step_by(250) {
            let (due, later) = std::mem::take(&mut world.under_way).into_iter().partition(|(when, ..)| *when <= ms);
            world.under_way = later;
            for (_, _, write) in due {
                world.put(&write);
            }
            for (me, candidate) in candidates.iter_mut().enumerate().filter(|(_, candidate)| candidate.awake_ms <= ms) {
                let asks = !matches!(candidate.election.next(candidate.now(ms)), LeaseStep::Wait(_) | LeaseStep::Follow(_));
                let luck = if asks && ms < 150_000 { fates.next().unwrap_or(Luck::Good) } else { Luck::Good };
                candidate.turn(me, ms, luck, &mut world);
            }
            let leading = candidates.iter().filter(|candidate| candidate.election.leads(candidate.now(ms))).count();
            prop_assert!(leading <= 1, "{} lead at {} ms", leading, ms);
        }
        let leading = candidates.iter().filter(|candidate| candidate.election.leads(candidate.now(239_750))).count();
        prop_assert_eq!(leading, 1);
    }
}
