//! Budgets of size. Tests do not count, and in a crate root neither does documentation.

use crate::tree::Source;

/// Lines of a Rust file without its tests.
pub const FILE: usize = 430;
/// Lines of a file that holds only tests.
pub const TEST_FILE: usize = 600;
/// Lines of `main.rs`.
pub const MAIN: usize = 30;
/// Lines of `lib.rs` without documentation and lints.
pub const CRATE_ROOT: usize = 40;
/// Lines of a guest's `lib.rs`.
pub const GUEST: usize = 65;
/// Lines of a WIT file.
pub const WIT: usize = 90;

/// Files above their budget.
pub fn check(sources: &[Source]) -> Vec<String> {
    sources.iter().filter_map(finding).collect()
}

fn finding(source: &Source) -> Option<String> {
    let (budget, lines, advice) = measure(source)?;
    let path = &source.path;
    (lines > budget)
        .then(|| format!("{path}: has {lines} lines where {budget} are the budget; {advice}"))
}

/// Budget, counted lines, and what to do beyond it; none without a budget.
fn measure(source: &Source) -> Option<(usize, usize, &'static str)> {
    let path = source.path.as_str();
    if source.is("wit") {
        return Some((
            WIT,
            without_documentation(source),
            "split the interface along its subjects",
        ));
    }
    if !source.is("rs") {
        return None;
    }
    if path.ends_with("src/main.rs") {
        return Some((
            MAIN,
            code(source).count(),
            "move what it does into modules and leave the call",
        ));
    }
    if path.ends_with("src/lib.rs") {
        return Some(if is_guest(path) {
            (GUEST, code(source).count(), "move the logic to decide.rs")
        } else if source.is_test() || path.starts_with("tests/fixtures/") {
            (FILE, code(source).count(), "split it along its subjects")
        } else {
            (
                CRATE_ROOT,
                without_documentation(source),
                "move items into modules; the root only names them",
            )
        });
    }
    Some(if source.is_test() {
        (
            TEST_FILE,
            source.text.lines().count(),
            "turn repeated tests into case folders, or split it along its subjects",
        )
    } else {
        (
            FILE,
            code(source).count(),
            "the border of a stage is the border of a file: split it there",
        )
    })
}

fn is_guest(path: &str) -> bool {
    path.starts_with("guest/") && !path.starts_with("guest/sdk/")
}

/// Lines before the tests.
fn code(source: &Source) -> impl Iterator<Item = &str> {
    let end = if source.is_test() {
        usize::MAX
    } else {
        source.tests_start()
    };
    source.text.lines().take(end)
}

/// Also without lints and modules of tests only.
fn without_documentation(source: &Source) -> usize {
    let counts = |line: &&str| !["//", "#!["].iter().any(|start| line.starts_with(start));
    let counts = |line: &&str| counts(line) && !line.is_empty();
    let lines: Vec<&str> = code(source).map(str::trim_start).filter(counts).collect();
    let for_tests = lines.iter().filter(|line| **line == "#[cfg(test)]").count();
    lines.len() - 2 * for_tests
}

#[cfg(test)]
mod tests {
    use super::*;

    fn above(path: &str, text: &str) -> bool {
        !check(&[Source::new(path, text)]).is_empty()
    }

    #[test]
    fn each_kind_of_file_has_its_budget() {
        for (path, budget) in [
            ("host/core/src/plan.rs", FILE),
            ("host/core/tests/cases.rs", TEST_FILE),
            ("host/agent/src/main.rs", MAIN),
            ("host/core/src/lib.rs", CRATE_ROOT),
            ("guest/taints/src/lib.rs", GUEST),
            ("tests/fixtures/loops/src/lib.rs", FILE),
            ("wit/types.wit", WIT),
        ] {
            assert!(!above(path, &"x\n".repeat(budget)), "{path}");
            assert!(above(path, &"x\n".repeat(budget + 1)), "{path}");
        }
    }

    #[test]
    fn ignores_tests_and_the_documentation_of_a_root() {
        let tests = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", "x\n".repeat(FILE));
        assert!(!above("host/core/src/plan.rs", &tests));
        assert!(!above(
            "host/core/src/lib.rs",
            &"//! why\n".repeat(CRATE_ROOT + 1)
        ));
        assert!(!above("README.md", &"x\n".repeat(1000)));
    }
}
