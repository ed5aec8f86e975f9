//! Times of short things that take turns, so that a slow moment of the machine hits all of them alike.
//! Never for what takes longer than some milliseconds.

use anyhow::Result;
use std::time::Instant;

/// Turns of each.
const ROUNDS: usize = 60;
/// Runs in one turn that are not counted: what ran before left its own things in the caches.
const WARM: usize = 10;
/// Runs in one turn that are counted.
const COUNTED: usize = 40;

/// Something to time.
pub(crate) type Candidate<'a> = &'a mut dyn FnMut() -> Result<()>;

/// What was found, in microseconds.
#[derive(Clone, Copy)]
pub(crate) struct Times {
    /// The fastest.
    pub(crate) min: f64,
    /// The one in the middle.
    pub(crate) median: f64,
}

/// Times the candidates, each in its place.
///
/// # Errors
/// With the first error of a candidate.
pub(crate) fn times<const N: usize>(candidates: [Candidate<'_>; N]) -> Result<[Times; N]> {
    let mut all: [Vec<f64>; N] = std::array::from_fn(|_| Vec::with_capacity(ROUNDS * COUNTED));
    let mut candidates = candidates;
    for _ in 0..ROUNDS {
        for (candidate, times) in candidates.iter_mut().zip(&mut all) {
            for _ in 0..WARM {
                candidate()?;
            }
            for _ in 0..COUNTED {
                let start = Instant::now();
                candidate()?;
                times.push(start.elapsed().as_secs_f64() * 1e6);
            }
        }
    }
    Ok(all.map(|times| of(&times)))
}

fn of(times: &[f64]) -> Times {
    Times { min: times.iter().copied().fold(f64::INFINITY, f64::min), median: median(times) }
}

/// The one in the middle; nothing is endless.
pub(crate) fn median(figures: &[f64]) -> f64 {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::INFINITY)
}

/// The smallest one that so many of a hundred do not exceed; nothing is endless.
pub(crate) fn percentile(figures: &[f64], percent: usize) -> f64 {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    let place = (sorted.len() * percent).div_ceil(100).saturating_sub(1);
    sorted.get(place).copied().unwrap_or(f64::INFINITY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_median_does_not_see_the_outlier() {
        assert_eq!(median(&[1.0, 100.0, 2.0]), 2.0);
        assert_eq!(median(&[]), f64::INFINITY);
        assert_eq!(of(&[3.0, 1.0, 2.0]).min, 1.0);
    }
    #[test]
    fn one_of_a_hundred_may_be_slower() {
        let times: Vec<f64> = (1..=300).rev().map(f64::from).collect();
        assert_eq!((percentile(&times, 99), percentile(&times, 50)), (297.0, 150.0));
        assert_eq!((percentile(&times[..60], 99), percentile(&[], 99)), (300.0, f64::INFINITY));
    }
}
