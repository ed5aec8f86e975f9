//! Whole runs on generated folders of manifests, against baseline programs. Does not check their output.

use crate::process::{self, Cost, NOW, Programs};
use crate::rounds::median;
use crate::table::{Figure, Row, Table};
use anyhow::{Context as _, Result};
use std::cell::Cell;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use transom_support::fleet::{Fleet, Written};

/// The policy of which idle ones are copies.
const TAINTS: &str = include_str!("../../../policies/built-in-taints/policy.yaml");
/// Runs of each.
const RUNS: usize = 7;
/// HostedClusters.
const CLUSTERS: usize = 1000;
/// ManagedClusters; for the memory measurement, HostedClusters.
pub(crate) const MANY: usize = 10_000;

/// `run --once` from nothing, and again with nothing to do.
pub(crate) fn once(programs: &Programs, work: &Path, table: &mut Table) -> Result<()> {
    let (fleet, _) = fleet(
        work,
        "hosted",
        Fleet {
            clusters: CLUSTERS,
            managed: 0,
            seed: 1,
        },
    )?;
    let (own, written) = (fleet.join(".transom"), work.join("written"));
    let (dir, into) = (shown(&fleet), shown(&written));
    let (hosted, objects) = (shown(&fleet.join("hosted")), shown(&own.join("objects")));
    let again = ["run", "--once", "--now", NOW, "--dir", &dir];
    let aside = Aside::new(work.join("aside"))?;
    let pair = pairs(
        || {
            aside.put(&own)?;
            Ok(programs.transom(&again))
        },
        || {
            aside.put(&written)?;
            fs::create_dir_all(&written)?;
            Ok(programs.floor(&[
                "parse",
                &hosted,
                "--write",
                &CLUSTERS.to_string(),
                "--into",
                &into,
            ]))
        },
    )?;
    let what = "`run --once`, 1,000 HostedClusters, from nothing";
    add(table, what, "parse them, write 1,000 files", pair, 3.0)?;
    let pair = pairs(
        || Ok(programs.transom(&again)),
        || Ok(programs.floor(&["parse", &hosted, &objects])),
    )?;
    add(
        table,
        "the same again, with nothing to do",
        "parse inputs and results",
        pair,
        1.3,
    )
}

/// Many ManagedClusters in one JSON file, written once.
pub(crate) fn managed(work: &Path) -> Result<PathBuf> {
    let file = work.join("managed.json");
    if !file.exists() {
        let fleet = Fleet {
            clusters: 0,
            managed: MANY,
            seed: 1,
        };
        let mut items = Vec::with_capacity(MANY);
        for manifest in fleet.files()? {
            items.push(serde_yaml::from_str::<serde_json::Value>(&manifest.text)?);
        }
        let list = serde_json::json!({"apiVersion": "v1", "kind": "List", "items": items});
        fs::write(&file, serde_json::to_vec(&list)?)
            .with_context(|| format!("failed to write `{}`", file.display()))?;
    }
    Ok(file)
}

/// `render` of many ManagedClusters in one JSON file.
pub(crate) fn render(programs: &Programs, work: &Path, table: &mut Table) -> Result<()> {
    let file = shown(&managed(work)?);
    let pair = pairs(
        || Ok(programs.transom(&["render", &file, "--now", NOW, "-o", "json"])),
        || Ok(programs.floor(&["json", &file])),
    )?;
    add(
        table,
        "`render` of 10,000 ManagedClusters in one JSON file",
        "parse it with serde_json",
        pair,
        2.0,
    )
}

/// Peak memory of `run --once`.
pub(crate) fn memory(programs: &Programs, work: &Path, table: &mut Table) -> Result<()> {
    let (fleet, bytes) = fleet(
        work,
        "hosted-many",
        Fleet {
            clusters: MANY,
            managed: 0,
            seed: 1,
        },
    )?;
    remove(&fleet.join(".transom"))?;
    let peak = process::peak(&mut programs.transom(&[
        "run",
        "--once",
        "--now",
        NOW,
        "--dir",
        &shown(&fleet),
    ]))?;
    let manifests = bytes as f64 / f64::from(1 << 20);
    table.add(Row {
        what: "peak memory of `run --once`, 10,000 HostedClusters".to_owned(),
        figure: Figure::Mebibytes(peak),
        against: "3 times the bytes of the manifests and 64 MiB".to_owned(),
        floor: Figure::Mebibytes(3.0 * manifests + 64.0),
        fastest: None,
        target: Some(1.0),
    })
}

/// Policies of the measurement of idle ones.
const POLICIES: u32 = 200;

/// Memory of each policy that has nothing to do and shares its component with the others.
pub(crate) fn idle_policies(programs: &Programs, work: &Path, table: &mut Table) -> Result<()> {
    let (fleet, policies) = (work.join("empty"), work.join("idle"));
    fs::create_dir_all(&fleet)?;
    let peak = |count: u32| -> Result<f64> {
        remove(&fleet.join(".transom"))?;
        many_policies(&policies, count)?;
        process::peak(&mut programs.transom(&[
            "run",
            "--once",
            "--dir",
            &shown(&fleet),
            "--policies",
            &shown(&policies),
        ]))
    };
    let (one, all) = (peak(1)?, peak(1 + POLICIES)?);
    table.add(Row {
        what: "memory of a policy that has nothing to do, beyond its code".to_owned(),
        figure: Figure::Mebibytes((all - one) / f64::from(POLICIES)),
        against: "256 KiB".to_owned(),
        floor: Figure::Mebibytes(0.25),
        fastest: None,
        target: Some(1.0),
    })
}

/// Writes so many policies that share a component, each with taints of its own, and nothing else into a folder.
pub(crate) fn many_policies(folder: &Path, count: u32) -> Result<()> {
    remove(folder)?;
    fs::create_dir_all(folder)?;
    for at in 0..count {
        let policy = TAINTS
            .replace("name: built-in-taints", &format!("name: idle-{at}"))
            .replace("/unavailable", &format!("/unavailable-{at}"))
            .replace("/unreachable", &format!("/unreachable-{at}"));
        fs::write(folder.join(format!("idle-{at}.yaml")), policy)?;
    }
    Ok(())
}

/// A generated fleet, written once, and its size in bytes.
pub(crate) fn fleet(work: &Path, name: &str, fleet: Fleet) -> Result<(PathBuf, usize)> {
    let folder = work.join(name);
    remove(&folder)?;
    let Written { bytes, .. } = fleet.write(&folder)?;
    Ok((folder, bytes))
}

/// Costs of two programs that run alternately.
pub(crate) fn pairs(
    mut ours: impl FnMut() -> Result<Command>,
    mut floor: impl FnMut() -> Result<Command>,
) -> Result<(Cost, Cost)> {
    let (mut figures, mut floors) = (Vec::new(), Vec::new());
    for turn in 0..=RUNS {
        let (figure, against) = (process::run(&mut ours()?)?, process::run(&mut floor()?)?);
        // The first run warms the kernel's caches.
        if turn > 0 {
            figures.push(figure);
            floors.push(against);
        }
    }
    Ok((middle(&figures), middle(&floors)))
}

fn middle(costs: &[Cost]) -> Cost {
    let of = |figure: fn(&Cost) -> f64| median(&costs.iter().map(figure).collect::<Vec<_>>());
    Cost {
        wall_millis: of(|cost| cost.wall_millis),
        cpu_millis: of(|cost| cost.cpu_millis),
    }
}

/// The output of earlier runs, removed at the end: creating files right after removing others costs ext4 several times
/// as much, for any program.
struct Aside {
    folder: PathBuf,
    next: Cell<usize>,
}

impl Aside {
    fn new(folder: PathBuf) -> Result<Self> {
        remove(&folder)?;
        fs::create_dir_all(&folder)?;
        Ok(Self {
            folder,
            next: Cell::new(0),
        })
    }

    fn put(&self, path: &Path) -> Result<()> {
        if path.exists() {
            let number = self.next.replace(self.next.get() + 1);
            fs::rename(path, self.folder.join(number.to_string()))?;
        }
        Ok(())
    }
}

impl Drop for Aside {
    fn drop(&mut self) {
        // The next run removes what remains.
        drop(remove(&self.folder));
    }
}

/// One row for the wall time, one for the CPU time.
fn add(
    table: &mut Table,
    what: &str,
    against: &str,
    (ours, floor): (Cost, Cost),
    target: f64,
) -> Result<()> {
    for (kind, figure, floor) in [
        ("wall", ours.wall_millis, floor.wall_millis),
        ("CPU", ours.cpu_millis, floor.cpu_millis),
    ] {
        let (figure, floor) = (Figure::Millis(figure), Figure::Millis(floor));
        let what = format!("{what}, {kind} time");
        table.add(Row {
            what,
            figure,
            against: against.to_owned(),
            floor,
            fastest: None,
            target: Some(target),
        })?;
    }
    Ok(())
}

/// Removes a folder, if it is there.
pub(crate) fn remove(folder: &Path) -> Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("failed to remove `{}`", folder.display()))
        }
        _ => Ok(()),
    }
}

/// A path as an argument.
pub(crate) fn shown(path: &Path) -> String {
    path.display().to_string()
}
