//! Loading a component whose compiled code an earlier engine kept on disk, as after a restart, against compiling it;
//! and one whose code is still in memory, as a rollback does.

use crate::rounds::median;
use crate::table::{Figure, Row, Table};
use anyhow::{Context as _, Result, ensure};
use std::path::Path;
use std::time::Instant;
use transom_core::contract::description::Role;
use transom_core::world::KUBECONFIG;
use transom_engine::{Capabilities, Engine, EngineOptions};

/// Loads with the code from disk, and loads that compile.
const KEPT: usize = 50;
const COMPILED: usize = 3;

/// Measures the largest of the bundled guests: read the code, verify it, check the component, ask for its description.
pub(crate) fn measure(guests: &Path, work: &Path, table: &mut Table) -> Result<()> {
    let path = guests.join("kubeconfig.wasm");
    let bytes = std::fs::read(&path).with_context(|| {
        format!(
            "failed to read `{}`: run `cargo xtask guests`",
            path.display()
        )
    })?;
    let keeping = Engine::new(EngineOptions {
        code_cache: Some(work.join("code")),
        ..EngineOptions::default()
    })?;
    load(&keeping, &bytes)?;
    let before = keeping.compilations();
    let kept = millis(&keeping, &bytes, KEPT)?;
    ensure!(
        keeping.compilations() == before,
        "the code was compiled although it was kept"
    );
    // The code lives as long as a guest that uses it.
    let warm = keeping.load(&bytes, Role::Decide(KUBECONFIG), &Capabilities::default())?;
    let again = millis(&keeping, &bytes, KEPT)?;
    drop(warm);
    let compiled = millis(&Engine::new(EngineOptions::default())?, &bytes, COMPILED)?;
    table.add(Row {
        what: "load of a component from the disk cache".to_owned(),
        figure: Figure::Millis(kept),
        against: "compiling it".to_owned(),
        floor: Figure::Millis(compiled),
        fastest: None,
        target: Some(0.1),
    })?;
    for (what, figure) in [
        ("load of a component from the disk cache", kept),
        (
            "load of a component whose code is in memory, as for a rollback",
            again,
        ),
    ] {
        table.add(Row {
            what: what.to_owned(),
            figure: Figure::Millis(figure),
            against: "5 ms".to_owned(),
            floor: Figure::Millis(5.0),
            fastest: None,
            target: Some(1.0),
        })?;
    }
    Ok(())
}

/// Loads a component, and forgets its code again.
fn load(engine: &Engine, bytes: &[u8]) -> Result<()> {
    let guest = engine.load(bytes, Role::Decide(KUBECONFIG), &Capabilities::default())?;
    drop(guest);
    Ok(())
}

/// The median of so many loads, in milliseconds.
fn millis(engine: &Engine, bytes: &[u8], loads: usize) -> Result<f64> {
    let mut times = Vec::with_capacity(loads);
    for _ in 0..loads {
        let start = Instant::now();
        load(engine, bytes)?;
        times.push(start.elapsed().as_secs_f64() * 1e3);
    }
    Ok(median(&times))
}
