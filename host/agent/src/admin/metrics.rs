//! The page with the metrics: what was counted, what a snapshot of the agent shows, and what the system tells of this
//! process. Reading it holds up no reconcile.

use crate::controller::snapshot::{PolicySnapshot, PrimaryCount, ServerSnapshot, Snapshot};
use crate::metrics::{family, gathered};
use anyhow::Context as _;
use prometheus::TextEncoder;
use prometheus::proto::MetricFamily;
use std::collections::BTreeMap;
use std::fs;
use transom_api::State;
use transom_cluster::kubernetes::{Purpose, RequestVerb};
use transom_core::metrics::{self, Metric};

/// All metrics, in the text format of Prometheus.
///
/// # Errors
/// When a metric cannot be written, which is a bug in the agent.
pub(super) fn text(snapshot: &Snapshot) -> anyhow::Result<String> {
    let Some(mut families) = gathered() else {
        return Ok(String::new());
    };
    families.extend(of_snapshot(snapshot));
    families.extend(of_process());
    written(families)
}

fn written(mut families: Vec<MetricFamily>) -> anyhow::Result<String> {
    families.retain(|family| !family.get_metric().is_empty());
    families.sort_by(|one, other| one.name().cmp(other.name()));
    TextEncoder::new()
        .encode_to_string(&families)
        .context("failed to write the metrics")
}

/// Metrics of a state: what is gone has no series.
fn of_snapshot(snapshot: &Snapshot) -> Vec<MetricFamily> {
    let version = labels([env!("CARGO_PKG_VERSION")]);
    let mut all = vec![
        family(&metrics::BUILD, [(version, 1.0)]),
        family(&metrics::LEADING, [(Vec::new(), f64::from(snapshot.leads))]),
    ];
    all.extend(of_servers(&snapshot.servers));
    // On a replica that does not lead, the knowledge of primaries is old, and the queues hold another replica's work.
    if snapshot.leads {
        all.extend(of_policies(snapshot));
    }
    all
}

fn of_policies(snapshot: &Snapshot) -> [MetricFamily; 7] {
    let (policies, counts) = (snapshot.policies.iter(), snapshot.primaries.iter());
    let left = policies
        .clone()
        .map(|one| (labels([&one.policy]), one.left as f64));
    let used = policies.clone().flat_map(used);
    let oldest = policies.map(|one| (labels([&one.policy]), one.oldest.as_secs_f64()));
    let row = |one: &PrimaryCount, count: usize| {
        let labels = labels([&one.policy, one.state.as_str(), &one.reason]);
        (labels, count as f64)
    };
    let primaries = counts.clone().map(|one| row(one, one.primaries));
    let failing = of_copies(snapshot).map(|one| one.primaries).sum::<usize>();
    // A row for each reason for which a primary is held or waits, even when none is overdue.
    let waiting = counts.filter(|one| matches!(one.state, State::Held | State::Waiting));
    let overdue = waiting.map(|one| row(one, one.overdue));
    let ends = snapshot.ends_seconds.iter();
    let expiry = ends.map(|(policy, ends)| (labels([policy]), *ends as f64));
    [
        family(&metrics::QUEUE, left),
        family(&metrics::QUEUE_OLDEST, oldest),
        family(&metrics::PRIMARIES, primaries),
        family(
            &metrics::KUBECONFIGS_FAILING,
            [(Vec::new(), failing as f64)],
        ),
        family(&metrics::OVERDUE, overdue),
        family(&metrics::EXPIRY, expiry),
        family(&metrics::CALL_USAGE, used),
    ]
}

/// What fails under policies that copy kubeconfigs.
fn of_copies(snapshot: &Snapshot) -> impl Iterator<Item = &PrimaryCount> {
    let counts = snapshot.primaries.iter();
    let failed = counts.filter(|one| one.state == State::Failed);
    failed.filter(|one| {
        let mut policies = snapshot.policies.iter();
        policies.any(|policy| policy.copies && policy.policy == one.policy)
    })
}

/// How much of each budget a policy uses, in three percentiles.
fn used(one: &PolicySnapshot) -> impl Iterator<Item = (Vec<String>, f64)> {
    one.usage.iter().flat_map(|usage| {
        let percentiles = [("50", usage.p50), ("99", usage.p99), ("100", usage.max)];
        percentiles.map(|(percentile, percent)| {
            let labels = labels([&one.policy, usage.budget.as_str(), percentile]);
            (labels, f64::from(percent) / 100.0)
        })
    })
}

/// Requests and watches of API servers.
fn of_servers(servers: &[ServerSnapshot]) -> [MetricFamily; 4] {
    let (mut requests, mut watches) = (Vec::new(), BTreeMap::<_, (u64, usize)>::new());
    let mut failing = BTreeMap::<_, usize>::new();
    for server in servers {
        let row = |(verb, purpose, count): &(RequestVerb, Purpose, u64)| {
            let labels = labels([&server.name, verb.as_str(), purpose.as_str()]);
            (labels, *count as f64)
        };
        requests.extend(server.requests.iter().map(row));
        for watch in &server.watches {
            let of = labels([&server.name, &watch.scope.kind]);
            let sum = watches.entry(of).or_default();
            *sum = (sum.0 + watch.restarts, sum.1 + watch.objects);
            if let Some((reason, _)) = &watch.failure {
                let of = labels([&server.name, &watch.scope.kind, reason.as_str()]);
                *failing.entry(of).or_default() += 1;
            }
        }
    }
    let restarts = watches.iter().map(|(of, sum)| (of.clone(), sum.0 as f64));
    let objects = watches.iter().map(|(of, sum)| (of.clone(), sum.1 as f64));
    let failing = failing.into_iter().map(|(of, count)| (of, count as f64));
    [
        family(&metrics::REQUESTS, requests),
        family(&metrics::WATCH_RESTARTS, restarts),
        family(&metrics::WATCH_OBJECTS, objects),
        family(&metrics::WATCHES_FAILING, failing),
    ]
}

fn labels<const N: usize>(values: [&str; N]) -> Vec<String> {
    values.map(str::to_owned).to_vec()
}

/// Clock ticks per second in what Linux shows to programs, on every architecture that we build for.
const TICKS: f64 = 100.0;

/// CPU time, memory and start time of this process, from `/proc`; without `/proc` there are no values.
fn of_process() -> [MetricFamily; 3] {
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    let (stat, status) = (read("/proc/self/stat"), read("/proc/self/status"));
    let one = |metric: &Metric, value: Option<f64>| {
        family(metric, value.map(|value| (Vec::new(), value)))
    };
    [
        one(&metrics::CPU, cpu_seconds(&stat)),
        one(&metrics::RESIDENT, resident_bytes(&status)),
        one(
            &metrics::STARTED,
            started_seconds(&stat, &read("/proc/stat")),
        ),
    ]
}

/// A field of `/proc/self/stat` by its number in proc(5). The name in the second field may contain anything.
fn field(stat: &str, number: usize) -> Option<f64> {
    let fields = stat.rsplit_once(')')?.1;
    fields.split_whitespace().nth(number - 3)?.parse().ok()
}

fn cpu_seconds(stat: &str) -> Option<f64> {
    Some((field(stat, 14)? + field(stat, 15)?) / TICKS)
}

fn resident_bytes(status: &str) -> Option<f64> {
    let mut lines = status.lines();
    let value = lines.find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: f64 = value.trim_end_matches("kB").trim().parse().ok()?;
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
    use crate::controller::snapshot::tests::sample;

    /// The series of a snapshot, without the one that names the version.
    fn series(snapshot: &Snapshot) -> Vec<String> {
        let text = written(of_snapshot(snapshot)).unwrap();
        let series = text.lines().filter(|line| !line.starts_with('#'));
        let build = format!("{}{{", metrics::BUILD.name);
        let series = series.filter(|line| !line.starts_with(&build));
        series.map(str::to_owned).collect()
    }

    #[test]
    fn a_snapshot_of_a_leader_has_a_row_for_each_state_and_reason() {
        let expected = [
            "transom_certificate_earliest_expiry_timestamp_seconds{policy=\"p\"} 1000",
            "transom_guest_budget_used_ratio{policy=\"p\",budget=\"memoryBytes\",percentile=\"50\"} 0.05",
            "transom_guest_budget_used_ratio{policy=\"p\",budget=\"memoryBytes\",percentile=\"99\"} 0.1",
            "transom_guest_budget_used_ratio{policy=\"p\",budget=\"memoryBytes\",percentile=\"100\"} 1",
            "transom_kubeconfigs_failing 1",
            "transom_leading 1",
            "transom_primaries{policy=\"p\",state=\"Applied\",reason=\"InSync\"} 5",
            "transom_primaries{policy=\"p\",state=\"Held\",reason=\"Paused\"} 2",
            "transom_primaries{policy=\"p\",state=\"Waiting\",reason=\"Slow\"} 2",
            "transom_primaries{policy=\"p\",state=\"Failed\",reason=\"Bad\"} 1",
            "transom_primaries_overdue{policy=\"p\",state=\"Held\",reason=\"Paused\"} 0",
            "transom_primaries_overdue{policy=\"p\",state=\"Waiting\",reason=\"Slow\"} 1",
            "transom_queue_oldest_seconds{policy=\"p\"} 1.5",
            "transom_queue_primaries{policy=\"p\"} 3",
            "transom_requests_total{connection=\"hub\",verb=\"list\",purpose=\"lease\"} 7",
            "transom_watch_objects{connection=\"hub\",kind=\"Secret\"} 6",
            "transom_watch_restarts_total{connection=\"hub\",kind=\"Secret\"} 2",
            "transom_watches_failing{connection=\"hub\",kind=\"Secret\",reason=\"ReadForbidden\"} 1",
        ];
        assert_eq!(series(&sample()), expected);
    }

    #[test]
    fn what_fails_under_other_policies_is_no_failing_kubeconfig() {
        let mut snapshot = sample();
        snapshot.policies[0].copies = false;
        assert!(series(&snapshot).contains(&"transom_kubeconfigs_failing 0".to_owned()));
    }

    #[test]
    fn a_replica_that_does_not_lead_shows_no_primaries_and_no_queues() {
        let standby = Snapshot {
            leads: false,
            servers: Vec::new(),
            ..sample()
        };
        assert_eq!(series(&standby), [format!("{} 0", metrics::LEADING.name)]);
    }

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
