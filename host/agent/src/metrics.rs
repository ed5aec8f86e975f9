//! What the agent counts, and how it is read. Only telemetry counts; never holds up a reconcile for whoever reads.

mod meters;
mod process;
mod state;

use crate::agent::Agent;
use anyhow::Context as _;
use meters::Meters;
use prometheus::TextEncoder;
use std::sync::OnceLock;

/// The counters of this process, once somebody may read them: `render` and `test` count nothing.
static METERS: OnceLock<Meters> = OnceLock::new();

/// Starts to count; with `compatibility` also under the names of the hypershift-addon agent.
///
/// # Errors
/// When a metric cannot be registered, which is a fault of ours.
pub(crate) fn start(compatibility: bool) -> anyhow::Result<()> {
    let made = Meters::new(compatibility).context("failed to register the metrics")?;
    // A second start in one process (tests) goes on with the first.
    let _ = METERS.set(made);
    Ok(())
}

/// The counters, once they are started.
pub(crate) fn get() -> Option<&'static Meters> {
    METERS.get()
}

/// Everything, in the text format of Prometheus.
///
/// # Errors
/// When a metric cannot be written, which is a fault of ours.
pub(crate) fn text(agent: &Agent) -> anyhow::Result<String> {
    let Some(meters) = get() else { return Ok(String::new()) };
    let mut families = meters.gather();
    families.extend(state::gather(agent));
    families.extend(process::gather());
    families.retain(|family| !family.get_metric().is_empty());
    families.sort_by(|one, other| one.name().cmp(other.name()));
    TextEncoder::new().encode_to_string(&families).context("failed to write the metrics")
}
