//! A kubeconfig as Transom writes it compared with client-go's output: byte for byte, so that neither rewrites the
//! other's. The real kubectl is client-go; it connects to no cluster here.

#[path = "../../../host/core/tests/kubeconfig/unchanged.rs"]
mod unchanged;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use transom_api::policy::KubeconfigGrant;
use transom_core::document::{ParseLimits, client_go, parse_one};
use transom_core::kubeconfig::{KubeconfigLimits, SourceKubeconfig, Terms};
use transom_test_cluster::kubectl;
use unchanged::unchanged;

const CASE: &str =
    "../../policies/external-managed-kubeconfig/cases/T12-client-certificate/given.yaml";

/// client-go's version of a kubeconfig in a file.
fn rewritten(file: &Path) -> Result<String> {
    let written = kubectl()?
        .arg("--kubeconfig")
        .arg(file)
        .args(["config", "view", "--raw"])
        .output()?;
    ensure!(
        written.status.success(),
        "{}",
        String::from_utf8_lossy(&written.stderr)
    );
    Ok(String::from_utf8(written.stdout)?)
}

/// The kubeconfig of a case, with real certificates.
fn admin() -> Result<Value> {
    let given = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(CASE))?;
    for document in serde_yaml::Deserializer::from_str(&given) {
        let object = <Value as serde::Deserialize>::deserialize(document)?;
        if let Some(text) = object
            .pointer("/stringData/kubeconfig")
            .and_then(Value::as_str)
        {
            return Ok(serde_yaml::from_str(text)?);
        }
    }
    anyhow::bail!("the case has no kubeconfig")
}

/// Users with every kind of credential, and a cluster with all possible fields.
fn every_kind() -> Result<Value> {
    let mut config = admin()?;
    let user = config["users"][0]["user"].clone();
    let exec = json!({
        "apiVersion": "client.authentication.k8s.io/v1", "command": "aws", "args": ["--cluster name", "- x", "", "1:30", "no"],
        "env": [{"name": "A", "value": "1"}], "interactiveMode": "IfAvailable", "provideClusterInfo": true,
        "installHint": "Install it.\n\nThen: run it.\n",
    });
    let more = [
        ("token", json!({"token": "12e4"})),
        ("y", json!({"username": "u", "password": "0x1f"})),
        ("exec", json!({"exec": exec})),
        (
            "provider",
            json!({"auth-provider": {"name": "oidc", "config": {"client-id": "a", "id-token": "e.y.J"}}}),
        ),
        (
            "files",
            json!({"client-certificate": "/a.crt", "client-key": "/a.key"}),
        ),
        ("token-file", json!({"tokenFile": "/var/run/token"})),
        (
            "as",
            json!({"client-certificate-data": user["client-certificate-data"], "client-key-data": user["client-key-data"],
            "as": "0", "as-groups": ["b", "a"], "as-uid": "1", "as-user-extra": {"b": ["x"], "a10": ["y"], "a9": []}}),
        ),
    ];
    for (name, user) in more {
        config["users"]
            .as_array_mut()
            .context("users")?
            .push(json!({"name": name, "user": user}));
    }
    let extension = json!({"a10": 1, "a9": 2.5, "aB": {}, "a_b": [], "x": null, "big": 1e30, "small": 1e-9, "1": [[1, [2]], {"k": "v"}]});
    let other = json!({"server": "https://[2001:db8::1]:6443/k8s/c-1", "tls-server-name": "1.2.3", "proxy-url": "socks5://p:1",
        "insecure-skip-tls-verify": true, "disable-compression": true, "extensions": [{"name": "x", "extension": extension}]});
    config["clusters"]
        .as_array_mut()
        .context("clusters")?
        .push(json!({"name": "other # x", "cluster": other}));
    Ok(config)
}

/// The text that Transom writes for an unchanged answer.
fn ours(bytes: &[u8], server: Option<&str>) -> Result<String> {
    let limits = KubeconfigLimits::default();
    let source = SourceKubeconfig::parse(bytes, &limits)?;
    let mut answer = unchanged(&source.view());
    if let (Some(host), Some(first)) = (server, answer.clusters.first_mut()) {
        first.server.host = host.to_owned();
    }
    let listed = format!("https://{}:6443", server.unwrap_or_default());
    let grant: KubeconfigGrant = serde_json::from_value(json!({
        "server": ["source", listed], "ca": ["source"],
        "credentials": ["ClientCertificate", "Token", "Basic", "Exec", "AuthProvider", "File"],
    }))?;
    let now_seconds = 1_795_248_000;
    let terms = Terms {
        grant: &grant,
        source_role: "source",
        inputs: &[],
        primary: &Value::Null,
        now_seconds,
        limits,
    };
    Ok(source.assemble(&answer, &terms)?.to_yaml().to_owned())
}

#[test]
fn rewrites_client_go_output_byte_for_byte() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("config");
    for config in [admin()?, every_kind()?] {
        fs::write(&file, config.to_string())?;
        let theirs = rewritten(&file)?;
        ensure!(
            ours(theirs.as_bytes(), None)? == theirs,
            "an unchanged document is written otherwise"
        );
        fs::write(&file, &theirs)?;
        // Then both client-go and Transom change the server.
        let moved = ours(theirs.as_bytes(), Some("moved.example.com"))?;
        let name = config["clusters"][0]["name"].as_str().context("a name")?;
        let port = "--server=https://moved.example.com:6443";
        let set = kubectl()?
            .arg("--kubeconfig")
            .arg(&file)
            .args(["config", "set-cluster", name, port])
            .output()?;
        ensure!(
            set.status.success(),
            "{}",
            String::from_utf8_lossy(&set.stderr)
        );
        ensure!(
            fs::read_to_string(&file)? == moved,
            "a moved server is written otherwise"
        );
        ensure!(rewritten(&file)? == moved);
    }
    Ok(())
}

/// Texts that need quotes, blocks or folded lines in one way or another, as values and as keys. Not `<<`, which
/// client-go writes without quotes: read again, it is a merge.
fn texts() -> Vec<String> {
    let words = "a 1 01 089 0x1f 0xg 0o14 0b11 1_000 _1 1e3 1e999 1.5 .5 5. . .. ... +1 -1 - -a --- ---a .inf -.inf .nan .Nan 1:30 1:99 190:20:30.5 \
        2001-01-01 2001-1-1 2001-13-01x 2001-01-01T00:00:00Z y Y n N yes Yes yEs no on Off true TRUE tRUE null ~ = <<: a: :a a:b a#b #a & &a \
        * *a ! !a | > % @ ` ' '' a'b \" a\"b [ ] { } , ,a ? ?a a?b é ä:";
    let mut all: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
    let spaced = [
        "",
        " ",
        "a b",
        " a",
        "a ",
        "a: b",
        "a #b",
        "a : b",
        "- a",
        "? a",
        "2001-01-01 00:00:00",
        "a\tb",
        "\ta",
        "a\nb",
        "a\n",
        "a\n\n",
        "\n",
        "\na",
        " a\nb",
        "a \nb",
        "a\n b",
        "a\n\n b\n",
        "a\r\nb",
        "\u{a0}",
        "a\u{2028}b",
        "\u{1f600}",
        "\\",
        "a\\b",
        "'a' b",
        "@ b",
        "a\u{7}\u{1b}b",
    ];
    all.extend(spaced.map(str::to_owned));
    let long = "this is a very long text that goes on and on, beyond eighty columns, to see where the line is folded by whoever writes it";
    for start in ["", "a: ", "\t", "- ", "'"] {
        all.push(format!("{start}{long}"));
        all.push(format!(
            "{start}{}",
            long.replace(" b", "  b").replace(" t", "   t")
        ));
    }
    all.push("x".repeat(200));
    all.push(format!("{} y z", "x".repeat(79)));
    all
}

/// JSON for a reader of YAML 1.1: escaped so that nothing in it ends a line.
fn ascii(json: &str) -> String {
    let escaped = |letter: char| match letter {
        '\u{7f}' | '\u{80}'.. => format!("\\U{:08x}", u32::from(letter)),
        plain => plain.to_string(),
    };
    json.chars().map(escaped).collect()
}

#[test]
fn quotes_and_folds_texts_and_keys_like_client_go() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("config");
    let texts = texts();
    // yaml.v2 has no consistent order for keys of digits and letters: the result depends on its sorting algorithm.
    let keys = texts
        .iter()
        .filter(|text| !text.starts_with(|first: char| first.is_ascii_digit()));
    let mut keyed: serde_json::Map<_, _> = keys
        .map(|text| (text.clone(), json!([text, {"deeper": {"deep": text}}])))
        .collect();
    keyed.extend(
        ["k_9", "k10", "k9", "kB", "k-b", "0", "1", "10", "9"]
            .map(|key| (key.to_owned(), json!({key: []}))),
    );
    let numbers = json!([
        0.1,
        123_456.75,
        1_234_567.5,
        1e21,
        1e-5,
        -2.5e-4,
        1e100,
        -7,
        1_000_000,
        u64::MAX
    ]);
    let mut config = json!({
        "apiVersion": "v1", "kind": "Config", "clusters": [], "contexts": [], "current-context": "",
        "extensions": [{"name": "x", "extension": {"texts": texts, "keyed": keyed, "numbers": numbers}}], "users": [],
    });
    fs::write(&file, ascii(&config.to_string()))?;
    let theirs = rewritten(&file)?;
    for empty in ["clusters", "contexts", "users"] {
        config[empty] = Value::Null;
    }
    let ours = client_go::to_yaml(&config);
    let differ: Vec<_> = ours
        .lines()
        .zip(theirs.lines())
        .filter(|(ours, theirs)| ours != theirs)
        .take(20)
        .collect();
    ensure!(ours == theirs, "{differ:#?}");
    Ok(())
}

/// Clusters with merged fields, by name, as client-go resolves them.
const MERGED: &str = r#"
apiVersion: v1
kind: Config
x-a: &a {server: "https://merged", tls-server-name: merged.example}
x-b: &b {server: "https://second", proxy-url: "http://p"}
clusters:
- {name: before, cluster: {<<: *a, server: "https://own"}}
- {name: after, cluster: {server: "https://own", <<: *a}}
- {name: list, cluster: {<<: [*a, *b]}}
- {name: twice, cluster: {<<: *b, <<: *a}}
- {name: inline, cluster: {<<: {server: "https://in", <<: *b}}}
- {name: around, cluster: {<<: *b, server: "https://own", <<: {server: "https://last"}}}
- {name: nothing, cluster: {<<: [], server: "https://own"}}
- {name: quoted, cluster: {"<<": {server: "https://in"}, server: "https://own"}}
contexts: []
current-context: ""
users: []
"#;

#[test]
fn resolves_merge_keys_like_client_go() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("config");
    fs::write(&file, MERGED)?;
    let by_name = |document: &Value| -> std::collections::BTreeMap<String, Value> {
        let clusters = document["clusters"].as_array().into_iter().flatten();
        clusters
            .map(|entry| (entry["name"].to_string(), entry["cluster"].clone()))
            .collect()
    };
    let theirs = by_name(&serde_yaml::from_str(&rewritten(&file)?)?);
    let limits = ParseLimits {
        bytes: 1 << 20,
        nodes: 10_000,
        depth: 20,
    };
    let mut ours = by_name(&parse_one(MERGED.as_bytes(), limits)?);
    // A quoted merge key is a field that client-go does not know and drops.
    let quoted = ours
        .get_mut("\"quoted\"")
        .and_then(Value::as_object_mut)
        .context("no such cluster")?;
    ensure!(quoted.remove("<<").is_some(), "a quoted key was merged");
    ensure!(ours.len() == 8 && ours == theirs, "{ours:#?} {theirs:#?}");
    for wrong in ["x", "~", "[1]", "[*a, x]", "[[*a]]"] {
        let text = MERGED.replace("{<<: [], ", &format!("{{<<: {wrong}, "));
        fs::write(&file, &text)?;
        ensure!(
            rewritten(&file).is_err() && parse_one(text.as_bytes(), limits).is_err(),
            "{wrong}"
        );
    }
    Ok(())
}
