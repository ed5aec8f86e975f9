//! The guests of the binary, as they describe themselves. Never evaluates anything with them.

use transom_artifacts::{Location, builtin_names};
use transom_core::contract::description::Description;
use transom_engine::{Engine, EngineOptions};

/// Asks every builtin guest what it is.
///
/// # Errors
/// When one of them cannot be loaded; none is no error.
pub(crate) fn descriptions() -> anyhow::Result<Vec<Description>> {
    let engine = Engine::new(EngineOptions::default())?;
    let describe = |name: &str| {
        let artifact = Location::Builtin(name.to_owned()).fetch(None)?;
        Ok(engine.inspect(&artifact.bytes)?.description?)
    };
    builtin_names().map(describe).collect()
}
