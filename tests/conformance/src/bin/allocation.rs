//! Creates an engine within the available address space, calls a guest, and prints how instances got their memory. Only
//! run by the tests, under a limit that they set.

use anyhow::{Context as _, Result, anyhow};
use std::io::Write as _;
use transom_conformance::arguments::{context, managed_cluster};
use transom_conformance::fixture::hostile;
use transom_core::contract::description::Role;
use transom_core::world::TAINTS;
use transom_engine::{CallLimits, Capabilities, Engine, EngineOptions};

fn main() -> Result<()> {
    let engine = Engine::new(EngineOptions::default())?;
    let guest = engine.load(
        &hostile("one-memory")?,
        Role::Decide(TAINTS),
        &Capabilities::default(),
    )?;
    let call = guest.compute(&CallLimits::default(), &context("{}"), &managed_cluster());
    call.result?.map_err(|refusal| anyhow!("{refusal:?}"))?;
    writeln!(std::io::stdout(), "{:?}", engine.allocation())
        .context("failed to write to standard output")
}
