//! Choices from a seed, and from no other source.

use transom_support::numbers::Numbers;

/// The choices of one attempt.
pub(super) struct Dice(Numbers);

impl Dice {
    pub(super) fn new(seed: u64, attempt: u64) -> Self {
        Self(Numbers::new(seed, attempt))
    }

    /// A number below another, which is not 0.
    pub(super) fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.0.take() % (end.max(1) as u64)).unwrap_or_default()
    }

    /// True with this probability in percent.
    pub(super) fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// One of several; there must be at least one.
    pub(super) fn pick<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }

    /// A byte.
    pub(super) fn byte(&mut self) -> u8 {
        self.0.take().to_le_bytes()[0]
    }
}
