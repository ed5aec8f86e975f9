//! The binary on a real API server: one server for all of these tests, one test at a time, so that a test may also kill
//! it. Those that take long are ignored unless asked for.

#![expect(clippy::print_stdout, reason = "how long it took to recover is for people to read")]

mod admission;
mod agent;
mod beside;
mod carried;
mod case;
mod connect;
mod faults;
mod fleet;
mod hostile;
mod leases;
mod machine;
mod managed;
mod network;
mod objects;
mod policies;
mod rights;
mod rows;
mod stage;
mod tunnel;
mod wakes;
mod walking;
mod writers;
