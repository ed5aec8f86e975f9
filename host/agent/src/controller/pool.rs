//! The threads that run reconciles: few, and shared by all policies; the policy that used them least goes first. A
//! guest call keeps its thread until the guest's limits stop it; any other wait gives the thread back.

use std::future::Future;
use std::panic::{self, AssertUnwindSafe};
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, Once, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Instant;
use tokio::runtime::Handle;
use transom_core::share::lock::MutexExt as _;
use transom_core::share::turns::Turns;

/// Threads that start with the first work and end when this is dropped.
pub(crate) struct Pool {
    shared: Arc<Shared>,
    threads: usize,
    started: Once,
}

struct Shared {
    state: Mutex<State>,
    /// Wakes an idle thread.
    work: Condvar,
}

struct State {
    turns: Turns<Arc<str>, Arc<Task>>,
    idle: usize,
    closed: bool,
}

/// Work of one policy; it may wait in between.
struct Task {
    policy: Arc<str>,
    shared: Arc<Shared>,
    phase: Mutex<Phase>,
    work: Mutex<Option<Pin<Box<dyn Future<Output = ()> + Send>>>>,
}

/// The state of a task.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// It waits to be woken.
    Waiting,
    /// It is in its policy's queue.
    Ready,
    /// It runs.
    Running,
    /// It runs, and was woken meanwhile.
    Woken,
}

impl Pool {
    /// A pool of this many threads. One policy gets at most three of four, so that a hanging guest leaves some to the
    /// others.
    pub(crate) fn new(threads: usize) -> Self {
        let turns = Turns::new(threads, threads - threads.div_ceil(4));
        let state = Mutex::new(State {
            turns,
            idle: 0,
            closed: false,
        });
        Self {
            shared: Arc::new(Shared {
                state,
                work: Condvar::new(),
            }),
            threads,
            started: Once::new(),
        }
    }

    /// Runs work in the turns of a policy. To be called within a runtime, whose timers and sockets the work may use.
    pub(crate) fn spawn(&self, policy: &Arc<str>, work: impl Future<Output = ()> + Send + 'static) {
        self.started.call_once(|| {
            for _ in 0..self.threads {
                let (shared, runtime) = (Arc::clone(&self.shared), Handle::current());
                std::thread::spawn(move || {
                    let _within = runtime.enter();
                    shared.keep_going();
                });
            }
        });
        let task = Task {
            policy: Arc::clone(policy),
            shared: Arc::clone(&self.shared),
            phase: Mutex::new(Phase::Ready),
            work: Mutex::new(Some(Box::pin(work))),
        };
        self.shared.put(Arc::new(task));
    }
}

/// Drops the queued tasks and ends the threads.
impl Drop for Pool {
    fn drop(&mut self) {
        let mut state = self.shared.state.locked();
        state.closed = true;
        state.turns.clear();
        self.shared.work.notify_all();
    }
}

impl Shared {
    fn put(&self, task: Arc<Task>) {
        let mut state = self.state.locked();
        if state.closed {
            return;
        }
        let policy = Arc::clone(&task.policy);
        state.turns.put(&policy, task);
        if state.idle > 0 {
            self.work.notify_one();
        }
    }

    /// The loop of a thread, until the pool is dropped.
    fn keep_going(&self) {
        let mut state = self.state.locked();
        while !state.closed {
            let Some((policy, task)) = state.turns.take() else {
                state.idle += 1;
                state = self
                    .work
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner);
                state.idle -= 1;
                continue;
            };
            if state.idle > 0 && state.turns.has_next() {
                self.work.notify_one();
            }
            drop(state);
            let begun = Instant::now();
            let again = task.go_on();
            state = self.state.locked();
            if state.closed {
                // Dropping a task may wake another one, which takes the lock.
                drop(state);
                drop(again);
                return;
            }
            // This thread takes the next task itself, so no other one is notified.
            if let Some(task) = again {
                state.turns.put(&policy, task);
            }
            state.turns.ended(&policy, begun.elapsed());
        }
    }
}

impl Task {
    /// Polls the work once, until it has to wait; returns the task when it was woken meanwhile.
    fn go_on(self: Arc<Self>) -> Option<Arc<Self>> {
        *self.phase.locked() = Phase::Running;
        let waker = Waker::from(Arc::clone(&self));
        {
            let mut work = self.work.locked();
            let future = work.as_mut()?;
            let mut context = Context::from_waker(&waker);
            let poll = AssertUnwindSafe(|| future.as_mut().poll(&mut context));
            // Work that panics has ended; the thread continues with other tasks.
            if panic::catch_unwind(poll).unwrap_or(Poll::Ready(())) == Poll::Ready(()) {
                *work = None;
                return None;
            }
        }
        let woken = {
            let mut phase = self.phase.locked();
            let woken = *phase == Phase::Woken;
            *phase = if woken { Phase::Ready } else { Phase::Waiting };
            woken
        };
        woken.then_some(self)
    }
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        let waited = {
            let mut phase = self.phase.locked();
            let waited = *phase == Phase::Waiting;
            *phase = match *phase {
                Phase::Waiting | Phase::Ready => Phase::Ready,
                Phase::Running | Phase::Woken => Phase::Woken,
            };
            waited
        };
        if waited {
            self.shared.put(Arc::clone(&self));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::sync::mpsc;
    use std::time::Duration;

    const SOON: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn a_waiting_reconcile_takes_no_thread() {
        let pool = Pool::new(1);
        let (policy, (told, heard)) = (Arc::from("p"), mpsc::channel());
        let (go, gone) = tokio::sync::watch::channel(false);
        for at in 0..1_000 {
            let (told, mut gone) = (told.clone(), gone.clone());
            pool.spawn(&policy, async move {
                gone.wait_for(|go| *go).await.unwrap();
                tokio::task::yield_now().await;
                let never = std::future::pending::<()>();
                tokio::time::timeout(Duration::from_millis(1), never)
                    .await
                    .unwrap_err();
                told.send(at).unwrap();
            });
        }
        // The task that all others wait for comes last: if a waiting task kept the only thread, this would hang.
        pool.spawn(&policy, async move { go.send(true).unwrap() });
        drop(told);
        let ended = tokio::task::spawn_blocking(move || {
            (0..1_000)
                .map(|_| heard.recv_timeout(SOON).unwrap())
                .collect::<BTreeSet<_>>()
        });
        assert_eq!(ended.await.unwrap().len(), 1_000);
    }

    #[tokio::test]
    async fn a_policy_that_never_returns_leaves_a_thread_to_the_others() {
        let pool = Pool::new(4);
        let (hold, held) = mpsc::channel::<()>();
        let held = Arc::new(Mutex::new(held));
        for _ in 0..30 {
            let held = Arc::clone(&held);
            pool.spawn(&Arc::from("hangs"), async move {
                // Fails when the sender is dropped.
                let _ = held.locked().recv();
            });
        }
        let (told, heard) = mpsc::channel();
        for at in 0..100 {
            let told = told.clone();
            pool.spawn(&Arc::from("works"), async move { told.send(at).unwrap() });
        }
        let all = tokio::task::spawn_blocking(move || {
            (0..100)
                .map(|_| heard.recv_timeout(SOON))
                .collect::<Result<BTreeSet<_>, _>>()
        });
        assert_eq!(all.await.unwrap().map(|all| all.len()), Ok(100));
        // Three of the four threads hang until here.
        drop(hold);
    }

    #[tokio::test]
    async fn threads_end_with_the_pool() {
        let pool = Pool::new(3);
        let shared = Arc::downgrade(&pool.shared);
        let (told, heard) = tokio::sync::oneshot::channel();
        pool.spawn(&Arc::from("p"), async move { told.send(()).unwrap() });
        heard.await.unwrap();
        drop(pool);
        let ended = async {
            while shared.strong_count() > 0 {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(SOON, ended).await.unwrap();
    }
}
