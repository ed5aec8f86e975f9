//! Spreads work over the cores, in batches.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::panic;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, Builder};
use transom_core::share::lock::MutexExt as _;

/// The most threads: what they parse is in memory at the same time.
const MOST: usize = 8;

/// Objects that a thread takes at a time.
const OBJECTS: usize = 64;

/// Does something with each object, on several cores; the results have the order of the objects.
pub fn on_each<T: Send, R: Send>(
    objects: impl Iterator<Item = T> + Send,
    act: impl Fn(T) -> R + Sync,
) -> Vec<R> {
    let Ok(done) = in_batches(OBJECTS, objects, |objects| {
        Ok::<Vec<R>, Infallible>(objects.into_iter().map(&act).collect())
    });
    done.into_iter().flatten().collect()
}

/// Works through items in batches, on as many threads as there are cores and batches; one batch needs no thread.
/// Returns the results of the batches in order.
///
/// # Errors
/// The first error in that order. No batch after it is begun any more.
pub(crate) fn in_batches<T: Send, R: Send, E: Send>(
    size: usize,
    items: impl Iterator<Item = T> + Send,
    work: impl Fn(Vec<T>) -> Result<R, E> + Sync,
) -> Result<Vec<R>, E> {
    let mut items = items.fuse().peekable();
    let first: Vec<T> = items.by_ref().take(size).collect();
    if items.peek().is_none() {
        return Ok(vec![work(first)?]);
    }
    let batches = items.size_hint().1.map(|items| items.div_ceil(size));
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let others = cores.min(MOST).min(batches.map_or(MOST, |left| left + 1)) - 1;
    let left = Mutex::new((0_usize, Some(first), items));
    let failed = AtomicBool::new(false);
    // Batches are handed out in order, so every batch before one that fails is worked on.
    let next = || {
        let mut left = left.locked();
        let (number, first, items) = &mut *left;
        let batch = first
            .take()
            .unwrap_or_else(|| items.by_ref().take(size).collect());
        *number += 1;
        (!batch.is_empty() && !failed.load(Ordering::Relaxed)).then_some((*number, batch))
    };
    let work_on = || {
        let mut done = BTreeMap::new();
        while let Some((number, batch)) = next() {
            let result = work(batch);
            failed.fetch_or(result.is_err(), Ordering::Relaxed);
            done.insert(number, result);
        }
        done
    };
    let done = thread::scope(|scope| {
        // Where the system has no more threads, fewer do the work.
        let start = |_| Builder::new().spawn_scoped(scope, work_on).ok();
        let others: Vec<_> = (0..others).filter_map(start).collect();
        let mut done = work_on();
        for other in others {
            done.extend(
                other
                    .join()
                    .unwrap_or_else(|panic| panic::resume_unwind(panic)),
            );
        }
        done
    });
    done.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_keep_the_order_of_the_items() {
        for count in [0, 1, 3, 4, 1_000] {
            let Ok(batches) = in_batches(3, 0..count, Ok::<_, Infallible>);
            let items: Vec<i32> = batches.into_iter().flatten().collect();
            assert_eq!(items, (0..count).collect::<Vec<_>>());
        }
    }

    #[test]
    fn the_first_error_in_order_is_returned() {
        for _ in 0..100 {
            let result = in_batches(2, 0..1_000, |batch| {
                match batch.iter().find(|at| **at >= 37) {
                    Some(at) => Err(*at),
                    None => Ok(()),
                }
            });
            assert_eq!(result, Err(37));
        }
    }
}
