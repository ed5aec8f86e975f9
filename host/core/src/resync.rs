//! When a primary is resynced next. Uses no clock and no random source: the seed is an argument.

use crate::backoff::spread;

/// Milliseconds until the next resync: the policy's setting, give or take a tenth by the seed; `None` when it is 0.
pub fn delay_ms(resync_seconds: u32, seed: u64) -> Option<u64> {
    let whole = u64::from(resync_seconds) * 1_000;
    (whole > 0).then(|| whole - whole / 10 + spread(seed, whole / 5))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resyncs_are_spread_around_the_setting() {
        assert_eq!(delay_ms(0, 1), None);
        let delays: Vec<_> = (0..500).filter_map(|seed| delay_ms(1_800, seed)).collect();
        assert!(
            delays
                .iter()
                .all(|delay| (1_620_000..=1_980_000).contains(delay))
        );
        assert!(delays.iter().min() < Some(&1_650_000) && delays.iter().max() > Some(&1_950_000));
    }
}
