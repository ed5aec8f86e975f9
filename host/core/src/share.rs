//! Shares scarce resources: memory, threads, log lines, requests to a server, and values that several threads change.
//! Each file is about one of them.

pub mod budget;
pub mod concurrency;
pub mod lock;
pub mod reconcile_limit;
pub mod room;
pub mod turns;
