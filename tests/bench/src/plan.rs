//! `transom plan` over a whole fleet, against decoding it and the bare calls of the guests. One policy is planned as it
//! is; a changed one is asked beside the active one, so its calls count twice.

use crate::calls::managed;
use crate::directory::{self, fleet, shown};
use crate::process::{Cost, NOW, Programs};
use crate::rounds::{Times, times};
use crate::scene::{Asked, Scene};
use crate::table::{Figure, Row, Table};
use crate::way::Objects;
use anyhow::{Result, anyhow};
use std::hint::black_box;
use std::path::Path;
use transom_core::inputs;
use transom_engine::CallLimits;
use transom_support::fleet::Fleet;

/// HostedClusters.
const HOSTED: usize = 1000;
/// Microseconds of a millisecond.
const MICROS: f64 = 1e3;

/// Measures it.
pub(crate) fn measure(
    programs: &Programs,
    scene: &Scene,
    work: &Path,
    table: &mut Table,
) -> Result<()> {
    let [kubeconfig, taints] = calls(scene)?;
    let file = shown(&directory::managed(work)?);
    let words = ["plan", "built-in-taints", "--dir", &file, "--now", NOW];
    let pair = directory::pairs(
        || Ok(programs.transom(&words)),
        || Ok(programs.floor(&["json", &file])),
    )?;
    let what = "`plan` of the taints of 10,000 ManagedClusters: CPU time";
    add(table, what, pair, taints.median * directory::MANY as f64)?;
    let size = Fleet {
        clusters: HOSTED,
        managed: 0,
        seed: 1,
    };
    let (dir, _) = fleet(work, "hosted-planned", size)?;
    let hosted = shown(&dir.join("hosted"));
    let dir = shown(&dir);
    let policy = "external-managed-kubeconfig";
    let words = ["plan", policy, "--dir", &dir, "--now", NOW];
    let pair = directory::pairs(
        || Ok(programs.transom(&words)),
        || Ok(programs.floor(&["parse", &hosted])),
    )?;
    let what = "`plan` of the kubeconfigs of 1,000 HostedClusters: CPU time";
    add(table, what, pair, kubeconfig.median * HOSTED as f64)
}

/// All calls for one kubeconfig with the decoding of its source, and the call for the taints of one cluster.
fn calls(scene: &Scene) -> Result<[Times; 2]> {
    let limits = CallLimits::default();
    let (objects, cluster) = (Objects::of(scene), managed(&scene.taints, &scene.managed)?);
    let Asked { guest, described } = &scene.trigger;
    let view =
        inputs::primary(scene.hosted()?, described).map_err(|failure| anyhow!("{failure}"))?;
    let trigger = Scene::context(&scene.trigger);
    let taints = Scene::context(&scene.taints);
    times([
        &mut || {
            black_box(guest.ready(&limits, &trigger, &view).result?);
            let answer = objects.gather()?.transform(scene)?;
            drop(black_box(answer));
            Ok(())
        },
        &mut || {
            let answer = scene.taints.guest.compute(&limits, &taints, &cluster);
            let answer = answer.result?;
            drop(black_box(answer.map_err(|refusal| anyhow!("{refusal:?}"))?));
            Ok(())
        },
    ])
}

fn add(table: &mut Table, what: &str, (ours, decoding): (Cost, Cost), calls: f64) -> Result<()> {
    table.add(Row {
        what: what.to_owned(),
        figure: Figure::Millis(ours.cpu_millis),
        against: "decode them, and the bare calls".to_owned(),
        floor: Figure::Millis(decoding.cpu_millis + calls / MICROS),
        fastest: None,
        target: Some(2.0),
    })
}
