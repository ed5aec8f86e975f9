//! Rows of the behaviour of Open Cluster Management and of the hypershift-addon that these policies replace: each is a
//! case of a guest or of a policy, named by its folder, or a test that names it in its documentation: "Rows of
//! `policy`: A01, A02." What needs neither is listed here with its reason.

use crate::Source;
use std::collections::BTreeSet;

/// The rows of a subject: the first ones of some numbers, and whose cases they are.
struct Subject {
    name: &'static str,
    /// A letter, and the numbers from the first to the last.
    rows: &'static [(char, u8, u8)],
    /// Guests and policies.
    cases: &'static [&'static str],
}

const SUBJECTS: [Subject; 12] = [
    Subject {
        name: "cluster-acceptance",
        rows: &[('A', 10, 12), ('A', 20, 20)],
        cases: &["cluster-acceptance"],
    },
    Subject {
        name: "cluster-access",
        rows: &[('A', 1, 9), ('A', 13, 19)],
        cases: &["cluster-access"],
    },
    Subject {
        name: "client-certificates",
        rows: &[('K', 1, 17), ('K', 28, 33), ('C', 1, 10)],
        cases: &["client-certificates"],
    },
    Subject {
        name: "availability",
        rows: &[('L', 1, 18), ('C', 1, 6)],
        cases: &["availability"],
    },
    Subject {
        name: "cluster-sets",
        rows: &[('M', 1, 16)],
        cases: &[
            "set-members",
            "cluster-set-members",
            "default-sets",
            "default-cluster-sets",
            "default-cluster-set-selectors",
            "set-bindings",
            "cluster-set-bindings",
            "managed-namespaces",
        ],
    },
    Subject {
        name: "cleanup",
        rows: &[('G', 1, 11), ('G', 13, 13)],
        cases: &["cleanup", "cluster-leftovers", "cluster-access"],
    },
    Subject {
        name: "addon-health",
        rows: &[('O', 1, 3)],
        cases: &["addon-health"],
    },
    Subject {
        name: "auto-import",
        rows: &[('A', 1, 5)],
        cases: &["auto-import"],
    },
    Subject {
        name: "hub-copies",
        rows: &[('H', 1, 7)],
        cases: &["hub-copies"],
    },
    Subject {
        name: "detach",
        rows: &[('H', 8, 14)],
        cases: &["detach"],
    },
    // What `host/deploy/hub/admission.yaml` checks where the webhooks do not run.
    Subject {
        name: "webhook",
        rows: &[('W', 17, 34)],
        cases: &[],
    },
    // What of the add-on no policy does; `migrate.md` tells operators.
    Subject {
        name: "hypershift-addon",
        rows: &[('H', 15, 23), ('D', 1, 4), ('L', 1, 5), ('M', 1, 2)],
        cases: &[],
    },
];

/// Rows that have neither, each with its reason.
const WITHOUT: [(&str, &[&str], &str); 12] = [
    (
        "auto-import",
        &["A02"],
        "the policy works only where it is installed, and no install brings it",
    ),
    (
        "cleanup",
        &["G01"],
        "a reconcile has a primary, and a primary has a name",
    ),
    (
        "client-certificates",
        &["K17"],
        "no API server since Kubernetes 1.22 has requests of v1beta1",
    ),
    (
        "hub-copies",
        &["H05"],
        "a copy has the bytes of its source, to whose CA HyperShift itself appends the named certificates",
    ),
    (
        "detach",
        &["H13"],
        "a reconcile has a primary, so there is no call without a HostedCluster",
    ),
    (
        "webhook",
        &["W19"],
        "an expression of admission sees no other object; `cluster-access` waits for the namespace",
    ),
    (
        "hypershift-addon",
        &["H15", "H16", "H17", "H18", "H20"],
        "scores and claims of a hosting cluster stay with the add-on: no policy writes them",
    ),
    (
        "hypershift-addon",
        &["H19"],
        "about that count; a kind that is missing holds up nobody (V29, in the tests of faults)",
    ),
    (
        "hypershift-addon",
        &["H21", "H22", "H23"],
        "the claim inside a hosted cluster stays with the add-on: no policy reaches into hosted clusters for it",
    ),
    (
        "hypershift-addon",
        &["D01", "D02", "D03", "D04"],
        "DiscoveredClusters stay with the add-on; `auto-import` imports without them",
    ),
    (
        "hypershift-addon",
        &["L01", "L02", "L03", "L04", "L05"],
        "labels between a hub and hosted clusters stay with the add-on; `auto-import` carries those of the HostedCluster",
    ),
    (
        "hypershift-addon",
        &["M01", "M02"],
        "metrics of hosted control planes are those of HyperShift; the agent has its own",
    ),
];

/// What the rows of the subjects lack, by the files of the workspace.
pub fn check(sources: &[Source]) -> Vec<String> {
    SUBJECTS
        .iter()
        .flat_map(|subject| lacking(subject, sources))
        .collect()
}

fn lacking(subject: &Subject, sources: &[Source]) -> Vec<String> {
    let proven: BTreeSet<String> = sources
        .iter()
        .flat_map(|source| {
            let case = case(subject, &source.path).map(str::to_owned);
            case.into_iter().chain(named(subject.name, source))
        })
        .collect();
    let without = |row: &str| {
        let mut all = WITHOUT.iter();
        all.any(|(name, rows, _)| *name == subject.name && rows.contains(&row))
    };
    let rows = subject.rows.iter();
    let rows = rows.flat_map(|(letter, first, last)| {
        (*first..=*last).map(move |number| format!("{letter}{number:02}"))
    });
    rows.filter_map(|row| match (proven.contains(&row), without(&row)) {
        (false, false) => Some(format!(
            "{row} of {}: name a case or a test by it, or say in tests/tidy/src/rows.rs why it needs none",
            subject.name
        )),
        (true, true) => Some(format!("{row} of {}: it needs no exception", subject.name)),
        _ => None,
    })
    .collect()
}

/// The row of a case of the subject, by the path of its expectation.
fn case<'a>(subject: &Subject, path: &'a str) -> Option<&'a str> {
    let (place, case) = path.strip_suffix("/expected.yaml")?.split_once("/cases/")?;
    let (kind, owner) = place.split_once('/')?;
    let ours = ["guest", "policies"].contains(&kind) && subject.cases.contains(&owner);
    ours.then(|| case.get(..3)).flatten()
}

/// The rows of the subject that the documentation of a test names.
fn named(subject: &str, source: &Source) -> Vec<String> {
    let begins = ["Row of `", "Rows of `"].map(|word| [word, subject, "`:"].concat());
    let lines = source.text.lines().take_while(|_| source.is("rs"));
    let lines = lines.filter_map(|line| {
        let said = line.trim_start().strip_prefix("/// ")?;
        begins
            .iter()
            .find_map(|begin| said.strip_prefix(begin.as_str()))
    });
    let words = lines.flat_map(|line| line.split([' ', ',', '.']));
    words
        .filter(|word| word.len() == 3)
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_needs_a_case_a_test_or_a_reason_and_no_reason_beside_them() {
        let one = Subject {
            name: "auto-import",
            rows: &[('A', 1, 4)],
            cases: &["auto-import"],
        };
        let case =
            |row: &str| Source::new(&format!("guest/auto-import/cases/{row}/expected.yaml"), "");
        let test = Source::new(
            "tests/e2e/tests/cluster/x.rs",
            "/// Rows of `auto-import`: A03, A04.\nfn x() {}\n/// Rows of `detach`: A01.\n",
        );
        let findings = |sources: &[Source]| -> Vec<String> {
            let all = lacking(&one, sources).into_iter();
            all.map(|finding| finding.chars().take(3).collect())
                .collect()
        };
        assert_eq!(findings(&[]), ["A01", "A03", "A04"]);
        assert_eq!(
            findings(&[case("A01b-x"), test.clone()]),
            Vec::<String>::new()
        );
        assert_eq!(findings(&[case("A01-x"), case("A02-x"), test]), ["A02"]);
        let other = Source::new("guest/detach/cases/A01-x/expected.yaml", "");
        assert_eq!(findings(&[other]), ["A01", "A03", "A04"]);
    }
}
