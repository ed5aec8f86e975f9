//! What tests and tools share. Never used by what ships.

pub mod wait;
