//! CPU time, memory and start time of this process, from `/proc`; without `/proc` there are no values.

use super::state::family;
use prometheus::proto::MetricFamily;
use std::fs;
use transom_core::metrics::{self, Metric};

/// Clock ticks per second in what Linux shows to programs, on every architecture that we build for.
const TICKS: f64 = 100.0;

/// CPU time, memory and start time.
pub(super) fn gather() -> Vec<MetricFamily> {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let one = |metric: &Metric, value: Option<f64>| {
        family(metric, value.map(|value| (Vec::new(), value)))
    };
    vec![
        one(&metrics::CPU, cpu_seconds(&stat)),
        one(
            &metrics::RESIDENT,
            resident_bytes(&fs::read_to_string("/proc/self/status").unwrap_or_default()),
        ),
        one(
            &metrics::STARTED,
            started_seconds(&stat, &fs::read_to_string("/proc/stat").unwrap_or_default()),
        ),
    ]
}

/// A field of `/proc/self/stat` by its number in proc(5). The name in the second field may contain anything.
fn field(stat: &str, number: usize) -> Option<f64> {
    stat.rsplit_once(')')?
        .1
        .split_whitespace()
        .nth(number.checked_sub(3)?)?
        .parse()
        .ok()
}

fn cpu_seconds(stat: &str) -> Option<f64> {
    Some((field(stat, 14)? + field(stat, 15)?) / TICKS)
}

fn resident_bytes(status: &str) -> Option<f64> {
    let kibibytes = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(
        kibibytes
            .trim()
            .trim_end_matches("kB")
            .trim()
            .parse::<f64>()
            .ok()?
            * 1024.0,
    )
}

fn started_seconds(stat: &str, system: &str) -> Option<f64> {
    let booted: f64 = system
        .lines()
        .find_map(|line| line.strip_prefix("btime "))?
        .trim()
        .parse()
        .ok()?;
    Some(booted + field(stat, 22)? / TICKS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_process_files_of_the_system() {
        let stat = "7 (a) b) S 1 7 7 0 -1 0 0 0 0 0 150 50 0 0 20 0 1 0 4000 0 0\n";
        assert_eq!(cpu_seconds(stat), Some(2.0));
        assert_eq!(started_seconds(stat, "cpu 1\nbtime 1000\n"), Some(1040.0));
        assert_eq!(
            resident_bytes("Name:\ta\nVmRSS:\t    12 kB\n"),
            Some(12_288.0)
        );
        assert_eq!(
            (
                cpu_seconds(""),
                resident_bytes("x"),
                started_seconds("", "")
            ),
            (None, None, None)
        );
    }
}
