//! Lines for the agent's log. Only a policy that grants the import `log` can load a guest that calls this;
//! lines are counted and cut by the host. Never part of an answer; outside wasm the lines go nowhere.

#[cfg(target_arch = "wasm32")]
use crate::bindings::guest::transom::policy::log as wit;

/// For the one who writes the guest.
pub fn debug(message: &str) {
    #[cfg(target_arch = "wasm32")]
    wit::log(wit::Level::Debug, message);
    #[cfg(not(target_arch = "wasm32"))]
    let _ = message;
}

/// For the one who runs it.
pub fn info(message: &str) {
    #[cfg(target_arch = "wasm32")]
    wit::log(wit::Level::Info, message);
    #[cfg(not(target_arch = "wasm32"))]
    let _ = message;
}

/// For the one who runs it, when something looks wrong and the answer goes on.
pub fn warn(message: &str) {
    #[cfg(target_arch = "wasm32")]
    wit::log(wit::Level::Warn, message);
    #[cfg(not(target_arch = "wasm32"))]
    let _ = message;
}
