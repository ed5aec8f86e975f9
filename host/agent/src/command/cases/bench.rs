//! `transom bench`: puts the questions of a guest's cases to its component again and again, and shows what a call takes
//! beside the budget that a policy gives it by default.

use super::{FILES, find, guest, whole};
use crate::args::{BenchArgs, OutputFormat};
use crate::command::{engine, place};
use crate::output::{CommandEnd, Screen, Tint, Tinted};
use crate::policies::cases::ask;
use anyhow::{Context as _, bail};
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use transom_core::cases::{GuestCase, difference};
use transom_core::document::emit::to_yaml_in_order;
use transom_core::policy::budget::{Budgeted, CallLimits};
use transom_engine::{Guest, Receipt, travelling_cases};

/// How often a case is put to the guest, and for how long at most: enough calls for the slowest in a hundred.
const CALLS: usize = 1_000;
const MOST: Duration = Duration::from_secs(1);

/// A case by its name, or why it cannot be read.
type NamedCase = (String, anyhow::Result<GuestCase>);

/// What the calls of one case took.
struct Measured {
    case: String,
    /// Why the case fails; empty when it passes.
    differences: Vec<String>,
    /// Microseconds of each call, in order.
    micros: Vec<u64>,
    /// The most that any call used, in the order of [`Budgeted::ALL`].
    used: [u64; Budgeted::ALL.len()],
}

/// Measures every case.
///
/// # Errors
/// When the component cannot be read or loaded, or there is no case.
pub(in crate::command) fn bench(args: &BenchArgs, screen: &Screen) -> anyhow::Result<CommandEnd> {
    let place::ReadComponent {
        location, artifact, ..
    } = place::find(&args.component, &args.from, false)?;
    let cases: Box<dyn Iterator<Item = NamedCase>> = match &args.cases {
        Some(folder) => Box::new(in_folder(folder)?),
        None => Box::new(
            travelling(&artifact.bytes)
                .with_context(|| format!("failed to read the cases of `{location}`"))?,
        ),
    };
    let engine = engine::engine(transom_engine::CallLimits::LARGEST)?;
    let guest = guest::with_its_needs(&engine, &location, &artifact.bytes)?;
    let each = cases.enumerate().map(|(at, (name, case))| {
        screen.progress(format_args!("case {}: {name}", at + 1));
        measure(&guest, name, case)
    });
    let measured: Vec<_> = each.collect();
    screen.end_progress();
    let ending = CommandEnd::failed_if(measured.iter().any(|one| !one.differences.is_empty()));
    let document = || {
        json!({
            "component": location.to_string(), "digest": artifact.digest,
            "budget": by_name(|what| CallLimits::default().of(what)),
            "cases": measured.iter().map(Measured::json).collect::<Vec<_>>(),
        })
    };
    match args.output {
        OutputFormat::Table => table(&measured, screen),
        OutputFormat::Json => screen.json(&document()),
        OutputFormat::Yaml => screen.text(&to_yaml_in_order(&document(), &["component", "digest"])),
    }
    Ok(ending)
}

/// The cases below a folder, each read when it is taken: all of them together may be large. One that cannot be read is
/// named, and does not keep the others from being measured.
fn in_folder(folder: &Path) -> anyhow::Result<impl Iterator<Item = NamedCase> + use<>> {
    let mut found: Vec<PathBuf> = Vec::new();
    if folder.is_dir() {
        find(folder, false, &mut found)?;
    }
    if found.is_empty() {
        bail!(
            "failed to find a case below `{}`: expected folders `cases/<case>` with given.yaml and expected.yaml",
            folder.display()
        );
    }
    let read = |case: &PathBuf, name: &str| {
        whole(case, &FILES)?;
        let [given, expected] = FILES;
        Ok(GuestCase {
            name: name.to_owned(),
            given: guest::read(case, given)?,
            expected: guest::read(case, expected)?,
        })
    };
    Ok(found.into_iter().map(move |case| {
        let name = case.display().to_string();
        let read = read(&case, &name);
        (name, read)
    }))
}

/// The cases that travel with a component.
fn travelling(component: &[u8]) -> anyhow::Result<impl Iterator<Item = NamedCase> + use<>> {
    let cases = travelling_cases(component)?;
    if cases.is_empty() {
        bail!("no case travels with it: name a folder with --cases");
    }
    let each = cases.into_iter();
    Ok(each.map(|case| (case.name.clone(), Ok(case))))
}

/// Compares the answer with the expected one, then measures the call. A call that fails is measured, too: what stopped
/// it shows in what it used.
fn measure(guest: &Guest, name: String, case: anyhow::Result<GuestCase>) -> Measured {
    let mut measured = Measured {
        case: name,
        differences: Vec::new(),
        micros: Vec::with_capacity(CALLS),
        used: Default::default(),
    };
    let case = match case {
        Ok(case) => case,
        Err(error) => {
            measured.differences.push(format!("{error:#}"));
            return measured;
        }
    };
    let differs = match ask(guest, &case.given, &mut Vec::new()) {
        Ok(answer) => difference(&case.expected, &answer).map(|differs| differs.to_string()),
        Err(error) => Some(format!("{error:#}")),
    };
    measured.differences.extend(differs);
    let begun = Instant::now();
    while measured.micros.len() < CALLS && begun.elapsed() < MOST {
        // What is wrong with the case was said above.
        let Ok(call) = guest.ask(case.given.clone()) else {
            break;
        };
        measured.add(&call.receipt);
    }
    measured.micros.sort_unstable();
    measured
}

impl Measured {
    fn add(&mut self, receipt: &Receipt) {
        self.micros.push(receipt.micros);
        for (most, what) in self.used.iter_mut().zip(Budgeted::ALL) {
            let (used, _) = receipt.used(what, &CallLimits::default());
            *most = used.max(*most);
        }
    }

    /// The time that so many calls in a hundred do not exceed, in microseconds; `None` without calls.
    fn percentile(&self, percent: usize) -> Option<u64> {
        let rank = (self.micros.len() * percent).div_ceil(100);
        self.micros.get(rank.saturating_sub(1)).copied()
    }

    /// The budget of which most is used, and how much in percent. Of time the slowest in a hundred counts: one call may
    /// have met a busy machine.
    fn largest(&self) -> Option<(Budgeted, u64)> {
        let time = self.percentile(99)?;
        let shares = Budgeted::ALL
            .into_iter()
            .zip(self.used)
            .map(|(what, used)| {
                let budget = CallLimits::default().of(what);
                let share = match what {
                    Budgeted::TimeMilliseconds => time.div_ceil(budget.saturating_mul(10)),
                    _ => used.saturating_mul(100).div_ceil(budget.max(1)),
                };
                (what, share)
            });
        shares.max_by_key(|(_, share)| *share)
    }

    fn json(&self) -> Value {
        let used = Budgeted::ALL.into_iter().zip(self.used);
        let used: Map<_, _> = used
            .filter(|(what, _)| *what != Budgeted::TimeMilliseconds)
            .map(|(what, used)| (what.as_str().to_owned(), json!(used)))
            .collect();
        let largest = self.largest();
        json!({
            "case": self.case, "passed": self.differences.is_empty(), "differences": self.differences,
            "calls": self.micros.len(), "used": used,
            "microseconds": {
                "min": self.percentile(0), "median": self.percentile(50), "p99": self.percentile(99),
            },
            "largestShare": largest.map(|(what, percent)| json!({"budget": what.as_str(), "percent": percent})),
        })
    }

    fn cells(&self) -> [String; 9] {
        let time = |percent| {
            let micros = self.percentile(percent);
            micros.map_or_else(dash, |micros| format!("{micros} us"))
        };
        let most = |wanted: Budgeted| {
            let mut used = Budgeted::ALL.into_iter().zip(self.used);
            let found = used.find(|(what, _)| *what == wanted && !self.micros.is_empty());
            found.map_or_else(dash, |(_, used)| bytes(used))
        };
        let share = |(what, percent): (Budgeted, u64)| format!("{percent} % {}", what.as_str());
        [
            self.case.clone(),
            self.micros.len().to_string(),
            time(0),
            time(50),
            time(99),
            most(Budgeted::MemoryBytes),
            most(Budgeted::ArgumentBytes),
            most(Budgeted::AnswerBytes),
            self.largest().map_or_else(dash, share),
        ]
    }
}

fn dash() -> String {
    "-".to_owned()
}

/// Bytes in the largest unit that leaves at least ten of it.
fn bytes(amount: u64) -> String {
    match amount {
        0..10_240 => format!("{amount} B"),
        10_240..10_485_760 => format!("{} KiB", amount.div_ceil(1 << 10)),
        _ => format!("{} MiB", amount.div_ceil(1 << 20)),
    }
}

/// A number for each budget, by its name in `spec.budget`.
fn by_name(number: impl Fn(Budgeted) -> u64) -> Map<String, Value> {
    let all = Budgeted::ALL.into_iter();
    all.map(|what| (what.as_str().to_owned(), json!(number(what))))
        .collect()
}

fn table(measured: &[Measured], screen: &Screen) {
    let heading = [
        "CASE",
        "CALLS",
        "MIN",
        "MEDIAN",
        "P99",
        "MEMORY",
        "ARGUMENTS",
        "ANSWER",
        "LARGEST SHARE OF A BUDGET",
    ];
    let limits = CallLimits::default();
    let budget = [
        "(budget of a call)".to_owned(),
        dash(),
        dash(),
        dash(),
        format!("{} ms", limits.time_ms),
        bytes(limits.memory_bytes),
        bytes(limits.argument_bytes),
        bytes(limits.answer_bytes),
        "100 %".to_owned(),
    ];
    let rows = measured.iter().map(Measured::cells);
    screen.table(heading, rows.chain([budget]));
    let failing = measured.iter().filter(|one| !one.differences.is_empty());
    let mut failed = 0;
    for one in failing {
        failed += 1;
        let word = Tinted::new("FAILED", Tint::Red, 7);
        screen.line_of(&word, format_args!("  {}", one.case));
        for line in &one.differences {
            screen.line(format_args!("        {line}"));
        }
    }
    let passed = measured.len() - failed;
    screen.line(format_args!("{passed} passed, {failed} failed"));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn of(micros: Vec<u64>) -> Measured {
        Measured {
            case: "one".to_owned(),
            differences: Vec::new(),
            micros,
            used: [0, 8 << 20, 0, 0, 0, 0, 0, 0],
        }
    }

    #[test]
    fn percentiles_are_times_of_calls() {
        let hundred = of((1..=100).collect());
        let times = [0, 50, 99, 100].map(|percent| hundred.percentile(percent));
        assert_eq!(times, [Some(1), Some(50), Some(99), Some(100)]);
        assert_eq!(of(vec![7]).percentile(99), Some(7));
        assert_eq!(of(Vec::new()).percentile(50), None);
    }

    #[test]
    fn the_largest_share_is_that_of_the_scarcest_budget() {
        let half = Some((Budgeted::MemoryBytes, 50));
        assert_eq!(of(vec![1_000; 100]).largest(), half);
        // One slow call in a hundred is the machine's; two are the guest's.
        let slow = |count| [vec![1_000; 100 - count], vec![200_000; count]].concat();
        assert_eq!(of(slow(1)).largest(), half);
        assert_eq!(
            of(slow(2)).largest(),
            Some((Budgeted::TimeMilliseconds, 80))
        );
    }

    #[test]
    fn a_case_is_read_when_it_is_measured() {
        let folder = tempfile::tempdir().unwrap();
        let case = folder.path().join("cases/one");
        fs::create_dir_all(&case).unwrap();
        for name in ["given.yaml", "expected.yaml"] {
            fs::write(case.join(name), "a: [").unwrap();
        }
        let mut cases = in_folder(folder.path()).unwrap();
        fs::remove_file(case.join("expected.yaml")).unwrap();
        let (_, read) = cases.next().unwrap();
        let told = read.err().unwrap().to_string();
        assert!(told.contains("`expected.yaml` is missing"), "{told}");
        assert!(cases.next().is_none());
    }

    #[test]
    fn bytes_have_a_unit_that_fits() {
        let shown = [0, 10_239, 10_240, 16 << 20].map(bytes);
        assert_eq!(shown, ["0 B", "10239 B", "10 KiB", "16 MiB"]);
    }
}
