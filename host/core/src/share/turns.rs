//! Fair scheduling of few places among many owners of work: the owner that used the least time goes next, and none
//! gets all places. The caller waits, and asks again when a place is free.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// A turn that takes longer counts as long. All owners whose last turn was long have together one place less than
/// there are, so that an owner with quick turns finds one free.
const LONG: Duration = Duration::from_millis(20);

/// Waiting work, by owner.
#[derive(Debug)]
pub struct Turns<K, T> {
    lines: BTreeMap<K, Line<T>>,
    /// Owners that may take a place, ordered by the time that they used and by arrival: first those with quick turns,
    /// then those with long ones.
    orders: [BTreeSet<(Duration, u64, K)>; 2],
    /// Owners without work that used more than the others: remembered until the others have used as much.
    idle: BTreeSet<(Duration, K)>,
    /// The time that the owner which went last had used. A new owner begins here, so that idle time earns no credit.
    floor: Duration,
    arrivals: u64,
    /// Places that one owner may have at once.
    share: usize,
    /// Places that owners with long turns may have at once, and how many they have now.
    long: (usize, usize),
}

/// The work of one owner.
#[derive(Debug)]
struct Line<T> {
    waiting: VecDeque<T>,
    /// Its places: whether each was taken as a long one.
    running: Vec<bool>,
    /// Its position in an order.
    place: Option<(Duration, u64)>,
    used: Duration,
    /// How long its last turn took; its running turns are expected to take as long. `None` before its first turn
    /// ended: until then it gets one place.
    last: Option<Duration>,
}

impl<T> Line<T> {
    fn is_long(&self) -> bool {
        self.last.is_some_and(|last| last > LONG)
    }
}

impl<K: Clone + Ord, T> Turns<K, T> {
    /// No work yet, for so many places. One owner has at most `share` of them at once, but may always have one.
    pub fn new(places: usize, share: usize) -> Self {
        let long = (places.saturating_sub(1).max(1), 0);
        Self {
            lines: BTreeMap::new(),
            orders: [BTreeSet::new(), BTreeSet::new()],
            idle: BTreeSet::new(),
            floor: Duration::ZERO,
            arrivals: 0,
            share: share.max(1),
            long,
        }
    }

    /// Puts work at the end of an owner's line.
    pub fn put(&mut self, whose: &K, work: T) {
        let floor = self.floor;
        let line = self.lines.entry(whose.clone()).or_insert_with(|| Line {
            waiting: VecDeque::new(),
            running: Vec::new(),
            place: None,
            used: floor,
            last: None,
        });
        if line.waiting.is_empty() && line.running.is_empty() {
            self.idle.remove(&(line.used, whose.clone()));
            line.used = line.used.max(floor);
        }
        line.waiting.push_back(work);
        self.stand(whose);
    }

    /// Whether [`Turns::take`] would return work.
    pub fn has_next(&self) -> bool {
        let [quick, long] = &self.orders;
        !quick.is_empty() || (!long.is_empty() && self.long.1 < self.long.0)
    }

    /// The next work, which takes a place until [`Turns::ended`].
    pub fn take(&mut self) -> Option<(K, T)> {
        let [quick, long] = &self.orders;
        let long = long.first().filter(|_| self.long.1 < self.long.0);
        let (_, _, whose) = quick.first().into_iter().chain(long).min()?.clone();
        self.leave(&whose);
        let line = self.lines.get_mut(&whose)?;
        let work = line.waiting.pop_front()?;
        self.floor = self.floor.max(line.used);
        while let Some((_, idle)) = self
            .idle
            .first()
            .filter(|(used, _)| *used <= self.floor)
            .cloned()
        {
            self.idle.pop_first();
            self.lines.remove(&idle);
        }
        let line = self.lines.get_mut(&whose)?;
        line.running.push(line.is_long());
        self.long.1 += usize::from(line.is_long());
        self.stand(&whose);
        Some((whose, work))
    }

    /// Gives back the place of work that was taken, and that took so long.
    pub fn ended(&mut self, whose: &K, took: Duration) {
        self.leave(whose);
        let Some(line) = self.lines.get_mut(whose) else {
            return;
        };
        if line.running.pop().unwrap_or_default() {
            self.long.1 -= 1;
        }
        line.used += took;
        line.last = Some(took);
        match line.waiting.is_empty() && line.running.is_empty() {
            true if line.used <= self.floor => drop(self.lines.remove(whose)),
            true => drop(self.idle.insert((line.used, whose.clone()))),
            false => self.stand(whose),
        }
    }

    /// Drops all waiting work.
    pub fn clear(&mut self) {
        self.lines.clear();
        self.idle.clear();
        self.orders.iter_mut().for_each(BTreeSet::clear);
    }

    /// Enters an owner into an order, once, while it has work and its share is not used up.
    fn stand(&mut self, whose: &K) {
        let Some(line) = self.lines.get_mut(whose) else {
            return;
        };
        let share = if line.last.is_some() { self.share } else { 1 };
        if line.place.is_some() || line.running.len() >= share || line.waiting.is_empty() {
            return;
        }
        let going_on = u32::try_from(line.running.len()).unwrap_or(u32::MAX);
        let expected = line.last.unwrap_or_default().saturating_mul(going_on);
        let place = (line.used.saturating_add(expected), self.arrivals);
        self.arrivals += 1;
        line.place = Some(place);
        self.orders[usize::from(line.is_long())].insert((place.0, place.1, whose.clone()));
    }

    fn leave(&mut self, whose: &K) {
        let Some(line) = self.lines.get_mut(whose) else {
            return;
        };
        if let Some((used, arrival)) = line.place.take() {
            self.orders[usize::from(line.is_long())].remove(&(used, arrival, whose.clone()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes until no more work may start.
    fn all(turns: &mut Turns<&'static str, u32>) -> Vec<(&'static str, u32)> {
        std::iter::from_fn(|| turns.take()).collect()
    }

    #[test]
    fn each_gets_its_turn_despite_the_load_of_others() {
        let mut turns = Turns::new(100, 100);
        (0..3).for_each(|at| turns.put(&"hog", at));
        turns.put(&"calm", 7);
        turns.put(&"third", 8);
        turns.put(&"calm", 9);
        let mut order = Vec::new();
        while let Some((whose, at)) = turns.take() {
            turns.ended(&whose, Duration::ZERO);
            order.push((whose, at));
        }
        assert_eq!(
            order,
            [
                ("hog", 0),
                ("calm", 7),
                ("third", 8),
                ("hog", 1),
                ("calm", 9),
                ("hog", 2)
            ]
        );
    }

    #[test]
    fn none_exceeds_its_share_and_new_ones_start_with_one_place() {
        let mut turns = Turns::new(100, 2);
        (0..6).for_each(|at| turns.put(&"hog", at));
        assert_eq!(all(&mut turns), [("hog", 0)]);
        turns.ended(&"hog", Duration::ZERO);
        assert_eq!(all(&mut turns), [("hog", 1), ("hog", 2)]);
        turns.put(&"calm", 7);
        assert_eq!(all(&mut turns), [("calm", 7)]);
        turns.ended(&"hog", Duration::ZERO);
        assert_eq!(all(&mut turns), [("hog", 3)], "one place was given back");
        ["hog", "hog"]
            .iter()
            .for_each(|whose| turns.ended(whose, Duration::ZERO));
        assert_eq!(all(&mut turns), [("hog", 4), ("hog", 5)]);
    }

    #[test]
    fn forgets_a_member_without_work() {
        let mut turns = Turns::new(1, 0);
        turns.put(&"one", 1);
        assert_eq!(turns.take(), Some(("one", 1)));
        assert_eq!(turns.take(), None);
        turns.ended(&"one", Duration::ZERO);
        turns.ended(&"nobody", Duration::ZERO);
        assert!(turns.lines.is_empty() && turns.orders.iter().all(BTreeSet::is_empty));
    }

    #[test]
    fn one_of_a_thousand_waits_for_one_turn_of_each() {
        let mut turns = Turns::new(4, 4);
        for at in 0..1_000 {
            (0..32).for_each(|work| turns.put(&at, work));
        }
        turns.put(&1_000, 0);
        let mut before = 0;
        while let Some((whose, _)) = turns.take() {
            if whose == 1_000 {
                break;
            }
            turns.ended(&whose, Duration::ZERO);
            before += 1;
        }
        assert_eq!(before, 1_000);
    }

    #[test]
    fn long_turns_yield_to_short_ones_and_leave_a_place_free() {
        const MS: Duration = Duration::from_millis(1);
        let mut turns = Turns::new(3, 2);
        for hog in ["hog-1", "hog-2", "hog-3", "hog-4"] {
            (0..100).for_each(|at| turns.put(&hog, at));
        }
        // It is not known yet that their turns are long.
        let first: Vec<_> = (0..3).filter_map(|_| turns.take()).collect();
        assert_eq!(first.len(), 3);
        (0..200).for_each(|at| turns.put(&"calm", at));
        for (hog, _) in first {
            turns.ended(&hog, 250 * MS);
        }
        let (mut hogs, mut calm) = (Vec::new(), 0);
        while calm < 200 {
            let (whose, _) = turns.take().unwrap();
            if whose == "calm" {
                turns.ended(&whose, MS / 10);
                calm += 1;
            } else {
                hogs.push(whose);
            }
        }
        assert_eq!(hogs, ["hog-4"], "it had no turn yet");
        turns.ended(&"hog-4", 250 * MS);
        // However many of them wait, one place stays free for others.
        assert_eq!(all(&mut turns).len(), 2);
        turns.put(&"late", 0);
        assert_eq!(turns.take(), Some(("late", 0)));
        // An owner that goes idle after a long turn is not new when it comes back.
        let mut turns = Turns::new(1, 1);
        turns.put(&"hog", 0);
        turns.put(&"calm", 0);
        assert_eq!(turns.take(), Some(("hog", 0)));
        turns.ended(&"hog", 250 * MS);
        turns.put(&"hog", 1);
        turns.put(&"calm", 1);
        for at in 0..2 {
            assert_eq!(turns.take(), Some(("calm", at)));
            turns.ended(&"calm", MS);
        }
        assert_eq!(turns.take(), Some(("hog", 1)));
    }
}
