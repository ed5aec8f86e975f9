//! The structure of a kubeconfig as it may be shown: servers and flags in clear, marks instead of everything else.
//! Shows names from inside it only on request, and no field that is not listed here.

use super::{SourceKubeconfig, url};
use crate::redact::Marks;
use crate::reference::dns;
use serde_json::{Map, Value};

/// How a field is shown.
#[derive(Clone, Copy)]
enum Show {
    /// In clear, when it is true or false.
    Flag,
    /// In clear, when it is a plain URL.
    Url,
    /// In clear, when it is a DNS name.
    Dns,
    /// As a mark of this kind.
    Mark(&'static str),
}

const CLUSTER: &[(&str, Show)] = &[
    ("server", Show::Url),
    ("proxy-url", Show::Url),
    ("tls-server-name", Show::Dns),
    ("insecure-skip-tls-verify", Show::Flag),
    ("disable-compression", Show::Flag),
    ("certificate-authority-data", Show::Mark("ca")),
    ("certificate-authority", Show::Mark("path")),
];

const USER: &[(&str, Show)] = &[
    ("client-certificate-data", Show::Mark("client-certificate")),
    ("client-key-data", Show::Mark("client-key")),
    ("token", Show::Mark("token")),
    ("username", Show::Mark("username")),
    ("password", Show::Mark("password")),
    ("exec", Show::Mark("exec")),
    ("auth-provider", Show::Mark("auth-provider")),
    ("client-certificate", Show::Mark("path")),
    ("client-key", Show::Mark("path")),
    ("tokenFile", Show::Mark("path")),
];

const CONTEXT: &[(&str, Show)] = &[
    ("cluster", Show::Mark("name")),
    ("user", Show::Mark("name")),
    ("namespace", Show::Dns),
];

/// How names of one document are shown.
struct Names<'a> {
    marks: &'a Marks,
    /// Every text of the document's users that may be a credential; empty unless names are shown.
    secrets: Vec<&'a str>,
}

impl Names<'_> {
    /// A name, in clear when that is requested, unless it contains a credential of the same document.
    fn name(&self, value: &Value) -> Value {
        let shown = value.as_str().filter(|_| self.marks.show_names());
        match shown.filter(|name| !self.secrets.iter().any(|secret| name.contains(secret))) {
            Some(name) => Value::from(name),
            None => self.marks.hide_value("name", value),
        }
    }
}

/// Collects every text of users that may be a credential: all but names, and fields that name or locate a credential.
fn hidden<'a>(users: &'a Value, found: &mut Vec<&'a str>) {
    const OPEN: [&str; 8] = [
        "name",
        "username",
        "client-certificate",
        "client-key",
        "tokenFile",
        "apiVersion",
        "command",
        "interactiveMode",
    ];
    match users {
        Value::String(text) if !text.is_empty() => found.push(text),
        Value::Array(items) => items.iter().for_each(|item| hidden(item, found)),
        Value::Object(map) => {
            map.iter()
                .filter(|(key, _)| !OPEN.contains(&key.as_str()))
                .for_each(|(_, value)| hidden(value, found));
        }
        _ => {}
    }
}

impl SourceKubeconfig {
    /// Its structure: servers and flags in clear, everything else as marks, unknown fields together as one mark.
    pub(crate) fn redacted(&self, marks: &Marks) -> Value {
        let users = self.document.get("users").filter(|_| marks.show_names());
        let mut secrets = Vec::new();
        users
            .into_iter()
            .for_each(|users| hidden(users, &mut secrets));
        let marks = &Names { marks, secrets };
        let mut shown = Map::new();
        let mut rest = Map::new();
        for (key, value) in &self.document {
            let value = match (key.as_str(), value) {
                ("apiVersion" | "kind", _) => value.clone(),
                ("current-context", _) => marks.name(value),
                ("clusters", Value::Array(items)) => entries(items, "cluster", CLUSTER, marks),
                ("users", Value::Array(items)) => entries(items, "user", USER, marks),
                ("contexts", Value::Array(items)) => entries(items, "context", CONTEXT, marks),
                _ => {
                    rest.insert(key.clone(), value.clone());
                    continue;
                }
            };
            shown.insert(key.clone(), value);
        }
        add_rest(&mut shown, rest, marks);
        Value::Object(shown)
    }
}

fn entries(items: &[Value], inner: &str, known: &[(&str, Show)], marks: &Names<'_>) -> Value {
    let entry = |item: &Value| {
        let mut shown = Map::new();
        let mut rest = item.as_object().cloned().unwrap_or_default();
        if let Some(name) = rest.remove("name") {
            shown.insert("name".to_owned(), marks.name(&name));
        }
        if let Some(Value::Object(map)) = rest.remove(inner) {
            shown.insert(inner.to_owned(), fields(map, known, marks));
        }
        add_rest(&mut shown, rest, marks);
        Value::Object(shown)
    };
    items.iter().map(entry).collect()
}

fn fields(mut map: Map<String, Value>, known: &[(&str, Show)], marks: &Names<'_>) -> Value {
    let mut shown = Map::new();
    for (key, how) in known {
        if let Some(value) = map.remove(*key) {
            shown.insert((*key).to_owned(), show(&value, key, *how, marks));
        }
    }
    add_rest(&mut shown, map, marks);
    Value::Object(shown)
}

fn show(value: &Value, key: &str, how: Show, marks: &Names<'_>) -> Value {
    let harmless = match (how, value) {
        (Show::Flag, Value::Bool(_)) => true,
        (Show::Url, Value::String(text)) => !url::hides_more(text) && url::proxy(text).is_ok(),
        (Show::Dns, Value::String(text)) => dns::is_subdomain(text),
        _ => false,
    };
    match how {
        _ if harmless => value.clone(),
        Show::Mark("name") => marks.name(value),
        Show::Mark(kind) => marks.marks.hide_value(kind, value),
        Show::Flag | Show::Url | Show::Dns => marks.marks.hide_value(key, value),
    }
}

/// Shows all unknown fields as one mark: even their names may be secret.
fn add_rest(shown: &mut Map<String, Value>, rest: Map<String, Value>, marks: &Names<'_>) {
    if !rest.is_empty() {
        shown.insert(
            "?".to_owned(),
            marks.marks.hide_value("fields", &Value::Object(rest)),
        );
    }
}
