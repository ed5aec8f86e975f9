//! A kubeconfig full of canaries, and the search for them. Reports where a canary was planted, not its text.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use std::collections::HashMap;
use transom_core::contract::credentials::SourceView;
use transom_core::contract::decide::{Input, InputValue, Protocol, Service, ServicePort};
use transom_core::reference::ObjectRef;

/// Length of the prefix that finds a piece quickly; every planted piece is at least this long.
const START: usize = 8;

/// The start of every planted text; `searches-itself.wat` looks for it, too.
pub const MARK: &str = "PLANTEDCANARY";

/// Pieces of credentials that must not be found, each with its place of origin.
pub struct Canaries {
    planted: Vec<(String, Vec<u8>)>,
}

impl Canaries {
    /// Starts with the mark that all planted texts share.
    pub fn new() -> Self {
        let mut canaries = Self {
            planted: Vec::new(),
        };
        canaries.plant("the mark", MARK.as_bytes());
        canaries
    }

    /// Searches for these bytes, raw and in base64 at any offset.
    fn plant(&mut self, place: &str, bytes: &[u8]) {
        self.planted.push((place.to_owned(), bytes.to_vec()));
        for skipped in 0..3 {
            // Whole groups of three, from each of the three offsets at which a group can begin.
            let rest = bytes.get(skipped..).unwrap_or_default();
            let whole = rest.get(..rest.len() / 3 * 3).unwrap_or_default();
            self.planted.push((
                format!("{place}, in base64"),
                STANDARD.encode(whole).into_bytes(),
            ));
        }
    }

    /// Searches for every piece of a PEM document: of its text, and of its decoded bytes.
    pub fn plant_pem(&mut self, place: &str, pem: &str) {
        let lines: Vec<&str> = pem
            .lines()
            .filter(|line| !line.starts_with("-----"))
            .collect();
        for (number, line) in lines
            .iter()
            .enumerate()
            .filter(|(_, line)| line.len() == 64)
        {
            self.plant(&format!("{place}, line {number}"), line.as_bytes());
        }
        for (number, piece) in STANDARD
            .decode(lines.concat())
            .unwrap_or_default()
            .chunks_exact(24)
            .enumerate()
        {
            self.plant(&format!("{place}, piece {number}"), piece);
        }
    }

    /// The number of texts in the search.
    pub fn count(&self) -> usize {
        self.planted.len()
    }

    /// The places whose bytes are in this memory.
    pub fn found_in(&self, memory: &[u8]) -> Vec<&str> {
        let mut by_start: HashMap<&[u8], Vec<&(String, Vec<u8>)>> = HashMap::new();
        for planted in &self.planted {
            by_start
                .entry(planted.1.get(..START).unwrap_or_default())
                .or_default()
                .push(planted);
        }
        let places = memory
            .windows(START)
            .enumerate()
            .filter(|(_, window)| *window != [0; START]);
        let begun =
            places.filter_map(|(at, window)| Some((memory.get(at..)?, by_start.get(window)?)));
        let found = begun.flat_map(|(rest, planted)| {
            planted.iter().filter(|(_, bytes)| rest.starts_with(bytes))
        });
        found.map(|(place, _)| place.as_str()).collect()
    }
}

impl Default for Canaries {
    fn default() -> Self {
        Self::new()
    }
}

/// A kubeconfig with a canary in every place that could hide something a guest must not receive.
pub fn document(authority: &str, certificate: &str, key: &str) -> Value {
    let planted = |place: &str| format!("{MARK}-{place}");
    let encoded = |text: &str| STANDARD.encode(text);
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "preferences": {"colors": true, "extensions": [{"name": "p", "extension": planted("preference")}]},
        "current-context": "admin",
        "clusters": [{"name": "cluster", "cluster": {
            "server": "https://api.demo.example.com:6443",
            "certificate-authority-data": encoded(authority),
            "proxy-url": format!("http://{}:{}@proxy.example.com:3128/path?{0}#{1}", planted("user"), planted("password")),
            "extensions": [{"name": "x", "extension": {"token": planted("cluster-extension")}}],
            "unknown": planted("cluster-unknown"),
        }}],
        "users": [
            {"name": "admin", "user": {
                "client-certificate-data": encoded(certificate),
                "client-key-data": encoded(key),
                "token": planted("token"),
                "username": planted("username"),
                "password": planted("password"),
                "as": planted("as"),
                "as-user-extra": {"reason": [planted("extra")]},
                "extensions": [{"name": "x", "extension": planted("user-extension")}],
                "unknown": planted("user-unknown"),
            }},
            {"name": "robot", "user": {
                "exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": planted("command"),
                         "args": [planted("argument")], "env": [{"name": "TOKEN", "value": planted("environment")}],
                         "interactiveMode": "Never"},
            }},
            {"name": "old", "user": {
                "auth-provider": {"name": "oidc", "config": {"refresh-token": planted("refresh"), "id-token": planted("id")}},
                "tokenFile": planted("token-file"),
            }},
        ],
        "contexts": [{"name": "admin", "context": {
            "cluster": "cluster", "user": "admin", "namespace": "default",
            "extensions": [{"name": "x", "extension": planted("context-extension")}],
        }}],
    })
}

/// The inputs of a kubeconfig guest, around one source.
pub fn inputs(source: SourceView) -> Vec<Input> {
    let input = |role: &str, value| Input {
        role: role.to_owned(),
        value,
    };
    vec![
        input("source", InputValue::Kubeconfig(source)),
        input("service", InputValue::Service(service())),
        input("home", InputValue::Present),
        input("klusterlet", InputValue::Present),
    ]
}

fn service() -> Service {
    Service {
        reference: ObjectRef::local("v1", "Service", Some("clusters-demo"), "kube-apiserver"),
        service_type: "ClusterIP".to_owned(),
        cluster_ips: vec!["172.30.0.1".to_owned()],
        ingress: Vec::new(),
        external_name: None,
        ports: vec![ServicePort {
            name: Some("client".to_owned()),
            port: 6443,
            target_port: Some("client".to_owned()),
            node_port: None,
            protocol: Protocol::Tcp,
            app_protocol: None,
        }],
    }
}
