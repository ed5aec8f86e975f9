//! Documents as values, tried from outside: what is read, what is refused and where, what is written.
//! Never a test of what serde_yaml itself makes of a scalar.

mod read;
mod write;
