//! The metrics of the agent, and their text. Only telemetry counts; reading them holds up no reconcile.

mod meters;
mod process;
mod state;

use crate::controller::Controller;
use anyhow::Context as _;
use meters::Meters;
use prometheus::TextEncoder;
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

/// The counters, once they are started.
pub(crate) fn get() -> Option<&'static Meters> {
    METERS.get()
}

/// All metrics, in the text format of Prometheus.
///
/// # Errors
/// When a metric cannot be written, which is a bug in the agent.
pub(crate) fn text(controller: &Controller) -> anyhow::Result<String> {
    let Some(meters) = get() else {
        return Ok(String::new());
    };
    let mut families = meters.gather();
    families.extend(state::gather(controller));
    families.extend(process::gather());
    families.retain(|family| !family.get_metric().is_empty());
    families.sort_by(|one, other| one.name().cmp(other.name()));
    TextEncoder::new()
        .encode_to_string(&families)
        .context("failed to write the metrics")
}
