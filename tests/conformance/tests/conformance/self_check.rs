//! The guest of the engine's self-check is part of the engine as bytes; its text is a fixture.

use transom_conformance::fixture::{hostile, root};

#[test]
fn the_guest_of_the_self_check_is_that_of_its_text() {
    let built_in = std::fs::read(root().join("host/engine/src/self_check.wasm")).unwrap();
    assert!(
        hostile("self-check").unwrap() == built_in,
        "write it again: cargo run -p transom-conformance --bin self_check"
    );
}
