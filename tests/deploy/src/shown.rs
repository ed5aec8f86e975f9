//! Compares what a command printed with what a page shows for it: line by line, where digests, times, names of revisions and
//! numbers of bytes may differ, and the page may leave lines out.

use anyhow::{Result, ensure};
use regex_lite::Regex;

/// The output that a page shows for a command; empty where it shows none.
#[derive(Clone, Copy, Debug)]
pub struct Shown<'a>(pub(crate) &'a [String]);

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
    /// Checks that the command printed these lines, in this order. Where the page ends a line with `…`, more may follow.
    ///
    /// # Errors
    /// With the first line that it did not print.
    pub fn is_in(self, said: &str) -> Result<()> {
        let mut said = said.lines().map(normal);
        for shown in self.0.iter().filter(|line| !line.trim().is_empty()) {
            let expected = normal(shown);
            let is_same = |line: String| match expected.strip_suffix('…') {
                Some(begin) => line.starts_with(begin),
                None => line == expected,
            };
            ensure!(
                said.any(is_same),
                "the page shows a line that the command did not print there: {shown}"
            );
        }
        Ok(())
    }
}

/// A line without what differs from run to run, and without the page's own remark at its end.
fn normal(line: &str) -> String {
    let line = line.split("  # ").next().unwrap_or_default();
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
        let shown = shown.map(str::to_owned);
        let shown = Shown(&shown);
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
        Shown(&[]).is_in("anything").unwrap();
    }
}
