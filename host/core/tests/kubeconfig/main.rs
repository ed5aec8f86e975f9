//! Kubeconfigs tested from outside: reading, answers by reference, assembling, comparing, redacting. Contains no real
//! credential: everything in `given` was created for these tests.

#![expect(clippy::too_many_lines, reason = "a test tells its story in one piece")]

mod addresses;
mod answers;
mod equality;
mod fixture;
mod reading;
mod redaction;
mod soundness;
mod unchanged;
mod urls;
