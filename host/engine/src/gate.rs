//! Lets as many calls in as there are instances; the others wait. Counts the ticks by which all deadlines go.
//! Never reads a clock: whoever drives the ticks drives the waiting, too.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Free places and the time in ticks.
pub(crate) struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    free: usize,
    waiting: usize,
    now: u64,
}

/// One place; given back when dropped.
pub(crate) struct Permit<'a>(&'a Gate);

impl Gate {
    pub(crate) fn new(places: usize) -> Self {
        Self { state: Mutex::new(State { free: places, waiting: 0, now: 0 }), changed: Condvar::new() }
    }

    /// Waits for a place for at most so many ticks.
    pub(crate) fn enter(&self, ticks: u64) -> Option<Permit<'_>> {
        let mut state = self.lock();
        let deadline = state.now.saturating_add(ticks);
        while state.free == 0 {
            if state.now >= deadline {
                return None;
            }
            state.waiting += 1;
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.waiting -= 1;
        }
        state.free -= 1;
        Some(Permit(self))
    }

    /// One tick has passed.
    pub(crate) fn tick(&self) {
        let mut state = self.lock();
        state.now += 1;
        if state.waiting > 0 {
            self.changed.notify_all();
        }
    }

    /// Calls that wait for a place.
    pub(crate) fn waiting(&self) -> usize {
        self.lock().waiting
    }

    /// A panic elsewhere leaves only counters behind, which stay right.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.free += 1;
        if state.waiting > 0 {
            self.0.changed.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_gate_refuses_when_no_tick_is_left() {
        let gate = Gate::new(1);
        let first = gate.enter(0);
        assert!(first.is_some());
        assert!(gate.enter(0).is_none());
        drop(first);
        assert!(gate.enter(0).is_some());
    }

    #[test]
    fn whoever_waits_is_let_in_when_a_place_is_free() {
        let gate = Gate::new(1);
        let first = gate.enter(0);
        std::thread::scope(|scope| {
            let second = scope.spawn(|| gate.enter(1).is_some());
            while gate.waiting() == 0 {
                std::thread::yield_now();
            }
            drop(first);
            assert!(second.join().unwrap());
        });
    }

    #[test]
    fn whoever_waits_gives_up_with_the_last_tick() {
        let gate = Gate::new(1);
        let _first = gate.enter(0);
        std::thread::scope(|scope| {
            let second = scope.spawn(|| gate.enter(2).is_none());
            while gate.waiting() == 0 {
                std::thread::yield_now();
            }
            gate.tick();
            gate.tick();
            assert!(second.join().unwrap());
        });
    }
}
