//! What two kubeconfigs differ in, by names of fields, and what one says beside its credentials. For plans: no value of
//! a credential, and no name from inside a document, leaves this file.

use super::NODES;
use crate::document::{self, ParseLimits};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// The fields of a cluster that a plan names. Their values are addresses, certificates of authorities and flags.
const CLUSTER: [&str; 7] = [
    "server",
    "tls-server-name",
    "insecure-skip-tls-verify",
    "certificate-authority",
    "certificate-authority-data",
    "proxy-url",
    "disable-compression",
];

/// A kubeconfig in parts; each has the name under which a plan shows that it differs.
pub(crate) struct Parts<'d> {
    clusters: BTreeMap<&'static str, Vec<&'d Value>>,
    /// Of each user everything but the name.
    users: Vec<&'d Value>,
    /// Of each context the numbers of its cluster and user, and its namespace; then the number of the current one.
    contexts: Value,
    /// The names of all entries.
    names: Vec<&'d Value>,
    /// What else there is.
    rest: Vec<(&'d String, &'d Value)>,
}

/// Reads the bytes of a kubeconfig; `None` when they are none.
pub(crate) fn read(bytes: &[u8]) -> Option<Map<String, Value>> {
    let limits = ParseLimits {
        bytes: bytes.len(),
        nodes: NODES,
        depth: 64,
    };
    match document::parse_one(bytes, limits) {
        Ok(Value::Object(map)) if map.get("clusters").is_some_and(Value::is_array) => Some(map),
        _ => None,
    }
}

/// What a document has beside the fields that every kubeconfig has.
fn rest(document: &Map<String, Value>) -> Vec<(&String, &Value)> {
    let known = [
        "apiVersion",
        "kind",
        "clusters",
        "users",
        "contexts",
        "current-context",
    ];
    let rest = document.iter();
    let rest = rest.filter(|(key, _)| !known.contains(&key.as_str()));
    let mut rest: Vec<_> = rest.collect();
    rest.sort_by_key(|(key, _)| *key);
    rest
}

impl<'d> Parts<'d> {
    /// The parts of a document.
    pub(crate) fn of(document: &'d Map<String, Value>) -> Self {
        let list = |name: &str| document.get(name).and_then(Value::as_array);
        let entries = |name: &str| list(name).into_iter().flatten();
        let inner = |name: &str, field: &str| -> Vec<&'d Value> {
            let inner = entries(name).map(|entry| entry.get(field).unwrap_or(&Value::Null));
            inner.collect()
        };
        let names = |name: &str| -> Vec<&'d Value> {
            let named = entries(name).map(|entry| entry.get("name").unwrap_or(&Value::Null));
            named.collect()
        };
        let (clusters, users) = (names("clusters"), names("users"));
        let at = |names: &[&Value], value: Option<&Value>| {
            names.iter().position(|name| Some(*name) == value)
        };
        let contexts = inner("contexts", "context").into_iter().map(|context| {
            let cluster = at(&clusters, context.get("cluster"));
            json!([
                cluster,
                at(&users, context.get("user")),
                context.get("namespace")
            ])
        });
        let mut contexts: Vec<Value> = contexts.collect();
        contexts.push(json!(at(
            &names("contexts"),
            document.get("current-context")
        )));
        let field = |field: &'static str| {
            let values = inner("clusters", "cluster").into_iter();
            let values = values.map(|cluster| cluster.get(field).unwrap_or(&Value::Null));
            (field, values.collect())
        };
        Self {
            clusters: CLUSTER.into_iter().map(field).collect(),
            users: inner("users", "user"),
            contexts: contexts.into(),
            names: [clusters, users, names("contexts")].concat(),
            rest: rest(document),
        }
    }

    /// The names of the parts that differ; `credential` stands for everything in users.
    pub(crate) fn difference(&self, other: &Self) -> BTreeSet<&'static str> {
        let fields = CLUSTER.into_iter();
        let mut differing: BTreeSet<_> = fields
            .filter(|field| self.clusters.get(field) != other.clusters.get(field))
            .collect();
        for (name, same) in [
            ("credential", self.users == other.users),
            ("contexts", self.contexts == other.contexts),
            ("names", self.names == other.names),
            ("other", self.rest == other.rest),
        ] {
            differing.extend((!same).then_some(name));
        }
        differing
    }

    /// What it says, for a digest: of users only which fields they have, of addresses none that may hold a password,
    /// and no names.
    pub(crate) fn open(&self) -> Value {
        let harmless = |value: &&'d Value| match value.as_str() {
            Some(text) if text.contains(['@', '?', '#']) => Value::from("@"),
            _ => (*value).clone(),
        };
        let clusters: Map<String, Value> = self
            .clusters
            .iter()
            .map(|(field, values)| {
                let values: Vec<Value> = values.iter().map(harmless).collect();
                ((*field).to_owned(), values.into())
            })
            .collect();
        let users = self.users.iter().map(|user| {
            let fields: BTreeSet<&String> =
                user.as_object().into_iter().flat_map(Map::keys).collect();
            json!(fields)
        });
        json!([clusters, users.collect::<Vec<_>>(), self.contexts])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kubeconfig() -> Value {
        json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "x",
            "clusters": [{"name": "c", "cluster": {"server": "https://a:6443", "certificate-authority-data": "Q0E="}}],
            "users": [{"name": "u", "user": {"token": "hunter2"}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        })
    }

    fn parsed(value: &Value) -> Map<String, Value> {
        read(value.to_string().as_bytes()).unwrap()
    }

    fn difference(pointer: &str, value: Value) -> (Vec<&'static str>, bool) {
        let mut other = kubeconfig();
        let (parent, name) = pointer.rsplit_once('/').unwrap();
        other.pointer_mut(parent).unwrap()[name] = value;
        let (one, other) = (parsed(&kubeconfig()), parsed(&other));
        let (one, other) = (Parts::of(&one), Parts::of(&other));
        let open = one.open() == other.open();
        (one.difference(&other).into_iter().collect(), open)
    }

    #[test]
    fn names_the_part_that_differs() {
        for (pointer, value, part, same_but_for_credentials) in [
            (
                "/clusters/0/cluster/server",
                json!("https://b:6443"),
                "server",
                false,
            ),
            (
                "/clusters/0/cluster/certificate-authority-data",
                json!("Q0I="),
                "certificate-authority-data",
                false,
            ),
            (
                "/clusters/0/cluster/insecure-skip-tls-verify",
                json!(true),
                "insecure-skip-tls-verify",
                false,
            ),
            ("/users/0/user/token", json!("hunter3"), "credential", true),
            (
                "/users/0/user/exec",
                json!({"command": "sh"}),
                "credential",
                false,
            ),
            (
                "/contexts/0/context/namespace",
                json!("n"),
                "contexts",
                false,
            ),
            ("/users/0/name", json!("w"), "contexts names", false),
            ("/contexts/0/name", json!("y"), "contexts names", false),
            ("/preferences", json!({}), "other", true),
        ] {
            let (parts, same) = difference(pointer, value);
            assert_eq!(
                (parts.join(" ").as_str(), same),
                (part, same_but_for_credentials),
                "{pointer}"
            );
        }
        assert!(difference("/kind", json!("Config")).0.is_empty());
    }

    #[test]
    fn the_open_part_holds_no_credential_and_no_name() {
        let mut document = kubeconfig();
        document["clusters"][0]["name"] = json!("hunter2-cluster");
        document["users"][0]["user"] =
            json!({"username": "hunter2", "password": "hunter2", "exec": {"args": ["hunter2"]}});
        document["preferences"] = json!({"x": "hunter2"});
        for proxy in ["me:hunter2@proxy", "proxy/?hunter2", "proxy/#hunter2"] {
            document["clusters"][0]["cluster"]["proxy-url"] = json!(format!("http://{proxy}"));
            let shown = Parts::of(&parsed(&document)).open().to_string();
            assert!(!shown.contains("hunter2"), "{shown}");
            assert!(shown.contains("https://a:6443"), "{shown}");
        }
    }

    #[test]
    fn other_bytes_are_no_kubeconfig() {
        for bytes in ["", "text", "[]", "{}", "clusters: {}", "\u{0}"] {
            assert!(read(bytes.as_bytes()).is_none(), "{bytes:?}");
        }
    }
}
