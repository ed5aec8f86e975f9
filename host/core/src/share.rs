//! Shares scarce resources: memory, threads, log lines, requests to a server. Each file limits one of them.

pub mod budget;
pub mod concurrency;
pub mod often;
pub mod room;
pub mod turns;
