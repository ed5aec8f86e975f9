//! Admits as many calls as there are instances; the others wait, first come, first served. Counts the ticks for all
//! deadlines. Reads no clock: the ticker drives the waiting, too, and may rest while no call is inside.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, PoisonError};
use transom_core::share::lock::MutexExt as _;

/// Free places and the time in ticks.
pub(crate) struct CallGate {
    state: Mutex<State>,
    changed: Condvar,
    /// Wakes the ticker.
    called: Condvar,
}

struct State {
    free: usize,
    inside: usize,
    /// The tickets of those that wait, the first first.
    queue: VecDeque<u64>,
    /// The next ticket.
    next: u64,
    now: u64,
    resting: bool,
    closed: bool,
}

/// One place; given back when dropped.
pub(crate) struct CallPermit<'a>(&'a CallGate);

impl CallGate {
    pub(crate) fn new(places: usize) -> Self {
        let state = State {
            free: places,
            inside: 0,
            queue: VecDeque::new(),
            next: 0,
            now: 0,
            resting: false,
            closed: false,
        };
        Self {
            state: Mutex::new(state),
            changed: Condvar::new(),
            called: Condvar::new(),
        }
    }

    /// Waits for a place for at most so many ticks.
    pub(crate) fn enter(&self, ticks: u64) -> Option<CallPermit<'_>> {
        let mut state = self.state.locked();
        let deadline = state.now.saturating_add(ticks);
        let ticket = state.next;
        state.next += 1;
        state.queue.push_back(ticket);
        // Whoever gives a place back may ask for one at once, before those that wait run.
        while state.free == 0 || state.queue.front() != Some(&ticket) {
            if state.now >= deadline {
                state.queue.retain(|one| *one != ticket);
                self.call_next(&state);
                return None;
            }
            state = self
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
        state.queue.pop_front();
        state.free -= 1;
        state.inside += 1;
        self.call_next(&state);
        if state.resting {
            self.called.notify_one();
        }
        Some(CallPermit(self))
    }

    /// Wakes those that wait when one of them may enter. Only the first of them can, and it is not known which thread
    /// that is.
    fn call_next(&self, state: &State) {
        if state.free > 0 && !state.queue.is_empty() {
            self.changed.notify_all();
        }
    }

    /// For the ticker: waits until a call is inside, whose time must be counted; false when the gate is closed.
    pub(crate) fn called(&self) -> bool {
        let mut state = self.state.locked();
        state.resting = true;
        while state.inside == 0 && !state.closed {
            state = self
                .called
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
        state.resting = false;
        !state.closed
    }

    /// Closes the gate: no more calls come.
    pub(crate) fn close(&self) {
        self.state.locked().closed = true;
        self.called.notify_one();
    }

    /// Counts one tick.
    pub(crate) fn tick(&self) {
        let mut state = self.state.locked();
        state.now += 1;
        if !state.queue.is_empty() {
            self.changed.notify_all();
        }
    }

    /// Calls that wait for a place.
    pub(crate) fn waiting(&self) -> usize {
        self.state.locked().queue.len()
    }
}

impl Drop for CallPermit<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.locked();
        state.free += 1;
        state.inside -= 1;
        self.0.call_next(&state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;

    #[test]
    fn a_full_gate_refuses_when_no_tick_is_left() {
        let gate = CallGate::new(1);
        let first = gate.enter(0);
        assert!(first.is_some());
        assert!(gate.enter(0).is_none());
        drop(first);
        assert!(gate.enter(0).is_some());
    }

    #[test]
    fn a_waiter_enters_when_a_place_is_free() {
        let gate = CallGate::new(1);
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
    fn ticks_pause_while_the_gate_is_empty() {
        let gate = CallGate::new(1);
        std::thread::scope(|scope| {
            let called = scope.spawn(|| gate.called());
            while !gate.state.locked().resting {
                std::thread::yield_now();
            }
            let inside = gate.enter(0);
            assert!(called.join().unwrap());
            assert!(gate.called(), "somebody is inside");
            drop(inside);
            let closed = scope.spawn(|| gate.called());
            while !gate.state.locked().resting {
                std::thread::yield_now();
            }
            gate.close();
            assert!(!closed.join().unwrap());
        });
    }

    #[test]
    fn a_waiter_gives_up_with_the_last_tick() {
        let gate = CallGate::new(1);
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

    #[test]
    fn nobody_overtakes_who_waits() {
        let gate = CallGate::new(1);
        let first = gate.enter(0);
        let tried = Barrier::new(2);
        std::thread::scope(|scope| {
            let second = scope.spawn(|| {
                let inside = gate.enter(1);
                tried.wait();
                inside.is_some()
            });
            while gate.waiting() == 0 {
                std::thread::yield_now();
            }
            drop(first);
            let overtook = gate.enter(0).is_some();
            tried.wait();
            assert!(second.join().unwrap() && !overtook);
        });
    }

    #[test]
    fn one_that_gives_up_holds_up_nobody_behind_it() {
        let gate = CallGate::new(1);
        let first = gate.enter(0);
        std::thread::scope(|scope| {
            let gate = &gate;
            let wait = |ticks, waiting| {
                let waiter = scope.spawn(move || gate.enter(ticks).is_some());
                while gate.waiting() < waiting {
                    std::thread::yield_now();
                }
                waiter
            };
            let (second, third) = (wait(1, 1), wait(2, 2));
            gate.tick();
            assert!(!second.join().unwrap());
            drop(first);
            assert!(third.join().unwrap());
        });
        assert!(gate.enter(0).is_some());
    }
}
