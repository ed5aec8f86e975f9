//! How long to wait before a retry. Uses no clock and no random source: the seed is an argument.

/// The first delay, in milliseconds.
const FIRST_MS: u64 = 1_000;
/// The longest delay, in milliseconds.
pub const LONGEST_MS: u64 = 300_000;

/// The delay before a failed reconcile is tried again, in milliseconds: from one second up to five minutes.
pub fn delay_ms(failures: u32, seed: u64) -> u64 {
    doubled_ms(FIRST_MS, LONGEST_MS, failures, seed)
}

/// A delay in milliseconds: the first one, doubled for each earlier failure (`failures` counts from 0) up to the
/// longest, minus up to a quarter, which the seed decides.
pub fn doubled_ms(first: u64, longest: u64, failures: u32, seed: u64) -> u64 {
    let whole = first
        .saturating_mul(1u64.checked_shl(failures).unwrap_or(u64::MAX))
        .min(longest);
    whole - spread(seed ^ u64::from(failures), whole / 4)
}

/// A number from 0 to `width`, evenly spread over seeds; the same for the same seed.
pub(crate) fn spread(seed: u64, width: u64) -> u64 {
    // SplitMix64: neighbouring seeds give numbers that look unrelated.
    let mut mixed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (mixed ^ (mixed >> 31)) % width.saturating_add(1).max(1)
}

/// Milliseconds until the next resync of a primary: the policy's setting, give or take a tenth by the seed; `None` when
/// it is 0.
pub fn resync_ms(resync_seconds: u32, seed: u64) -> Option<u64> {
    let whole = u64::from(resync_seconds) * 1_000;
    (whole > 0).then(|| whole - whole / 10 + spread(seed, whole / 5))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_the_maximum() {
        for seed in 0..200 {
            for (failures, whole) in [
                (0, 1_000),
                (1, 2_000),
                (5, 32_000),
                (9, 300_000),
                (40, 300_000),
                (u32::MAX, 300_000),
            ] {
                let delay = delay_ms(failures, seed);
                assert!(
                    (whole * 3 / 4..=whole).contains(&delay),
                    "{failures} failures, seed {seed}: {delay}"
                );
            }
        }
    }

    #[test]
    fn seeds_spread_and_repeat() {
        let delays: std::collections::BTreeSet<_> =
            (0..100).map(|seed| delay_ms(9, seed)).collect();
        assert!(delays.len() > 90);
        assert_eq!(delay_ms(3, 7), delay_ms(3, 7));
    }

    #[test]
    fn resyncs_are_spread_around_the_setting() {
        assert_eq!(resync_ms(0, 1), None);
        let delays: Vec<_> = (0..500).filter_map(|seed| resync_ms(1_800, seed)).collect();
        assert!(
            delays
                .iter()
                .all(|delay| (1_620_000..=1_980_000).contains(delay))
        );
        assert!(delays.iter().min() < Some(&1_650_000) && delays.iter().max() > Some(&1_950_000));
    }
}
