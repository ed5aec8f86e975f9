//! Damage to the agent's own folder, which the next run must repair. Damages no file of the user.

use super::Attempt;
use super::Dice;
use super::mutate;
use super::program::{Kind, Transom};
use crate::canary::Canaries;
use crate::program;
use crate::stage::NOW;
use crate::tree;
use anyhow::{Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// The keys of the taints that the policy owns.
const OWNED: [&str; 2] = [
    "cluster.open-cluster-management.io/unavailable",
    "cluster.open-cluster-management.io/unreachable",
];

/// A complete folder that the agent has worked on.
pub(super) struct Damaged {
    folder: PathBuf,
    made: BTreeMap<PathBuf, Value>,
}

impl Damaged {
    /// Runs the agent once on two cases.
    pub(super) fn new(transom: &Transom, folder: &Path) -> Result<Self> {
        fs::create_dir_all(folder)?;
        for case in [
            "external-managed-kubeconfig/cases/G03-available",
            "built-in-taints/cases/T04-unknown",
        ] {
            let name = case.split('/').next().unwrap_or(case);
            fs::copy(
                program::root()
                    .join("policies")
                    .join(case)
                    .join("given.yaml"),
                folder.join(name).with_extension("yaml"),
            )?;
        }
        let ended = transom.run(&words(folder))?;
        ensure!(
            ended.code == Some(0),
            "the folder is not right before it is damaged: {:?}",
            ended.code
        );
        let made = made(folder)?;
        ensure!(made.len() >= 2, "nothing was made that could be damaged");
        Ok(Self {
            folder: folder.to_owned(),
            made,
        })
    }

    /// Damages one or two files of a copy, runs the agent, and compares.
    pub(super) fn attempt(
        &self,
        transom: &Transom,
        copy: &Path,
        dice: &mut Dice,
    ) -> Result<Attempt> {
        let input = self.damaged(copy, dice)?;
        let ended = transom.run(&words(copy))?;
        let wrong = ended
            .wrong(Kind::Run, &Canaries::default())
            .or_else(|| match made(copy) {
                // It names what it does not dare to repair, such as a Secret without its ownership labels.
                _ if ended.code == Some(1) => None,
                Ok(made) if made == self.made => None,
                Ok(made) => {
                    let differs = |path: &&PathBuf| made.get(*path) != self.made.get(*path);
                    let paths = self.made.keys().chain(made.keys());
                    let paths: Vec<_> = paths.filter(differs).collect();
                    Some(format!("the damage stays in {paths:?}"))
                }
                Err(error) => Some(format!("the damage stays: {error:#}")),
            });
        Ok(Attempt {
            input,
            canaries: 0,
            wrong,
        })
    }

    /// Makes a copy in which one or two files are damaged; returns these.
    fn damaged(&self, copy: &Path, dice: &mut Dice) -> Result<Vec<u8>> {
        let all = files(&self.folder)?;
        if copy.exists() {
            fs::remove_dir_all(copy)?;
        }
        let ours = |path: &&PathBuf| {
            path.starts_with(".transom/objects")
                || path.starts_with(".transom/patches")
                || path.starts_with(".transom/status")
        };
        let ours: Vec<PathBuf> = all.keys().filter(ours).cloned().collect();
        let own = copy.join(".transom");
        fs::create_dir_all(&own)?;
        // The marker file of a folder that the agent created.
        fs::set_permissions(own, Permissions::from_mode(0o1700))?;
        let hit = [dice.pick(&ours).clone(), dice.pick(&ours).clone()];
        let mut input = Vec::new();
        for (path, bytes) in &all {
            let mut bytes = bytes.clone();
            if hit.contains(path) {
                match dice.chance(10) {
                    true => bytes.clear(),
                    false => mutate::bytes(&mut bytes, 1 + dice.below(4), dice),
                }
                input.extend(format!("# {}\n", path.display()).into_bytes());
                input.extend(&bytes);
            }
            let to = copy.join(path);
            fs::create_dir_all(to.parent().unwrap_or(copy))?;
            fs::write(to, bytes)?;
        }
        Ok(input)
    }
}

/// The taints of a patch that the policy owns, without their times: a damaged key counts as another owner's taint from
/// then on, and the times belong to their writer.
fn owned(patch: &Value) -> Value {
    let fields = patch["fields"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|field| field["path"] == "spec.taints");
    let taints = fields.flat_map(|field| field["value"].as_array().into_iter().flatten());
    let ours = taints.filter(|taint| OWNED.iter().any(|key| taint["key"] == *key));
    ours.map(
        |taint| json!({"key": taint["key"], "value": taint["value"], "effect": taint["effect"]}),
    )
    .collect()
}

/// Every file below a folder, by relative path.
fn files(folder: &Path) -> Result<BTreeMap<PathBuf, Vec<u8>>> {
    let all = tree::contents(folder)?.into_keys();
    all.map(|path| Ok((path.clone(), fs::read(folder.join(path))?)))
        .collect()
}

fn words(folder: &Path) -> Vec<OsString> {
    let mut words: Vec<OsString> = ["run", "--once", "--now", NOW, "--dir"]
        .map(Into::into)
        .into();
    words.push(folder.into());
    words
}

/// The managed objects, by file, as values: formatting and digests of writes do not count.
fn made(folder: &Path) -> Result<BTreeMap<PathBuf, Value>> {
    let mut made = BTreeMap::new();
    for (path, bytes) in files(folder)? {
        let value = |bytes: &[u8]| serde_yaml::from_slice::<Value>(bytes);
        if path.starts_with(".transom/objects") {
            let object = value(&bytes)?;
            let text = object["data"]["kubeconfig"].as_str().unwrap_or_default();
            made.insert(path, value(&STANDARD.decode(text)?)?);
        } else if path.starts_with(".transom/patches") {
            made.insert(path, owned(&value(&bytes)?));
        }
    }
    Ok(made)
}
