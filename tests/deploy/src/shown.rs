//! Compares what a command printed with what a page shows for it: line by line, where digests, times, names of
//! revisions and numbers of bytes may differ, and the page may leave lines out. A digest or a revision of the page
//! stands for the same printed one all over the page, and for no other.

use anyhow::{Result, ensure};
use regex_lite::Regex;
use std::cell::RefCell;
use std::collections::BTreeSet;

/// The output that a page shows for a command; empty where it shows none.
#[derive(Clone, Copy, Debug)]
pub struct Shown<'a> {
    pub(crate) lines: &'a [String],
    pub(crate) pairs: &'a RefCell<Pairs>,
}

/// The digests and revisions of a page, each with the printed one that it stands for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pairs(BTreeSet<(String, String)>);

/// What is such a digest or revision, and how much of it counts: some commands print only the beginning of a digest.
const NAMES: &str = r"sha256:[0-9a-f]{6,64}|\b[0-9a-f]{10}\b";
const BEGIN: usize = "sha256:012345".len();

/// What differs from run to run, and what stands for it.
const VARYING: [(&str, &str); 6] = [
    (r"sha256:[0-9a-f]{6,64}", "sha256:DIGEST"),
    (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", "TIME"),
    (r"\b[0-9a-f]{10}\b", "REVISION"),
    (r"\b(\d+[smhd])+(\s|$)", "AGE "),
    (r"\b\d+ bytes", "N bytes"),
    (r"\s+", " "),
];

impl Shown<'_> {
    /// Checks that the command printed these lines, in this order. Where the page ends a line with `…`, more may
    /// follow.
    ///
    /// # Errors
    /// With the first line that it did not print.
    pub fn is_in(self, said: &str) -> Result<()> {
        let mut said = said.lines();
        for shown in self.lines.iter().filter(|line| !line.trim().is_empty()) {
            let expected = normal(shown);
            let is_same = |line: &str| {
                let line = normal(line);
                match expected.strip_suffix('…') {
                    Some(begin) => line.starts_with(begin),
                    None => line == expected,
                }
            };
            let mut other = String::new();
            let is_shown = said.any(|line| {
                let is_same = is_same(line);
                let stands = is_same && self.pairs.borrow_mut().add(shown, line);
                if is_same && !stands {
                    other =
                        format!("; only `{line}`, where other digests or revisions are the same");
                }
                stands
            });
            ensure!(
                is_shown,
                "the page shows a line that the command did not print there: {shown}{other}"
            );
        }
        Ok(())
    }
}

impl Pairs {
    /// Adds those of one line, unless they contradict those before.
    fn add(&mut self, shown: &str, said: &str) -> bool {
        let mut pairs = self.0.clone();
        for (shown, said) in names(shown).into_iter().zip(names(said)) {
            let fits = |one: &(String, String)| (one.0 == shown) == (one.1 == said);
            if !pairs.iter().all(fits) {
                return false;
            }
            pairs.insert((shown, said));
        }
        self.0 = pairs;
        true
    }
}

/// The digests and revisions of a line.
fn names(line: &str) -> Vec<String> {
    let names = Regex::new(NAMES).unwrap_or_else(|error| unreachable!("{error}"));
    let found = names.find_iter(without_remark(line));
    let begin = found.map(|one| one.as_str().chars().take(BEGIN).collect());
    begin.collect()
}

/// A line without the page's own remark at its end.
fn without_remark(line: &str) -> &str {
    line.split("  # ").next().unwrap_or_default()
}

/// A line without what differs from run to run.
fn normal(line: &str) -> String {
    let line = without_remark(line);
    let replace = |text: String, (pattern, with): &(&str, &str)| {
        let pattern = Regex::new(pattern).unwrap_or_else(|error| unreachable!("{error}"));
        pattern.replace_all(&text, *with).into_owned()
    };
    let line = VARYING.iter().fold(line.to_owned(), replace);
    line.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_varies_may_differ() {
        let shown = [
            "NAME   AGE",
            "a  12s",
            "at sha256:00ff00… since 2026-01-01T00:00:00Z",
            "too long…",
        ];
        let (shown, pairs) = (shown.map(str::to_owned), RefCell::default());
        let shown = Shown {
            lines: &shown,
            pairs: &pairs,
        };
        let said =
            "NAME AGE\na 3m5s\nb\nat sha256:aabbcc since 2027-01-01T00:00:00.5Z\ntoo long to show";
        let cut = said.replace("sha256:aabbcc", "sha256:aabbcc…");
        shown.is_in(&cut).unwrap();
        for wrong in [
            cut.replace("a 3m5s\n", ""),
            cut.replace("NAME AGE\n", "") + "\nNAME AGE",
            cut.replace("b\nat", "b\non"),
            cut.replace("a 3m5s", "a 3m5"),
        ] {
            assert!(shown.is_in(&wrong).is_err(), "{wrong}");
        }
        let nothing = Shown {
            lines: &[],
            pairs: &pairs,
        };
        nothing.is_in("anything").unwrap();
    }

    #[test]
    fn one_digest_of_a_page_stands_for_one_printed_digest() {
        let pairs = RefCell::default();
        let shows = |lines: &str, said: &str| {
            let lines: Vec<_> = lines.lines().map(str::to_owned).collect();
            let shown = Shown {
                lines: &lines,
                pairs: &pairs,
            };
            shown.is_in(said).is_ok()
        };
        let (first, second) = ("a sha256:111111", "a sha256:222222");
        assert!(shows(first, "a sha256:cccccc"));
        // Another command may print more of it.
        assert!(shows("at sha256:11111111", "at sha256:cccccc77"));
        assert!(!shows(second, "a sha256:cccccc"), "another one of the page");
        assert!(!shows(first, "a sha256:dddddd"), "another printed one");
        // What did not fit counts for nothing.
        assert!(shows(second, "a sha256:dddddd"));
        assert!(shows("0123456789 b", "abcdefabcd b"));
        assert!(!shows("0123456789 c", "abcdefabce c"));
        assert!(shows("0123456780 c", "abcdefabcd c\nabcdefabce c"));
    }
}
