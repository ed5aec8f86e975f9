//! Reads the tree of sources, without build output and `.git`.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// One text file of the workspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// Path from the root, with `/`.
    pub path: String,
    /// Its text.
    pub text: String,
}

impl Source {
    /// A source from values, for tests.
    pub fn new(path: &str, text: &str) -> Self {
        Self {
            path: path.to_owned(),
            text: text.to_owned(),
        }
    }

    /// Whether its path ends in `.extension`.
    pub fn is(&self, extension: &str) -> bool {
        Path::new(&self.path)
            .extension()
            .is_some_and(|found| found == extension)
    }

    /// Whether it is a Rust file with tests only.
    pub fn is_test(&self) -> bool {
        let in_tests = self.path.starts_with("tests/") && !self.path.starts_with("tests/fixtures/");
        self.is("rs")
            && (in_tests || self.path.contains("/tests/") || self.path.ends_with("/tests.rs"))
    }

    /// The index of the line at which the tests begin: the first one of a file with tests only, the number of lines of a
    /// file without tests.
    pub fn tests_start(&self) -> usize {
        if self.is_test() {
            0
        } else {
            tests_start(&self.text)
        }
    }

    /// The text contains the word, not as part of a longer one.
    pub fn has_word(&self, word: &str) -> bool {
        let is_word = |char: char| char.is_alphanumeric() || char == '_';
        self.text.match_indices(word).any(|(at, _)| {
            let before = self.text[..at].chars().next_back();
            let after = self.text[at + word.len()..].chars().next();
            !before.is_some_and(is_word) && !after.is_some_and(is_word)
        })
    }
}

/// The index of the line at which the tests begin; clippy checks that no code follows them.
fn tests_start(text: &str) -> usize {
    let lines: Vec<&str> = text.lines().collect();
    let begins = |at: &usize| {
        // Attributes of the module may follow, each on one line or several.
        let rest = lines[*at + 1..].iter();
        let module = rest.map(|line| line.trim_end()).find(|line| {
            line.starts_with("mod ") || line.starts_with("pub") || line.ends_with([';', '{', '}'])
        });
        lines[*at] == "#[cfg(test)]"
            && module.is_some_and(|line| line.contains("mod ") && line.ends_with('{'))
    };
    (0..lines.len()).find(begins).unwrap_or(lines.len())
}

/// The root of the workspace.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Every UTF-8 text file below the root, ordered by path, without `target` and `.git`.
pub fn read(root: &Path) -> io::Result<Vec<Source>> {
    let mut sources = Vec::new();
    visit(root, root, &mut sources)?;
    sources.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(sources)
}

fn visit(root: &Path, folder: &Path, sources: &mut Vec<Source>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default();
        if name == "target" || name == ".git" {
            continue;
        }
        if path.is_dir() {
            visit(root, &path, sources)?;
        } else if let (Ok(short), Ok(text)) = (path.strip_prefix(root), fs::read_to_string(&path)) {
            sources.push(Source {
                path: short.to_string_lossy().into_owned(),
                text,
            });
        }
    }
    Ok(())
}

/// The names at the top level.
pub fn top(root: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(root)? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recognises_test_files_by_path() {
        let test = |path: &str| Source::new(path, "").is_test();
        assert!(test("tests/conformance/src/lib.rs"));
        assert!(test("host/core/tests/cases.rs"));
        assert!(test("host/core/src/plan/tests.rs"));
        assert!(!test("host/core/src/plan.rs"));
        assert!(!test("tests/fixtures/loops/src/lib.rs"));
        assert!(!test("tests/README.md"));
    }

    #[test]
    fn tests_begin_at_their_module() {
        let start = |text: &str| Source::new("host/core/src/plan.rs", text).tests_start();
        assert_eq!(start("fn a() {}\n#[cfg(test)]\nmod tests {\n}\n"), 1);
        assert_eq!(
            start("#[cfg(test)]\n#[expect(\n    x,\n)]\npub(crate) mod tests {\n}\n"),
            0
        );
        assert_eq!(start("#[cfg(test)]\nmod more;\nfn a() {}\n"), 3);
        assert_eq!(start("#[cfg(test)]\nfn a() {\n}\n"), 3);
        assert_eq!(
            Source::new("host/core/tests/a.rs", "fn a() {}\n").tests_start(),
            0
        );
    }

    #[test]
    fn matches_whole_words() {
        let source = Source::new("a.rs", "pub unsafe fn a()");
        assert!(source.has_word("unsafe") && !source.has_word("safe"));
    }

    #[test]
    fn reads_this_file_and_no_build_output() {
        let sources = read(&root()).unwrap();
        assert!(
            sources
                .iter()
                .any(|source| source.path == "tests/tidy/src/tree.rs")
        );
        assert!(
            !sources
                .iter()
                .any(|source| source.path.starts_with("target/"))
        );
    }
}
