//! The bundled cases with texts planted wherever a kubeconfig may hide a credential, unchanged otherwise or mutated.
//! Contains no real credential.

use super::Dice;
use super::mutate;
use crate::canary::Canaries;
use crate::program;
use anyhow::{Context as _, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize as _;
use serde_json::{Map, Value, json};
use std::fs;
use std::path::PathBuf;

/// One bundled case.
pub(super) struct Case {
    pub(super) path: PathBuf,
    text: String,
    /// Its documents; none if it is not YAML, as some are on purpose.
    documents: Option<Vec<Value>>,
}

/// Every bundled case, in order.
pub(super) fn cases() -> Result<Vec<Case>> {
    let mut cases = Vec::new();
    for policy in ["built-in-taints", "external-managed-kubeconfig"] {
        let folder = program::root().join("policies").join(policy).join("cases");
        for entry in fs::read_dir(&folder)
            .with_context(|| format!("failed to read `{}`", folder.display()))?
        {
            let path = entry?.path();
            let text = String::from_utf8_lossy(&fs::read(path.join("given.yaml"))?).into_owned();
            let documents: Result<Vec<Value>, _> = serde_yaml::Deserializer::from_str(&text)
                .map(Value::deserialize)
                .collect();
            cases.push(Case {
                path,
                text,
                documents: documents.ok(),
            });
        }
    }
    cases.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(cases)
}

/// A case with planted texts and nothing else changed.
pub(super) fn whole(case: &Case, dice: &mut Dice) -> Result<(Vec<u8>, Canaries)> {
    let mut canaries = Canaries::default();
    let mut documents = case.documents.clone().context("the case is not YAML")?;
    kubeconfigs(&mut documents, |kubeconfig, _| {
        credentials(kubeconfig, &mut canaries, dice, 0);
        None
    });
    Ok((written(&documents, dice)?, canaries))
}

/// A case with planted texts, mutated: its kubeconfig as a value or as bytes, its objects, or the file.
pub(super) fn mutated(case: &Case, dice: &mut Dice) -> Result<(Vec<u8>, Canaries)> {
    let mut canaries = Canaries::default();
    let times = 1 + dice.below(5);
    let Some(mut documents) = case.documents.clone() else {
        let mut bytes = case.text.clone().into_bytes();
        mutate::bytes(&mut bytes, times, dice);
        return Ok((bytes, canaries));
    };
    let how = dice.below(20);
    kubeconfigs(&mut documents, |kubeconfig, json| {
        credentials(kubeconfig, &mut canaries, dice, 15);
        if how < 7 {
            mutate::value(kubeconfig, times.min(3), dice);
        }
        let text = if json {
            kubeconfig.to_string()
        } else {
            serde_yaml::to_string(kubeconfig).unwrap_or_default()
        };
        let mut bytes = text.into_bytes();
        if (7..12).contains(&how) {
            mutate::bytes(&mut bytes, times, dice);
        }
        Some(bytes)
    });
    beside(&mut documents, &mut canaries, dice);
    if (12..17).contains(&how) {
        documents
            .iter_mut()
            .for_each(|document| mutate::value(document, dice.below(4), dice));
    }
    let mut bytes = written(&documents, dice)?;
    if how >= 17 {
        mutate::bytes(&mut bytes, times, dice);
    }
    Ok((bytes, canaries))
}

fn written(documents: &[Value], dice: &mut Dice) -> Result<Vec<u8>> {
    let mut texts = Vec::new();
    for document in documents {
        texts.push(if dice.chance(80) {
            serde_yaml::to_string(document)?
        } else {
            document.to_string()
        });
    }
    Ok(texts.join("\n---\n").into_bytes())
}

/// Changes every kubeconfig in a Secret; bytes that the closure returns replace it, else the changed value does.
fn kubeconfigs(
    documents: &mut [Value],
    mut change: impl FnMut(&mut Value, bool) -> Option<Vec<u8>>,
) {
    for document in documents
        .iter_mut()
        .filter(|document| document["kind"] == "Secret")
    {
        for field in ["data", "stringData"] {
            let Some(map) = document.get_mut(field).and_then(Value::as_object_mut) else {
                continue;
            };
            for held in map.values_mut() {
                let Some(text) = held.as_str() else { continue };
                let bytes = if field == "data" {
                    STANDARD.decode(text).unwrap_or_default()
                } else {
                    text.into()
                };
                let Ok(mut kubeconfig) = serde_yaml::from_slice::<Value>(&bytes) else {
                    continue;
                };
                if kubeconfig.get("clusters").is_none() {
                    continue;
                }
                let json = bytes.first() == Some(&b'{');
                let bytes = change(&mut kubeconfig, json);
                let bytes = bytes.unwrap_or_else(|| {
                    serde_yaml::to_string(&kubeconfig)
                        .unwrap_or_default()
                        .into_bytes()
                });
                *held = match field {
                    "data" => STANDARD.encode(bytes).into(),
                    _ => String::from_utf8_lossy(&bytes).into_owned().into(),
                };
            }
        }
    }
}

/// Plants texts into a kubeconfig: some always, the rest at random.
fn credentials(kubeconfig: &mut Value, canaries: &mut Canaries, dice: &mut Dice, percent: usize) {
    let users = kubeconfig
        .get_mut("users")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten();
    for user in users.filter_map(|user| user.get_mut("user")?.as_object_mut()) {
        let known: Vec<String> = user
            .values()
            .filter_map(Value::as_str)
            .map(str::to_owned)
            .collect();
        for text in known.iter().filter(|text| text.len() > 80) {
            canaries.look_for("what the case has", &text[40..80]);
        }
        user.insert("token".to_owned(), canaries.plant("token").into());
        of_user(user, canaries, dice, percent);
    }
    let clusters = kubeconfig
        .get_mut("clusters")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten();
    for cluster in clusters.filter_map(|cluster| cluster.get_mut("cluster")?.as_object_mut()) {
        of_cluster(cluster, canaries, dice, percent);
    }
    if let Some(map) = kubeconfig.as_object_mut().filter(|_| dice.chance(percent)) {
        map.insert(
            canaries.plant("an unknown field's name"),
            canaries.plant("an unknown field").into(),
        );
        map.insert(
            "preferences".to_owned(),
            json!({"x": canaries.plant("preferences")}),
        );
    }
}

fn of_user(
    user: &mut Map<String, Value>,
    canaries: &mut Canaries,
    dice: &mut Dice,
    percent: usize,
) {
    let mut put = |name: &str, value: &mut dyn FnMut() -> Value| {
        if dice.chance(percent) {
            user.insert(name.to_owned(), value());
        }
    };
    put("password", &mut || canaries.plant("password").into());
    put("tokenFile", &mut || canaries.plant("tokenFile").into());
    put("exec", &mut || {
        let text = canaries.plant("exec");
        json!({"apiVersion": "client.authentication.k8s.io/v1", "command": text, "args": [text], "env": [{"name": "A", "value": text}]})
    });
    put(
        "auth-provider",
        &mut || json!({"name": "oidc", "config": {"id-token": canaries.plant("auth-provider")}}),
    );
    put("x-unknown", &mut || {
        canaries.plant("an unknown field of a user").into()
    });
    put("client-key-data", &mut || {
        let key = format!(
            "-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n",
            canaries.plant("client-key-data")
        );
        STANDARD.encode(key).into()
    });
}

fn of_cluster(
    cluster: &mut Map<String, Value>,
    canaries: &mut Canaries,
    dice: &mut Dice,
    percent: usize,
) {
    let mut put = |name: &str, value: &mut dyn FnMut() -> Value| {
        if dice.chance(percent) {
            cluster.insert(name.to_owned(), value());
        }
    };
    put("proxy-url", &mut || {
        format!("http://user:{}@proxy:3128", canaries.plant("proxy-url")).into()
    });
    put("server", &mut || {
        format!(
            "https://user:{}@api.example.com:6443",
            canaries.plant("userinfo")
        )
        .into()
    });
    put("server", &mut || {
        format!(
            "https://api.example.com:6443/?q={}",
            canaries.plant("query")
        )
        .into()
    });
    put(
        "extensions",
        &mut || json!([{"name": "e", "extension": {"a": canaries.plant("extensions")}}]),
    );
}

/// Plants texts beside the kubeconfig: under other keys, and in the copy that kubectl keeps.
fn beside(documents: &mut [Value], canaries: &mut Canaries, dice: &mut Dice) {
    for secret in documents
        .iter_mut()
        .filter(|document| document["kind"] == "Secret")
    {
        if dice.chance(30) {
            if !secret["stringData"].is_object() {
                secret["stringData"] = json!({});
            }
            secret["stringData"]["other"] = canaries.plant("another key").into();
        }
        if dice.chance(30) && secret["metadata"].is_object() {
            if !secret["metadata"]["annotations"].is_object() {
                secret["metadata"]["annotations"] = json!({});
            }
            let copy =
                json!({"data": {"a": canaries.plant("the copy that kubectl keeps")}}).to_string();
            secret["metadata"]["annotations"]["kubectl.kubernetes.io/last-applied-configuration"] =
                copy.into();
        }
    }
}
