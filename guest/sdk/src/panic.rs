//! Reports a panic of a guest: its message, file and line go to the host, which puts them into the message of the
//! failure.
//! Outside wasm a panic is as usual.

/// Makes this instance report a panic. Every call starts with this, because every call has an instance of its own.
pub(crate) fn tell() {
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
