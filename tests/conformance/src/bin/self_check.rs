//! Writes the guest of the engine's self-check from its text: `cargo run -p transom-conformance --bin self_check`.

use transom_conformance::fixture::{hostile, root};

fn main() -> anyhow::Result<()> {
    let path = root().join("host/engine/src/self_check.wasm");
    Ok(std::fs::write(path, hostile("self-check")?)?)
}
