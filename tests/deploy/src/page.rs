//! A page of `host/docs` as its reader follows it: runs every command of its blocks as written, and no other.

use crate::rendered::said;
use crate::shown::{Pairs, Shown};
use anyhow::{Context as _, Result, bail, ensure};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;
use transom_e2e::program;
use transom_test_cluster::{Cluster, helm, kubectl};

/// The commands of one page, and which of them were run.
#[derive(Debug)]
pub struct Page {
    name: &'static str,
    text: String,
    steps: Vec<Step>,
    followed: RefCell<BTreeSet<usize>>,
    pairs: RefCell<Pairs>,
}

impl Page {
    /// Reads a page.
    ///
    /// # Errors
    /// When the page does not exist, or has no command.
    pub fn read(name: &'static str) -> Result<Self> {
        let path = program::root().join("host/docs").join(name);
        let text = fs::read_to_string(&path)
            .with_context(|| format!("failed to read `{}`", path.display()))?;
        let steps = steps(&text);
        ensure!(!steps.is_empty(), "{name} has no command");
        Ok(Self {
            name,
            text,
            steps,
            followed: RefCell::default(),
            pairs: RefCell::default(),
        })
    }

    /// The one command with all these words, with `<...>` filled in.
    ///
    /// # Errors
    /// When no command has them, or several do, or a `<...>` remains.
    pub fn command(&self, words: &[&str], fill: &[(&str, &str)]) -> Result<String> {
        let [index] = self.found(words)[..] else {
            bail!(
                "{}: not exactly one command has {words:?}: {:#?}",
                self.name,
                self.commands()
            );
        };
        let mut command = self.steps[index].command.clone();
        for (blank, with) in fill {
            ensure!(
                command.contains(blank),
                "{}: `{command}` has no {blank}",
                self.name
            );
            command = command.replace(blank, with);
        }
        ensure!(
            !command.contains(" <") && !command.contains("=<"),
            "{}: fill in `{command}`",
            self.name
        );
        self.followed.borrow_mut().insert(index);
        Ok(command)
    }

    /// All commands with these words, in the order of the page.
    ///
    /// # Errors
    /// When there is none.
    pub fn all(&self, words: &[&str]) -> Result<Vec<String>> {
        let found = self.found(words);
        ensure!(
            !found.is_empty(),
            "{}: no command has {words:?}: {:#?}",
            self.name,
            self.commands()
        );
        self.followed.borrow_mut().extend(&found);
        Ok(found
            .into_iter()
            .map(|index| self.steps[index].command.clone())
            .collect())
    }

    /// All commands in the order of the page, each with the output that the page shows for it. One counts as run once
    /// it is taken.
    pub fn all_shown(&self) -> impl Iterator<Item = (&str, Shown<'_>)> {
        let steps = self.steps.iter().enumerate();
        steps.map(|(index, step)| {
            self.followed.borrow_mut().insert(index);
            let shown = Shown {
                lines: &step.shown,
                pairs: &self.pairs,
            };
            (step.command.as_str(), shown)
        })
    }

    /// The text of each block of YAML, in the order of the page.
    pub fn manifests(&self) -> impl Iterator<Item = &str> {
        let blocks = self.text.split("```yaml\n").skip(1);
        blocks.filter_map(|block| Some(block.split_once("```")?.0))
    }

    fn commands(&self) -> Vec<&str> {
        let steps = self.steps.iter();
        steps.map(|step| step.command.as_str()).collect()
    }

    fn found(&self, words: &[&str]) -> Vec<usize> {
        let has = |command: &str| words.iter().all(|word| command.contains(word));
        (0..self.steps.len())
            .filter(|index| has(&self.steps[*index].command))
            .collect()
    }

    /// Checks that every command of the page was run.
    ///
    /// # Errors
    /// With the commands that were not run.
    pub fn is_followed(&self) -> Result<()> {
        let followed = self.followed.borrow();
        let left = self.steps.iter().enumerate();
        let left = left.filter(|(index, _)| !followed.contains(index));
        let left: Vec<&str> = left.map(|(_, step)| step.command.as_str()).collect();
        ensure!(
            left.is_empty(),
            "{} has commands that no test follows: {left:#?}",
            self.name
        );
        Ok(())
    }
}

/// A shell at the root of the repository, as the admin of a cluster, with the real kubectl and helm and nothing else
/// from the user's environment.
///
/// # Errors
/// When these programs do not exist.
pub fn shell(cluster: &Cluster, command: &str) -> Result<Command> {
    let mut bash = Command::new("bash");
    bash.args(["-o", "errexit", "-o", "pipefail", "-c", command])
        .current_dir(program::root());
    let mut path = Vec::new();
    for program in [kubectl()?, helm()?] {
        path.extend(
            Path::new(program.get_program())
                .parent()
                .map(Path::to_path_buf),
        );
    }
    path.extend(std::env::split_paths(
        &std::env::var_os("PATH").unwrap_or_default(),
    ));
    bash.env(
        "PATH",
        std::env::join_paths(path).context("a path of PATH has a colon in it")?,
    );
    bash.env("KUBECONFIG", cluster.write_kubeconfig(cluster.admin())?);
    let home = cluster.folder().join("home");
    fs::create_dir_all(&home)?;
    bash.env("HOME", &home);
    for name in [
        "HELM_CACHE_HOME",
        "HELM_CONFIG_HOME",
        "HELM_DATA_HOME",
        "KUBECACHEDIR",
    ] {
        bash.env(name, home.join(name));
    }
    Ok(bash)
}

/// Runs a command of a page, and returns its output.
///
/// # Errors
/// With its standard error.
pub fn run(cluster: &Cluster, command: &str) -> Result<String> {
    said(&mut shell(cluster, command)?).with_context(|| format!("`{command}`"))
}

/// A command of a page, and the output that the page shows for it.
#[derive(Clone, Debug, Default)]
struct Step {
    command: String,
    shown: Vec<String>,
}

/// The commands of the `console` blocks: the text after `$`, with continuation lines, each with its output.
fn steps(text: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let (mut block, mut goes_on) = (None, false);
    for line in text.lines() {
        let bare = line.trim();
        if bare.starts_with("```") {
            let indent = line.len() - line.trim_start().len();
            (block, goes_on) = ((bare == "```console").then_some(indent), false);
            continue;
        }
        let Some(indent) = block else { continue };
        let line = line.get(indent..).unwrap_or_default();
        if let Some(command) = line.strip_prefix("$ ") {
            let command = command.to_owned();
            goes_on = is_open(&command);
            let shown = Vec::new();
            steps.push(Step { command, shown });
        } else if let Some(last) = steps.last_mut() {
            if goes_on {
                last.command = format!("{}\n{line}", last.command);
                goes_on = is_open(&last.command);
            } else {
                last.shown.push(line.to_owned());
            }
        }
    }
    steps
}

/// Whether the shell waits for another line.
fn is_open(command: &str) -> bool {
    let is_document = command.contains("<<END") && !command.ends_with("\nEND");
    is_document || command.ends_with('\\') || command.matches('\'').count() % 2 == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "\
# Page

```console
$ one --flag    # a remark
printed
$ two \\
    --more <name>
$ three 'a
  b' | four
$ four <<END
  a: 1
END
told
```

```yaml
$ none: 1
```

1. step

   ```console
   $ five
   ```
";

    fn page() -> Page {
        Page {
            name: "page.md",
            text: PAGE.to_owned(),
            steps: steps(PAGE),
            followed: RefCell::default(),
            pairs: RefCell::default(),
        }
    }

    #[test]
    fn reads_commands_as_a_shell_would() {
        assert_eq!(
            page().commands(),
            [
                "one --flag    # a remark",
                "two \\\n    --more <name>",
                "three 'a\n  b' | four",
                "four <<END\n  a: 1\nEND",
                "five"
            ]
        );
        assert_eq!(page().steps[0].shown, ["printed"]);
        assert_eq!(page().steps[3].shown, ["told"]);
        assert_eq!(page().manifests().collect::<Vec<_>>(), ["$ none: 1\n"]);
    }

    #[test]
    fn finds_a_command_by_its_words_and_reports_unused_ones() {
        let page = page();
        assert!(page.command(&["six"], &[]).is_err(), "nobody says six");
        assert!(page.command(&["e"], &[]).is_err(), "several do");
        assert!(page.command(&["two"], &[]).is_err(), "a blank is left");
        assert_eq!(
            page.command(&["two", "--more"], &[("<name>", "x")])
                .unwrap(),
            "two \\\n    --more x"
        );
        assert_eq!(page.all(&["o"]).unwrap().len(), 4);
        for words in ["one", "three"] {
            page.command(&[words], &[]).unwrap();
        }
        assert!(page.is_followed().unwrap_err().to_string().contains("five"));
        page.command(&["five"], &[]).unwrap();
        page.is_followed().unwrap();
    }

    #[test]
    fn a_command_is_followed_only_once_it_is_taken() {
        let page = page();
        let mut all = page.all_shown();
        let but_one = all.by_ref().take(page.steps.len() - 1).count();
        assert_eq!(but_one, 4);
        assert!(page.is_followed().unwrap_err().to_string().contains("five"));
        assert!(all.next().is_some());
        page.is_followed().unwrap();
    }
}
