//! Writes lines to the agent's log. A guest that calls these functions loads only under a policy that grants the import
//! `log`; a panic is reported by an import that needs no grant. The host counts and cuts the lines. Outside wasm they
//! are dropped.

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

/// Installs a panic hook that reports message, file and line to the host, which puts them into the message of the
/// failure; outside wasm it does nothing. Every exported function calls this first, because every call has a fresh
/// instance.
pub(crate) fn report_panic() {
    #[cfg(target_arch = "wasm32")]
    std::panic::set_hook(Box::new(|info| {
        let message = info.payload_as_str().unwrap_or("a panic without a message");
        let told = match info.location() {
            Some(place) => format!("{message}, at {}:{}", place.file(), place.line()),
            None => message.to_owned(),
        };
        crate::bindings::guest::transom::policy::panic::panicked(&told);
    }));
}
