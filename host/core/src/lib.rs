//! The decisions of the agent as pure functions over values.
//! Never waits, reads a clock, touches a file or a network: whatever it needs comes as an argument.

pub mod contract;
pub mod object;
pub mod observation;
pub mod outcome;
pub mod plan;
pub mod reference;
pub mod report;
pub mod time;
