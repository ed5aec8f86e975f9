//! Shared by the conformance tests: engines with stopped time, limits out of reach, one question.

use std::sync::LazyLock;
use transom_conformance::arguments::{context, managed_cluster};
use transom_conformance::fixture::{built, hostile, with_module};
use transom_core::contract::description::Role;
use transom_core::contract::taints::Decision;
use transom_core::contract::{GuestRefusal, Timed};
use transom_core::world::{KUBECONFIG, OBJECTS, TAINTS, World};
use transom_engine::{
    Allocate, Call, CallLimits, Capabilities, Capability, Engine, EngineOptions, Guest, Ticker,
};
use transom_support::identity::Identity;

/// No limit at all.
pub(crate) fn unlimited() -> CallLimits {
    CallLimits {
        time_ms: u64::MAX,
        memory_bytes: u64::MAX,
        table_elements: u64::MAX,
        argument_bytes: u64::MAX,
        answer_bytes: u64::MAX,
        log_lines: u64::MAX,
        log_bytes: u64::MAX,
        host_calls: u64::MAX,
    }
}

/// An engine whose time advances only by explicit ticks.
pub(crate) fn engine(allocate: Allocate) -> Engine {
    engine_with(EngineOptions {
        allocate,
        ..EngineOptions::default()
    })
}

pub(crate) fn engine_with(options: EngineOptions) -> Engine {
    Engine::new(EngineOptions {
        ticker: Ticker::Manual,
        ..options
    })
    .unwrap()
}

pub(crate) fn load(engine: &Engine, fixture: &str) -> Guest {
    let mut bytes = hostile(fixture).unwrap();
    if fixture == "two-memories" {
        bytes = with_module(bytes, 1, "(module (memory 30))").unwrap();
    }
    engine
        .load(
            &bytes,
            Role::Decide(TAINTS),
            &Capabilities::of([Capability::Log]),
        )
        .unwrap()
}

/// The guest that answers as its settings say. Compiled once: that takes longer than the tests that use it.
pub(crate) fn answers() -> &'static Guest {
    static GUEST: LazyLock<Guest> = LazyLock::new(|| fixture("fixture-answers", KUBECONFIG));
    &GUEST
}

/// The guest whose settings say what it wants; compiled once as well.
pub(crate) fn desired() -> &'static Guest {
    static GUEST: LazyLock<Guest> = LazyLock::new(|| fixture("fixture-desired", OBJECTS));
    &GUEST
}

fn fixture(name: &str, world: &'static dyn World) -> Guest {
    engine(Allocate::PoolIfPossible)
        .load(
            &built(name).unwrap(),
            Role::Decide(world),
            &Capabilities::default(),
        )
        .unwrap()
}

pub(crate) type Answer = Result<Timed<Decision>, GuestRefusal>;

pub(crate) fn compute(guest: &Guest, limits: &CallLimits) -> Call<Answer> {
    guest.compute(limits, &context("{}"), &managed_cluster())
}

pub(crate) fn no_taints() -> Answer {
    Ok(Timed {
        answer: Decision::Own(Vec::new()),
        ask_again_at: None,
    })
}

/// Certificates and a key.
pub(crate) fn identity() -> Identity {
    Identity::generate(7, 0).unwrap()
}
