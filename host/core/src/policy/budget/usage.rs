//! How much of their budget the calls of a policy use: a histogram of shares for each thing that has a budget. It takes
//! the same few bytes for any number of calls, and histograms can be added up.

use transom_api::policy::Budgeted;
use transom_api::status::UsageStatus;

/// The shares of a budget that are told apart, in percent, each the most of its step. A steady policy stays within a
/// step, so its status is not written for each call.
pub const STEPS: [u32; 8] = [0, 1, 2, 5, 10, 20, 50, 100];

/// With so many calls all counts are halved, so that what a policy did long ago weighs less and less.
const MANY: u32 = 20_000;
/// A published share falls only after so many calls: an agent that has just started knows too little.
const ENOUGH: u32 = 1_000;

/// The median and the 99th percentile, in per mille of the calls. The second number is how many calls have to use less
/// before a published share falls, so that it does not go up and down.
const MIDDLE: [u64; 2] = [500, 600];
const HUNDREDTH: [u64; 2] = [990, 995];

/// The calls of a policy, by the share of each budget that they used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    counts: [[u32; STEPS.len()]; Budgeted::ALL.len()],
    most: [usize; Budgeted::ALL.len()],
}

impl Usage {
    /// Counts a call; `used` gives what it used of each budget, and the budget, in the same unit.
    pub fn add(&mut self, used: impl Fn(Budgeted) -> (u64, u64)) {
        if self.calls() >= MANY {
            let counts = self.counts.iter_mut().flatten();
            counts.for_each(|count| *count /= 2);
        }
        let each = self.counts.iter_mut().zip(&mut self.most);
        for (what, (counts, most)) in Budgeted::ALL.into_iter().zip(each) {
            let (used, allowed) = used(what);
            let at = step(used, allowed);
            if let Some(count) = counts.get_mut(at) {
                *count = count.saturating_add(1);
            }
            *most = at.max(*most);
        }
    }

    /// Adds the calls of another histogram.
    pub fn merge(&mut self, other: &Self) {
        let counts = self.counts.iter_mut().flatten();
        for (count, more) in counts.zip(other.counts.iter().flatten()) {
            *count = count.saturating_add(*more);
        }
        for (most, other) in self.most.iter_mut().zip(other.most) {
            *most = other.max(*most);
        }
    }

    /// How many calls count.
    pub fn calls(&self) -> u32 {
        let first = self.counts.first().into_iter().flatten();
        first.fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// The shares as they are published after `before`: they rise at once, and fall only when clearly less is used.
    /// What no call ever used is not listed.
    pub fn status(&self, before: &[UsageStatus]) -> Vec<UsageStatus> {
        let all = Budgeted::ALL.into_iter().enumerate();
        let shares = all.map(|(at, what)| {
            let last = before.iter().find(|one| one.budget == what);
            let published = |ranks: [u64; 2], last: Option<u32>| {
                let [least, most] = ranks.map(|rank| self.share(at, rank));
                let most = if self.calls() < ENOUGH { 100 } else { most };
                last.map_or(least, |last| last.clamp(least, most.max(least)))
            };
            let most = self.most.get(at).and_then(|most| STEPS.get(*most));
            let most = most.copied().unwrap_or_default();
            UsageStatus {
                budget: what,
                p50: published(MIDDLE, last.map(|last| last.p50)),
                p99: published(HUNDREDTH, last.map(|last| last.p99)),
                max: last.map_or(most, |last| last.max.max(most)),
            }
        });
        shares.filter(|one| one.max > 0).collect()
    }

    /// The share that so many calls in a thousand do not exceed, in percent.
    fn share(&self, what: usize, rank: u64) -> u32 {
        let counts = self.counts.get(what).into_iter().flatten();
        let (mut sum, below) = (0, u64::from(self.calls()) * rank);
        let reached = STEPS.into_iter().zip(counts).find(|(_, count)| {
            sum += u64::from(**count) * 1_000;
            sum >= below
        });
        reached.map_or(0, |(percent, _)| percent)
    }
}

/// The step of a share; more than the budget counts as all of it.
fn step(used: u64, allowed: u64) -> usize {
    let fits = |percent: &u32| u128::from(used) * 100 <= u128::from(allowed) * u128::from(*percent);
    STEPS.iter().position(fits).unwrap_or(STEPS.len() - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A number of calls that use this percentage of every budget.
    fn calls(usage: &mut Usage, number: u32, percent: u64) {
        (0..number).for_each(|_| usage.add(|_| (percent * 3, 300)));
    }

    fn shown(usage: &Usage, before: &[UsageStatus]) -> Option<(u32, u32, u32)> {
        let status = usage.status(before);
        assert!(status.is_empty() || status.len() == Budgeted::ALL.len());
        status.first().map(|one| (one.p50, one.p99, one.max))
    }

    #[test]
    fn a_share_counts_as_the_next_larger_step() {
        for (used, allowed, expected) in [
            (0, 100, 0),
            (0, 0, 0),
            (1, 1_000_000, 1),
            (1, 100, 1),
            (101, 10_000, 2),
            (50, 100, 50),
            (51, 100, 100),
            (101, 100, 100),
            (1, 0, 100),
            (u64::MAX, u64::MAX, 100),
        ] {
            assert_eq!(STEPS[step(used, allowed)], expected, "{used} of {allowed}");
        }
    }

    #[test]
    fn what_no_call_used_is_not_listed() {
        let mut usage = Usage::default();
        assert_eq!(shown(&usage, &[]), None);
        calls(&mut usage, 10, 0);
        assert_eq!(shown(&usage, &[]), None);
        usage.add(|what| match what {
            Budgeted::MemoryBytes => (30, 100),
            _ => (0, 100),
        });
        let status = usage.status(&[]);
        let expected = UsageStatus {
            budget: Budgeted::MemoryBytes,
            p50: 0,
            p99: 50,
            max: 50,
        };
        assert_eq!(status, [expected]);
    }

    #[test]
    fn percentiles_and_the_maximum() {
        let mut usage = Usage::default();
        calls(&mut usage, 500, 1);
        calls(&mut usage, 490, 9);
        calls(&mut usage, 9, 40);
        calls(&mut usage, 1, 100);
        assert_eq!(shown(&usage, &[]), Some((1, 10, 100)));
        calls(&mut usage, 2, 9);
        assert_eq!(shown(&usage, &[]), Some((10, 10, 100)));
    }

    #[test]
    fn adding_up_two_histograms_is_like_counting_all_calls_in_one() {
        let (mut one, mut other, mut all) = (Usage::default(), Usage::default(), Usage::default());
        for usage in [&mut one, &mut all] {
            calls(usage, 7, 3);
        }
        for usage in [&mut other, &mut all] {
            calls(usage, 5, 60);
        }
        one.merge(&other);
        assert_eq!(one, all);
    }

    #[test]
    fn a_steady_policy_does_not_change_its_status_again_and_again() {
        let mut usage = Usage::default();
        // Half of the calls in each of two steps: the middle may be in either.
        calls(&mut usage, 1_000, 1);
        calls(&mut usage, 1_000, 2);
        let (mut published, mut writes) = (usage.status(&[]), 0);
        for round in 0..60_000 {
            calls(&mut usage, 1, 2 - round % 2);
            let next = usage.status(&published);
            writes += u32::from(next != published);
            published = next;
        }
        assert!(writes <= 1, "{writes}");
    }

    #[test]
    fn an_agent_that_has_just_started_keeps_what_was_published() {
        let mut earlier = Usage::default();
        calls(&mut earlier, 5_000, 40);
        let published = earlier.status(&[]);
        let mut usage = Usage::default();
        assert_eq!(usage.status(&published), published);
        calls(&mut usage, 999, 1);
        assert_eq!(usage.status(&published), published);
        // More than before counts at once, less once enough calls were seen.
        usage.add(|_| (90, 100));
        assert_eq!(shown(&usage, &published), Some((1, 1, 100)));
    }

    #[test]
    fn what_was_long_ago_weighs_less() {
        let mut usage = Usage::default();
        calls(&mut usage, MANY, 40);
        calls(&mut usage, MANY * 4, 1);
        assert_eq!(
            shown(&usage, &[]).map(|(p50, _, max)| (p50, max)),
            Some((1, 50))
        );
        assert!(usage.calls() <= MANY);
    }
}
