//! Remembers what was found out about the components last looked at, by their digests.

use std::collections::{BTreeMap, VecDeque};

/// How many components are remembered, a few hundred bytes each: as many as an agent has policies. Where there are more
/// than are remembered, each may be forgotten before it is asked for again.
const REMEMBERED: usize = 4_096;

/// What was found out, by digest; the oldest is forgotten first.
pub(crate) struct Remembered<T> {
    found: BTreeMap<String, T>,
    /// The same digests, the oldest first.
    order: VecDeque<String>,
}

impl<T> Default for Remembered<T> {
    fn default() -> Self {
        Self {
            found: BTreeMap::new(),
            order: VecDeque::new(),
        }
    }
}

impl<T> Remembered<T> {
    pub(crate) fn get(&self, digest: &str) -> Option<&T> {
        self.found.get(digest)
    }

    pub(crate) fn insert(&mut self, digest: &str, found: T) {
        if self.found.insert(digest.to_owned(), found).is_none() {
            self.order.push_back(digest.to_owned());
        }
        if self.order.len() > REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.found.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_is_forgotten_whatever_its_digest() {
        let mut remembered = Remembered::default();
        // Later ones have smaller digests.
        let digest = |at: usize| format!("{:08}", 10_000 - at);
        for at in 0..REMEMBERED {
            remembered.insert(&digest(at), at);
        }
        remembered.insert(&digest(0), 7);
        assert_eq!(remembered.get(&digest(0)), Some(&7));
        assert!((0..REMEMBERED).all(|at| remembered.get(&digest(at)).is_some()));
        remembered.insert(&digest(REMEMBERED), 9);
        assert_eq!(remembered.get(&digest(0)), None);
        assert!((1..=REMEMBERED).all(|at| remembered.get(&digest(at)).is_some()));
        assert_eq!(remembered.found.len(), remembered.order.len());
    }
}
