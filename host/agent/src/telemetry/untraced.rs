//! Replaces `traces` in a binary without the feature `otel`; does nothing.

use tokio::runtime::Handle;
use transom_core::failure::Failure;
use transom_core::outcome::Outcome;
use transom_core::report::Report;
use transom_core::work::WorkItem;
use transom_engine::Receipt;

/// Sends nothing.
#[expect(clippy::unnecessary_wraps, reason = "the same as with the feature")]
pub(crate) fn start(_: &Handle) -> anyhow::Result<()> {
    Ok(())
}

/// There is nothing left to send.
pub(crate) fn stop() {}

/// Stands for the span of a reconcile.
pub(crate) struct Reconcile;

impl Reconcile {
    /// Begins no span.
    pub(crate) fn begin(_: &WorkItem) -> Self {
        Self
    }

    /// Runs the future.
    pub(crate) async fn follow<T>(&self, part: impl Future<Output = T>) -> T {
        part.await
    }

    /// Ends no span.
    pub(crate) fn end(self, _: &Report) {}
}

/// Reads without a span.
pub(crate) async fn gather<T>(
    _: &str,
    read: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    read.await
}

/// Runs the steps without a span.
pub(crate) async fn apply(steps: impl Future<Output = Outcome>) -> Outcome {
    steps.await
}

/// Records nothing.
pub(crate) fn invoked(_: &'static str, _: &Receipt, _: Option<&'static str>) {}
