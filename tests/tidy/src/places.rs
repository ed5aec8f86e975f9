//! Words that may stand only in some places: `unsafe_code`, sleeping in tests, reasons in what the controller does. The
//! compiler and clippy cannot say where an exception may stand, nor tell tests from production in one crate.

use crate::tree::Source;

/// The only places that may loosen the lint `unsafe_code`, which finds every `unsafe`: the allocator of guests,
/// deserialising compiled code, and the linear memory that a test owns, which is compiled only with the tests' feature.
const UNSAFE: [&str; 3] = [
    "guest/sdk/src/arena.rs",
    "host/engine/src/compiled.rs",
    "host/engine/src/recorder.rs",
];

/// The only places where test code sleeps. The two `wait` look at a state, up to a deadline; the others are measurements:
/// the cost of an agent with nothing to do is a cost over time.
const SLEEPING: [&str; 5] = [
    "tests/support/src/wait.rs",
    "tests/cluster/src/wait.rs",
    "tests/bench/src/process.rs",
    "tests/bench/src/watch.rs",
    "tests/bench/src/cluster/changes.rs",
];

/// Files of the controller: these only order the decisions of the core.
const CONTROLLER: [&str; 2] = ["host/agent/src/agent", "host/agent/src/controller"];

/// Patterns of lines that compare a reason: a guest may return any reason, so nothing may depend on one. Decisions by
/// the outcome of a reconcile use `report::End`, which only the core creates.
const COMPARISONS: [&str; 9] = [
    "== KnownReason::",
    "!= KnownReason::",
    "== Reason::",
    "!= Reason::",
    "reason ==",
    "reason !=",
    "reason)",
    "Reason::Known(",
    "reason.as_str() {",
];
/// Of the patterns that end with a bracket, the calls that compare their content.
const COMPARING: [&str; 3] = ["contains(", "matches!(", "eq("];

/// Places with a word that may not stand there. This package only names the words.
pub fn check(sources: &[Source]) -> Vec<String> {
    let elsewhere = |source: &&Source| source.is("rs") && !source.path.starts_with("tests/tidy/");
    sources.iter().filter(elsewhere).flat_map(of_file).collect()
}

/// Listed places that do not exist, or that no longer need to be listed.
pub fn stale(sources: &[Source]) -> Vec<String> {
    let holds = |path: &str, word: fn(&str) -> bool| {
        let source = sources.iter().find(|source| source.path == path);
        source.is_some_and(|source| source.text.lines().any(word))
    };
    let loosened = UNSAFE
        .iter()
        .filter(|path| !holds(path, |line| line.contains("unsafe_code")));
    let sleeping = SLEEPING.iter().filter(|path| !holds(path, sleeps));
    let none_controls = !sources.iter().any(|source| controls(&source.path));
    loosened
        .chain(sleeping)
        .chain(CONTROLLER.iter().filter(|_| none_controls))
        .map(|path| format!("{path}: take it out of tests/tidy/src/places.rs, or correct it there"))
        .collect()
}

fn of_file(source: &Source) -> Vec<String> {
    let tests = source.tests_start();
    let lines = source.text.lines().enumerate();
    lines
        .filter(|(_, line)| !line.trim_start().starts_with("//"))
        .filter_map(|(at, line)| {
            let advice = forbids(&source.path, at >= tests, line)?;
            Some(format!("{}: line {}: {advice}", source.path, at + 1))
        })
        .collect()
}

/// What to do instead, when the line may not stand there.
fn forbids(path: &str, in_test: bool, line: &str) -> Option<&'static str> {
    if line.contains("unsafe_code") && !UNSAFE.contains(&path) {
        Some("`unsafe` has its places in tests/tidy/src/places.rs; find a safe way")
    } else if in_test && sleeps(line) && !SLEEPING.contains(&path) {
        Some("wait for a state with a deadline (transom-support, `wait`), not for time to pass")
    } else if controls(path) && !in_test && compares_reasons(line) {
        Some("compare no reasons: act by `report::End` or `failure::Class`, which no guest can say")
    } else {
        None
    }
}

fn controls(path: &str) -> bool {
    CONTROLLER.iter().any(|start| path.starts_with(start))
}

fn sleeps(line: &str) -> bool {
    ["sleep(", "sleep_until(", "sleep_ms("]
        .iter()
        .any(|call| line.contains(call))
}

/// Whether a line compares a reason, or branches by one.
fn compares_reasons(line: &str) -> bool {
    let arm = line
        .split_once("=>")
        .is_some_and(|(pattern, _)| pattern.contains("KnownReason::"));
    arm || COMPARISONS.iter().any(|form| match form.ends_with(')') {
        true => line.contains(form) && COMPARING.iter().any(|call| line.contains(call)),
        false => line.contains(form),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finds(path: &str, text: &str) -> bool {
        !check(&[Source::new(path, text)]).is_empty()
    }

    #[test]
    fn finds_unsafe_outside_its_places() {
        let loosens = "#[expect(unsafe_code, reason = \"x\")]\n";
        assert!(finds("host/agent/src/a.rs", loosens));
        assert!(finds("host/agent/src/a.rs", "#![allow(unsafe_code)]\n"));
        assert!(!finds("guest/sdk/src/arena.rs", loosens));
    }

    #[test]
    fn finds_listed_places_that_need_no_exception() {
        let all = UNSAFE.len() + SLEEPING.len() + CONTROLLER.len();
        assert_eq!(stale(&[]).len(), all);
        let sources = [
            Source::new(UNSAFE[0], "    unsafe_code,\n"),
            Source::new(SLEEPING[0], "fn a() { sleep(b) }\n"),
            Source::new("host/agent/src/agent.rs", ""),
        ];
        assert_eq!(stale(&sources).len(), all - 2 - CONTROLLER.len());
    }

    #[test]
    fn finds_sleeping_in_tests_only() {
        let sleeping = "fn a() { thread::sleep(b); }\n";
        let beside = format!("fn b() {{}}\n#[cfg(test)]\nmod tests {{\n{sleeping}}}\n");
        assert!(finds("tests/conformance/tests/a.rs", sleeping));
        assert!(finds("host/agent/src/a.rs", &beside));
        assert!(!finds("host/agent/src/a.rs", sleeping));
        assert!(!finds("tests/support/src/wait.rs", sleeping));
    }

    #[test]
    fn finds_comparisons_of_reasons_in_the_controller() {
        for line in [
            "if report.reason == KnownReason::NotLeading.into() {",
            "let unread = |told: &Told| causes.contains(&told.reason);",
            "false if report.reason == other => {}",
            "if matches!(told.reason, Reason::Known(KnownReason::ReadFailed)) {",
            "Reason::Known(KnownReason::SourceDeleted) => Ok(()),",
            "KnownReason::OwnershipPending => return,",
            "match report.reason.as_str() {",
        ] {
            assert!(finds("host/agent/src/agent/a.rs", line), "{line}");
            assert!(finds("host/agent/src/controller.rs", line), "{line}");
            assert!(
                !finds("host/agent/src/command/a.rs", line),
                "only shown: {line}"
            );
            assert!(!finds("host/core/src/a.rs", line), "{line}");
        }
        for line in [
            "if report.end == End::Ended(Class::Standby) {",
            "reason: KnownReason::AgentFailed.into(),",
            "Refusal { reason: KnownReason::PolicyInvalid, message }",
            "screen.note(format_args!(x, told.reason));",
            "Err(error) => Err(Failure::known(KnownReason::ReadFailed, error)),",
        ] {
            assert!(!finds("host/agent/src/agent/a.rs", line), "{line}");
        }
    }
}
