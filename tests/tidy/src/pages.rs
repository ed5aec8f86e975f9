//! Pages name only what exists: every path, metric, flag and CamelCase word in code that a page names exists in the
//! tree, and so does every command and flag of `transom` in a command line on a page. Does not check what the page says
//! about it.

use crate::tree::Source;

/// Names of the reader's own files: those of the tutorial.
const OF_THE_READER: [&str; 2] = ["cases/labelled/", "cases/wrong-setting/"];
/// Flags of helm and of Rust's tests.
const OF_OTHERS: [&str; 2] = ["--reuse-values", "--nocapture"];
/// Endings that mark a file of the tree when a page names it with its folder.
const FILES: [&str; 5] = [".rs", ".yaml", ".json", ".wit", ".md"];
/// Prefixes of metrics and recorded series.
const METRICS: [&str; 3] = ["transom_", "transom:", "hypershift_addon_agent_"];

/// Names on pages that do not exist.
pub fn check(sources: &[Source]) -> Vec<String> {
    let is_page = |source: &&Source| source.is("md") && !source.path.starts_with("host/adr/");
    sources
        .iter()
        .filter(is_page)
        .flat_map(|page| of(page, sources))
        .collect()
}

fn of(page: &Source, sources: &[Source]) -> Vec<String> {
    let mut missing: Vec<String> = Vec::new();
    let mut look = |span: &str, known: bool| {
        if !known && !missing.iter().any(|one| one == span) {
            missing.push(span.to_owned());
        }
    };
    for span in spans(&page.text) {
        let known = match kind(span) {
            Some(Kind::Path) => sources.iter().any(|source| ends(&source.path, span)),
            Some(Kind::Metric) => somewhere(sources, metric(span)),
            Some(Kind::Flag) => {
                is_flag(sources, span)
                    || sources
                        .iter()
                        .any(|source| source.is("rs") && source.has_word(span))
            }
            Some(Kind::KnownReason) => somewhere(sources, span),
            None => true,
        };
        look(span, known);
    }
    for words in command_lines(&page.text) {
        for flag in words
            .iter()
            .filter(|word| word.starts_with("--") && word.len() > 2)
        {
            look(
                flag,
                is_flag(sources, flag) || ["--help", "--version"].contains(flag),
            );
        }
        if let Some(command) = words
            .first()
            .filter(|word| word.bytes().all(|byte| byte.is_ascii_lowercase()))
        {
            let variant: String = command[..1].to_ascii_uppercase() + &command[1..];
            look(
                command,
                of_transom(sources).any(|source| source.has_word(&variant)),
            );
        }
    }
    let path = &page.path;
    missing
        .into_iter()
        .map(|span| format!("{path}: names `{span}`, and nothing is called so: correct the page"))
        .collect()
}

/// The sources of the commands and flags of `transom`.
fn of_transom(sources: &[Source]) -> impl Iterator<Item = &Source> {
    sources
        .iter()
        .filter(|source| source.path.starts_with("host/agent/src/args"))
}

fn is_flag(sources: &[Source], flag: &str) -> bool {
    let field = flag.trim_start_matches('-').replace('-', "_");
    of_transom(sources).any(|source| source.has_word(&format!("{field}:")))
}

/// The arguments of every call of `transom` in blocks and spans; a line that ends with `\` continues.
fn command_lines(text: &str) -> Vec<Vec<&str>> {
    let mut calls: Vec<Vec<&str>> = Vec::new();
    // Whether the previous line is a call of `transom` that continues.
    let (mut ours, mut goes_on) = (false, false);
    for part in text.split(['\n', '`']) {
        for (index, call) in part.split(['|', '&', ';', '(', ')', '<', '>']).enumerate() {
            let mut words = call
                .split_whitespace()
                .filter(|word| !["$", "\\"].contains(word))
                .peekable();
            if !(goes_on && index == 0) {
                ours = words
                    .next_if(|word| *word == "transom" || word.ends_with("/transom"))
                    .is_some();
                calls.extend(ours.then(Vec::new));
            }
            if let Some(call) = calls.last_mut().filter(|_| ours) {
                call.extend(words.map(|word| word.split(['=', '"', '\'']).next().unwrap_or(word)));
            }
        }
        goes_on = part.trim_end().ends_with('\\');
    }
    calls
}

/// The kinds of names in a span of code that can be looked up.
enum Kind {
    Path,
    Metric,
    Flag,
    KnownReason,
}

fn kind(span: &str) -> Option<Kind> {
    let plain = |text: &str| {
        text.bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"_-./:".contains(&byte))
    };
    // Paths of Rust are in its own documentation, which the compiler checks.
    if !plain(span)
        || span.contains("::")
        || OF_OTHERS.contains(&span)
        || OF_THE_READER.iter().any(|start| span.starts_with(start))
    {
        return None;
    }
    let letters = |text: &str| {
        text.bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte == b'-')
    };
    if span.contains('/') && FILES.iter().any(|end| span.ends_with(end)) {
        Some(Kind::Path)
    } else if METRICS.iter().any(|start| span.starts_with(start)) {
        Some(Kind::Metric)
    } else if span.strip_prefix("--").is_some_and(letters) {
        Some(Kind::Flag)
    } else {
        let upper = span.bytes().filter(u8::is_ascii_uppercase).count();
        let word = span.bytes().all(|byte| byte.is_ascii_alphabetic());
        let camel = span.starts_with(|first: char| first.is_ascii_uppercase())
            && upper >= 2
            && upper < span.len();
        (word && camel).then_some(Kind::KnownReason)
    }
}

/// The spans of code in running text; blocks are separate commands and files.
fn spans(text: &str) -> Vec<&str> {
    let mut spans = Vec::new();
    let mut in_block = false;
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            in_block = !in_block;
        } else if !in_block {
            spans.extend(line.split('`').skip(1).step_by(2));
        }
    }
    spans
}

/// Whether a path of the tree has this end, at the border of a name.
fn ends(path: &str, end: &str) -> bool {
    path.strip_suffix(end.trim_start_matches("./"))
        .is_some_and(|rest| rest.is_empty() || rest.ends_with('/'))
}

/// A metric without the suffix that Prometheus adds to the name of a histogram.
fn metric(span: &str) -> &str {
    ["_bucket", "_sum", "_count"]
        .iter()
        .find_map(|end| span.strip_suffix(end))
        .unwrap_or(span)
}

fn somewhere(sources: &[Source], name: &str) -> bool {
    sources
        .iter()
        .any(|source| !source.is("md") && source.has_word(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(page: &str) -> usize {
        let sources = [
            Source::new("docs/page.md", page),
            Source::new("host/agent/src/agent/pipeline.rs", "//! x"),
            Source::new(
                "host/agent/src/args.rs",
                "pub(crate) read_only: bool, OwnedByAnother transom_primaries Run",
            ),
        ];
        check(&sources).len()
    }

    #[test]
    fn finds_names_that_do_not_exist() {
        for span in [
            "agent/src/pipeline.rs",
            "--reed-only",
            "TargetClaim",
            "TargetMissed",
            "transom_primary_states",
        ] {
            assert_eq!(named(&format!("see `{span}` there")), 1, "{span}");
        }
    }

    #[test]
    fn accepts_names_that_exist() {
        for span in [
            "agent/src/agent/pipeline.rs",
            "--read-only",
            "OwnedByAnother",
            "transom_primaries",
            "kubectl get x",
        ] {
            assert_eq!(named(&format!("see `{span}` there")), 0, "{span}");
        }
        assert_eq!(
            named("```\nsee `nowhere/at/all.rs`\n```\n"),
            0,
            "a block is the reader's"
        );
    }

    #[test]
    fn a_command_line_names_existing_commands_and_flags() {
        for (line, missing) in [
            (
                "transom run --read-only=x fleet | kubectl apply --server-side -f -",
                0,
            ),
            (
                "kubectl get x --all | ./target/release/transom run --reed-only",
                1,
            ),
            ("transom run \\\n  fleet \\\n  --reed-only", 1),
            ("transom ruin fleet && helm upgrade --reuse-values", 1),
            ("kubectl logs deploy/transom --all-containers", 0),
        ] {
            assert_eq!(named(&format!("```sh\n{line}\n```\n")), missing, "{line}");
        }
        assert_eq!(named("say `transom run --reed-only` once"), 1);
    }
}
