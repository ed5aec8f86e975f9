//! Who goes on next where many share few places: the one that used them for the shortest time, and nobody all places.
//! Never waits: whoever owns the places asks again when one is free.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// A turn that takes longer is a long one. All who had one last have together one place less than there are, so that
/// whoever is quick finds one free.
const LONG: Duration = Duration::from_millis(20);

/// Work that waits, by whose it is.
#[derive(Debug)]
pub struct Turns<K, T> {
    lines: BTreeMap<K, Line<T>>,
    /// Those that may take a place, by what they used and since when they stand there: the quick ones, then those whose
    /// turns are long.
    orders: [BTreeSet<(Duration, u64, K)>; 2],
    /// Those with nothing to do that used more than others: known until the others have used as much.
    idle: BTreeSet<(Duration, K)>,
    /// What the one that went on last had used. Whoever comes anew begins here: having slept is no credit.
    floor: Duration,
    arrivals: u64,
    /// Places that one may have at once.
    share: usize,
    /// Places that those with long turns may have at once, and have.
    long: (usize, usize),
}

/// What one has to do.
#[derive(Debug)]
struct Line<T> {
    waiting: VecDeque<T>,
    /// The places that it has: whether each was taken as a long one.
    running: Vec<bool>,
    /// Where it stands in an order.
    place: Option<(Duration, u64)>,
    used: Duration,
    /// How long its last turn took; what goes on is expected to take as long. Nothing before the first ended: until then
    /// it has one place.
    last: Option<Duration>,
}

impl<T> Line<T> {
    fn is_long(&self) -> bool {
        self.last.is_some_and(|last| last > LONG)
    }
}

impl<K: Clone + Ord, T> Turns<K, T> {
    /// Nothing to do yet, for so many places. One has at most `share` of them at once, and no fewer than one.
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

    /// Puts work at the end of somebody's line.
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

    /// Whether [`Turns::take`] would give anything.
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
        while let Some((_, idle)) = self.idle.first().filter(|(used, _)| *used <= self.floor).cloned() {
            self.idle.pop_first();
            self.lines.remove(&idle);
        }
        let line = self.lines.get_mut(&whose)?;
        line.running.push(line.is_long());
        self.long.1 += usize::from(line.is_long());
        self.stand(&whose);
        Some((whose, work))
    }

    /// Work that was taken gave its place back, which it had for so long.
    pub fn ended(&mut self, whose: &K, took: Duration) {
        self.leave(whose);
        let Some(line) = self.lines.get_mut(whose) else { return };
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

    /// Forgets all that waits.
    pub fn clear(&mut self) {
        self.lines.clear();
        self.idle.clear();
        self.orders.iter_mut().for_each(BTreeSet::clear);
    }

    /// Stands in an order once, as long as there is work and a place of the share is left.
    fn stand(&mut self, whose: &K) {
        let Some(line) = self.lines.get_mut(whose) else { return };
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
        let Some(line) = self.lines.get_mut(whose) else { return };
        if let Some((used, arrival)) = line.place.take() {
            self.orders[usize::from(line.is_long())].remove(&(used, arrival, whose.clone()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes until nothing may go on.
    fn all(turns: &mut Turns<&'static str, u32>) -> Vec<(&'static str, u32)> {
        std::iter::from_fn(|| turns.take()).collect()
    }

    #[test]
    fn each_has_its_turn_however_much_another_has() {
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
        assert_eq!(order, [("hog", 0), ("calm", 7), ("third", 8), ("hog", 1), ("calm", 9), ("hog", 2)]);
    }

    #[test]
    fn nobody_has_more_places_than_its_share_and_one_before_its_first_turn_ended() {
        let mut turns = Turns::new(100, 2);
        (0..6).for_each(|at| turns.put(&"hog", at));
        assert_eq!(all(&mut turns), [("hog", 0)]);
        turns.ended(&"hog", Duration::ZERO);
        assert_eq!(all(&mut turns), [("hog", 1), ("hog", 2)]);
        turns.put(&"calm", 7);
        assert_eq!(all(&mut turns), [("calm", 7)]);
        turns.ended(&"hog", Duration::ZERO);
        assert_eq!(all(&mut turns), [("hog", 3)], "one place was given back");
        ["hog", "hog"].iter().for_each(|whose| turns.ended(whose, Duration::ZERO));
        assert_eq!(all(&mut turns), [("hog", 4), ("hog", 5)]);
    }

    #[test]
    fn who_has_nothing_left_is_forgotten() {
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
    fn who_uses_long_turns_waits_for_who_uses_short_ones_and_leaves_a_place_free() {
        const MS: Duration = Duration::from_millis(1);
        let mut turns = Turns::new(3, 2);
        for hog in ["hog-1", "hog-2", "hog-3", "hog-4"] {
            (0..100).for_each(|at| turns.put(&hog, at));
        }
        // Nobody knows yet that their turns are long.
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
        // However many wait, a place stays free of them.
        assert_eq!(all(&mut turns).len(), 2);
        turns.put(&"late", 0);
        assert_eq!(turns.take(), Some(("late", 0)));
        // Who goes idle after a long turn is not new when it comes back.
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
