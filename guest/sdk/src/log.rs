//! Writes lines to the agent's log. A guest that calls this loads only under a policy that grants the import `log`. The
//! host counts and cuts the lines. Outside wasm they are dropped.

#[cfg(target_arch = "wasm32")]
use crate::bindings::guest::transom::policy::log as wit;

/// Logs a line for the developer of the guest.
pub fn debug(message: &str) {
    #[cfg(target_arch = "wasm32")]
    wit::log(wit::Level::Debug, message);
    #[cfg(not(target_arch = "wasm32"))]
    let _ = message;
}

/// Logs a line for the operator.
pub fn info(message: &str) {
    #[cfg(target_arch = "wasm32")]
    wit::log(wit::Level::Info, message);
    #[cfg(not(target_arch = "wasm32"))]
    let _ = message;
}

/// Logs a line for the operator when something looks wrong but the call goes on.
pub fn warn(message: &str) {
    #[cfg(target_arch = "wasm32")]
    wit::log(wit::Level::Warn, message);
    #[cfg(not(target_arch = "wasm32"))]
    let _ = message;
}
