//! Guests that run forever, stopped by time that advances only when the test says so; meanwhile good ones keep running.
//! And guests on a machine on which much time passes in which they get no processor.

use crate::support::{Answer, compute, engine, engine_with, load, no_taints, unlimited};
use std::sync::atomic::{AtomicBool, Ordering};
use transom_conformance::fixture::hostile;
use transom_core::contract::description::Role;
use transom_core::world::TAINTS;
use transom_engine::{
    Allocate, Call, CallFailure, CallLimits, Capabilities, Engine, EngineOptions, Ticker,
};

/// Runs a guest that would run forever while a good guest keeps answering. Then advances the time by hand.
fn stops_with_time_only(fixture: &str, allocate: Allocate) {
    let engine = engine(allocate);
    let (endless, good) = (load(&engine, fixture), load(&engine, "good"));
    let done = AtomicBool::new(false);
    let (started, has_started) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let hostile = scope.spawn(|| {
            started.send(()).unwrap();
            let call = compute(
                &endless,
                &CallLimits {
                    time_ms: 2,
                    ..unlimited()
                },
            );
            done.store(true, Ordering::SeqCst);
            call
        });
        has_started.recv().unwrap();
        for _ in 0..100 {
            assert_eq!(
                compute(
                    &good,
                    &CallLimits {
                        time_ms: 2,
                        ..unlimited()
                    }
                )
                .result
                .unwrap(),
                no_taints()
            );
        }
        // No tick so far: whatever stopped it before now would not be time.
        assert!(!done.load(Ordering::SeqCst), "{fixture} ended by itself");
        while !done.load(Ordering::SeqCst) {
            engine.tick();
            std::thread::yield_now();
        }
        let call = hostile.join().unwrap();
        assert_eq!(
            call.result.unwrap_err(),
            CallFailure::TimedOut { allowed_ms: 2 },
            "{fixture}"
        );
    });
    assert_eq!(compute(&good, &unlimited()).result.unwrap(), no_taints());
}

#[test]
fn stops_an_endless_loop_by_time() {
    stops_with_time_only("endless-loop", Allocate::PoolIfPossible);
    stops_with_time_only("endless-loop", Allocate::OnDemand);
}

#[test]
fn stops_bulk_copies_by_time() {
    stops_with_time_only("bulk-copy", Allocate::PoolIfPossible);
}

#[test]
fn a_full_pool_makes_calls_wait_and_reports_it() {
    let engine = engine_with(EngineOptions {
        concurrency: 1,
        ..EngineOptions::default()
    });
    let (endless, good) = (load(&engine, "endless-loop"), load(&engine, "good"));
    std::thread::scope(|scope| {
        let first = scope.spawn(|| {
            compute(
                &endless,
                &CallLimits {
                    time_ms: 1000,
                    ..unlimited()
                },
            )
        });
        // The only place is taken as soon as a call without patience is refused.
        while compute(
            &good,
            &CallLimits {
                time_ms: 0,
                ..unlimited()
            },
        )
        .result
            != Err(CallFailure::Busy { allowed_ms: 0 })
        {
            std::thread::yield_now();
        }
        // It may also be refused because the first call waits for the place, which an attempt before gave back.
        while engine.waiting() > 0 {
            std::thread::yield_now();
        }
        let second = scope.spawn(|| compute(&good, &unlimited()));
        while engine.waiting() == 0 {
            std::thread::yield_now();
        }
        for _ in 0..1000 {
            engine.tick();
        }
        assert_eq!(
            first.join().unwrap().result.unwrap_err().reason(),
            "GuestTimedOut"
        );
        assert_eq!(second.join().unwrap().result.unwrap(), no_taints());
    });
}

/// Calls a guest while ticks pass as fast as they can, many more than its time has milliseconds.
fn while_time_flies(fixture: &str, time_ms: u64) -> Call<Answer> {
    let engine = Engine::new(EngineOptions {
        ticker: Ticker::ManualOfProcessor,
        ..EngineOptions::default()
    })
    .unwrap();
    let bytes = hostile(fixture).unwrap();
    let guest = engine
        .load(&bytes, Role::Decide(TAINTS), &Capabilities::default())
        .unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let call = scope.spawn(|| {
            let limits = CallLimits {
                time_ms,
                ..unlimited()
            };
            let call = compute(&guest, &limits);
            done.store(true, Ordering::SeqCst);
            call
        });
        while !done.load(Ordering::SeqCst) {
            engine.tick();
        }
        call.join().unwrap()
    })
}

#[test]
fn a_guest_on_a_busy_machine_is_not_failed_for_time_that_it_did_not_get() {
    let call = while_time_flies("slow", 60_000);
    assert_eq!(call.result.unwrap(), no_taints());
}

#[test]
fn an_endless_loop_is_stopped_once_it_has_used_its_processor_time() {
    let call = while_time_flies("endless-loop", 50);
    let failure = call.result.unwrap_err();
    assert_eq!(failure, CallFailure::TimedOut { allowed_ms: 50 });
    assert!(
        call.receipt.micros >= 50_000,
        "stopped after {} us",
        call.receipt.micros
    );
}
