//! The edge of the sandbox: guests are asked on threads where a hanging one holds up nobody.
//! Never interprets an answer.

use crate::policies::load::word;
use transom_core::failure::Failure;
use transom_engine::Call;

/// Asks a guest.
///
/// # Errors
/// When the guest was stopped or broke the contract, with the reason.
pub(crate) async fn ask<T: Send + 'static>(question: impl FnOnce() -> Call<T> + Send + 'static) -> Result<T, Failure> {
    let call = tokio::task::spawn_blocking(question).await;
    let call = call.map_err(|_| {
        Failure::known(transom_api::Word::EngineBusy, "the call was cut off: the agent is stopping or failed")
    })?;
    call.result.map_err(|failure| Failure::known(word(failure.reason()), failure.to_string()))
}
