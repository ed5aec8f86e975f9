//! What stands in for traces in a binary without the feature `otel`. Never does anything.

use tokio::runtime::Handle;
use transom_core::failure::Failure;
use transom_core::outcome::Outcome;
use transom_core::report::Report;
use transom_core::work::WorkItem;
use transom_engine::Receipt;

/// Nothing is sent.
#[expect(clippy::unnecessary_wraps, reason = "the same as with the feature")]
pub(crate) fn start(_: &Handle) -> anyhow::Result<()> {
    Ok(())
}

/// Nothing is left.
pub(crate) fn stop() {}

/// Nothing about a reconcile.
pub(crate) struct Reconcile;

impl Reconcile {
    /// Nothing begins.
    pub(crate) fn begin(_: &WorkItem) -> Self {
        Self
    }

    /// The part itself.
    pub(crate) async fn follow<T>(&self, part: impl Future<Output = T>) -> T {
        part.await
    }

    /// Nothing ends.
    pub(crate) fn end(self, _: &Report) {}
}

/// The reading itself.
pub(crate) async fn gather<T>(_: &str, read: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    read.await
}

/// The steps themselves.
pub(crate) async fn apply(steps: impl Future<Output = Outcome>) -> Outcome {
    steps.await
}

/// Nothing about a call.
pub(crate) fn invoked(_: &'static str, _: &Receipt, _: Option<&'static str>) {}
