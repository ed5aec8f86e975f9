//! The counters of the agent. Only telemetry counts.

mod meters;

use anyhow::Context as _;
use meters::Meters;
pub(crate) use meters::family;
use prometheus::proto::MetricFamily;
use std::sync::OnceLock;

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

/// What was counted; `None` before the counters are started.
pub(crate) fn gathered() -> Option<Vec<MetricFamily>> {
    METERS.get().map(Meters::gather)
}
