//! The engine that commands run guests with, within its share of the memory budget.

use crate::args::run::RunArgs;
use crate::command::child;
use crate::telemetry;
use anyhow::Context as _;
use std::path::PathBuf;
use transom_api::KnownReason;
use transom_artifacts::builtin_digests;
use transom_core::kubeconfig::COST;
use transom_core::share::budget::{Budget, Costs};
use transom_engine::{COMPILING_BYTES, CallLimits, Compiler, Engine, EngineOptions};

/// Maximum processor time for compiling one component, in seconds.
const COMPILING_SECONDS: u64 = 30;
/// Bytes of a mebibyte.
const MIB: u64 = 1 << 20;

/// Sees that every limit stops a hostile guest before any other guest runs.
///
/// # Errors
/// The limit that does not.
pub(super) fn check_limits(engine: &Engine, strict: &CallLimits) -> anyhow::Result<()> {
    engine
        .self_check(strict)
        .context("failed to start: guests cannot be run safely on this machine")
}

/// Shares out the memory budget.
///
/// # Errors
/// When it is too little.
pub(super) fn budget(args: &RunArgs) -> anyhow::Result<Budget> {
    let document = (args.reconcile.max_kubeconfig_bytes as u64).saturating_mul(COST as u64);
    let costs = Costs {
        call: args.reconcile.calls.limits().bytes(),
        compilation: COMPILING_BYTES,
        document,
    };
    let wanted = args.memory_budget;
    Budget::share(wanted.saturating_mul(MIB), &costs).map_err(|least| {
        anyhow::anyhow!(
            "failed to use --memory-budget {wanted}: the minimum is {} MiB",
            least.div_ceil(MIB)
        )
    })
}

/// An engine with the usual options, which allows no call more than these limits.
///
/// # Errors
/// When it cannot be made.
pub(crate) fn engine(limits: CallLimits) -> anyhow::Result<Engine> {
    within(&Budget::default(), limits)
}

/// An engine that runs as many calls at a time as the budget has room for.
///
/// # Errors
/// When it cannot be made.
pub(super) fn within(budget: &Budget, limits: CallLimits) -> anyhow::Result<Engine> {
    let concurrency = u32::try_from(budget.calls).unwrap_or(u32::MAX);
    let compiler = Some(Compiler {
        program: child::PROGRAM.into(),
        words: vec!["compile".into()],
        seconds: COMPILING_SECONDS,
    });
    let options = EngineOptions {
        concurrency,
        limits,
        code_cache: cache("code"),
        tell_unkept,
        compiler,
        trusted: builtin_digests().map(str::to_owned).collect(),
        ..EngineOptions::default()
    };
    Ok(Engine::new(options)?)
}

/// Tells that compiled code is not kept.
fn tell_unkept(why: &str) {
    let message =
        format!("compiled code is not kept for the next start, which will take longer: {why}");
    telemetry::unreadable(
        "the cache of compiled code",
        KnownReason::ReadFailed,
        &message,
    );
}

/// An engine for a test, with what the builtin guests were compiled to before.
#[cfg(test)]
pub(crate) fn of_tests() -> Engine {
    let options = EngineOptions {
        code_cache: cache("code"),
        ..EngineOptions::default()
    };
    Engine::new(options).unwrap()
}

/// Where something is kept between runs: below the user's cache folder, if there is one.
pub(crate) fn cache(what: &str) -> Option<PathBuf> {
    let named = |name| {
        std::env::var_os(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    let caches = named("XDG_CACHE_HOME").or_else(|| named("HOME").map(|home| home.join(".cache")));
    caches.map(|caches| caches.join("transom").join(what))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_that_does_not_stop_a_guest_stops_the_start() {
        let engine = Engine::new(EngineOptions::default()).unwrap();
        assert!(check_limits(&engine, &Engine::STRICT).is_ok());
        let loose = CallLimits {
            memory_bytes: 16 << 20,
            ..Engine::STRICT
        };
        let error = check_limits(&engine, &loose).unwrap_err();
        let told = format!("{error:#}");
        assert!(
            told.contains("the limit of memory does not stop a guest: it answered"),
            "{told}"
        );
    }
}
