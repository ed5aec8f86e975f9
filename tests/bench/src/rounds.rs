//! Times of short tasks that run alternately, so that a slow moment of the machine affects all of them alike.
//! Unsuitable for tasks longer than some milliseconds.

use anyhow::Result;
use std::time::Instant;

/// Rounds for each.
const ROUNDS: usize = 60;
/// Uncounted runs in each round: the previous task has filled the caches with its own data.
const WARM: usize = 10;
/// Counted runs in each round.
const COUNTED: usize = 40;

/// Something to time.
pub(crate) type Candidate<'a> = &'a mut dyn FnMut() -> Result<()>;

/// The results, in microseconds.
#[derive(Clone, Copy)]
pub(crate) struct Times {
    /// The fastest.
    pub(crate) min: f64,
    /// The median.
    pub(crate) median: f64,
}

/// Times the candidates, each in its place.
///
/// # Errors
/// The first error of a candidate.
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
    Times {
        min: times.iter().copied().fold(f64::INFINITY, f64::min),
        median: median(times),
    }
}

/// The median; infinity if there are no figures.
pub(crate) fn median(figures: &[f64]) -> f64 {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
        .get(sorted.len() / 2)
        .copied()
        .unwrap_or(f64::INFINITY)
}

/// The smallest figure that this percentage of the figures does not exceed; infinity if there are none.
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
    fn a_median_ignores_an_outlier() {
        assert_eq!(median(&[1.0, 100.0, 2.0]), 2.0);
        assert_eq!(median(&[]), f64::INFINITY);
        assert_eq!(of(&[3.0, 1.0, 2.0]).min, 1.0);
    }
    #[test]
    fn one_of_a_hundred_may_be_slower() {
        let times: Vec<f64> = (1..=300).rev().map(f64::from).collect();
        assert_eq!(
            (percentile(&times, 99), percentile(&times, 50)),
            (297.0, 150.0)
        );
        assert_eq!(
            (percentile(&times[..60], 99), percentile(&[], 99)),
            (300.0, f64::INFINITY)
        );
    }
}
