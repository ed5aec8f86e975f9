//! Words that are allowed only in some places: `unsafe`, `#[allow]`, sleeping in tests, effects in the core, reasons in
//! what the controller does. Ignores comments and literals.

use crate::code;
use crate::finding::{Finding, Rule};
use crate::tree::Source;

/// The only places for `unsafe`: the allocator of guests, generated bindings, deserialising compiled code; and the
/// linear memory that a test owns, which is compiled only with the tests' feature.
const UNSAFE_PLACES: [&str; 5] = [
    "guest/sdk/src/arena.rs",
    "guest/sdk/src/bindings",
    "host/engine/src/bindings",
    "host/engine/src/compiled.rs",
    "host/engine/src/recorder.rs",
];

/// Effects that would make the core's answer depend on more than its arguments.
const EFFECTS: [&str; 12] = [
    "SystemTime",
    "Instant",
    "Timestamp::now",
    "Zoned::now",
    "std::env",
    "std::fs",
    "TcpStream",
    "UdpSocket",
    "ToSocketAddrs",
    "std::process",
    "std::thread",
    "RandomState",
];

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

/// Places with a forbidden word.
pub fn check(sources: &[Source]) -> Vec<Finding> {
    sources
        .iter()
        .filter(|source| source.is("rs"))
        .flat_map(of_file)
        .collect()
}

fn of_file(source: &Source) -> Vec<Finding> {
    let code = code::only(&source.text);
    let tests = code::test_lines(&code);
    let mut findings = Vec::new();
    for ((number, line), in_test) in code.lines().enumerate().zip(tests) {
        let place = Place {
            path: &source.path,
            in_test: in_test || source.is_test(),
        };
        if let Some((rule, advice)) = place.forbids(line) {
            let sentence = format!("line {}: {advice}", number + 1);
            findings.push(Finding {
                rule,
                place: source.path.clone(),
                amount: 1,
                sentence,
            });
        }
    }
    findings
}

/// The place of a line.
struct Place<'a> {
    path: &'a str,
    in_test: bool,
}

impl Place<'_> {
    /// The rule that the line breaks, with what to do.
    fn forbids(&self, line: &str) -> Option<(Rule, String)> {
        let loosens = line.contains("expect(unsafe_code") || line.contains("allow(unsafe_code");
        if (code::has_word(line, "unsafe") || loosens)
            && !UNSAFE_PLACES
                .iter()
                .any(|place| self.path.starts_with(place))
        {
            let places = UNSAFE_PLACES.join(", ");
            return Some((
                Rule::Unsafe,
                format!("`unsafe` has its place only in {places}; find a safe way"),
            ));
        }
        if line.contains("#[allow(") || line.contains("#![allow(") {
            return Some((
                Rule::Allow,
                "write `#[expect(…, reason = \"…\")]`: it goes when its reason goes".to_owned(),
            ));
        }
        if self.in_test
            && ["sleep(", "sleep_until(", "sleep_ms("]
                .iter()
                .any(|call| line.contains(call))
        {
            return Some((
                Rule::Sleep,
                "wait for a state with a deadline (transom-support, `wait`), not for time to pass"
                    .to_owned(),
            ));
        }
        if self.path.starts_with("host/agent/src/agent") && !self.in_test && compares_reasons(line)
        {
            return Some((
                Rule::Reason,
                "the agent compares no reasons: act by `report::End` or `failure::Class`, which no guest can say"
                    .to_owned(),
            ));
        }
        if self.path.starts_with("host/core/src/") && !self.in_test {
            let effect = EFFECTS.iter().find(|effect| code::has_word(line, effect))?;
            return Some((
                Rule::Pure,
                format!("`{effect}` makes the core impure; take the value as an argument"),
            ));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(path: &str, text: &str) -> Vec<Rule> {
        check(&[Source::new(path, text)])
            .into_iter()
            .map(|finding| finding.rule)
            .collect()
    }

    #[test]
    fn finds_unsafe_outside_its_places() {
        assert_eq!(
            rules("host/core/src/a.rs", "fn a() { unsafe { b() } }\n"),
            [Rule::Unsafe]
        );
        assert_eq!(
            rules(
                "host/agent/src/a.rs",
                "#[expect(unsafe_code, reason = \"x\")]\n"
            ),
            [Rule::Unsafe]
        );
        assert_eq!(
            rules("guest/sdk/src/arena.rs", "unsafe impl A for B {}\n"),
            []
        );
        assert_eq!(
            rules("host/core/src/a.rs", "// unsafe\n#![forbid(unsafe_code)]\n"),
            []
        );
    }

    #[test]
    fn finds_allow_but_not_expect() {
        assert_eq!(
            rules("host/agent/src/a.rs", "#![allow(dead_code)]\n"),
            [Rule::Allow]
        );
        assert_eq!(
            rules(
                "host/agent/src/a.rs",
                "#[expect(dead_code, reason = \"x\")]\n"
            ),
            []
        );
    }

    #[test]
    fn finds_sleeping_in_tests_only() {
        let sleeping = "fn a() { thread::sleep(b); }\n";
        assert_eq!(
            rules("tests/conformance/tests/a.rs", sleeping),
            [Rule::Sleep]
        );
        assert_eq!(
            rules(
                "host/agent/src/a.rs",
                &format!("#[cfg(test)]\nmod tests {{\n{sleeping}}}\n")
            ),
            [Rule::Sleep]
        );
        assert_eq!(rules("host/agent/src/a.rs", sleeping), []);
    }

    #[test]
    fn finds_comparisons_of_reasons_in_the_agent() {
        for line in [
            "if report.reason == KnownReason::NotLeading.into() {",
            "let unread = |told: &Told| causes.contains(&told.reason);",
            "false if report.reason == other => {}",
            "if matches!(told.reason, Reason::Known(KnownReason::ReadFailed)) {",
            "Reason::Known(KnownReason::SourceDeleted) => Ok(()),",
            "KnownReason::OwnershipPending => return,",
            "match report.reason.as_str() {",
        ] {
            assert_eq!(
                rules("host/agent/src/agent/a.rs", &format!("{line}\n")),
                [Rule::Reason],
                "{line}"
            );
            assert_eq!(
                rules("host/agent/src/command/a.rs", &format!("{line}\n")),
                [],
                "what is only shown: {line}"
            );
            assert_eq!(
                rules("host/core/src/a.rs", &format!("{line}\n")),
                [],
                "{line}"
            );
        }
        for line in [
            "if report.end == End::Ended(Class::Standby) {",
            "reason: KnownReason::AgentFailed.into(),",
            "Refusal { reason: KnownReason::PolicyInvalid, message }",
            "screen.note(format_args!(x, told.reason));",
            "Err(error) => Err(Failure::known(KnownReason::ReadFailed, error)),",
        ] {
            assert_eq!(
                rules("host/agent/src/agent/a.rs", &format!("{line}\n")),
                [],
                "{line}"
            );
        }
    }

    #[test]
    fn finds_effects_in_the_core() {
        assert_eq!(
            rules("host/core/src/a.rs", "let now = Instant::now();\n"),
            [Rule::Pure]
        );
        assert_eq!(rules("host/core/src/a.rs", "use std::env;\n"), [Rule::Pure]);
        assert_eq!(rules("host/core/src/a.rs", "use std::net::IpAddr;\n"), []);
        assert_eq!(rules("host/agent/src/a.rs", "use std::env;\n"), []);
    }
}
