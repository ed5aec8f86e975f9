//! The result of a guest call. A call blocks the thread that it is on; the pool sees to it that a hanging guest does
//! not hold up other policies.

use crate::policies::load::word;
use crate::telemetry;
use transom_core::failure::Failure;
use transom_core::work::Key;
use transom_engine::Call;

/// The guest's answer to the function `asked`; records what the call used.
///
/// # Errors
/// When the guest was stopped or broke the contract, with the reason.
pub(crate) fn answer<T>(key: &Key, asked: &'static str, call: Call<T>) -> Result<T, Failure> {
    let reason = call
        .result
        .as_ref()
        .err()
        .map(transom_engine::CallFailure::reason);
    telemetry::called(key, asked, &call.receipt, reason);
    call.result
        .map_err(|failure| Failure::known(word(failure.reason()), failure.to_string()))
}
