//! Kubeconfigs tested from outside: reading, answers by reference, assembling, comparing, redacting. Contains no real
//! credential: everything in `given` was created for these tests.

mod addresses;
mod answers;
mod equality;
mod fixture;
mod reading;
mod redaction;
mod soundness;
