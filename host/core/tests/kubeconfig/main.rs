//! Kubeconfigs tried from outside: reading, answering by reference, putting together, comparing, redacting.
//! Never a real credential: everything in `given` was made for these tests.

mod addresses;
mod answers;
mod any_answer;
mod canaries;
mod equality;
mod fixture;
mod reading;
mod redaction;
mod soundness;
