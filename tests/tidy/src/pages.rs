//! Pages name only what exists: every path, metric, flag, test and CamelCase word in code that a page names exists in
//! the tree, and so does every command and flag of `transom` in a command line on a page. Does not check what the page
//! says about it.

use crate::Source;

/// Names of the reader's own files, those of the tutorial; and flags of helm and of Rust's tests.
const OF_OTHERS: [&str; 4] = [
    "cases/labelled/",
    "cases/wrong-setting/",
    "--reuse-values",
    "--nocapture",
];
/// Endings that mark a file of the tree when a page names it with its folder.
const FILES: [&str; 5] = [".rs", ".yaml", ".json", ".wit", ".md"];
/// Prefixes of metrics and recorded series.
const METRICS: [&str; 3] = ["transom_", "transom:", "hypershift_addon_agent_"];

/// Names on a page that do not exist; none for other files and for decisions, which name what there was.
pub fn missing(page: &Source, sources: &[Source]) -> Option<String> {
    if !page.is("md") || page.path.starts_with("host/adr/") {
        return None;
    }
    let spans = spans(&page.text).into_iter();
    let mut missing: Vec<&str> = spans.filter(|span| !span_exists(span, sources)).collect();
    for words in command_lines(&page.text) {
        let known = |word: &&str| match word.strip_prefix("--") {
            Some("" | "help" | "version") => true,
            Some(_) => is_flag(sources, word),
            None => true,
        };
        missing.extend(words.iter().filter(|word| !known(word)));
        let command = words
            .first()
            .filter(|word| word.bytes().all(|byte| byte.is_ascii_lowercase()));
        missing.extend(command.filter(|command| {
            let variant = command[..1].to_ascii_uppercase() + &command[1..];
            !of_transom(sources).any(|source| source.has_word(&variant))
        }));
    }
    let names = missing.join("`, `");
    (!missing.is_empty())
        .then(|| format!("names `{names}`, and nothing is called so: correct the page"))
}

/// Whether what a span of code names exists; true if it is of no kind that can be looked up.
fn span_exists(span: &str, sources: &[Source]) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-./:".contains(&byte);
    let starts = |all: &[&str]| all.iter().any(|start| span.starts_with(start));
    // Paths of Rust are in its own documentation, which the compiler checks.
    if !span.bytes().all(plain) || span.contains("::") || starts(&OF_OTHERS) {
        return true;
    }
    let somewhere = |name: &str| {
        let mut others = sources.iter().filter(|source| !source.is("md"));
        others.any(|source| source.has_word(name))
    };
    let upper = span.bytes().filter(u8::is_ascii_uppercase).count();
    if span.contains('/') && FILES.iter().any(|end| span.ends_with(end)) {
        let path = format!("/{}", span.trim_start_matches("./"));
        let mut paths = sources.iter().map(|source| format!("/{}", source.path));
        paths.any(|known| known.ends_with(&path))
    } else if starts(&METRICS) {
        // Prometheus adds a suffix to the name of a histogram.
        let ends = ["_bucket", "_sum", "_count"];
        somewhere(
            ends.iter()
                .find_map(|end| span.strip_suffix(end))
                .unwrap_or(span),
        )
    } else if let Some(flag) = span.strip_prefix("--") {
        let letters = flag
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte == b'-');
        let mut code = sources.iter().filter(|source| source.is("rs"));
        !letters || is_flag(sources, span) || code.any(|source| source.has_word(span))
    } else if span.bytes().all(|byte| byte.is_ascii_alphabetic())
        && span.starts_with(|first: char| first.is_ascii_uppercase())
        && (2..span.len()).contains(&upper)
    {
        somewhere(span)
    } else if span.split('_').count() > 3 {
        // The name of a test.
        somewhere(span)
    } else {
        true
    }
}

/// The sources of the commands and flags of `transom`.
fn of_transom(sources: &[Source]) -> impl Iterator<Item = &Source> {
    let args = |source: &&Source| source.path.starts_with("host/agent/src/args");
    sources.iter().filter(args)
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
            let words = call.split_whitespace();
            let mut words = words.filter(|word| !["$", "\\"].contains(word)).peekable();
            if !(goes_on && index == 0) {
                let is_transom = |word: &&str| *word == "transom" || word.ends_with("/transom");
                ours = words.next_if(is_transom).is_some();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_names_that_do_not_exist_and_no_others() {
        let args = "pub(crate) read_only: bool, OwnedByAnother transom_primaries Run";
        for (page, found) in [
            ("see `agent/src/pipeline.rs` there", true),
            ("see `agent/src/agent/pipeline.rs` there", false),
            ("see `--reed-only` there", true),
            ("see `--read-only` there", false),
            ("see `TargetMissed` there", true),
            ("see `OwnedByAnother` there", false),
            ("see `transom_primary_states` there", true),
            ("see `transom_primaries` and `kubectl get x` there", false),
            ("```\nsee `nowhere/at/all.rs`\n```\n", false),
            ("say `transom run --reed-only` once", true),
            (
                "```sh\ntransom run --read-only=x fleet | kubectl apply --server-side -f -\n```\n",
                false,
            ),
            (
                "```sh\nkubectl get x --all | ./target/release/transom run --reed-only\n```\n",
                true,
            ),
            (
                "```sh\ntransom run \\\n  fleet \\\n  --reed-only\n```\n",
                true,
            ),
            (
                "```sh\ntransom ruin fleet && helm upgrade --reuse-values\n```\n",
                true,
            ),
            (
                "```sh\nkubectl logs deploy/transom --all-containers\n```\n",
                false,
            ),
        ] {
            let page = Source::new("docs/page.md", page);
            let sources = [
                page.clone(),
                Source::new("host/agent/src/agent/pipeline.rs", "//! x"),
                Source::new("host/agent/src/args.rs", args),
            ];
            assert_eq!(missing(&page, &sources).is_some(), found, "{}", page.text);
        }
    }
}
