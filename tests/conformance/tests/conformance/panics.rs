//! How guests written in Rust end after an error: a panic is reported with its message and location, a stack overflow
//! as such. No guest has a grant of the log.

use crate::support::{engine, unlimited};
use transom_conformance::arguments::{context, hosted_cluster};
use transom_conformance::fixture::built;
use transom_core::contract::description::Role;
use transom_core::world::KUBECONFIG;
use transom_engine::{Allocate, CallFailure, Capabilities};

/// The failure of a guest that is asked to end in this way.
fn end(ask: &str) -> CallFailure {
    let engine = engine(Allocate::PoolIfPossible);
    let guest = engine
        .load(
            &built("fixture-answers").unwrap(),
            Role::Decide(KUBECONFIG),
            &Capabilities::default(),
        )
        .unwrap();
    let settings = format!(r#"{{"ask":"{ask}"}}"#);
    guest
        .require(&unlimited(), &context(&settings), &hosted_cluster(), &[])
        .result
        .unwrap_err()
}

#[test]
fn a_panic_shows_its_message_file_and_line() {
    for (ask, message) in [
        (
            "Panics",
            "it panicked: the moon is\\u001b[31m made of 0 cheeses, at ",
        ),
        (
            "OutOfBounds",
            "it panicked: index out of bounds: the len is 3 but the index is 7, at ",
        ),
    ] {
        let failure = end(ask);
        let told = failure.to_string();
        assert_eq!(failure.reason(), "GuestTrapped", "{told}");
        let (_, place) = told.split_once(message).unwrap_or_else(|| panic!("{told}"));
        let (file, rest) = place.split_once(".rs:").unwrap_or_else(|| panic!("{told}"));
        assert!(file.ends_with("tests/fixtures/answers/src/lib"), "{told}");
        assert!(
            rest.starts_with(|digit: char| digit.is_ascii_digit()),
            "{told}"
        );
        assert!(told.contains("require"), "{told}");
        for noise in ["rust_", "panicking", "_ZN", "_R", "17h"] {
            assert!(!rest.contains(noise), "`{noise}` in: {told}");
        }
    }
}

#[test]
fn reports_a_stack_overflow_as_such_for_either_stack() {
    for ask in ["Recurses", "RecursesInPairs"] {
        assert_eq!(end(ask), CallFailure::StackOverflowed, "{ask}");
    }
}
