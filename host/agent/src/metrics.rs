//! The metrics of the agent, and their text. Only telemetry counts; reading them holds up no reconcile.

mod meters;
mod state;

use crate::controller::Controller;
use anyhow::Context as _;
use meters::Meters;
use prometheus::TextEncoder;
use prometheus::proto::MetricFamily;
use state::family;
use std::fs;
use std::sync::OnceLock;
use transom_core::metrics::{CPU, Metric, RESIDENT, STARTED};

/// Clock ticks per second in what Linux shows to programs, on every architecture that we build for.
const TICKS: f64 = 100.0;

/// The counters of this process, once `run` has started them: `render` and `test` count nothing.
static METERS: OnceLock<Meters> = OnceLock::new();

/// Starts to count; with `compatibility` the counts also have the names of the hypershift-addon agent.
///
/// # Errors
/// When a metric cannot be registered, which is a bug in the agent.
pub(crate) fn start(compatibility: bool) -> anyhow::Result<()> {
    let made = Meters::new(compatibility).context("failed to register the metrics")?;
    // A second start in one process (tests) keeps the first.
    let _ = METERS.set(made);
    Ok(())
}

/// Counts something, once the counters are started.
pub(crate) fn count(something: impl FnOnce(&Meters)) {
    if let Some(meters) = METERS.get() {
        something(meters);
    }
}

/// All metrics, in the text format of Prometheus.
///
/// # Errors
/// When a metric cannot be written, which is a bug in the agent.
pub(crate) fn text(controller: &Controller) -> anyhow::Result<String> {
    let Some(meters) = METERS.get() else {
        return Ok(String::new());
    };
    let mut families = meters.gather();
    families.extend(state::gather(controller));
    families.extend(of_process());
    families.retain(|family| !family.get_metric().is_empty());
    families.sort_by(|one, other| one.name().cmp(other.name()));
    TextEncoder::new()
        .encode_to_string(&families)
        .context("failed to write the metrics")
}

/// CPU time, memory and start time of this process, from `/proc`; without `/proc` there are no values.
fn of_process() -> [MetricFamily; 3] {
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    let one = |metric: &Metric, value: Option<f64>| {
        family(metric, value.map(|value| (Vec::new(), value)))
    };
    let stat = read("/proc/self/stat");
    [
        one(&CPU, cpu_seconds(&stat)),
        one(&RESIDENT, resident_bytes(&read("/proc/self/status"))),
        one(&STARTED, started_seconds(&stat, &read("/proc/stat"))),
    ]
}

/// A field of `/proc/self/stat` by its number in proc(5). The name in the second field may contain anything.
fn field(stat: &str, number: usize) -> Option<f64> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace();
    fields.nth(number.checked_sub(3)?)?.parse().ok()
}

fn cpu_seconds(stat: &str) -> Option<f64> {
    Some((field(stat, 14)? + field(stat, 15)?) / TICKS)
}

fn resident_bytes(status: &str) -> Option<f64> {
    let mut lines = status.lines();
    let kibibytes = lines.find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: f64 = kibibytes.trim_end_matches("kB").trim().parse().ok()?;
    Some(kibibytes * 1024.0)
}

fn started_seconds(stat: &str, system: &str) -> Option<f64> {
    let mut lines = system.lines();
    let booted = lines.find_map(|line| line.strip_prefix("btime "))?;
    Some(booted.trim().parse::<f64>().ok()? + field(stat, 22)? / TICKS)
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
