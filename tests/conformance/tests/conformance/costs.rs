//! Components that compile slowly on purpose, or that cannot be interrupted: refused for their cost or their content.
//! Asserts no compile times.

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::{Command, Stdio};
use transom_conformance::fixture::good_with;
use transom_core::contract::description::Role;
use transom_core::world::TAINTS;
use transom_engine::{Allocate, COMPILATION_BYTES, Capabilities, LoadError};

/// One way to make compilation expensive, with its size and the expected reason.
struct Bomb {
    name: &'static str,
    make: fn(usize) -> String,
    size: usize,
    refused: &'static [&'static str],
}

const MEMORY: &str = "its compilation memory in bytes";
const TIME: &str = "its compilation time in seconds";

const BOMBS: &[Bomb] = &[
    Bomb {
        name: "what many guests have",
        make: much_code,
        size: 2,
        refused: &[],
    },
    Bomb {
        name: "values that live long",
        make: live,
        size: 40_000,
        refused: &[MEMORY],
    },
    Bomb {
        name: "ways that join",
        make: ladder,
        size: 600,
        refused: &[MEMORY],
    },
    Bomb {
        name: "wide calls",
        make: wide_calls,
        size: 16,
        refused: &[MEMORY],
    },
    Bomb {
        name: "loops in loops",
        make: nested_loops,
        size: 500,
        refused: &[TIME, MEMORY],
    },
    // Its memory stays small: without a time limit it would compile. Nearly as large as a component may be, so that no
    // machine is fast enough.
    Bomb {
        name: "much code",
        make: much_code,
        size: 60,
        refused: &[TIME],
    },
];

/// Every local stays live to the end, across this many calls.
fn live(calls: usize) -> String {
    let locals = 400;
    let mut text = String::from(
        "(func $f (param i32) (result i32) (local.get 0)) (func (param i32) (result i32) (local",
    );
    text.push_str(&" i32".repeat(locals));
    text.push(')');
    for call in 0..calls {
        let (to, from) = (1 + call % locals, 1 + (call * 7 + call / locals) % locals);
        let _ = write!(
            text,
            "(local.set {to} (call $f (i32.add (local.get {to}) (local.get {from}))))"
        );
    }
    text + "(local.get 5))"
}

/// This many nested loops, and as many locals that change in the innermost.
fn nested_loops(depth: usize) -> String {
    let mut text = locals(depth) + &"(loop".repeat(depth);
    (0..depth).for_each(|local| {
        assert!(
            write!(
                text,
                "(local.set {local} (i32.add (local.get {local}) (i32.const 1)))"
            )
            .is_ok()
        );
    });
    (0..depth).for_each(|local| assert!(write!(text, "(br_if 0 (local.get {local})))").is_ok()));
    text + ")"
}

/// A ladder of blocks whose ends are each reached with different values of as many locals.
fn ladder(depth: usize) -> String {
    let mut text = locals(depth) + &"(block".repeat(depth) + "(br_if 0 (local.get 0))";
    (0..depth)
        .for_each(|local| assert!(write!(text, "(local.set {local} (i32.const {local}))").is_ok()));
    text.push_str("(br_table");
    (0..depth).for_each(|at| assert!(write!(text, " {at}").is_ok()));
    text.push_str("(local.get 1))");
    (0..depth).for_each(|local| {
        assert!(
            write!(
                text,
                ") (local.set {local} (i32.add (local.get {local}) (i32.const 3)))"
            )
            .is_ok()
        );
    });
    (0..depth).for_each(|local| {
        assert!(write!(text, "(i32.store (i32.const 0) (local.get {local}))").is_ok());
    });
    text + ")"
}

fn locals(count: usize) -> String {
    format!("(func (local{})", " i32".repeat(count))
}

/// Functions with this many parameters and results, one after the other.
fn wide_calls(width: usize) -> String {
    let values = " i32".repeat(width);
    let mut text = format!("(func $wide (param{values}) (result{values})");
    (0..width).for_each(|local| assert!(write!(text, "(local.get {local})").is_ok()));
    let _ = write!(text, ") (func (param{values}) (result{values})");
    (0..width).for_each(|local| assert!(write!(text, "(local.get {local})").is_ok()));
    text + &"(call $wide)".repeat(60_000) + ")"
}

fn ranges(count: usize) -> String {
    let operation = "(memory.fill (i32.const 0) (i32.const 1) (i32.const 60000))";
    format!("(func {})", operation.repeat(count))
}

/// This many functions of the maximum size each.
fn much_code(count: usize) -> String {
    let mut body =
        String::from("(func (param i32) (result i32) (local i32 i32 i32 i32 i32 i32 i32 i32)");
    for at in 0..11_000 {
        let (to, from) = (1 + at % 8, 1 + at * 3 % 8);
        let _ = write!(
            body,
            "(local.set {to} (i32.add (i32.mul (local.get {to}) (local.get {from})) (i32.const {at})))"
        );
    }
    (body + "(local.get 5))").repeat(count)
}

#[test]
fn refuses_an_expensive_compilation_within_its_bound() {
    for Bomb {
        name,
        make,
        size,
        refused,
    } in BOMBS
    {
        let said = compile(&good_with(&make(*size)).unwrap());
        let (kib, end) = said.split_once(' ').unwrap();
        let own = kib.parse::<u64>().unwrap() << 10;
        assert!(
            own < COMPILATION_BYTES / 2,
            "{name}: the agent itself took {own} bytes"
        );
        if refused.is_empty() {
            assert_eq!(end, "compiled", "{name}");
            continue;
        }
        assert!(end.starts_with("ComponentTooLarge: "), "{name}: {end}");
        let found = refused
            .iter()
            .find_map(|what| end.split_once(what))
            .unwrap_or_else(|| panic!("{name}: {end}"))
            .1;
        let numbers = found
            .split(|c: char| !c.is_ascii_digit())
            .filter_map(|number| number.parse::<u64>().ok());
        let [found, allowed] = numbers.collect::<Vec<_>>()[..] else {
            panic!("{name}: {end}")
        };
        assert!(found > allowed && found < allowed * 2, "{name}: {end}");
    }
}

#[test]
fn refuses_a_function_that_could_not_be_interrupted() {
    let engine = crate::support::engine(Allocate::PoolIfPossible);
    let load = |count| {
        engine.load(
            &good_with(&ranges(count)).unwrap(),
            Role::Decide(TAINTS),
            &Capabilities::default(),
        )
    };
    assert!(load(256).is_ok());
    let error = load(257).unwrap_err();
    assert!(
        matches!(
            error,
            LoadError::TooLarge {
                found: 257,
                allowed: 256,
                ..
            }
        ),
        "{error}"
    );
    assert_eq!(
        engine.compilations(),
        1,
        "the compiler was asked for nothing"
    );
}

/// The output of a separate process that compiles a component.
fn compile(bytes: &[u8]) -> String {
    let mut child = Command::new(env!("CARGO_BIN_EXE_compiles"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(bytes).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}
