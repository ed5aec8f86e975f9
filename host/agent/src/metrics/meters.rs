//! Counters and histograms: the metrics of the list that grow while the agent works. Labels that were seen before cost
//! no allocation.

use crate::metrics::state::family;
use prometheus::core::{Collector, MetricVec, MetricVecBuilder};
use prometheus::proto::MetricFamily;
use prometheus::{HistogramOpts, HistogramVec, IntCounterVec, IntGaugeVec, Opts, Registry};
use std::collections::HashMap;
use std::time::Duration;
use transom_core::metrics::{self, Attempt, Kind, Metric};
use transom_core::outcome::{Outcome, WriteKind};
use transom_core::report::Report;
use transom_engine::Receipt;

/// The metrics that are counted where things happen. Metrics of a state are read from the agent on request.
pub(crate) struct Meters {
    registry: Registry,
    compatibility: bool,
    copies: IntCounterVec,
    copy_failures: IntCounterVec,
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
        let all = Self {
            compatibility,
            copies: counter(&registry, &metrics::COPY_TOTAL)?,
            copy_failures: counter(&registry, &metrics::COPY_FAILURES)?,
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
        };
        add(&all.copies, &[], 0);
        add(&all.copy_failures, &[], 0);
        Ok(all)
    }

    /// The values as they are now.
    pub(super) fn gather(&self) -> Vec<MetricFamily> {
        let mut families = self.registry.gather();
        if self.compatibility {
            let same = |metric: &Metric, counter: &IntCounterVec| {
                let value = counter
                    .get_metric_with_label_values::<&str>(&[])
                    .map_or(0, |counter| counter.get());
                family(metric, [(Vec::new(), value as f64)])
            };
            families.push(same(&metrics::COMPATIBILITY_COPY_TOTAL, &self.copies));
            families.push(same(
                &metrics::COMPATIBILITY_COPY_FAILURES,
                &self.copy_failures,
            ));
        }
        families
    }

    /// Counts the end of a reconcile, `since_cause` after its cause.
    pub(crate) fn reconciled(
        &self,
        cause: &str,
        report: &Report,
        attempt: Option<Attempt>,
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
    pub(crate) fn attempted(&self, attempt: Attempt) {
        add(&self.copies, &[], 1);
        if attempt == Attempt::Failed {
            add(&self.copy_failures, &[], 1);
        }
    }

    /// Counts the performed steps of a plan.
    pub(crate) fn wrote(&self, policy: &str, outcome: &Outcome) {
        for step in &outcome.steps {
            let failure = step.result.as_ref().err();
            let result = failure.map_or("ok", |failure| failure.reason.as_str());
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
        let took = Duration::from_micros(receipt.micros);
        observe(&self.call_time, &labels, took.as_secs_f64());
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
        for counter in [
            &self.reconciles,
            &self.writes,
            &self.repaired,
            &self.call_log_lines,
            &self.call_failures,
        ] {
            remove(counter, policy);
        }
        for histogram in [
            &self.cause_to_written,
            &self.call_time,
            &self.call_memory,
            &self.call_answer,
        ] {
            remove(histogram, policy);
        }
    }

    /// Sets how many policies have an active revision, and how many policies or places with policies are refused.
    pub(crate) fn policies(&self, loaded: usize, refused: usize) {
        set(&self.policies, &["Loaded"], loaded);
        set(&self.policies, &["Refused"], refused);
    }
}

/// Removes every series about a policy.
fn remove<T: MetricVecBuilder>(of: &MetricVec<T>, policy: &str) {
    for family in of.collect() {
        for series in family.get_metric() {
            let labels = series.get_label().iter();
            let labels: HashMap<_, _> = labels.map(|pair| (pair.name(), pair.value())).collect();
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
    registered(
        registry,
        IntCounterVec::new(Opts::new(metric.name, metric.help), metric.labels)?,
    )
}

fn gauge(registry: &Registry, metric: &Metric) -> prometheus::Result<IntGaugeVec> {
    registered(
        registry,
        IntGaugeVec::new(Opts::new(metric.name, metric.help), metric.labels)?,
    )
}

fn histogram(registry: &Registry, metric: &Metric) -> prometheus::Result<HistogramVec> {
    let bounds = match metric.kind {
        Kind::Histogram(bounds) => bounds,
        _ => &[],
    };
    let options = HistogramOpts::new(metric.name, metric.help).buckets(bounds.to_vec());
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

#[cfg(test)]
mod tests {
    use super::*;
    use prometheus::proto::{LabelPair, Metric as Series};
    use transom_core::metrics::ALL;

    #[test]
    fn removes_the_series_of_a_removed_policy() {
        let meters = Meters::new(false).unwrap();
        let label = |name: &&str, policy| if *name == "policy" { policy } else { "x" };
        for policy in ["gone", "stays"] {
            for counter in [
                &meters.reconciles,
                &meters.writes,
                &meters.repaired,
                &meters.call_log_lines,
                &meters.call_failures,
            ] {
                let name = &counter.desc()[0].fq_name;
                let metric = ALL.iter().find(|metric| metric.name == name).unwrap();
                let labels = metric.labels.iter().map(|name| label(name, policy));
                add(counter, &labels.collect::<Vec<_>>(), 1);
            }
            observe(&meters.cause_to_written, &[policy], 1.0);
            for histogram in [&meters.call_time, &meters.call_memory, &meters.call_answer] {
                observe(histogram, &[policy, "x"], 1.0);
            }
        }
        let series = |policy: &str| {
            let families = meters.gather();
            let series = families.iter().flat_map(MetricFamily::get_metric);
            let labels = series.flat_map(Series::get_label);
            let names_it = |pair: &&LabelPair| pair.name() == "policy" && pair.value() == policy;
            labels.filter(names_it).count()
        };
        assert_eq!((series("gone"), series("stays")), (9, 9));
        meters.forget("gone");
        assert_eq!((series("gone"), series("stays")), (0, 9));
        // `forget` covers every growing metric that has the label `policy`.
        let of_policies = ALL
            .iter()
            .filter(|one| one.labels.contains(&"policy") && one.kind != Kind::Gauge);
        assert_eq!(of_policies.count(), 9);
    }
}
