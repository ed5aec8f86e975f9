//! What many want and there is little of: memory, threads, lines of log, requests to a server. Each file shares out one.

pub mod allowance;
pub mod budget;
pub mod often;
pub mod pace;
pub mod room;
pub mod turns;
