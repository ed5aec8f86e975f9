//! Engines in real use: many threads, little address space, the clock's own ticks.

use crate::support::{compute, engine, load, no_taints, unlimited};
use std::process::Command;
use transom_conformance::arguments::{context, hosted_cluster};
use transom_conformance::fixture::built;
use transom_core::contract::description::Role;
use transom_core::world::TAINTS;
use transom_engine::{
    Allocate, CallFailure, CallLimits, Capabilities, Engine, EngineOptions, Ticker,
};

/// The allocation that is possible with this much address space in KiB.
fn allocation(kibibytes: &str) -> String {
    let script = format!("ulimit -v {kibibytes} && exec \"$0\"");
    let output = Command::new("sh")
        .args(["-c", &script, env!("CARGO_BIN_EXE_allocation")])
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "with {kibibytes} KiB: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn guests_still_answer_with_little_address_space() {
    assert_eq!(allocation("unlimited"), "Pool\n");
    assert_eq!(allocation("100000000"), "OnDemand\n");
    assert_eq!(allocation("2000000"), "SmallOnDemand\n");
}

#[test]
fn the_engines_own_ticker_stops_an_endless_loop() {
    let engine = Engine::new(EngineOptions::default()).unwrap();
    let failure = compute(
        &load(&engine, "endless-loop"),
        &CallLimits {
            time_ms: 5,
            ..unlimited()
        },
    )
    .result
    .unwrap_err();
    assert_eq!(failure, CallFailure::TimedOut { allowed_ms: 5 });
}

#[test]
fn a_running_guest_alone_keeps_the_ticker_active() {
    let guest = load(
        &Engine::new(EngineOptions::default()).unwrap(),
        "endless-loop",
    );
    let failure = compute(
        &guest,
        &CallLimits {
            time_ms: 5,
            ..unlimited()
        },
    )
    .result
    .unwrap_err();
    assert_eq!(failure.reason(), "GuestTimedOut");
}

#[test]
fn many_threads_share_few_instances() {
    for allocate in [Allocate::PoolIfPossible, Allocate::OnDemand] {
        let options = EngineOptions {
            concurrency: 3,
            ticker: Ticker::Manual,
            allocate,
            ..EngineOptions::default()
        };
        let engine = Engine::new(options).unwrap();
        let fixtures = ["good", "two-memories", "tables", "trap", "log-lines"];
        let guests = fixtures.map(|fixture| load(&engine, fixture));
        std::thread::scope(|scope| {
            for thread in 0..16 {
                let guests = &guests;
                scope.spawn(move || {
                    for (fixture, guest) in fixtures
                        .iter()
                        .zip(guests)
                        .cycle()
                        .skip(thread % 5)
                        .take(100)
                    {
                        let result = compute(guest, &unlimited()).result;
                        match *fixture {
                            "trap" => assert_eq!(result.unwrap_err().reason(), "GuestTrapped"),
                            _ => assert_eq!(result.unwrap(), no_taints(), "{fixture}"),
                        }
                    }
                });
            }
        });
    }
}

#[test]
fn calls_only_the_functions_of_a_guests_world() {
    let guest = load(&engine(Allocate::OnDemand), "good");
    let call = guest.ready(&unlimited(), &context("{}"), &hosted_cluster());
    assert_eq!(
        call.result.unwrap_err(),
        CallFailure::WrongWorld(Role::Decide(TAINTS))
    );
    let call = guest.require(&unlimited(), &context("{}"), &hosted_cluster(), &[]);
    assert_eq!(
        call.result.unwrap_err(),
        CallFailure::WrongWorld(Role::Decide(TAINTS))
    );
    let call = guest.transform(&unlimited(), &context("{}"), &hosted_cluster(), &[]);
    assert_eq!(
        call.result.unwrap_err(),
        CallFailure::WrongWorld(Role::Decide(TAINTS))
    );
}

#[test]
fn bundled_guests_answer_alike_on_every_engine() {
    let answers = [Allocate::PoolIfPossible, Allocate::OnDemand].map(|allocate| {
        let engine = engine(allocate);
        let none = Capabilities::default();
        let taints = engine
            .load(&built("taints").unwrap(), Role::Decide(TAINTS), &none)
            .unwrap();
        let trigger = engine
            .load(&built("trigger").unwrap(), Role::Trigger, &none)
            .unwrap();
        let taints = compute(&taints, &CallLimits::default());
        let ready = trigger.ready(&CallLimits::default(), &context("{}"), &hosted_cluster());
        let memory = (taints.receipt.memory_bytes, ready.receipt.memory_bytes);
        let answers = (taints.receipt.answer_bytes, ready.receipt.answer_bytes);
        (
            taints.result.unwrap(),
            ready.result.unwrap(),
            memory,
            answers,
        )
    });
    assert_eq!(answers[0], answers[1]);
}
