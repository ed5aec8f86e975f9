//! Objects of the bundled cases on a real server: omits what the server sets itself, and adds what it requires. Shows
//! no content of a Secret.

use crate::inputs::REQUEST;
use crate::stage::{DEADLINE, NAMESPACE, SECRET, SERVICE, Stage};
use crate::whole::REVIEW;
use anyhow::{Context as _, Result, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize as _;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::fs;
use transom_e2e::program;
use transom_e2e::secret::Secret;
use transom_test_cluster::{SET_BY_SERVER, wait};

/// The namespace of the HostedClusters of the cases.
pub(crate) const CLUSTERS: &str = "clusters";
/// The name of the managed Secret of a HostedCluster.
pub(crate) const OUTPUT: &str = "external-managed-kubeconfig";
/// A HostedCluster, as a log names it.
pub(crate) fn primary(name: &str) -> String {
    format!("HostedCluster {CLUSTERS}/{name}")
}

/// The namespace of its secret.
pub(crate) fn home(name: &str) -> String {
    format!("klusterlet-{name}")
}

/// Identifiers in a case, and those that the server assigned instead.
pub(crate) type Identifiers = BTreeMap<String, String>;

/// The text of a file of a case, with other names for `demo` and `cluster1`; none without such a file.
pub(crate) fn case_text(
    policy: &str,
    case: &str,
    file: &str,
    name: impl Fn(&str) -> String,
) -> Result<Option<String>> {
    let words = ["demo", "cluster1"].map(str::to_owned);
    case_text_with(policy, case, file, &words, name)
}

/// The same with other names for these words.
pub(crate) fn case_text_with(
    policy: &str,
    case: &str,
    file: &str,
    words: &[String],
    name: impl Fn(&str) -> String,
) -> Result<Option<String>> {
    let path = program::root()
        .join("policies")
        .join(policy)
        .join("cases")
        .join(case)
        .join(file);
    if !path.is_file() {
        return Ok(None);
    }
    let text = fs::read_to_string(&path)
        .with_context(|| format!("failed to read `{}`", path.display()))?;
    let renamed = words
        .iter()
        .fold(text, |text, word| renamed(&text, word, &name(word)));
    Ok(Some(renamed))
}

/// Replaces a word, but not inside another word or base64.
fn renamed(text: &str, word: &str, with: &str) -> String {
    let part_of_word = |edge: Option<char>| {
        edge.is_some_and(|edge| edge.is_ascii_alphanumeric() || "+/=".contains(edge))
    };
    let (mut done, mut rest) = (String::new(), text);
    while let Some((before, after)) = rest.split_once(word) {
        let inside = part_of_word(before.chars().next_back()) || part_of_word(after.chars().next());
        done.push_str(before);
        done.push_str(if inside { word } else { with });
        rest = after;
    }
    done.push_str(rest);
    done
}

/// The documents of a text, with the data of Secrets in one form.
pub(crate) fn parse(text: &str) -> Result<Vec<Value>> {
    let mut all = Vec::new();
    for document in serde_yaml::Deserializer::from_str(text) {
        let mut object = Value::deserialize(document)
            .ok()
            .context("a case is not YAML")?;
        if !object.is_null() {
            encode(&mut object);
            all.push(object);
        }
    }
    Ok(all)
}

/// `stringData` as `data`.
pub(crate) fn encode(object: &mut Value) {
    let Some(Value::Object(texts)) = object
        .as_object_mut()
        .and_then(|map| map.remove("stringData"))
    else {
        return;
    };
    let texts = texts.into_iter().map(|(key, text)| {
        (
            key,
            json!(STANDARD.encode(text.as_str().unwrap_or_default())),
        )
    });
    let mut data: Map<String, Value> = object["data"].as_object().cloned().unwrap_or_default();
    data.extend(texts);
    object["data"] = Value::Object(data);
}

/// Kind, namespace and name, as a log names an object.
pub(crate) fn named(object: &Value) -> String {
    let text = |pointer| object.pointer(pointer).and_then(Value::as_str);
    let (kind, name) = (
        text("/kind").unwrap_or("-"),
        text("/metadata/name").unwrap_or("-"),
    );
    match text("/metadata/namespace") {
        Some(namespace) => format!("{kind} {namespace}/{name}"),
        None => format!("{kind} {name}"),
    }
}

/// API version and kind.
pub(crate) fn kind(object: &Value) -> (&str, &str) {
    (
        object["apiVersion"].as_str().unwrap_or("v1"),
        object["kind"].as_str().unwrap_or_default(),
    )
}

/// Namespace and name.
pub(crate) fn place(object: &Value) -> (Option<&str>, &str) {
    (
        object["metadata"]["namespace"].as_str(),
        object["metadata"]["name"].as_str().unwrap_or_default(),
    )
}

/// A value with the identifiers that the server assigned.
pub(crate) fn identified(value: &Value, identifiers: &Identifiers) -> Value {
    let mut text = value.to_string();
    for (old, new) in identifiers {
        text = text.replace(old, new);
    }
    serde_json::from_str(&text).unwrap_or_else(|_| value.clone())
}

/// The form in which an object is sent.
fn sent(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(metadata) = object["metadata"].as_object_mut() {
        SET_BY_SERVER
            .iter()
            .chain(&["deletionTimestamp"])
            .for_each(|key| drop(metadata.remove(*key)));
    }
    match kind(&object).1 {
        "Namespace" => drop(
            object
                .as_object_mut()
                .map(|map| (map.remove("spec"), map.remove("status"))),
        ),
        "Service" => service(&mut object["spec"]),
        "HostedCluster" => {
            hosted(&mut object["spec"]);
            if let Some(all) = object.pointer_mut("/status/conditions") {
                conditions(all);
            }
            if let Some(version) = object
                .pointer_mut("/status/version")
                .and_then(Value::as_object_mut)
            {
                version.entry("availableUpdates").or_insert(Value::Null);
            }
        }
        // The cases use the namespace as users write it; the CRD requires the agent's namespace inside the cluster.
        "Klusterlet" => object["spec"]["namespace"] = json!("open-cluster-management-agent"),
        _ => {}
    }
    object
}

/// The server assigns addresses and node ports.
fn service(spec: &mut Value) {
    let Some(fields) = spec.as_object_mut() else {
        return;
    };
    ["clusterIP", "clusterIPs", "ipFamilyPolicy"]
        .iter()
        .for_each(|key| drop(fields.remove(*key)));
    if fields
        .get("ports")
        .and_then(Value::as_array)
        .is_none_or(Vec::is_empty)
    {
        // The only type of Service that may have none.
        fields.insert("clusterIP".to_owned(), json!("None"));
    }
    for port in fields
        .get_mut("ports")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        port.as_object_mut().map(|port| port.remove("nodePort"));
    }
}

/// Adds what the real CRD requires of conditions beyond the case.
pub(crate) fn conditions(all: &mut Value) {
    let conditions = all.as_array_mut().into_iter().flatten();
    for condition in conditions.filter_map(Value::as_object_mut) {
        for (key, value) in [
            ("lastTransitionTime", "2026-11-21T07:00:00Z"),
            ("message", ""),
            ("reason", "AsExpected"),
        ] {
            condition.entry(key).or_insert_with(|| json!(value));
        }
    }
}

/// Adds what the real CRD requires beyond the case.
fn hosted(spec: &mut Value) {
    let wanted = json!({
        "platform": {"type": "None"}, "release": {"image": "example.com/release:4.20"},
        "pullSecret": {"name": "pull-secret"}, "sshKey": {"name": "ssh-key"},
        "networking": {"clusterNetwork": [{"cidr": "10.132.0.0/14"}], "serviceNetwork": [{"cidr": "172.31.0.0/16"}]},
        "services": [
            {"service": "APIServer", "servicePublishingStrategy": {"type": "LoadBalancer"}},
            {"service": "OAuthServer", "servicePublishingStrategy": {"type": "Route"}},
            {"service": "Konnectivity", "servicePublishingStrategy": {"type": "Route"}},
            {"service": "Ignition", "servicePublishingStrategy": {"type": "Route"}},
        ],
    });
    if let (Some(fields), Value::Object(wanted)) = (spec.as_object_mut(), wanted) {
        for (key, value) in wanted {
            fields.entry(key).or_insert(value);
        }
        if fields
            .get("platform")
            .is_some_and(|platform| platform["type"] == "KubeVirt")
        {
            fields["platform"]["kubevirt"] =
                json!({"baseDomainPassthrough": true, "generateID": "x7k2p"});
        }
    }
}

impl Stage {
    /// Creates an object of a case with its status and its namespace, and starts its deletion if the case says so.
    pub(crate) async fn put(&self, object: &Value, identifiers: &mut Identifiers) -> Result<()> {
        let object = identified(object, identifiers);
        let (namespace, name) = place(&object);
        if let Some(namespace) = namespace {
            self.objects().namespace(namespace).await?;
        }
        let mut body = sent(&object);
        let deleted = !object["metadata"]["deletionTimestamp"].is_null();
        if deleted && kind(&object) != NAMESPACE && body["metadata"]["finalizers"].is_null() {
            body["metadata"]["finalizers"] = json!(["test/hold"]);
        }
        let created = match kind(&object) {
            NAMESPACE => self.objects().apply(body).await?,
            REQUEST => self.request(body).await?,
            REVIEW => return self.answer(&object).await,
            _ => self.objects().create(body).await?,
        };
        if let (Some(old), Some(new)) = (object["metadata"]["uid"].as_str(), created.metadata.uid) {
            identifiers.insert(old.to_owned(), new);
        }
        if deleted {
            self.delete(kind(&object), namespace, name).await?;
        }
        Ok(())
    }

    /// Changes an object from `before` to `after`.
    pub(crate) async fn change(
        &self,
        before: &Value,
        after: &Value,
        identifiers: &Identifiers,
    ) -> Result<()> {
        let (old, new) = (
            identified(before, identifiers),
            identified(after, identifiers),
        );
        let (namespace, name) = place(&new);
        let (mut old_body, mut new_body) = (sent(&old), sent(&new));
        let [old_status, new_status] = [&mut old_body, &mut new_body].map(|body| {
            body.as_object_mut()
                .and_then(|body| body.remove("status"))
                .unwrap_or_default()
        });
        if let Some(patch) = merge_patch(&old_body, &new_body) {
            self.patch(kind(&new), namespace, name, patch).await?;
        }
        if old_status != new_status {
            self.put_status(kind(&new), namespace, name, &new_status)
                .await?;
        }
        if old["metadata"]["deletionTimestamp"].is_null()
            && !new["metadata"]["deletionTimestamp"].is_null()
        {
            self.delete(kind(&new), namespace, name).await?;
        }
        Ok(())
    }

    /// A ready HostedCluster with all that it needs, optionally without the klusterlet namespace. Its source contains
    /// canaries, and its namespace a Secret of another owner.
    pub(crate) async fn ready(&self, name: &str, home: bool) -> Result<()> {
        let mut identifiers = Identifiers::new();
        for file in ["then.yaml", "given.yaml"] {
            let text = case_text("external-managed-kubeconfig", "V01-created", file, |_| {
                name.to_owned()
            })?;
            let text = text.context("the case V01 is not there")?;
            for mut object in parse(&text)? {
                if kind(&object) == SECRET {
                    self.guard.plant_source(&mut object)?;
                }
                if home || kind(&object) != NAMESPACE {
                    self.put(&object, &mut identifiers).await?;
                }
            }
        }
        match home {
            true => self.plant_neighbour(&self::home(name)).await,
            false => Ok(()),
        }
    }

    /// The kubeconfig that the agent created for a HostedCluster of that name; none if there is none.
    pub(crate) async fn made(&self, name: &str) -> Result<Option<Secret>> {
        self.secret(&home(name), OUTPUT).await
    }

    /// The kubeconfig in a Secret.
    pub(crate) async fn secret(&self, namespace: &str, name: &str) -> Result<Option<Secret>> {
        let Some(object) = self.get(SECRET, Some(namespace), name).await? else {
            return Ok(None);
        };
        let Ok(text) = serde_yaml::to_string(&object) else {
            bail!("a Secret cannot be read")
        };
        Ok(Secret::parse(&text).ok())
    }

    /// Waits until the managed Secret is the source with the address of a port.
    pub(crate) async fn wait_for_right(&self, name: &str, port: u16) -> Result<()> {
        let (end, source) = (format!(":{port}"), format!("{name}-admin-kubeconfig"));
        wait::until(
            &format!("the secret of {name} with port {port}"),
            DEADLINE,
            async || {
                let Some(source) = self.secret(CLUSTERS, &source).await? else {
                    return Ok(None);
                };
                let made = self.made(name).await?;
                Ok(made
                    .filter(|made| made.server.ends_with(&end) && made.carries(&source))
                    .map(|_| ()))
            },
        )
        .await
    }

    /// Waits until a managed Secret exists, with any credential.
    pub(crate) async fn wait_for_output(&self, name: &str) -> Result<()> {
        wait::until(&format!("the secret of {name}"), DEADLINE, async || {
            let there = self.get(SECRET, Some(&home(name)), OUTPUT).await?;
            Ok(there.map(drop))
        })
        .await
    }

    /// Waits until no managed Secret exists.
    pub(crate) async fn wait_for_no_output(&self, name: &str) -> Result<()> {
        wait::until(&format!("no secret of {name}"), DEADLINE, async || {
            let there = self.get(SECRET, Some(&home(name)), OUTPUT).await?;
            Ok(there.is_none().then_some(()))
        })
        .await
    }

    /// Sets another port for clients.
    pub(crate) async fn move_port(&self, name: &str, port: u16) -> Result<()> {
        let patch =
            json!({"spec": {"ports": [{"port": port, "protocol": "TCP", "targetPort": "client"}]}});
        self.patch(
            SERVICE,
            Some(&format!("{CLUSTERS}-{name}")),
            "kube-apiserver",
            patch,
        )
        .await
    }
}

/// A patch that replaces the content of a source by a numbered variant.
pub(crate) fn rotated(source: &Value, number: usize) -> Result<Value> {
    let bytes = STANDARD.decode(source["data"]["kubeconfig"].as_str().unwrap_or_default())?;
    let mut document: Value = serde_yaml::from_slice(&bytes)
        .ok()
        .context("the source is not YAML")?;
    document["contexts"][0]["context"]["namespace"] = json!(format!("n{number}"));
    Ok(json!({"data": {"kubeconfig": STANDARD.encode(document.to_string())}}))
}

/// The merge patch from `before` to `after`; none if they are equal.
pub(crate) fn merge_patch(before: &Value, after: &Value) -> Option<Value> {
    match (before, after) {
        (Value::Object(before), Value::Object(after)) => {
            let mut patch = Map::new();
            for key in before.keys().filter(|key| !after.contains_key(*key)) {
                patch.insert(key.clone(), Value::Null);
            }
            for (key, value) in after {
                let part = before
                    .get(key)
                    .map_or_else(|| Some(value.clone()), |before| merge_patch(before, value));
                patch.extend(part.map(|part| (key.clone(), part)));
            }
            (!patch.is_empty()).then_some(Value::Object(patch))
        }
        _ if before == after => None,
        _ => Some(after.clone()),
    }
}
