//! Components that are refused when they are loaded, each with a different reason, before or after they first run.

use crate::support::{compute, engine, engine_with, no_taints, unlimited};
use std::sync::atomic::{AtomicBool, Ordering};
use transom_conformance::fixture::{component, good_with, hostile, hostile_of, with_module};
use transom_core::contract::description::Role;
use transom_core::digest::Digest;
use transom_core::world::TAINTS;
use transom_engine::{
    Allocate, CallFailure, CallLimits, Capabilities, Capability, Engine, EngineOptions, LoadError,
};
use transom_support::numbers::Numbers;

fn refuse(engine: &Engine, bytes: &[u8], role: Role) -> LoadError {
    engine
        .load(bytes, role, &Capabilities::default())
        .unwrap_err()
}

/// Every allocation mode must refuse alike.
fn refuse_alike(bytes: &[u8], role: Role) -> LoadError {
    let one = refuse(&engine(Allocate::PoolIfPossible), bytes, role);
    let other = refuse(&engine(Allocate::OnDemand), bytes, role);
    assert_eq!(one.reason(), other.reason(), "{one} / {other}");
    one
}

#[test]
fn names_an_import_that_is_not_granted() {
    let clock = wat::parse_str(
        r#"(component
            (import "wasi:clocks/monotonic-clock@0.2.0" (instance (export "now" (func (result u64)))))
            (import "transom:policy/types@0.1.0" (instance (type $t u32) (export "t" (type (eq $t)))))
            (import "bare" (func)))"#,
    )
    .unwrap();
    let error = refuse_alike(&clock, Role::Decide(TAINTS));
    let denied = ["wasi:clocks/monotonic-clock@0.2.0", "bare"]
        .map(str::to_owned)
        .to_vec();
    assert_eq!(error, LoadError::ImportNotGranted(denied));
    assert!(
        error
            .to_string()
            .contains("wasi:clocks/monotonic-clock@0.2.0")
    );
}

#[test]
fn names_imports_in_a_single_line() {
    let imports = (0..2).map(|at| format!("(import \"i{at}-{}\" (func))", "x".repeat(98_000)));
    let bytes = wat::parse_str(format!("(component {})", imports.collect::<String>())).unwrap();
    let error = refuse_alike(&bytes, Role::Decide(TAINTS));
    assert_eq!(error.reason(), "ImportNotGranted");
    assert!(
        error
            .to_string()
            .starts_with("failed to load component: it imports i0-xxx")
    );
    assert!(
        error.to_string().len() < 2_000,
        "{} bytes",
        error.to_string().len()
    );
}

#[test]
fn the_log_needs_a_grant_too() {
    let engine = engine(Allocate::PoolIfPossible);
    let logs = hostile("log-lines").unwrap();
    let denied = LoadError::ImportNotGranted(vec!["transom:policy/log@0.1.0".to_owned()]);
    assert_eq!(refuse(&engine, &logs, Role::Decide(TAINTS)), denied);
    let granted = Capabilities::of([Capability::Log]);
    let guest = engine.load(&logs, Role::Decide(TAINTS), &granted).unwrap();
    assert_eq!(compute(&guest, &unlimited()).result.unwrap(), no_taints());
}

#[test]
fn one_engine_serves_components_of_each_generation() {
    let engine = engine(Allocate::PoolIfPossible);
    let granted = Capabilities::of([Capability::Log]);
    let logs = |version: &str| {
        let bytes = hostile_of("log-lines", version).unwrap();
        let guest = engine.load(&bytes, Role::Decide(TAINTS), &granted).unwrap();
        let call = compute(&guest, &unlimited());
        assert_eq!(call.result, Ok(no_taints()), "{version}");
        call.receipt.log
    };
    let (old, new) = (logs("0.1.0"), logs("0.2.0"));
    assert!(!old.is_empty() && old == new, "{old:?} {new:?}");
    let refused = refuse(
        &engine,
        &hostile_of("log-lines", "0.2.0").unwrap(),
        Role::Decide(TAINTS),
    );
    let denied = LoadError::ImportNotGranted(vec!["transom:policy/log@0.2.0".to_owned()]);
    assert_eq!(refused, denied);
}

#[test]
fn a_component_of_several_generations_is_of_the_newest_that_is_served() {
    let text = |versions: [&str; 2]| {
        let exports = versions.map(|version| {
            format!("(export \"transom:policy/guest@{version}\" (instance $guest))")
        });
        let text = format!(
            r#"(component
                (core module $m (func (export "f")))
                (core instance $i (instantiate $m))
                (func $f (canon lift (core func $i "f")))
                (instance $guest (export "describe" (func $f)) (export "validate" (func $f)))
                {})"#,
            exports.concat()
        );
        let bytes = wat::parse_str(text).unwrap();
        refuse_alike(&bytes, Role::Decide(TAINTS)).to_string()
    };
    for (versions, taken) in [
        (["0.1.0", "0.2.0"], "0.2.0"),
        (["0.2.0", "0.1.0"], "0.2.0"),
        (["0.9.0", "0.1.0"], "0.1.0"),
    ] {
        let wanted = format!("it does not export `transom:policy/taints@{taken}`");
        let said = text(versions);
        assert!(said.contains(&wanted), "{said}");
    }
}

#[test]
fn what_is_not_a_component_is_invalid() {
    for bytes in [
        b"".to_vec(),
        b"\0asm".to_vec(),
        vec![0xff; 1000],
        wat::parse_str("(module)").unwrap(),
    ] {
        assert_eq!(
            refuse_alike(&bytes, Role::Decide(TAINTS)).reason(),
            "ComponentInvalid"
        );
    }
}

#[test]
fn refuses_an_oversized_component_without_parsing_it() {
    let error = refuse_alike(&vec![0; (8 << 20) + 1], Role::Decide(TAINTS));
    assert_eq!(error.reason(), "ComponentTooLarge");
    assert!(error.to_string().contains("8388609"), "{error}");
}

#[test]
fn refuses_a_component_beyond_the_pool_limits_even_without_a_pool() {
    let many = |text: &str, count: u8| {
        (1..=count).fold(hostile("good").unwrap(), |bytes, at| {
            with_module(bytes, at, text).unwrap()
        })
    };
    for (bytes, reason) in [
        (hostile("large-memory").unwrap(), "ComponentTooLarge"),
        (hostile("large-table").unwrap(), "ComponentInvalid"),
        (many("(module (memory 1))", 2), "ComponentTooLarge"),
        (many("(module (table 1 funcref))", 9), "ComponentTooLarge"),
        (many("(module)", 16), "ComponentInvalid"),
    ] {
        let error = refuse_alike(&bytes, Role::Decide(TAINTS));
        assert_eq!(error.reason(), reason, "{error}");
    }
}

#[test]
fn refuses_a_component_that_declares_too_much_by_what_that_is() {
    let exports = (0..50_000).map(|at| format!("(export \"{at}\" (func 0))"));
    let imports = "(import \"a\" \"b\" (global i32))".repeat(40_000);
    for (what, bytes) in [
        ("exports", good_with(&exports.collect::<String>()).unwrap()),
        ("imports", with_text(&imports)),
        (
            "globals",
            with_text(&"(global i32 (i32.const 0))".repeat(60_000)),
        ),
        (
            "types",
            with_text(&"(type (func (param i32)))".repeat(70_000)),
        ),
        (
            "tables",
            with_text(&format!(
                "(func) (elem declare func{})",
                " 0".repeat(270_000)
            )),
        ),
        ("list of functions", with_text(&"(func)".repeat(270_000))),
        ("data segments", with_text(&"(data \"\")".repeat(5_000))),
        (
            "a function's name",
            with_text(&format!("(func ${})", "f".repeat(5_000))),
        ),
    ] {
        let error = refuse_alike(&bytes, Role::Decide(TAINTS));
        assert_eq!(error.reason(), "ComponentTooLarge", "{what}: {error}");
        assert!(error.to_string().contains(what), "{what}: {error}");
    }
}

/// The good component, and a module with this text beside it.
fn with_text(text: &str) -> Vec<u8> {
    with_module(hostile("good").unwrap(), 1, &format!("(module {text})")).unwrap()
}

#[test]
fn refuses_components_that_are_nested_too_deeply() {
    let nested = |depth| "(component".repeat(depth) + &")".repeat(depth);
    let refused = |depth| {
        let bytes = wat::parse_str(nested(depth)).unwrap();
        refuse_alike(&bytes, Role::Decide(TAINTS))
    };
    assert_eq!(refused(16).reason(), "WorldMismatch");
    let error = refused(17);
    assert_eq!(error.reason(), "ComponentTooLarge");
    assert!(
        error.to_string().contains("nested components is 17"),
        "{error}"
    );
}

#[test]
fn what_is_decoded_of_a_component_counts_as_its_code() {
    let engine = engine_with(EngineOptions {
        max_code_bytes: 2 << 20,
        ..EngineOptions::default()
    });
    let load = |exports: usize| {
        let exports = (0..exports).map(|at| format!("(export \"{at}\" (func 0))"));
        let bytes = good_with(&exports.collect::<String>()).unwrap();
        engine.load(&bytes, Role::Decide(TAINTS), &Capabilities::default())
    };
    assert!(load(2_000).is_ok());
    // Its code is small, and what is made of its exports is not.
    let error = load(15_000).unwrap_err();
    assert_eq!(error.reason(), "ComponentTooLarge", "{error}");
    assert!(error.to_string().contains("bytes of memory"), "{error}");
    assert_eq!(engine.compilations(), 1);
    assert_eq!(load(15_000).err(), Some(error), "it is remembered");
}

#[test]
fn names_the_world_of_a_component_for_another_world() {
    let taints = hostile("good").unwrap();
    let error = refuse_alike(&taints, Role::Trigger);
    let LoadError::WorldMismatch {
        expected, found, ..
    } = &error
    else {
        panic!("{error}")
    };
    assert_eq!(
        (*expected, *found),
        (Role::Trigger, Some(Role::Decide(TAINTS)))
    );
    assert!(
        error.to_string().contains("trigger-guest") && error.to_string().contains("taints-guest"),
        "{error}"
    );
    let nothing = refuse_alike(&wat::parse_str("(component)").unwrap(), Role::Trigger);
    assert!(
        matches!(nothing, LoadError::WorldMismatch { found: None, .. }),
        "{nothing}"
    );
}

#[test]
fn an_export_of_another_type_is_a_mismatch() {
    let text = r#"(component
        (core module $m (func (export "f")))
        (core instance $i (instantiate $m))
        (func $f (canon lift (core func $i "f")))
        (instance $guest (export "describe" (func $f)) (export "validate" (func $f)))
        (instance $taints (export "compute" (func $f)))
        (export "transom:policy/guest@0.1.0" (instance $guest))
        (export "transom:policy/taints@0.1.0" (instance $taints)))"#;
    let error = refuse_alike(&wat::parse_str(text).unwrap(), Role::Decide(TAINTS));
    assert_eq!(error.reason(), "WorldMismatch", "{error}");
}

#[test]
fn refuses_a_component_of_a_generation_that_is_not_served_whatever_it_imports() {
    // The SDK imports `panic` of its own generation into every component.
    for import in ["", "panic@0.7.0", "log@0.7.0", "other@0.1.0"] {
        let import = match import {
            "" => String::new(),
            import => {
                format!(r#"(import "transom:policy/{import}" (instance (export "f" (func))))"#)
            }
        };
        let text = format!(
            r#"(component {import}
            (core module $m (func (export "f") (result i32) i32.const 0))
            (core instance $i (instantiate $m))
            (func $f (result u32) (canon lift (core func $i "f")))
            (instance $guest (export "describe" (func $f)) (export "validate" (func $f)))
            (export "transom:policy/guest@0.7.0" (instance $guest)))"#
        );
        let bytes = wat::parse_str(text).unwrap();
        let refused = refuse_alike(&bytes, Role::Decide(TAINTS));
        let inspected = engine_with(EngineOptions::default()).inspect(&bytes);
        for error in [refused, inspected.unwrap().description.unwrap_err()] {
            assert_eq!(error.reason(), "WorldMismatch", "{error}");
            let said = "the generation 0.7.0 of the contract; this agent serves 0.2, 0.1";
            assert!(error.to_string().contains(said), "{error}");
        }
    }
}

#[test]
fn refuses_a_description_that_breaks_the_contract() {
    // A description of zeros has no name.
    let text = r#"(module
        (memory (export "memory") 1)
        (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) (i32.const 4096))
        (func (export "transom:policy/guest@0.1.0#describe") (result i32) (i32.const 1024))
        (func (export "transom:policy/guest@0.1.0#validate") (param i32 i32) (result i32) (i32.const 1024))
        (func (export "transom:policy/taints@0.1.0#compute") (param i32) (result i32) (i32.const 1024)))"#;
    let error = refuse_alike(
        &component(text, "taints-guest").unwrap(),
        Role::Decide(TAINTS),
    );
    assert_eq!(error.reason(), "DescriptionInvalid", "{error}");
}

#[test]
fn stops_a_component_that_loops_during_instantiation() {
    let engine = engine(Allocate::PoolIfPossible);
    let bytes = hostile("loops-at-start").unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let loading = scope.spawn(|| {
            let error = refuse(&engine, &bytes, Role::Decide(TAINTS));
            done.store(true, Ordering::SeqCst);
            error
        });
        while !done.load(Ordering::SeqCst) {
            engine.tick();
            std::thread::yield_now();
        }
        let error = loading.join().unwrap();
        assert!(
            matches!(error, LoadError::Describe(CallFailure::TimedOut { .. })),
            "{error}"
        );
    });
}

#[test]
fn the_same_bytes_are_compiled_once() {
    let engine = engine(Allocate::PoolIfPossible);
    let bytes = hostile("good").unwrap();
    let load = || {
        engine
            .load(&bytes, Role::Decide(TAINTS), &Capabilities::default())
            .unwrap()
    };
    std::thread::scope(|scope| {
        let guests: Vec<_> = (0..8).map(|_| scope.spawn(load)).collect();
        let guests: Vec<_> = guests
            .into_iter()
            .map(|guest| guest.join().unwrap())
            .collect();
        assert_eq!(engine.compilations(), 1);
        let digest = Digest::of_bytes(&bytes).to_string();
        assert!(guests.iter().all(|guest| guest.digest() == digest));
    });
    // The code is freed with the last guest that used it.
    let _again = load();
    assert_eq!(engine.compilations(), 2);
}

#[test]
fn inspection_grants_nothing_and_lists_what_is_needed() {
    let engine = engine_with(EngineOptions::default());
    let logs = engine.inspect(&hostile("log-lines").unwrap()).unwrap();
    assert_eq!(logs.world, Some(Role::Decide(TAINTS)));
    assert_eq!(logs.imports, ["transom:policy/log@0.1.0"]);
    assert_eq!(logs.needs, Capabilities::of([Capability::Log]));
    assert_eq!(logs.ungrantable, Vec::<String>::new());
    assert_eq!(logs.description.unwrap().name, "fixture");
    assert!(
        logs.exports
            .contains(&"transom:policy/taints@0.1.0".to_owned())
    );
    let clock = wat::parse_str(r#"(component (import "clock" (func)))"#).unwrap();
    let clock = engine.inspect(&clock).unwrap();
    assert_eq!(
        (clock.world, clock.ungrantable),
        (None, vec!["clock".to_owned()])
    );
    assert!(clock.description.is_err());
}

#[test]
fn damaged_components_are_refused_or_answer_within_limits() {
    let whole = hostile("log-lines").unwrap();
    // Uses the engine's own ticker, because a damaged guest may loop.
    let engine = Engine::new(EngineOptions::default()).unwrap();
    let limits = CallLimits {
        time_ms: 20,
        ..CallLimits::default()
    };
    let mut numbers = Numbers::new(3, 0);
    let (mut refused, mut loaded) = (0, 0);
    for _ in 0..400 {
        let mut damaged = whole.clone();
        for _ in 0..=numbers.take() % 3 {
            let at = numbers.take() as usize % damaged.len();
            damaged[at] = numbers.take() as u8;
        }
        match engine.load(
            &damaged,
            Role::Decide(TAINTS),
            &Capabilities::of([Capability::Log]),
        ) {
            Ok(guest) => {
                loaded += 1;
                assert!(compute(&guest, &limits).receipt.log_lines <= limits.log_lines);
            }
            Err(_) => refused += 1,
        }
    }
    assert!(
        refused > 20 && loaded > 20,
        "{refused} refused, {loaded} loaded"
    );
}

#[test]
fn all_code_has_one_bound_and_removed_components_free_room() {
    let engine = engine_with(EngineOptions {
        max_code_bytes: 1 << 20,
        ..EngineOptions::default()
    });
    let load = |number: usize| {
        let bytes = good_with(&format!("(func (drop (i32.const {number})))")).unwrap();
        engine.load(&bytes, Role::Decide(TAINTS), &Capabilities::default())
    };
    let mut all = Vec::new();
    let error = loop {
        match load(all.len()) {
            Ok(guest) => all.push(guest),
            Err(error) => break error,
        }
        assert!(all.len() < 1_000, "there is no bound");
    };
    assert!(matches!(error, LoadError::NoRoom { .. }), "{error}");
    // Another try succeeds once others are gone.
    assert_eq!(error.reason(), "EngineBusy");
    assert!(all.len() > 1, "it is the bound of one");
    assert!(load(0).is_ok(), "what is there is shared");
    assert!(load(all.len()).is_err());
    drop(all.pop());
    assert!(load(1_000).is_ok());
}
