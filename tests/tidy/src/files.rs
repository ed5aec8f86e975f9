//! Rules about one file: its first line, its size, its names, the words that stand in few places, and what a manifest
//! inherits. Each function says what is wrong with a file, if anything.

use crate::Source;
use std::collections::BTreeMap;

/// Forbidden names of files, folders and modules.
const MODULES: [&str; 9] = [
    "utils",
    "util",
    "common",
    "helpers",
    "helper",
    "manager",
    "constants",
    "consts",
    "misc",
];
/// The keywords that declare a type.
const TYPE_WORDS: [&str; 4] = ["struct", "enum", "trait", "type"];
/// Forbidden endings of types.
const TYPES: [&str; 4] = ["Manager", "Helper", "Helpers", "Utils"];
/// The only files that may loosen the lint `unsafe_code`: the allocator of guests, deserialising compiled code, and the
/// linear memory that a test owns, which is compiled only with the tests' feature.
pub const UNSAFE: [&str; 3] = [
    "guest/sdk/src/arena.rs",
    "host/engine/src/compiled.rs",
    "host/engine/src/recorder.rs",
];
/// The only files where test code sleeps. The two `wait` look at a state, up to a deadline; the others are
/// measurements: the cost of an agent with nothing to do is a cost over time.
pub const SLEEPING: [&str; 7] = [
    "tests/support/src/wait.rs",
    "tests/cluster/src/wait.rs",
    "tests/bench/src/process.rs",
    "tests/bench/src/start.rs",
    "tests/bench/src/watch.rs",
    "tests/bench/src/cluster/changes.rs",
    "tests/bench/src/cluster/leases.rs",
];
/// Files of the controller: these only order the decisions of the core.
pub const CONTROLLER: &str = "host/agent/src/controller";
/// Patterns of lines that compare a reason: a guest may return any reason, so nothing may depend on one. Decisions by
/// the outcome of a reconcile use `report::End`, which only the core creates.
const COMPARISONS: [&str; 8] = [
    "== KnownReason::",
    "!= KnownReason::",
    "== Reason::",
    "!= Reason::",
    "reason ==",
    "reason !=",
    "Reason::Known(",
    "reason.as_str() {",
];
/// One more, within a call that compares.
const COMPARED: &str = "reason)";
const COMPARING: [&str; 3] = ["contains(", "matches!(", "eq("];

/// The most characters of a line with a comment in Rust; rustfmt leaves comments alone.
const COMMENT: usize = 120;

/// The first line of a file says what it is for. Data, cases and manifests of packages have no such line.
pub fn first_line(source: &Source) -> Option<String> {
    let (path, text) = (source.path.as_str(), source.text.as_str());
    let commented = ["toml", "yaml", "yml", "sh"]
        .iter()
        .any(|end| source.is(end));
    let wanted = match path.rsplit('.').next()? {
        _ if path.contains("/cases/") || path.ends_with("/Cargo.toml") => return None,
        "rs" => "//!",
        "wit" => "//",
        "md" => "# ",
        _ if commented || text.starts_with("#!/") => "#",
        _ => return None,
    };
    // A shebang and the package of a WIT file must come before anything else.
    let before = |line: &&str| {
        line.starts_with("#!/")
            || wanted == "//" && (line.starts_with("package ") || line.is_empty())
    };
    let first = text.lines().find(|line| !before(line)).unwrap_or_default();
    let says = first
        .strip_prefix(wanted)
        .is_some_and(|words| words.trim().len() > 2);
    (!says).then(|| format!("begin it with a `{wanted}` line that says what it is for"))
}

/// Budgets of size. Tests do not count, and in a crate root and a WIT file neither does documentation.
pub fn size(source: &Source) -> Option<String> {
    let path = source.path.as_str();
    let lines: Vec<&str> = match source.is_test() {
        true => source.text.lines().collect(),
        false => source.text.lines().take(source.tests_start()).collect(),
    };
    let is_guest = path.starts_with("guest/") && !path.starts_with("guest/sdk/");
    let (budget, documented, advice) = if source.is("wit") {
        (130, false, "split the interface along its subjects")
    } else if !source.is("rs") {
        return None;
    } else if path.ends_with("src/main.rs") {
        (
            30,
            true,
            "move what it does into modules and leave the call",
        )
    } else if path.ends_with("src/lib.rs") && is_guest {
        (65, true, "move the logic to decide.rs")
    } else if path.ends_with("src/lib.rs") && !path.starts_with("tests/") {
        (
            40,
            false,
            "move items into modules; the root only names them",
        )
    } else if source.is_test() {
        (
            600,
            true,
            "turn repeated tests into case folders, or split it along its subjects",
        )
    } else {
        (
            350,
            true,
            "the border of a stage is the border of a file: split it there",
        )
    };
    // A line of code, unless it is a lint or a module of tests only.
    let counts = |line: &&&str| {
        let line = line.trim_start();
        documented || !(line.is_empty() || line.starts_with("//") || line.starts_with("#!["))
    };
    let for_tests = lines
        .iter()
        .filter(|line| !documented && **line == "#[cfg(test)]");
    let count = lines.iter().filter(counts).count() - 2 * for_tests.count();
    (count > budget).then(|| format!("has {count} lines where {budget} are the budget; {advice}"))
}

/// Vague words in names of modules and types. Functions and variables are exempt.
pub fn names(source: &Source) -> Option<String> {
    source.is("rs").then_some(())?;
    let vague = |name: &str| format!("`{name}` is called by its shape; name the one thing it does");
    let mut parts = source.path.trim_end_matches(".rs").split('/');
    if let Some(part) = parts.find(|part| MODULES.contains(part)) {
        return Some(vague(part));
    }
    let code = source
        .text
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"));
    code.filter_map(declared)
        .find(|(keyword, name)| match *keyword {
            "mod" => MODULES.contains(name),
            keyword if TYPE_WORDS.contains(&keyword) => TYPES.iter().any(|end| name.ends_with(end)),
            _ => false,
        })
        .map(|(_, name)| vague(name))
}

/// Comments can be read without scrolling.
pub fn comments(source: &Source) -> Option<String> {
    source.is("rs").then_some(())?;
    let is_long = |line: &str| {
        // A link cannot be broken, nor the row of a table.
        let whole =
            line.contains("://") || line.trim_start_matches([' ', '/', '!']).starts_with('|');
        line.trim_start().starts_with("//") && line.chars().count() > COMMENT && !whole
    };
    let at = source.text.lines().position(is_long)?;
    let line = at + 1;
    Some(format!(
        "line {line}: wrap the comment at {COMMENT} characters"
    ))
}

/// Names that more than one type of the host's crates has. Types that only their own module sees do not count.
pub fn types_of_one_name(sources: &[Source]) -> Vec<String> {
    let mut places: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let is_ours = |path: &str| path.starts_with("host/") && !path.starts_with("host/xtask/");
    for source in sources {
        if !source.is("rs") || source.is_test() || !is_ours(&source.path) {
            continue;
        }
        let mut in_words = false;
        for line in source.text.lines().take(source.tests_start()) {
            // An enum whose words a macro makes is indented in it.
            in_words = line.contains("words! {") || in_words && line != "}";
            let line = match in_words {
                true => line.strip_prefix("    ").unwrap_or(line),
                false => line,
            };
            if let Some(name) = visible_type(line) {
                places.entry(name).or_default().push(&source.path);
            }
        }
    }
    places.retain(|_, paths| paths.len() > 1);
    let finding = |(name, paths): (&str, Vec<&str>)| {
        let paths = paths.join(", ");
        format!("`{name}` is more than one type ({paths}): one type, one name")
    };
    places.into_iter().map(finding).collect()
}

/// The name of a type that other modules see, if the line declares one at the top of a file.
fn visible_type(line: &str) -> Option<&str> {
    let (keyword, name) = declared(line).filter(|_| line.starts_with("pub"))?;
    TYPE_WORDS.contains(&keyword).then_some(name)
}

/// The keyword and the name of what a line declares, whoever sees it.
fn declared(line: &str) -> Option<(&str, &str)> {
    let line = line.trim_start();
    let rest = match line.strip_prefix("pub(") {
        Some(scoped) => scoped.split_once(')')?.1,
        None => line,
    };
    let words = rest.split(|char: char| !(char.is_alphanumeric() || char == '_'));
    let mut words = words.skip_while(|word| ["", "pub", "crate", "super"].contains(word));
    Some((words.next()?, words.next()?))
}

/// Words that may stand only in some places: `unsafe_code`, sleeping in tests, reasons in what the controller does. The
/// compiler and clippy cannot say where an exception may stand, nor tell tests from production in one crate.
pub fn words(source: &Source) -> Option<String> {
    let path = source.path.as_str();
    if !source.is("rs") || path.starts_with("tests/tidy/") {
        return None;
    }
    let tests = source.tests_start();
    let code = source.text.lines().enumerate();
    let mut code = code.filter(|(_, line)| !line.trim_start().starts_with("//"));
    code.find_map(|(at, line)| {
        let advice = if line.contains("unsafe_code") && !UNSAFE.contains(&path) {
            "`unsafe` has its places in tests/tidy/src/files.rs; find a safe way"
        } else if at >= tests && sleeps(line) && !SLEEPING.contains(&path) {
            "wait for a state with a deadline (transom-support, `wait`), not for time to pass"
        } else if at < tests && path.starts_with(CONTROLLER) && compares_reasons(line) {
            "compare no reasons: act by `report::End` or `failure::Class`, which no guest can say"
        } else {
            return None;
        };
        Some(format!("line {}: {advice}", at + 1))
    })
}

/// Whether a line sleeps.
pub fn sleeps(line: &str) -> bool {
    let calls = ["sleep(", "sleep_until(", "sleep_ms("];
    calls.iter().any(|call| line.contains(call))
}

/// Whether a line compares a reason, or branches by one.
fn compares_reasons(line: &str) -> bool {
    let any = |all: &[&str]| all.iter().any(|form| line.contains(form));
    let pattern = line.split_once("=>").map_or("", |(pattern, _)| pattern);
    any(&COMPARISONS)
        || pattern.contains("KnownReason::")
        || line.contains(COMPARED) && any(&COMPARING)
}

/// Lints and versions of a package come from the root.
pub fn manifest(source: &Source) -> Option<String> {
    source.path.ends_with("/Cargo.toml").then_some(())?;
    if !source.text.contains("[lints]\nworkspace = true") {
        return Some(
            "add `[lints]` with `workspace = true`: all packages have the same".to_owned(),
        );
    }
    let sections = source.text.split("\n[").filter(|text| {
        let name = text.split(']').next().unwrap_or_default();
        name.contains("dependencies")
    });
    let own = |line: &&str| line.contains('=') && !line.contains("workspace = true");
    let line = sections
        .flat_map(|text| text.lines().skip(1))
        .find(|line| own(line) && !line.starts_with('#'))?;
    Some(format!(
        "put the version of `{line}` in the root manifest, and inherit it"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::too_many_lines, reason = "a test tells its story in one piece")]
    fn each_rule_finds_what_breaks_it_and_nothing_else() {
        let long = |lines: usize| "x\n".repeat(lines);
        let tests = format!(
            "#[cfg(test)]\n#[expect(\n  x,\n)]\nmod tests {{\n{}}}\n",
            long(350)
        );
        let sleep = "thread::sleep(b);\n";
        let beside = format!("{}#[cfg(test)]\nmod tests {{\n{sleep}}}\n", long(2));
        let manifest_of = |dependency: &str| {
            format!("[package]\n\n[lints]\nworkspace = true\n\n[dev-dependencies]\n{dependency}\n")
        };
        let (inherits, fixed) = (manifest_of("a.workspace = true"), manifest_of("a = \"1\""));
        type Rule = fn(&Source) -> Option<String>;
        type Files<'a> = &'a [(&'a str, &'a str)];
        let table: [(Rule, bool, Files<'_>); 12] = [
            (
                first_line,
                true,
                &[
                    ("a/src/b.rs", "use x;\n"),
                    ("a/src/b.rs", "//!\n"),
                    ("a/build.rs", "// a plain comment\n"),
                    ("wit/a.wit", "package a:b;\n\ninterface c {\n"),
                    (".ci/run", "#!/usr/bin/env bash\nset -e\n"),
                    ("policies/a/policy.yaml", "apiVersion: v1\n"),
                ],
            ),
            (
                first_line,
                false,
                &[
                    ("a/src/b.rs", "//! Says it.\n"),
                    ("wit/a.wit", "package a:b;\n\n/// Says it.\n"),
                    (".ci/run", "#!/usr/bin/env bash\n# Says it.\n"),
                    ("policies/a/cases/b/given.yaml", "apiVersion: v1\n"),
                ],
            ),
            (
                size,
                true,
                &[
                    ("host/core/src/plan.rs", &long(351)),
                    ("host/core/tests/cases.rs", &long(601)),
                    ("host/agent/src/main.rs", &long(31)),
                    ("host/core/src/lib.rs", &long(41)),
                    ("guest/taints/src/lib.rs", &long(66)),
                    ("wit/types.wit", &long(131)),
                ],
            ),
            (
                size,
                false,
                &[
                    ("host/core/src/plan.rs", &long(350)),
                    ("host/core/src/plan.rs", &tests),
                    ("host/core/tests/cases.rs", &long(600)),
                    ("host/core/src/lib.rs", &"//! why\n".repeat(41)),
                    ("README.md", &long(1000)),
                ],
            ),
            (
                names,
                true,
                &[
                    ("a/src/utils.rs", ""),
                    ("a/src/common/x.rs", ""),
                    ("a/src/x.rs", "pub(crate) mod helpers {\n"),
                    ("a/src/x.rs", "pub struct QueueManager<T> {\n"),
                ],
            ),
            (
                names,
                false,
                &[
                    ("a/src/x.rs", "// struct AManager\nuse b::QueueManager;\n"),
                    ("a/src/x.rs", "let utils = 1;\nmod utilsation;\n"),
                ],
            ),
            (
                words,
                true,
                &[
                    ("host/agent/src/a.rs", "#![allow(unsafe_code)]\n"),
                    ("tests/conformance/tests/a.rs", sleep),
                    ("host/agent/src/a.rs", &beside),
                ],
            ),
            (
                words,
                false,
                &[
                    (UNSAFE[0], "#[expect(unsafe_code, reason = \"x\")]\n"),
                    ("host/agent/src/a.rs", sleep),
                    (SLEEPING[0], sleep),
                ],
            ),
            (
                comments,
                true,
                &[("a/src/x.rs", &format!("    /// {}\n", "word ".repeat(24)))],
            ),
            (
                comments,
                false,
                &[
                    ("a/src/x.rs", &format!("/// {}\n", "w".repeat(116))),
                    ("a/src/x.rs", &format!("/// https://{}\n", "w".repeat(120))),
                    ("a/src/x.rs", &format!("//! | {}|\n", "w ".repeat(120))),
                    (
                        "a/src/x.rs",
                        &format!("let x = \"// {}\";\n", "w".repeat(120)),
                    ),
                ],
            ),
            (manifest, false, &[("host/a/Cargo.toml", &inherits)]),
            (manifest, true, &[("host/a/Cargo.toml", &fixed)]),
        ];
        for (rule, found, files) in table {
            for (path, text) in files {
                let said = rule(&Source::new(path, text));
                assert_eq!(said.is_some(), found, "{path}: {text}: {said:?}");
            }
        }
    }
    #[test]
    fn the_controller_compares_no_reason() {
        let finds = |path: &str, line: &str| words(&Source::new(path, line)).is_some();
        for line in [
            "causes.contains(&told.reason);",
            "if report.reason == other {",
            "if told != KnownReason::WriteFailed {",
            "let Reason::Known(known) = told.reason else {",
            "KnownReason::OwnershipPending => return,",
            "match report.reason.as_str() {",
        ] {
            assert!(finds("host/agent/src/controller/a.rs", line), "{line}");
            assert!(!finds("host/agent/src/command/a.rs", line), "{line}");
            assert!(!finds("host/core/src/a.rs", line), "{line}");
        }
        for line in [
            "reason: KnownReason::AgentFailed.into(),",
            "Err(Failure::known(word, message))",
            "if report.end == End::Gone {",
        ] {
            assert!(!finds("host/agent/src/controller/a.rs", line), "{line}");
        }
    }

    #[test]
    fn two_types_of_the_host_that_others_see_have_two_names() {
        let found = |files: &[(&str, &str)]| {
            let sources: Vec<_> = files
                .iter()
                .map(|(path, text)| Source::new(path, text))
                .collect();
            types_of_one_name(&sources).len()
        };
        let one = ("host/core/src/a.rs", "pub(crate) struct Plan<T> {\n");
        assert_eq!(
            found(&[one, ("host/agent/src/b.rs", "pub enum Plan {\n")]),
            1
        );
        let words = "transom_api::words! {\n    pub enum Plan {\n    }\n}\n";
        assert_eq!(found(&[one, ("host/agent/src/b.rs", words)]), 1);
        for other in [
            ("host/agent/src/b.rs", "pub enum Planned {\n"),
            ("host/agent/src/b.rs", "struct Plan;\n"),
            ("host/agent/src/b.rs", "    pub struct Plan;\n"),
            (
                "host/agent/src/b.rs",
                "x\n#[cfg(test)]\nmod tests {\npub struct Plan;\n}\n",
            ),
            ("host/agent/tests/b.rs", "pub struct Plan;\n"),
            ("guest/a/src/b.rs", "pub struct Plan;\n"),
        ] {
            assert_eq!(found(&[one, other]), 0, "{other:?}");
        }
    }
}
