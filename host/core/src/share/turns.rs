//! Who goes on next where many share few places: each with work has its turn, and nobody all places.
//! Never waits: whoever owns the places asks again when one is free.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

/// Work that waits, by whose it is.
#[derive(Debug)]
pub struct Turns<K, T> {
    lines: HashMap<K, Line<T>>,
    /// Those that may take a place, the next one first.
    order: VecDeque<K>,
    /// Places that one may have at once.
    share: usize,
}

/// What one has to do.
#[derive(Debug)]
struct Line<T> {
    waiting: VecDeque<T>,
    running: usize,
    in_order: bool,
}

impl<K: Clone + Eq + Hash, T> Turns<K, T> {
    /// Nothing to do yet. One has at most `share` places at once, and no fewer than one.
    pub fn new(share: usize) -> Self {
        Self { lines: HashMap::new(), order: VecDeque::new(), share: share.max(1) }
    }

    /// Puts work at the end of somebody's line.
    pub fn put(&mut self, whose: &K, work: T) {
        let line = self.lines.entry(whose.clone()).or_insert_with(|| Line {
            waiting: VecDeque::new(),
            running: 0,
            in_order: false,
        });
        line.waiting.push_back(work);
        line.stand(whose, self.share, &mut self.order);
    }

    /// The next work, which takes a place until [`Turns::ended`]; whoever has more stands behind all others.
    pub fn take(&mut self) -> Option<(K, T)> {
        let whose = self.order.pop_front()?;
        let line = self.lines.get_mut(&whose)?;
        line.in_order = false;
        let work = line.waiting.pop_front()?;
        line.running += 1;
        line.stand(&whose, self.share, &mut self.order);
        Some((whose, work))
    }

    /// Work that was taken gave its place back.
    pub fn ended(&mut self, whose: &K) {
        let Some(line) = self.lines.get_mut(whose) else { return };
        line.running = line.running.saturating_sub(1);
        line.stand(whose, self.share, &mut self.order);
        if line.running == 0 && line.waiting.is_empty() {
            self.lines.remove(whose);
        }
    }

    /// Forgets all that waits.
    pub fn clear(&mut self) {
        self.lines.clear();
        self.order.clear();
    }
}

impl<T> Line<T> {
    /// Stands in the order once, as long as there is work and a place of the share is left.
    fn stand<K: Clone>(&mut self, whose: &K, share: usize, order: &mut VecDeque<K>) {
        if !self.in_order && self.running < share && !self.waiting.is_empty() {
            self.in_order = true;
            order.push_back(whose.clone());
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
        let mut turns = Turns::new(100);
        (0..3).for_each(|at| turns.put(&"hog", at));
        turns.put(&"calm", 7);
        turns.put(&"third", 8);
        turns.put(&"calm", 9);
        let order = [("hog", 0), ("calm", 7), ("third", 8), ("hog", 1), ("calm", 9), ("hog", 2)];
        assert_eq!(all(&mut turns), order);
    }

    #[test]
    fn nobody_has_more_places_than_its_share() {
        let mut turns = Turns::new(2);
        (0..5).for_each(|at| turns.put(&"hog", at));
        assert_eq!(all(&mut turns), [("hog", 0), ("hog", 1)]);
        turns.put(&"calm", 7);
        assert_eq!(all(&mut turns), [("calm", 7)]);
        turns.ended(&"hog");
        assert_eq!(all(&mut turns), [("hog", 2)], "one place was given back");
        ["hog", "hog"].iter().for_each(|whose| turns.ended(whose));
        assert_eq!(all(&mut turns), [("hog", 3), ("hog", 4)]);
    }

    #[test]
    fn who_has_nothing_left_is_forgotten() {
        let mut turns = Turns::new(0);
        turns.put(&"one", 1);
        assert_eq!(turns.take(), Some(("one", 1)));
        assert_eq!(turns.take(), None);
        turns.ended(&"one");
        turns.ended(&"nobody");
        assert!(turns.lines.is_empty() && turns.order.is_empty());
    }

    #[test]
    fn one_of_a_thousand_waits_for_one_turn_of_each() {
        let mut turns = Turns::new(4);
        for at in 0..1_000 {
            (0..32).for_each(|work| turns.put(&at, work));
        }
        turns.put(&1_000, 0);
        let mut before = 0;
        while let Some((whose, _)) = turns.take() {
            if whose == 1_000 {
                break;
            }
            turns.ended(&whose);
            before += 1;
        }
        assert_eq!(before, 1_000);
    }
}
