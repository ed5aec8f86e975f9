//! Exceptions to the rules, with reasons. The list may only shrink: an unused entry, or one whose file has grown, is
//! itself a finding. An exception never covers a whole folder.

use crate::finding::{Finding, Rule};

/// One place that a rule allows.
#[derive(Clone, Copy, Debug)]
pub struct Exception {
    /// The rule.
    pub rule: Rule,
    /// The file or package, as the finding names it.
    pub place: &'static str,
    /// The allowed maximum: lines for [`Rule::Size`], occurrences for the others.
    pub most: usize,
    /// Why.
    pub reason: &'static str,
}

/// All exceptions.
pub const EXCEPTIONS: &[Exception] = &[
    Exception {
        rule: Rule::Sleep,
        place: "tests/support/src/wait.rs",
        most: 1,
        reason: "the one place that waits: between two looks at a state, up to a deadline",
    },
    Exception {
        rule: Rule::Sleep,
        place: "tests/cluster/src/wait.rs",
        most: 1,
        reason: "the same for asynchronous tests: between two looks at a state, up to a deadline",
    },
    Exception {
        rule: Rule::Sleep,
        place: "tests/bench/src/process.rs",
        most: 1,
        reason: "a measurement, not a test: looks at a process's peak memory until it ends",
    },
    Exception {
        rule: Rule::Sleep,
        place: "tests/bench/src/watch.rs",
        most: 3,
        reason: "a measurement, not a test: the cost of an agent with nothing to do is a cost over time",
    },
    Exception {
        rule: Rule::Sleep,
        place: "tests/bench/src/cluster/changes.rs",
        most: 1,
        reason: "a measurement, not a test: the cost of an agent with nothing to do is a cost over time",
    },
];

/// The findings of these rules that remain, and errors in the exceptions themselves.
pub fn apply(rules: &[Rule], findings: Vec<Finding>, exceptions: &[Exception]) -> Vec<Finding> {
    let stale = exceptions.iter().filter(|exception| rules.contains(&exception.rule)).filter_map(|exception| {
        let amount = amount_at(exception, &findings);
        (amount == 0 || exception.reason.is_empty()).then(|| Finding {
            rule: exception.rule,
            place: exception.place.to_owned(),
            amount: 1,
            sentence: "needs no exception any more, or has none with a reason; take its entry out of tests/tidy/src/exceptions.rs".to_owned(),
        })
    });
    let stale: Vec<Finding> = stale.collect();
    let covered = |finding: &Finding| {
        exceptions.iter().any(|exception| {
            exception.rule == finding.rule
                && exception.place == finding.place
                && amount_at(exception, &findings) <= exception.most
        })
    };
    let mut left: Vec<Finding> = findings
        .iter()
        .filter(|finding| !covered(finding))
        .cloned()
        .collect();
    left.extend(stale);
    left
}

fn amount_at(exception: &Exception, findings: &[Finding]) -> usize {
    findings
        .iter()
        .filter(|finding| finding.rule == exception.rule && finding.place == exception.place)
        .map(|finding| finding.amount)
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Exception = Exception {
        rule: Rule::Size,
        place: "a.rs",
        most: 310,
        reason: "one table",
    };

    fn long(amount: usize) -> Finding {
        Finding {
            rule: Rule::Size,
            place: "a.rs".to_owned(),
            amount,
            sentence: String::new(),
        }
    }

    fn left(findings: Vec<Finding>) -> usize {
        apply(&[Rule::Size], findings, &[LONG]).len()
    }

    #[test]
    fn an_exception_covers_its_place_up_to_its_limit() {
        assert_eq!(left(vec![long(310)]), 0);
        assert_eq!(left(vec![long(311)]), 1);
    }

    #[test]
    fn finds_an_unused_exception_when_its_rule_runs() {
        assert_eq!(left(Vec::new()), 1);
        assert!(apply(&[Rule::Name], Vec::new(), &[LONG]).is_empty());
    }

    #[test]
    fn finds_an_exception_without_a_reason() {
        let silent = Exception { reason: "", ..LONG };
        assert_eq!(apply(&[Rule::Size], vec![long(301)], &[silent]).len(), 1);
    }
}
