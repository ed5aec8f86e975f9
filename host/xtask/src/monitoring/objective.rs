//! The objective for copies of kubeconfigs, and the arithmetic of its error budget. Numbers that follow from others are
//! computed.

/// The share of attempts that may fail over [`PERIOD_HOURS`]: 99.5 % succeed. A budget of attempts, not of hours.
pub(super) const BUDGET: f64 = 0.005;
/// Thirty days.
pub(super) const PERIOD_HOURS: f64 = 720.0;

/// A time window.
pub(super) struct Window {
    /// The window as Prometheus writes it, such as `1h`.
    pub(super) name: &'static str,
    /// Its length.
    pub(super) hours: f64,
}

const fn window(name: &'static str, hours: f64) -> Window {
    Window { name, hours }
}

/// Every window over which the ratio of errors is recorded.
pub(super) const WINDOWS: [&str; 8] = ["5m", "30m", "1h", "2h", "6h", "1d", "3d", "30d"];

/// An alert on how fast the budget is used.
pub(super) struct Burn {
    /// The share of the whole budget that is gone after the long window.
    pub(super) share: f64,
    /// The window over which that much is used.
    pub(super) long: Window,
    /// The window that shows that attempts still fail.
    pub(super) short: &'static str,
    /// The label that distinguishes it: the share and the long window.
    pub(super) window: &'static str,
    /// `critical` or `warning`.
    pub(super) severity: &'static str,
}

/// The fastest burn is that of the original specification (a quarter in an hour); the others are the usual four.
pub(super) const BURNS: [Burn; 5] = [
    Burn {
        share: 0.25,
        long: window("1h", 1.0),
        short: "5m",
        window: "25 % in 1h",
        severity: "critical",
    },
    Burn {
        share: 0.02,
        long: window("1h", 1.0),
        short: "5m",
        window: "2 % in 1h",
        severity: "critical",
    },
    Burn {
        share: 0.05,
        long: window("6h", 6.0),
        short: "30m",
        window: "5 % in 6h",
        severity: "critical",
    },
    Burn {
        share: 0.10,
        long: window("1d", 24.0),
        short: "2h",
        window: "10 % in 1d",
        severity: "warning",
    },
    Burn {
        share: 0.10,
        long: window("3d", 72.0),
        short: "6h",
        window: "10 % in 3d",
        severity: "warning",
    },
];

impl Burn {
    /// How many times faster than the budget allows: 1 uses exactly the budget in the whole period.
    pub(super) fn rate(&self) -> f64 {
        self.share * PERIOD_HOURS / self.long.hours
    }

    /// The ratio of errors at this rate.
    pub(super) fn ratio(&self) -> f64 {
        // Six digits: the rest is rounding of binary fractions.
        (self.rate() * BUDGET * 1e6).round() / 1e6
    }

    /// Hours until a whole budget is gone at this rate.
    pub(super) fn hours_left(&self) -> f64 {
        PERIOD_HOURS / self.rate()
    }
}

/// The number of attempts of which a single failure does not exceed a ratio. An alert wants more than these, because
/// with fewer one failure would fire it.
pub(super) fn fewest_attempts(ratio: f64) -> f64 {
    // The rounding of binary fractions must not add one.
    (1.0 / ratio - 1e-6).ceil()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn computes_the_error_budget() {
        let rates: Vec<f64> = BURNS
            .iter()
            .map(|burn| (burn.rate() * 10.0).round() / 10.0)
            .collect();
        assert_eq!(rates, [180.0, 14.4, 6.0, 3.0, 1.0]);
        let ratios: Vec<f64> = BURNS.iter().map(Burn::ratio).collect();
        assert_eq!(ratios, [0.9, 0.072, 0.03, 0.015, 0.005]);
        assert_eq!(BURNS[1].hours_left().round(), 50.0);
        // The original specification says "4 hours" at 12.5 % errors; it is 28.8.
        assert_eq!((PERIOD_HOURS / (0.125 / BUDGET) * 10.0).round(), 288.0);
        for burn in &BURNS {
            assert!(WINDOWS.contains(&burn.long.name) && WINDOWS.contains(&burn.short));
        }
    }

    #[test]
    fn one_failure_in_the_fewest_attempts_stays_within_the_ratio() {
        let ratios = BURNS.iter().map(Burn::ratio).chain([BUDGET, 0.01, 0.05]);
        let fewest: Vec<f64> = ratios.clone().map(fewest_attempts).collect();
        assert_eq!(fewest, [2.0, 14.0, 34.0, 67.0, 200.0, 200.0, 100.0, 20.0]);
        for (ratio, attempts) in ratios.zip(fewest) {
            // An alert requires more attempts than these.
            assert!(1.0 / (attempts + 1.0) <= ratio, "{ratio}");
        }
    }
}
