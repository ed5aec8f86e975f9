//! Every bundled case as a row on the real server: cases with the same facts and settings run side by side on one
//! agent, with their own names. `NOT_HERE` lists what the server does not accept, or sets itself.

use crate::case::{Row, rows};
use crate::objects::CLUSTERS;
use crate::stage::{DEADLINE, MANAGED, PARALLEL, SECRET, Stage, on_stage, policies_at};
use crate::whole::{install, reads_all_of_a_kind, whole_waves};
use anyhow::{Context as _, Result, bail, ensure};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;
use transom_e2e::agent::{Agent, Told};
use transom_e2e::program;
use transom_support::fleet::Fleet;
use transom_test_cluster::wait;

const KUBECONFIG: &str = "external-managed-kubeconfig";
const TAINTS: &str = "built-in-taints";

/// Cases that cannot run on a real server, by obstacle; `tests/README.md` says more about each.
const NOT_HERE: [(&str, &str); 25] = [
    (
        "N12c-contender-without-age",
        "the server gives every object its age",
    ),
    (
        "X23-grace-period-from-creation",
        "the server gives every object its age",
    ),
    (
        "X30-condition-with-another-status",
        "the CRD knows True, False and Unknown only",
    ),
    (
        "G09-conditions-of-wrong-type",
        "the CRD takes conditions of its types only",
    ),
    (
        "G10-condition-of-wrong-type",
        "the CRD takes conditions of its types only",
    ),
    (
        "X49-of-a-cluster-not-connected",
        "rows get names of their own, and a primary that only a stamp names does not",
    ),
    (
        "X69-paused-until-nonsense",
        "the CRD knows true, false and times only",
    ),
    ("A01c-null-is-absent", NULL),
    ("M16c-null-is-absent", NULL),
    ("C07-masters", MASTERS),
    ("C07b-masters-beside-its-own", MASTERS),
    ("C07c-masters-beside-all", MASTERS),
    ("G04-addon-first", ONWARD),
    ("G08-lowest-first", ONWARD),
    ("X02-forged-stamps", ONWARD),
    ("A05-denied", ONWARD),
    ("T02-made-by-ocm-denied", ONWARD),
    ("T03-made-by-ocm-deleted", ONWARD),
    ("T06-denied-with-binding-of-others", ONWARD),
    ("H08g-klusterlet-stuck", DELETION),
    ("H08h-klusterlet-taken", DELETION),
    ("H08l-klusterlet-of-whom", DELETION),
    ("M06-unknown", "the CRD knows two types of selectors only"),
    (
        "T07-denied-with-role-of-others",
        "the server takes no binding with such a subject",
    ),
    (
        "H08-namespace-missing",
        "the rights in a namespace lie in it",
    ),
];

const MASTERS: &str = "the server refuses requests for system:masters itself";

const NULL: &str = "the server drops such fields, and the client of the tests sends none";

const DELETION: &str = "the server sets the time of a deletion";

const ONWARD: &str = "what is removed goes at once, and the next step follows";

/// How long rows may take to be as expected; a wrong row always takes this long.
const SETTLED: Duration = Duration::from_secs(180);

#[test]
fn kubeconfig_policy_cases_pass_on_a_real_server() -> Result<()> {
    all(KUBECONFIG, "")
}

#[test]
fn cases_of_the_objects_world_pass_on_a_real_server() -> Result<()> {
    let policies = policies_of_the_objects_world()?;
    let turns = thread::scope(|scope| {
        let turns = policies.iter().map(|policy| {
            let turn = move || {
                let mut wrong = (0, Vec::new());
                on_stage(async |stage| {
                    wrong = of_policy(stage, policy).await?;
                    Ok(())
                })?;
                anyhow::Ok(wrong)
            };
            (policy, scope.spawn(turn))
        });
        let turns: Vec<_> = turns.collect();
        let ended = turns.into_iter().map(|(policy, turn)| match turn.join() {
            Ok(turn) => Ok((
                policy,
                turn.with_context(|| format!("the rows of {policy}"))?,
            )),
            Err(_) => bail!("the rows of {policy} panicked"),
        });
        ended.collect::<Result<Vec<_>>>()
    })?;
    let (mut ran, mut wrong) = (0, Vec::new());
    for (policy, (rows, differences)) in turns {
        println!("{policy}: {rows} rows");
        ran += rows;
        let about = |difference| format!("{policy}/{difference}");
        wrong.extend(differences.into_iter().map(about));
    }
    println!("objects world: {ran} rows");
    ensure!(wrong.is_empty(), "of {ran} rows:\n{}", wrong.join("\n"));
    Ok(())
}

/// The bundled policies of the objects world that have cases.
fn policies_of_the_objects_world() -> Result<Vec<String>> {
    let mut policies = Vec::new();
    for entry in fs::read_dir(program::root().join("policies"))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if entry.path().join("cases").is_dir() && ![KUBECONFIG, TAINTS].contains(&&*name) {
            policies.push(name);
        }
    }
    policies.sort();
    ensure!(!policies.is_empty(), "there are no such policies");
    Ok(policies)
}

#[test]
fn every_case_that_is_no_row_is_in_the_table() -> Result<()> {
    let page = fs::read_to_string(program::root().join("tests/README.md"))?;
    let mut cases = BTreeSet::new();
    for policy in policies_of_the_objects_world()?
        .iter()
        .map(String::as_str)
        .chain([KUBECONFIG, TAINTS])
    {
        for entry in fs::read_dir(program::root().join("policies").join(policy).join("cases"))? {
            cases.insert(entry?.file_name().to_string_lossy().into_owned());
        }
    }
    for (name, _) in NOT_HERE {
        ensure!(cases.contains(name), "there is no case {name}");
        ensure!(page.contains(&format!("{name}`")), "the table lacks {name}");
    }
    Ok(())
}

/// Runs every case of a policy of the objects world on one stage, wave by wave; gives how many, and what is wrong.
async fn of_policy(stage: &Stage, policy: &str) -> Result<(usize, Vec<String>)> {
    let manifest = program::manifest(policy)?;
    let rows = chosen(policy, "", true)?;
    let ran = rows.len();
    if rows.is_empty() {
        return Ok((0, Vec::new()));
    }
    install(stage, &manifest, &rows).await?;
    let mut wrong = Vec::new();
    let alone = reads_all_of_a_kind(&manifest);
    for (number, wave) in groups(rows)
        .into_iter()
        .flat_map(|rows| whole_waves(rows, alone))
        .enumerate()
    {
        for place in wave.iter().flat_map(Row::may_write) {
            stage.guard.expect(place);
        }
        if number == 0 {
            let (folder, _) = settings(stage, policy, number, &wave[0].given)?;
            stage.grant_exactly(&policies_at(&folder)?).await?;
        }
        wrong.extend(run(stage, policy, number, wave).await?);
    }
    Ok((ran, wrong))
}

#[test]
fn taints_policy_cases_pass_on_a_real_server() -> Result<()> {
    all(TAINTS, "m")
}

/// Runs every case and reports all failures. Each wave is a turn of its own on some stage.
fn all(policy: &str, prefix: &str) -> Result<()> {
    let groups = groups(chosen(policy, prefix, false)?);
    let ran: usize = groups.iter().map(Vec::len).sum();
    let waves = groups
        .into_iter()
        .enumerate()
        .flat_map(|(number, rows)| waves(rows).into_iter().map(move |wave| (number, wave)));
    let wrong = thread::scope(|scope| {
        let waves = waves.map(|(number, wave)| scope.spawn(move || on(policy, number, wave)));
        let waves: Vec<_> = waves.collect();
        let ended = waves.into_iter().map(|wave| match wave.join() {
            Ok(wrong) => wrong,
            Err(_) => bail!("a wave panicked"),
        });
        ended.collect::<Result<Vec<_>>>()
    })?;
    let wrong = wrong.concat();
    println!("{policy}: {ran} rows");
    ensure!(
        wrong.is_empty(),
        "{} of {ran} rows:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    Ok(())
}

/// The cases of a policy that can be rows, and that `TRANSOM_ROWS` selects.
fn chosen(policy: &str, prefix: &str, whole: bool) -> Result<Vec<Row>> {
    let only = std::env::var("TRANSOM_ROWS").unwrap_or_default();
    let mut rows = rows(policy, prefix, whole)?;
    rows.retain(|row| {
        let here = NOT_HERE.iter().all(|(name, _)| *name != row.name);
        let name = format!("{policy}/{}", row.name);
        here && (row.name.starts_with(&only) || name.starts_with(&only))
    });
    Ok(rows)
}

/// Rows with the same facts and settings.
fn groups(rows: Vec<Row>) -> Vec<Vec<Row>> {
    let mut groups: BTreeMap<String, Vec<Row>> = BTreeMap::new();
    for row in rows {
        let mut given = row.given.clone();
        given.as_object_mut().map(|given| given.remove("gone"));
        groups.entry(given.to_string()).or_default().push(row);
    }
    groups.into_values().collect()
}

/// Runs a wave on a stage and returns what is wrong.
fn on(policy: &str, number: usize, wave: Vec<Row>) -> Result<Vec<String>> {
    let mut wrong = Vec::new();
    on_stage(async |stage| {
        wrong = run(stage, policy, number, wave).await?;
        Ok(())
    })?;
    Ok(wrong)
}

/// Rows that have no object in common.
fn waves(rows: Vec<Row>) -> Vec<Vec<Row>> {
    let mut waves: Vec<(BTreeSet<String>, Vec<Row>)> = Vec::new();
    for row in rows {
        let held = row.holds();
        match waves.iter_mut().find(|(all, _)| all.is_disjoint(&held)) {
            Some((all, wave)) => {
                all.extend(held);
                wave.push(row);
            }
            None => waves.push((held, vec![row])),
        }
    }
    waves.into_iter().map(|(_, wave)| wave).collect()
}

/// One agent for rows with the same facts and settings: the given objects, their state, the change, the state after it.
async fn run(stage: &Stage, policy: &str, number: usize, rows: Vec<Row>) -> Result<Vec<String>> {
    let given = rows[0].given.clone();
    let (policies, facts) = settings(stage, policy, number, &given)?;
    let put = stream::iter(rows).map(|mut row| async move {
        let put = row.put(stage).await;
        (
            put.map_err(|error| format!("{}: what is given: {error:#}", row.name)),
            row,
        )
    });
    let put: Vec<_> = put.buffered(PARALLEL).collect().await;
    let mut wrong: Vec<String> = put
        .iter()
        .filter_map(|(put, _)| put.clone().err())
        .collect();
    let mut rows: Vec<Row> = put
        .into_iter()
        .filter_map(|(put, row)| put.ok().map(|()| row))
        .collect();
    if rows.is_empty() {
        return Ok(wrong);
    }
    let changing = rows.iter().any(Row::changes);
    let whole = rows.iter().any(|row| row.whole);
    if changing && !whole {
        sentinel(stage, policy).await?;
    }
    let mut words = vec![
        "--policies",
        policies.to_str().context("the folder has another name")?,
    ];
    words.extend(facts.iter().map(String::as_str));
    let start = stage.mark()?;
    let agent = stage.start_agent(&words)?;
    // Without any primary there is nothing to sum up.
    match rows.iter().any(|row| row.states().next().is_some()) || !whole {
        true => agent.wait_for_first_pass()?,
        false => drop(agent.ready()?),
    }
    wrong.extend(settled(stage, &agent, rows.iter().filter(|row| !row.changes())).await?);
    let before = stage.writes(start).await?;
    let (lines, change) = (agent.log()?.lines().count(), stage.mark()?);
    if changing {
        // What is to wake nobody changes first: the agent has seen it once it has seen what comes later.
        rows.sort_by_key(|row| row.expected["woken"] != json!([]));
        for row in rows.iter_mut().filter(|row| row.changes()) {
            if let Err(error) = row.change(stage).await {
                wrong.push(format!("{}: the change: {error:#}", row.name));
            }
        }
        wrong.extend(settled(stage, &agent, rows.iter().filter(|row| row.changes())).await?);
        if whole {
            // A reconcile that changes neither state nor object is seen in the log only.
            let seen = wait::until("the reconciles that are expected", SETTLED, async || {
                let told = agent.told(lines)?;
                Ok(rows
                    .iter()
                    .all(|row| row.woken(&told).is_none())
                    .then_some(()))
            });
            let _ = seen.await;
        } else {
            turn_sentinel(stage, policy, &given).await?;
        }
    }
    let told = agent.told(lines)?;
    agent.stop()?;
    for row in rows.iter().filter(|row| row.changes()) {
        wrong.extend(
            row.woken(&told)
                .map(|difference| format!("{}: {difference}", row.name)),
        );
    }
    wrong.extend(unexpected(&rows, &before, &stage.writes(change).await?));
    if whole {
        let refused = stage.nothing_denied(start).await.err();
        wrong.extend(refused.map(|error| format!("{}: {error}", rows[0].name)));
        stage.take(&program::manifest(policy)?, &rows).await?;
    }
    Ok(wrong)
}

/// Waits until every row is as expected; returns the differences that remained.
async fn settled<'a>(
    stage: &Stage,
    agent: &Agent,
    rows: impl Iterator<Item = &'a Row>,
) -> Result<Vec<String>> {
    let mut open: Vec<&Row> = rows.collect();
    let mut wrong = Vec::new();
    let came = wait::until("rows as expected", SETTLED, async || {
        let states = states(&agent.told(0)?);
        let looked = stream::iter(open.drain(..)).map(|row| {
            let states = &states;
            async move { anyhow::Ok((row, row.differences(stage, states).await?)) }
        });
        let looked: Vec<_> = looked.buffered(PARALLEL).try_collect().await?;
        wrong.clear();
        for (row, differences) in looked
            .into_iter()
            .filter(|(_, differences)| !differences.is_empty())
        {
            open.push(row);
            wrong.extend(
                differences
                    .into_iter()
                    .map(|difference| format!("{}: {difference}", row.name)),
            );
        }
        Ok(open.is_empty().then_some(()))
    });
    let _ = came.await;
    Ok(wrong)
}

/// The last state of every primary.
fn states(told: &[Told]) -> BTreeMap<String, String> {
    let with_state = told.iter().filter_map(|told| {
        Some((
            told.primary.clone(),
            format!("{} {}", told.state.as_ref()?, told.reason),
        ))
    });
    with_state.collect()
}

/// The policy with settings laid over its own, in a folder, and the flags for the facts.
fn settings(
    stage: &Stage,
    policy: &str,
    number: usize,
    given: &Value,
) -> Result<(PathBuf, Vec<String>)> {
    let text = fs::read_to_string(
        program::root()
            .join("policies")
            .join(policy)
            .join("policy.yaml"),
    )?;
    let mut manifest: Value = serde_yaml::from_str(&text)?;
    for role in ["trigger", "decide"] {
        let guest = &mut manifest["spec"]["guests"][role];
        for (key, value) in given["settings"][role].as_object().into_iter().flatten() {
            guest["settings"][key.as_str()] = value.clone();
        }
    }
    for (name, template) in given["names"].as_object().into_iter().flatten() {
        manifest["spec"]["grant"]["names"][name.as_str()] = template.clone();
    }
    manifest["spec"]["limits"] = program::unlimited();
    let folder = stage
        .cluster
        .folder()
        .join(format!("policies-{policy}-{number}"));
    fs::create_dir_all(&folder)?;
    fs::write(
        folder.join("policy.yaml"),
        serde_yaml::to_string(&manifest)?,
    )?;
    let mut flags = Vec::new();
    for (flag, key) in [
        ("--cluster-name", "clusterName"),
        ("--self-managed-cluster", "selfManagedCluster"),
    ] {
        flags.extend(
            given["agent"][key]
                .as_str()
                .into_iter()
                .flat_map(|value| [flag.to_owned(), value.to_owned()]),
        );
    }
    Ok((folder, flags))
}

/// Writes that no row expects. Before the change, the written objects of rows with a change are not known yet.
fn unexpected(rows: &[Row], before: &[String], after: &[String]) -> Vec<String> {
    let expected = |changes: bool| -> BTreeSet<String> {
        rows.iter()
            .filter(|row| row.changes() == changes)
            .flat_map(Row::written)
            .collect()
    };
    let whole = rows.iter().any(|row| row.whole);
    let (still, moved) = (expected(false), expected(true));
    // On a server an object that goes is being deleted first, which a case does not have.
    let of_going = |write: &str| {
        let mut going = rows.iter().filter(|row| row.whole && !row.gone.is_empty());
        going.any(|row| row.is_about(write))
    };
    let of_changing = |write: &str| {
        if whole {
            let of_still = |row: &Row| !row.changes() && row.is_about(write);
            return rows.iter().any(Row::changes) && !rows.iter().any(of_still);
        }
        rows.iter().filter(|row| row.changes()).any(|row| {
            row.holds().iter().any(|held| {
                held.split([' ', '/']).any(|name| {
                    name.len() > 2
                        && write
                            .split([' ', '/'])
                            .any(|part| part == name && part != CLUSTERS)
                })
            })
        })
    };
    let place = |write: &String| {
        write
            .split_once(' ')
            .map_or(String::new(), |(_, place)| place.to_owned())
    };
    let foreign = |write: &&String| match whole {
        true => !write.contains("accessreviews"),
        false => !write.contains("sentinel") && !write.contains("edge-"),
    };
    let wrong_before = before
        .iter()
        .filter(foreign)
        .filter(|write| !still.contains(&place(write)) && !of_changing(write));
    let wrong_after = after
        .iter()
        .filter(foreign)
        .filter(|write| !moved.contains(&place(write)) && !of_going(write));
    let wrong_before = wrong_before.map(|write| format!("before the change: {write}"));
    wrong_before
        .chain(wrong_after.map(|write| format!("after the change: {write}")))
        .collect()
}

/// A cluster that changes last: once the agent has handled it, it has seen all earlier changes.
async fn sentinel(stage: &Stage, policy: &str) -> Result<()> {
    match policy {
        KUBECONFIG => stage.ready("sentinel", true).await,
        _ => stage
            .cluster
            .install_fleet(Fleet {
                clusters: 0,
                managed: 8,
                seed: 7,
            })
            .await
            .map(drop),
    }
}

async fn turn_sentinel(stage: &Stage, policy: &str, given: &Value) -> Result<()> {
    if policy == TAINTS {
        let status = json!({"conditions": []});
        stage
            .put_status(MANAGED, None, "edge-00007", &status)
            .await?;
        return wait::until("the sentinel's taint", DEADLINE, async || {
            let object = stage
                .get(MANAGED, None, "edge-00007")
                .await?
                .context("no sentinel")?;
            Ok(object["spec"]["taints"]
                .to_string()
                .contains("/unreachable")
                .then_some(()))
        })
        .await;
    }
    stage.move_port("sentinel", 7443).await?;
    let Some(source) = stage
        .get(SECRET, Some(CLUSTERS), "sentinel-admin-kubeconfig")
        .await?
    else {
        bail!("no sentinel")
    };
    let other =
        crate::objects::case_text(KUBECONFIG, "V18-source-rotated", "then.yaml", str::to_owned)?
            .context("no case V18")?;
    let other = crate::objects::parse(&other)?.remove(0);
    ensure!(
        source["data"] != other["data"],
        "the case V18 rotates nothing"
    );
    let rotated = json!({"data": other["data"]});
    stage
        .patch(SECRET, Some(CLUSTERS), "sentinel-admin-kubeconfig", rotated)
        .await?;
    let source = stage
        .secret(CLUSTERS, "sentinel-admin-kubeconfig")
        .await?
        .context("no source")?;
    let told = wait::until("the sentinel's secret", DEADLINE, async || {
        let made = stage.made("sentinel").await?;
        Ok(made
            .filter(|made| made.server.ends_with(":7443") && made.carries(&source))
            .map(|_| ()))
    });
    told.await?;
    if !given["settings"]["trigger"].is_null() {
        // Then an annotation must not claim anything.
        return Ok(());
    }
    let annotation = json!({"metadata": {"annotations": {"cluster.open-cluster-management.io/managedcluster-name": "sentinel-2"}}});
    stage.objects().namespace("klusterlet-sentinel-2").await?;
    stage
        .patch(crate::stage::HOSTED, Some(CLUSTERS), "sentinel", annotation)
        .await?;
    wait::until("the sentinel's other secret", DEADLINE, async || {
        Ok(stage.made("sentinel-2").await?.map(|_| ()))
    })
    .await
}
