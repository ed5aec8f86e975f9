//! Hostile guests, each stopped by exactly one limit while all others are out of reach: the same guest answers when
//! that limit is raised. And how guests written in Rust end after an error, without a grant of the log.

use crate::support::{answers, compute, engine, engine_with, load, no_taints, unlimited};
use transom_conformance::arguments::{context, hosted_cluster};
use transom_engine::{Allocate, CallFailure, CallLimits, EngineOptions, Receipt};

const PAGE: u64 = 64 << 10;

/// The receipt without measured times.
fn counted(receipt: &Receipt) -> Receipt {
    Receipt {
        micros: 0,
        ..receipt.clone()
    }
}

/// One fixture, the one limit that stops it, and how.
struct Case {
    fixture: &'static str,
    limit: fn(&mut CallLimits),
    failure: CallFailure,
}

fn cases() -> Vec<Case> {
    let case = |fixture, limit, failure| Case {
        fixture,
        limit,
        failure,
    };
    vec![
        case(
            "one-memory",
            |limits| limits.memory_bytes = 40 * PAGE,
            CallFailure::MemoryExceeded {
                wanted: 41 * PAGE,
                allowed: 40 * PAGE,
            },
        ),
        case(
            "two-memories",
            |limits| limits.memory_bytes = 70 * PAGE,
            CallFailure::MemoryExceeded {
                wanted: 71 * PAGE,
                allowed: 70 * PAGE,
            },
        ),
        case(
            "tables",
            |limits| limits.table_elements = 4950,
            CallFailure::TablesExceeded {
                wanted: 5000,
                allowed: 4950,
            },
        ),
        case(
            "large-answer",
            |limits| limits.answer_bytes = 99_999,
            CallFailure::AnswerTooLarge { allowed: 99_999 },
        ),
        case(
            "log-lines",
            |limits| limits.log_lines = 499,
            CallFailure::LogLinesExceeded { allowed: 499 },
        ),
        case(
            "log-lines",
            |limits| limits.log_bytes = 1999,
            CallFailure::LogBytesExceeded { allowed: 1999 },
        ),
        case(
            "log-lines",
            |limits| limits.host_calls = 499,
            CallFailure::HostCallsExceeded { allowed: 499 },
        ),
        case(
            "log-bytes",
            |limits| limits.log_bytes = 49_999,
            CallFailure::LogBytesExceeded { allowed: 49_999 },
        ),
        case(
            "good",
            |limits| limits.argument_bytes = 100,
            CallFailure::ArgumentTooLarge {
                wanted: 0,
                allowed: 100,
            },
        ),
    ]
}

#[test]
fn each_limit_fires_alone() {
    for allocate in [Allocate::PoolIfPossible, Allocate::OnDemand] {
        let engine = engine(allocate);
        for case in cases() {
            let guest = load(&engine, case.fixture);
            let free = compute(&guest, &unlimited());
            assert!(
                free.result.is_ok(),
                "{} fails without limits: {:?}",
                case.fixture,
                free.result
            );
            let mut limits = unlimited();
            (case.limit)(&mut limits);
            let stopped = compute(&guest, &limits);
            let failure = match stopped.result.unwrap_err() {
                CallFailure::ArgumentTooLarge { allowed, wanted } if wanted > allowed => {
                    CallFailure::ArgumentTooLarge { allowed, wanted: 0 }
                }
                other => other,
            };
            assert_eq!(failure, case.failure, "{}", case.fixture);
        }
    }
}

#[test]
fn pooled_and_on_demand_give_equal_answers_and_receipts() {
    let (pool, on_demand) = (engine(Allocate::PoolIfPossible), engine(Allocate::OnDemand));
    assert_ne!(
        pool.allocation(),
        on_demand.allocation(),
        "there is no pool to compare with"
    );
    for fixture in [
        "good",
        "one-memory",
        "two-memories",
        "tables",
        "large-answer",
        "log-lines",
        "log-bytes",
    ] {
        let (one, other) = (load(&pool, fixture), load(&on_demand, fixture));
        assert_eq!(one.digest(), other.digest());
        let (one, other) = (compute(&one, &unlimited()), compute(&other, &unlimited()));
        assert_eq!(one.result, other.result, "{fixture}");
        assert_eq!(counted(&one.receipt), counted(&other.receipt), "{fixture}");
    }
}

#[test]
fn receipts_report_usage() {
    let engine = engine(Allocate::PoolIfPossible);
    let receipt = |fixture| compute(&load(&engine, fixture), &unlimited()).receipt;
    assert_eq!(receipt("one-memory").memory_bytes, 41 * PAGE);
    assert_eq!(receipt("two-memories").memory_bytes, 71 * PAGE);
    assert_eq!(receipt("tables").table_elements, 5000);
    let logged = receipt("log-lines");
    assert_eq!(
        (
            logged.log_lines,
            logged.log_bytes,
            logged.host_calls,
            logged.log.len()
        ),
        (500, 2000, 500, 500)
    );
    assert_eq!(logged.log[0].text, "Seen");
    let large = receipt("large-answer").answer_bytes;
    assert!((100_000..200_000).contains(&large), "{large}");
    assert!(receipt("good").argument_bytes > 100);
}

#[test]
fn log_lines_are_cut_and_escaped() {
    let engine = engine(Allocate::PoolIfPossible);
    let log = compute(&load(&engine, "log-bytes"), &unlimited())
        .receipt
        .log;
    let [line] = log.as_slice() else {
        panic!("one line expected, not {}", log.len())
    };
    assert!(line.text.starts_with("\\u001b\\u001b") && line.text.ends_with('…'));
    assert!(!line.text.contains('\u{1b}'));
}

#[test]
fn refuses_a_giant_answer_without_copying_it() {
    // Taken at its word this would be 200 GB, which would kill this process.
    let limits = CallLimits {
        answer_bytes: 8 << 20,
        ..unlimited()
    };
    let failure = compute(
        &load(&engine(Allocate::PoolIfPossible), "giant-answer"),
        &limits,
    )
    .result
    .unwrap_err();
    assert_eq!(failure, CallFailure::AnswerTooLarge { allowed: 8 << 20 });
}

#[test]
fn a_giant_log_line_counts_as_log_and_not_as_answer() {
    let guest = load(&engine(Allocate::PoolIfPossible), "log-giant");
    let limits = CallLimits {
        log_bytes: 1000,
        answer_bytes: 100_000,
        ..unlimited()
    };
    assert_eq!(
        compute(&guest, &limits).result.unwrap_err(),
        CallFailure::LogBytesExceeded { allowed: 1000 }
    );
}

#[test]
fn the_engine_limits_the_stack() {
    let stopped = compute(
        &load(&engine(Allocate::PoolIfPossible), "recursion"),
        &unlimited(),
    );
    assert_eq!(stopped.result.unwrap_err(), CallFailure::StackOverflowed);
    assert!(stopped.receipt.stack_overflowed);
    let deep = EngineOptions {
        stack_bytes: 2 << 20,
        ..EngineOptions::default()
    };
    let deep = load(&engine_with(deep), "recursion");
    let roomy = std::thread::Builder::new().stack_size(16 << 20);
    let call = roomy
        .spawn(move || compute(&deep, &unlimited()))
        .unwrap()
        .join()
        .unwrap();
    assert_eq!(call.result.unwrap(), no_taints());
    assert!(!call.receipt.stack_overflowed);
}

#[test]
fn a_trap_is_reported_with_its_location() {
    let call = compute(
        &load(&engine(Allocate::PoolIfPossible), "trap"),
        &unlimited(),
    );
    let failure = call.result.unwrap_err();
    assert_eq!(failure.reason(), "GuestTrapped");
    assert!(failure.to_string().contains("unreachable"), "{failure}");
    assert!(failure.to_string().contains("gives_up"), "{failure}");
}

#[test]
fn refuses_what_breaks_the_contract() {
    let engine = engine(Allocate::PoolIfPossible);
    for (fixture, named) in [
        ("undeclared-reason", "`fixture`"),
        ("beyond-memory", "out of bounds"),
        ("no-such-case", "discriminant"),
        ("not-utf8", "utf-8"),
    ] {
        let failure = compute(&load(&engine, fixture), &unlimited())
            .result
            .unwrap_err();
        assert_eq!(failure.reason(), "ContractBroken", "{fixture}: {failure}");
        assert!(failure.to_string().contains(named), "{fixture}: {failure}");
    }
}

#[test]
fn refused_settings_come_with_their_reason() {
    let engine = engine(Allocate::PoolIfPossible);
    let problems = load(&engine, "refuses-settings")
        .validate(&unlimited(), "{}")
        .result
        .unwrap();
    assert_eq!(
        problems
            .iter()
            .map(|problem| problem.reason.as_str())
            .collect::<Vec<_>>(),
        ["Seen"]
    );
    assert_eq!(
        load(&engine, "good")
            .validate(&unlimited(), "{}")
            .result
            .unwrap(),
        []
    );
}

#[test]
fn no_answer_depends_on_a_budget() {
    for allocate in [Allocate::PoolIfPossible, Allocate::OnDemand] {
        let engine = engine(allocate);
        // Beyond the budget there is no answer; a guest may see a maximum of its own, which is the same everywhere.
        let beyond = compute(&load(&engine, "beyond-any-memory"), &unlimited())
            .result
            .unwrap_err();
        assert_eq!(beyond.reason(), "GuestMemoryExceeded", "{beyond}");
        assert_eq!(
            compute(&load(&engine, "own-maximum"), &unlimited())
                .result
                .unwrap(),
            no_taints()
        );
    }
}

/// The failure of a guest that is asked to end in this way.
fn end(ask: &str) -> CallFailure {
    let settings = format!(r#"{{"ask":"{ask}"}}"#);
    answers()
        .require(&unlimited(), &context(&settings), &hosted_cluster(), &[])
        .result
        .unwrap_err()
}

#[test]
fn a_panic_shows_its_message_file_and_line() {
    for (ask, message) in [
        (
            "Panics",
            "it panicked: the moon is\\u001b[31m made of 0 cheeses, at ",
        ),
        (
            "OutOfBounds",
            "it panicked: index out of bounds: the len is 3 but the index is 7, at ",
        ),
    ] {
        let failure = end(ask);
        let told = failure.to_string();
        assert_eq!(failure.reason(), "GuestTrapped", "{told}");
        let (_, place) = told.split_once(message).unwrap_or_else(|| panic!("{told}"));
        let (file, rest) = place.split_once(".rs:").unwrap_or_else(|| panic!("{told}"));
        assert!(file.ends_with("tests/fixtures/answers/src/lib"), "{told}");
        assert!(
            rest.starts_with(|digit: char| digit.is_ascii_digit()),
            "{told}"
        );
        assert!(told.contains("require"), "{told}");
        for noise in ["rust_", "panicking", "_ZN", "_R", "17h"] {
            assert!(!rest.contains(noise), "`{noise}` in: {told}");
        }
    }
}

#[test]
fn reports_a_stack_overflow_as_such_for_either_stack() {
    for ask in ["Recurses", "RecursesInPairs"] {
        assert_eq!(end(ask), CallFailure::StackOverflowed, "{ask}");
    }
}
