//! Metrics of a state: read from the agent on request, so that what is gone has no series. The agent's knowledge is
//! locked only while it is counted.

use crate::controller::Controller;
use prometheus::proto::{Counter, Gauge, LabelPair, MetricFamily, MetricType};
use std::collections::BTreeMap;
use transom_api::State;
use transom_cluster::kubernetes::{Purpose, Verb};
use transom_core::metrics::{self, Kind, Metric};
use transom_core::summary;

/// Primaries, queues, ends of validity, leadership, requests, watches, and the version.
pub(super) fn gather(controller: &Controller) -> Vec<MetricFamily> {
    let leads = controller.leading.leads();
    // On a replica that does not lead, the knowledge of primaries is old, and the queues hold another replica's work.
    let queues = if leads {
        controller.queues()
    } else {
        Vec::new()
    };
    let queue = queues
        .iter()
        .map(|queue| (vec![queue.policy.to_string()], queue.left() as f64));
    let oldest = queues
        .iter()
        .map(|queue| (vec![queue.policy.to_string()], queue.oldest().as_secs_f64()));
    let version = vec![env!("CARGO_PKG_VERSION").to_owned()];
    let mut all = servers(controller);
    all.extend([
        family(&metrics::QUEUE, queue),
        family(&metrics::QUEUE_OLDEST, oldest),
        family(&metrics::BUILD, [(version, 1.0)]),
        family(
            &metrics::LEADING,
            [(Vec::new(), if leads { 1.0 } else { 0.0 })],
        ),
    ]);
    if leads {
        all.extend([
            primaries(controller),
            overdue(controller),
            expiry(controller),
        ]);
    }
    all
}

/// Requests and watches of API servers. A verb that was never used for a purpose has no row.
fn servers(controller: &Controller) -> Vec<MetricFamily> {
    let (mut requests, mut watches) = (Vec::new(), BTreeMap::<_, (u64, usize)>::new());
    for server in controller.connections.servers() {
        let counts = server.writer().counts();
        for (verb, purpose) in Verb::ALL
            .into_iter()
            .flat_map(|verb| Purpose::ALL.map(|purpose| (verb, purpose)))
        {
            let labels = [server.name(), verb.as_str(), purpose.as_str()]
                .map(str::to_owned)
                .to_vec();
            requests.push((labels, counts.of(verb, purpose) as f64));
        }
        for watch in server.health().watches {
            let held = watches
                .entry((server.name(), watch.scope.kind))
                .or_default();
            *held = (held.0 + watch.restarts, held.1 + watch.objects);
        }
    }
    requests.retain(|(_, count)| *count > 0.0);
    let labels = |(connection, kind): &(&str, String)| vec![(*connection).to_owned(), kind.clone()];
    vec![
        family(&metrics::REQUESTS, requests),
        family(
            &metrics::WATCH_RESTARTS,
            watches
                .iter()
                .map(|(of, (restarts, _))| (labels(of), *restarts as f64)),
        ),
        family(
            &metrics::WATCH_OBJECTS,
            watches
                .iter()
                .map(|(of, (_, objects))| (labels(of), *objects as f64)),
        ),
    ]
}

fn primaries(controller: &Controller) -> MetricFamily {
    let memory = controller.memory.lock();
    let mut counts: BTreeMap<_, u64> = BTreeMap::new();
    for (key, told) in &memory.results {
        *counts
            .entry((&*key.policy, told.state, told.reason.as_str()))
            .or_default() += 1;
    }
    let rows = counts.into_iter().map(|((policy, state, reason), count)| {
        (
            vec![
                policy.to_owned(),
                state.as_str().to_owned(),
                reason.to_owned(),
            ],
            count as f64,
        )
    });
    family(&metrics::PRIMARIES, rows)
}

/// A row for each reason for which a primary is held or waits, even when none is overdue.
fn overdue(controller: &Controller) -> MetricFamily {
    let now_seconds = controller.clock.now_seconds();
    let memory = controller.memory.lock();
    let mut counts: BTreeMap<_, u64> = BTreeMap::new();
    for (key, told) in memory
        .results
        .iter()
        .filter(|(_, told)| matches!(told.state, State::Held | State::Waiting))
    {
        let overdue =
            summary::is_overdue(told.state, &told.reason, told.since_seconds, now_seconds);
        *counts
            .entry((&*key.policy, told.state, told.reason.as_str()))
            .or_default() += u64::from(overdue);
    }
    let rows = counts.into_iter().map(|((policy, state, reason), count)| {
        (
            vec![
                policy.to_owned(),
                state.as_str().to_owned(),
                reason.to_owned(),
            ],
            count as f64,
        )
    });
    family(&metrics::OVERDUE, rows)
}

fn expiry(controller: &Controller) -> MetricFamily {
    let memory = controller.memory.lock();
    let mut earliest: BTreeMap<&str, i64> = BTreeMap::new();
    for (key, ends) in &memory.ends {
        earliest
            .entry(&key.policy)
            .and_modify(|found| *found = (*found).min(*ends))
            .or_insert(*ends);
    }
    family(
        &metrics::EXPIRY,
        earliest
            .into_iter()
            .map(|(policy, ends)| (vec![policy.to_owned()], ends as f64)),
    )
}

/// The values of one metric, each with the values of its labels.
pub(super) fn family(
    metric: &Metric,
    rows: impl IntoIterator<Item = (Vec<String>, f64)>,
) -> MetricFamily {
    let mut family = MetricFamily::default();
    family.set_name(metric.name.to_owned());
    family.set_help(metric.help.to_owned());
    let counter = metric.kind == Kind::Counter;
    family.set_field_type(if counter {
        MetricType::COUNTER
    } else {
        MetricType::GAUGE
    });
    family.set_metric(
        rows.into_iter()
            .map(|(values, value)| sample(metric, values, value, counter))
            .collect(),
    );
    family
}

fn sample(
    metric: &Metric,
    values: Vec<String>,
    value: f64,
    counter: bool,
) -> prometheus::proto::Metric {
    let pair = |(name, value): (&&str, String)| {
        let mut pair = LabelPair::default();
        pair.set_name((*name).to_owned());
        pair.set_value(value);
        pair
    };
    let mut sample =
        prometheus::proto::Metric::from_label(metric.labels.iter().zip(values).map(pair).collect());
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
}
