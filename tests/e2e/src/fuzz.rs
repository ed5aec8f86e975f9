//! Mutated cases, mutated policies and damaged own folders against the binary, from a seed: for a short test and `cargo
//! xtask fuzz`. Findings are a panic, a hang, a shown credential, an unknown exit code, and damage that stays.

mod damage;
mod mutate;
mod plant;
mod program;

use anyhow::{Context as _, Result, ensure};
use damage::Damaged;
use program::{Kind, Transom};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use transom_support::numbers::Numbers;

/// The amount of work.
#[derive(Clone, Copy, Debug)]
pub struct Fuzz {
    /// Chooses everything: attempt `n` of a seed is the same in every run.
    pub seed: u64,
    /// The minimum number of attempts.
    pub attempts: u64,
    /// The minimum duration.
    pub time: Duration,
}

/// The results.
#[derive(Debug, Default)]
pub struct Tried {
    /// Attempts by kind.
    pub attempts: [u64; 3],
    /// Number of planted texts that must not be shown.
    pub canaries: usize,
    /// One sentence for each failed attempt, with its number and the path of its input.
    pub findings: Vec<String>,
}

impl Fuzz {
    /// Runs all attempts. The inputs of failed ones are kept below a folder.
    ///
    /// # Errors
    /// When something could not be tried at all, or a planted credential is not found where it is shown on purpose.
    pub fn run(&self, keep: &Path) -> Result<Tried> {
        let scratch = tempfile::tempdir()?;
        let transom = Transom::new(scratch.path())?;
        let cases = plant::cases()?;
        sees(&transom, &cases, self.seed)?;
        let damaged = Damaged::new(&transom, &scratch.path().join("whole"))?;
        let (start, mut tried) = (Instant::now(), Tried::default());
        for number in 0.. {
            if number >= self.attempts && start.elapsed() >= self.time {
                break;
            }
            let mut dice = Dice::new(self.seed, number);
            // Most attempts are cases, because they contain the credentials.
            let what = [0, 1, 0, 2][usize::try_from(number % 4)?];
            let attempt = match what {
                0 => case(&transom, &cases, &mut dice)?,
                1 => policy(&transom, &cases, &mut dice)?,
                _ => damaged.attempt(&transom, &scratch.path().join("copy"), &mut dice)?,
            };
            tried.attempts[what] += 1;
            tried.canaries += attempt.canaries;
            if let Some(wrong) = attempt.wrong {
                let file = keep.join(format!("{}-{number}", self.seed));
                std::fs::create_dir_all(keep)?;
                std::fs::write(&file, &attempt.input)?;
                tried.findings.push(format!(
                    "attempt {number}: {wrong}; its input is `{}`",
                    file.display()
                ));
            }
        }
        Ok(tried)
    }
}

/// One attempt.
struct Attempt {
    input: Vec<u8>,
    canaries: usize,
    wrong: Option<String>,
}

/// Proves that the search works: it must find what is shown on purpose.
fn sees(transom: &Transom, cases: &[plant::Case], seed: u64) -> Result<()> {
    let good = cases.iter().find(|case| {
        case.path
            .ends_with("external-managed-kubeconfig/cases/G03-available")
    });
    let good = good.context("there is no case G03-available")?;
    let (bytes, canaries) = plant::whole(good, &mut Dice::new(seed, u64::MAX))?;
    let file = transom.put("given.yaml", &bytes)?;
    let shown = transom.run(&["render".into(), file.clone().into(), "--reveal".into()])?;
    let found = canaries.found_in(&program::decoded(&shown.output));
    ensure!(
        !found.is_empty(),
        "the search is blind: it does not find what `--reveal` shows"
    );
    let hidden = transom.run(&["render".into(), file.into()])?;
    ensure!(
        canaries
            .found_in(&program::decoded(&hidden.output))
            .is_empty(),
        "a credential is shown without mutation"
    );
    Ok(())
}

/// A mutated case through `render`.
fn case(transom: &Transom, cases: &[plant::Case], dice: &mut Dice) -> Result<Attempt> {
    let (input, canaries) = plant::mutated(dice.pick(cases), dice)?;
    let file = transom.put("given.yaml", &input)?;
    let forms: [&[&str]; 4] = [
        &["-o", "yaml"],
        &["-o", "json"],
        &["-o", "table"],
        &["--diff"],
    ];
    let form = *dice.pick(&forms);
    let mut words = vec!["render".into(), file.into_os_string()];
    words.extend(form.iter().map(Into::into));
    let ended = transom.run(&words)?;
    Ok(Attempt {
        input,
        canaries: canaries.count(),
        wrong: ended.wrong(Kind::Render, &canaries),
    })
}

/// The policies that are mutated.
const POLICIES: [&str; 2] = ["built-in-taints", "external-managed-kubeconfig"];

/// A mutated policy through `validate`, `render` or `rbac`.
fn policy(transom: &Transom, cases: &[plant::Case], dice: &mut Dice) -> Result<Attempt> {
    let name: &&str = dice.pick(&POLICIES);
    let path: PathBuf = crate::program::policy(name);
    let input = mutate::policy(&path, dice)?;
    let policy = transom.put("policy.yaml", &input)?;
    let wanted = if path.to_string_lossy().contains("taints") {
        "T04-unknown"
    } else {
        "G03-available"
    };
    let case = cases
        .iter()
        .find(|case| case.path.ends_with(wanted))
        .context("the case is gone")?;
    let (given, canaries) = plant::whole(case, dice)?;
    let given = transom.put("given.yaml", &given)?;
    let words = match dice.below(4) {
        0 => vec!["validate".into(), policy.into_os_string()],
        1 => vec!["rbac".into(), "--policies".into(), policy.into_os_string()],
        2 => vec![
            "render".into(),
            given.into(),
            "--policies".into(),
            policy.into(),
            "--diff".into(),
        ],
        _ => vec![
            "render".into(),
            given.into(),
            "--policies".into(),
            policy.into_os_string(),
        ],
    };
    let ended = transom.run(&words)?;
    Ok(Attempt {
        input,
        canaries: canaries.count(),
        wrong: ended.wrong(Kind::Render, &canaries),
    })
}

/// The choices of one attempt.
pub(super) struct Dice(Numbers);

impl Dice {
    pub(super) fn new(seed: u64, attempt: u64) -> Self {
        Self(Numbers::new(seed, attempt))
    }

    /// A number below another, which is not 0.
    pub(super) fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.0.take() % (end.max(1) as u64)).unwrap_or_default()
    }

    /// True with this probability in percent.
    pub(super) fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// One of several; there must be at least one.
    pub(super) fn pick<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }

    /// A byte.
    pub(super) fn byte(&mut self) -> u8 {
        self.0.take().to_le_bytes()[0]
    }
}
