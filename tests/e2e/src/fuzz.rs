//! Mutated cases, mutated policies and damaged own folders against the binary, from a seed: for a short test and
//! `cargo xtask fuzz`. A panic, a hang, a shown credential, an unknown exit code or damage that stays is a finding.

mod damage;
mod dice;
mod mutate;
mod plant;
mod program;

use anyhow::{Context as _, Result, ensure};
use damage::Damaged;
use dice::Dice;
use program::{Kind, Transom};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How much is tried.
#[derive(Clone, Copy, Debug)]
pub struct Fuzz {
    /// Chooses everything: attempt `n` of a seed is the same in every run.
    pub seed: u64,
    /// At least so many attempts.
    pub attempts: u64,
    /// And until so much time is over.
    pub time: Duration,
}

/// What came of it.
#[derive(Debug, Default)]
pub struct Tried {
    /// Attempts, by what was tried.
    pub attempts: [u64; 3],
    /// How many texts were planted that must not be shown.
    pub canaries: usize,
    /// One sentence for each attempt that went wrong, with its number and where its input was kept.
    pub findings: Vec<String>,
}

impl Fuzz {
    /// Tries it all. What went wrong is kept below a folder.
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
            // Cases are the most, as they hold the credentials.
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
                tried.findings.push(format!("attempt {number}: {wrong}; its input is `{}`", file.display()));
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

/// The search finds what is shown on purpose: one that finds nothing then is blind.
fn sees(transom: &Transom, cases: &[plant::Case], seed: u64) -> Result<()> {
    let good = cases.iter().find(|case| case.path.ends_with("external-managed-kubeconfig/cases/G03-available"));
    let good = good.context("there is no case G03-available")?;
    let (bytes, canaries) = plant::whole(good, &mut Dice::new(seed, u64::MAX))?;
    let file = transom.put("given.yaml", &bytes)?;
    let shown = transom.run(&["render".into(), file.clone().into(), "--reveal".into()])?;
    let found = canaries.found_in(&program::decoded(&shown.output));
    ensure!(!found.is_empty(), "the search is blind: it does not find what `--reveal` shows");
    let hidden = transom.run(&["render".into(), file.into()])?;
    ensure!(canaries.found_in(&program::decoded(&hidden.output)).is_empty(), "a credential is shown without mutation");
    Ok(())
}

/// A mutated case through `render`.
fn case(transom: &Transom, cases: &[plant::Case], dice: &mut Dice) -> Result<Attempt> {
    let (input, canaries) = plant::mutated(dice.pick(cases), dice)?;
    let file = transom.put("given.yaml", &input)?;
    let forms: [&[&str]; 4] = [&["-o", "yaml"], &["-o", "json"], &["-o", "table"], &["--diff"]];
    let form = *dice.pick(&forms);
    let mut words = vec!["render".into(), file.into_os_string()];
    words.extend(form.iter().map(Into::into));
    let ended = transom.run(&words)?;
    Ok(Attempt { input, canaries: canaries.count(), wrong: ended.wrong(Kind::Render, &canaries) })
}

/// The policies that are mutated.
const POLICIES: [&str; 2] = ["built-in-taints", "external-managed-kubeconfig"];

/// A mutated policy through `validate`, `render` or `rbac`.
fn policy(transom: &Transom, cases: &[plant::Case], dice: &mut Dice) -> Result<Attempt> {
    let name: &&str = dice.pick(&POLICIES);
    let path: PathBuf = crate::program::policy(name);
    let input = mutate::policy(&path, dice)?;
    let policy = transom.put("policy.yaml", &input)?;
    let wanted = if path.to_string_lossy().contains("taints") { "T04-unknown" } else { "G03-available" };
    let case = cases.iter().find(|case| case.path.ends_with(wanted)).context("the case is gone")?;
    let (given, canaries) = plant::whole(case, dice)?;
    let given = transom.put("given.yaml", &given)?;
    let words = match dice.below(4) {
        0 => vec!["validate".into(), policy.into_os_string()],
        1 => vec!["rbac".into(), "--policies".into(), policy.into_os_string()],
        2 => vec!["render".into(), given.into(), "--policies".into(), policy.into(), "--diff".into()],
        _ => vec!["render".into(), given.into(), "--policies".into(), policy.into_os_string()],
    };
    let ended = transom.run(&words)?;
    Ok(Attempt { input, canaries: canaries.count(), wrong: ended.wrong(Kind::Render, &canaries) })
}
