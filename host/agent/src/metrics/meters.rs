//! Counters and histograms: the metrics of the list that grow while the agent works. Labels that were seen before cost
//! no allocation.

use prometheus::core::{Collector, MetricVec, MetricVecBuilder};
use prometheus::proto::{Counter, Gauge, LabelPair, MetricFamily, MetricType};
use prometheus::{
    HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGaugeVec, Opts, Registry,
};
use std::collections::HashMap;
use std::time::Duration;
use transom_core::metrics::{self, CopyAttempt, Metric, MetricKind};
use transom_core::plan::{Outcome, WriteKind};
use transom_core::report::Report;
use transom_engine::Receipt;

/// The metrics that are counted where things happen. Metrics of a state are read from the agent on request.
pub(crate) struct Meters {
    registry: Registry,
    compatibility: bool,
    copies: IntCounter,
    copy_failures: IntCounter,
    reconciles: IntCounterVec,
    cause_to_written: HistogramVec,
    writes: IntCounterVec,
    repaired: IntCounterVec,
    call_time: HistogramVec,
    call_memory: HistogramVec,
    call_answer: HistogramVec,
    call_log_lines: IntCounterVec,
    call_failures: IntCounterVec,
    policies: IntGaugeVec,
}

impl Meters {
    /// All metrics at zero; those without labels are exposed from the start.
    pub(super) fn new(compatibility: bool) -> prometheus::Result<Self> {
        let registry = Registry::new();
        let one =
            |metric: &Metric| registered(&registry, IntCounter::new(metric.name, metric.help)?);
        Ok(Self {
            compatibility,
            copies: one(&metrics::COPY_TOTAL)?,
            copy_failures: one(&metrics::COPY_FAILURES)?,
            reconciles: counter(&registry, &metrics::RECONCILES)?,
            cause_to_written: histogram(&registry, &metrics::CAUSE_TO_WRITTEN)?,
            writes: counter(&registry, &metrics::WRITES)?,
            repaired: counter(&registry, &metrics::REPAIRED)?,
            call_time: histogram(&registry, &metrics::CALL_TIME)?,
            call_memory: histogram(&registry, &metrics::CALL_MEMORY)?,
            call_answer: histogram(&registry, &metrics::CALL_ANSWER)?,
            call_log_lines: counter(&registry, &metrics::CALL_LOG_LINES)?,
            call_failures: counter(&registry, &metrics::CALL_FAILURES)?,
            policies: gauge(&registry, &metrics::POLICIES)?,
            registry,
        })
    }

    /// The values as they are now.
    pub(super) fn gather(&self) -> Vec<MetricFamily> {
        let mut families = self.registry.gather();
        if self.compatibility {
            let same = |metric: &Metric, counter: &IntCounter| {
                family(metric, [(Vec::new(), counter.get() as f64)])
            };
            families.extend([
                same(&metrics::COMPATIBILITY_COPY_TOTAL, &self.copies),
                same(&metrics::COMPATIBILITY_COPY_FAILURES, &self.copy_failures),
            ]);
        }
        families
    }

    /// Counts the end of a reconcile, `since_cause` after its cause.
    pub(crate) fn reconciled(
        &self,
        cause: &str,
        report: &Report,
        attempt: Option<CopyAttempt>,
        since_cause: Duration,
    ) {
        let (policy, state) = (&*report.policy, report.state.as_str());
        add(&self.reconciles, &[policy, cause, state], 1);
        if !report.writes.is_empty() {
            let seconds = since_cause.as_secs_f64();
            observe(&self.cause_to_written, &[policy], seconds);
        }
        if let Some(attempt) = attempt {
            self.attempted(attempt);
        }
    }

    /// Counts an attempt to copy a kubeconfig.
    pub(crate) fn attempted(&self, attempt: CopyAttempt) {
        self.copies.inc();
        if attempt == CopyAttempt::Failed {
            self.copy_failures.inc();
        }
    }

    /// Counts the performed steps of a plan.
    pub(crate) fn wrote(&self, policy: &str, outcome: &Outcome) {
        for step in &outcome.steps {
            let result = match &step.result {
                Ok(()) => "ok",
                Err(failure) => failure.reason.as_str(),
            };
            add(&self.writes, &[policy, kind(step.kind), result], 1);
        }
    }

    /// Counts a repair by a resync.
    pub(crate) fn repaired(&self, policy: &str) {
        add(&self.repaired, &[policy], 1);
    }

    /// Records a call of a guest.
    pub(crate) fn called(
        &self,
        policy: &str,
        call: &str,
        receipt: &Receipt,
        failure: Option<&str>,
    ) {
        let labels = [policy, call];
        let time = Duration::from_micros(receipt.micros);
        observe(&self.call_time, &labels, time.as_secs_f64());
        observe(&self.call_memory, &labels, receipt.memory_bytes as f64);
        observe(&self.call_answer, &labels, receipt.answer_bytes as f64);
        if receipt.log_lines > 0 {
            add(&self.call_log_lines, &labels, receipt.log_lines);
        }
        if let Some(reason) = failure {
            add(&self.call_failures, &[policy, call, reason], 1);
        }
    }

    /// Removes every series of a deleted policy.
    pub(crate) fn forget(&self, policy: &str) {
        remove(&self.reconciles, policy);
        remove(&self.writes, policy);
        remove(&self.repaired, policy);
        remove(&self.call_log_lines, policy);
        remove(&self.call_failures, policy);
        remove(&self.cause_to_written, policy);
        remove(&self.call_time, policy);
        remove(&self.call_memory, policy);
        remove(&self.call_answer, policy);
    }

    /// Sets how many policies have an active revision, how many policies or places with policies are refused, and how
    /// many have a candidate that waits for an approval.
    pub(crate) fn policies(&self, loaded: usize, refused: usize, awaiting_approval: usize) {
        set(&self.policies, &["Loaded"], loaded);
        set(&self.policies, &["Refused"], refused);
        set(&self.policies, &["AwaitingApproval"], awaiting_approval);
    }

    /// Sets how many policies replace a controller that runs.
    pub(crate) fn conflicting(&self, policies: usize) {
        set(&self.policies, &["Conflicting"], policies);
    }
}

/// Removes every series about a policy.
fn remove<T: MetricVecBuilder>(of: &MetricVec<T>, policy: &str) {
    for family in of.collect() {
        for series in family.get_metric() {
            let labels: HashMap<&str, &str> = series
                .get_label()
                .iter()
                .map(|pair| (pair.name(), pair.value()))
                .collect();
            if labels.get("policy") == Some(&policy) {
                // An error means that the series is gone already.
                drop(of.remove(&labels));
            }
        }
    }
}

/// The verb of a write.
fn kind(kind: WriteKind) -> &'static str {
    match kind {
        WriteKind::Create => "create",
        WriteKind::Update => "update",
        WriteKind::Patch => "patch",
        WriteKind::Delete => "delete",
    }
}

fn counter(registry: &Registry, metric: &Metric) -> prometheus::Result<IntCounterVec> {
    let options = Opts::new(metric.name, metric.help);
    registered(registry, IntCounterVec::new(options, metric.labels)?)
}

fn gauge(registry: &Registry, metric: &Metric) -> prometheus::Result<IntGaugeVec> {
    let options = Opts::new(metric.name, metric.help);
    registered(registry, IntGaugeVec::new(options, metric.labels)?)
}

fn histogram(registry: &Registry, metric: &Metric) -> prometheus::Result<HistogramVec> {
    let bounds = match metric.kind {
        MetricKind::Histogram(bounds) => bounds.to_vec(),
        MetricKind::Counter | MetricKind::Gauge => Vec::new(),
    };
    let options = HistogramOpts::new(metric.name, metric.help).buckets(bounds);
    registered(registry, HistogramVec::new(options, metric.labels)?)
}

fn registered<T: Collector + Clone + 'static>(
    registry: &Registry,
    made: T,
) -> prometheus::Result<T> {
    registry.register(Box::new(made.clone()))?;
    Ok(made)
}

// Labels that do not fit the list are a bug that a test finds; counting never stops work.

fn add(counter: &IntCounterVec, labels: &[&str], amount: u64) {
    if let Ok(counter) = counter.get_metric_with_label_values(labels) {
        counter.inc_by(amount);
    }
}

fn set(gauge: &IntGaugeVec, labels: &[&str], value: usize) {
    if let Ok(gauge) = gauge.get_metric_with_label_values(labels) {
        gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
    }
}

fn observe(histogram: &HistogramVec, labels: &[&str], value: f64) {
    if let Ok(histogram) = histogram.get_metric_with_label_values(labels) {
        histogram.observe(value);
    }
}

/// The values of one metric that is not counted here, each with the values of its labels.
pub(crate) fn family(
    metric: &Metric,
    rows: impl IntoIterator<Item = (Vec<String>, f64)>,
) -> MetricFamily {
    let counter = metric.kind == MetricKind::Counter;
    let sample = |(values, value): (Vec<String>, f64)| {
        let labels = metric.labels.iter().zip(values).map(|(name, value)| {
            let mut pair = LabelPair::default();
            pair.set_name((*name).to_owned());
            pair.set_value(value);
            pair
        });
        let mut sample = prometheus::proto::Metric::from_label(labels.collect());
        if counter {
            let mut held = Counter::default();
            held.set_value(value);
            sample.set_counter(held);
        } else {
            let mut held = Gauge::default();
            held.set_value(value);
            sample.set_gauge(held);
        }
        sample
    };
    let mut family = MetricFamily::default();
    family.set_name(metric.name.to_owned());
    family.set_help(metric.help.to_owned());
    family.set_field_type(if counter {
        MetricType::COUNTER
    } else {
        MetricType::GAUGE
    });
    family.set_metric(rows.into_iter().map(sample).collect());
    family
}

#[cfg(test)]
mod tests {
    use super::*;
    use transom_core::metrics::ALL;

    #[test]
    #[expect(clippy::too_many_lines, reason = "a test tells its story in one piece")]
    fn removes_the_series_of_a_removed_policy() {
        let meters = Meters::new(false).unwrap();
        let labels = |metric: &Metric, policy: &str| -> Vec<String> {
            metric
                .labels
                .iter()
                .map(|label| {
                    if *label == "policy" {
                        policy.to_owned()
                    } else {
                        "x".to_owned()
                    }
                })
                .collect()
        };
        for policy in ["gone", "stays"] {
            for counter in [
                &meters.reconciles,
                &meters.writes,
                &meters.repaired,
                &meters.call_log_lines,
                &meters.call_failures,
            ] {
                let name = counter.desc()[0].fq_name.clone();
                let metric = ALL.iter().find(|metric| metric.name == name).unwrap();
                let labels = labels(metric, policy);
                add(
                    counter,
                    &labels.iter().map(String::as_str).collect::<Vec<_>>(),
                    1,
                );
            }
            observe(&meters.cause_to_written, &[policy], 1.0);
            for histogram in [&meters.call_time, &meters.call_memory, &meters.call_answer] {
                observe(histogram, &[policy, "x"], 1.0);
            }
        }
        let spoken = |policy: &str| {
            let families = meters.gather();
            let series = families.iter().flat_map(MetricFamily::get_metric);
            series
                .filter(|one| {
                    one.get_label()
                        .iter()
                        .any(|pair| pair.name() == "policy" && pair.value() == policy)
                })
                .count()
        };
        assert_eq!((spoken("gone"), spoken("stays")), (9, 9));
        meters.forget("gone");
        assert_eq!((spoken("gone"), spoken("stays")), (0, 9));
        // `forget` covers every growing metric that has the label `policy`.
        let of_policies = ALL
            .iter()
            .filter(|one| one.labels.contains(&"policy") && one.kind != MetricKind::Gauge);
        assert_eq!(of_policies.count(), 9);
    }
}
