//! The edge of the sandbox: what a call of a guest came to. Reconciles run on threads where a hanging guest holds up
//! nobody, so a call simply takes the thread that it is on. Never interprets an answer.

use crate::policies::load::word;
use crate::telemetry;
use transom_core::failure::Failure;
use transom_core::work::Key;
use transom_engine::Call;

/// What a guest answered to the function `asked`; what it used is told.
///
/// # Errors
/// When the guest was stopped or broke the contract, with the reason.
pub(crate) fn answer<T>(key: &Key, asked: &'static str, call: Call<T>) -> Result<T, Failure> {
    let reason = call.result.as_ref().err().map(transom_engine::CallFailure::reason);
    telemetry::called(key, asked, &call.receipt, reason);
    call.result.map_err(|failure| Failure::known(word(failure.reason()), failure.to_string()))
}
