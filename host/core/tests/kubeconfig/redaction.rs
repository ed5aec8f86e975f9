//! What is shown of Secrets and of the kubeconfigs in them, and what errors and debug output say: no content, also
//! where fields have wrong types.

use crate::fixture::{CA, LIMITS, RSA, assemble, base64, rewired, two, with};
use serde_json::{Value, json};
use transom_core::kubeconfig::SourceKubeconfig;
use transom_core::redact::{Marks, redact};

const CANARY: &str = "Canary7f3a";

fn shown(object: &Value) -> Value {
    redact(object.clone(), &Marks::new([7; 32]))
}

fn secret(data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "metadata": {"name": "a"}, "data": data})
}

#[test]
fn shows_only_the_structure_of_a_kubeconfig() {
    let source = with(two(), "/users/1/user/hunter", json!("x"));
    let found = shown(&secret(json!({"kubeconfig": base64(&source.to_string())})));
    let config = &found["data"]["kubeconfig"];
    assert_eq!(
        config["clusters"][0]["cluster"]["server"],
        json!("https://api.demo.example.com:6443")
    );
    assert_eq!(
        config["clusters"][1]["cluster"]["tls-server-name"],
        json!("other")
    );
    assert_eq!(
        config["contexts"][0]["context"]["namespace"],
        json!("default")
    );
    assert_eq!(
        config["contexts"][0]["context"]["cluster"], config["clusters"][0]["name"],
        "equal names have equal marks"
    );
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let ca = text(&config["clusters"][0]["cluster"]["certificate-authority-data"]);
    assert!(
        ca.starts_with(&format!("<redacted ca, {} bytes, ", CA.len())),
        "{ca}"
    );
    let certificate = text(&config["users"][0]["user"]["client-certificate-data"]);
    assert!(
        certificate.starts_with(&format!(
            "<redacted client-certificate, {} bytes, ",
            RSA.len()
        )),
        "{certificate}"
    );
    assert!(text(&config["users"][1]["user"]["token"]).starts_with("<redacted token, "));
    assert!(text(&config["users"][1]["user"]["?"]).starts_with("<redacted fields, "));
    assert!(
        text(&config["clusters"][1]["cluster"]["proxy-url"]).starts_with("<redacted proxy-url, ")
    );
    let all = found.to_string();
    for hidden in [
        "hunter", "opaque", "somebody", "pass", "viewer", "LS0tLS1", "MII",
    ] {
        assert!(!all.contains(hidden), "{hidden} in {all}");
    }
}

#[test]
fn shows_names_on_request_unless_they_are_credentials() {
    let source = with(two(), "/users/1/user/hunter", json!("x"));
    let named = |source: &Value| {
        let object = secret(json!({"kubeconfig": base64(&source.to_string())}));
        redact(object, &Marks::new([7; 32]).showing_names())["data"]["kubeconfig"].clone()
    };
    let config = named(&source);
    for pointer in [
        "/clusters/0/name",
        "/users/1/name",
        "/contexts/0/name",
        "/contexts/1/context/cluster",
        "/contexts/1/context/user",
        "/current-context",
    ] {
        assert_eq!(
            config.pointer(pointer),
            source.pointer(pointer),
            "{pointer}"
        );
    }
    for hidden in ["hunter", "opaque", "pass", "LS0tLS1", "MII"] {
        assert!(!config.to_string().contains(hidden), "{hidden} in {config}");
    }
    // A name that equals a credential is not shown.
    for (pointer, value) in [
        ("/users/1/user/token", json!(CANARY)),
        ("/users/1/user/password", json!(CANARY)),
        (
            "/users/1/user/exec",
            json!({"env": [{"name": "TOKEN", "value": CANARY}], "args": ["--token", CANARY]}),
        ),
        (
            "/users/1/user/auth-provider",
            json!({"config": {"id-token": CANARY}}),
        ),
        ("/users/1/user/other", json!([{"deep": CANARY}])),
    ] {
        let source = with(source.clone(), pointer, value);
        for name in [
            "/contexts/0/name",
            "/clusters/0/name",
            "/users/0/name",
            "/current-context",
            "/contexts/0/context/user",
        ] {
            let source = with(source.clone(), name, json!(format!("my-{CANARY}-x")));
            let shown = named(&source).to_string();
            assert!(!shown.contains(CANARY), "{pointer} {name}: {shown}");
        }
    }
}

#[test]
fn fingerprints_hold_for_one_run() {
    let hide = |key: u8, bytes: &[u8]| Marks::new([key; 32]).hide("token", bytes);
    assert_eq!(hide(1, b"a"), hide(1, b"a"));
    assert_ne!(hide(1, b"a"), hide(2, b"a"));
    assert_ne!(hide(1, b"a"), hide(1, b"b"));
    assert_eq!(format!("{:?}", Marks::new([1; 32])), "Marks(..)");
}

#[test]
fn shows_no_canary_of_a_secret() {
    let long = base64(CANARY);
    let values = [
        json!(CANARY),
        json!(long),
        json!({CANARY: CANARY}),
        json!([CANARY]),
        json!(format!("a: {CANARY}")),
    ];
    for value in values {
        for field in ["data", "stringData", "dat"] {
            // The keys of a Secret are not secret.
            let whole = if value.is_object() {
                json!([value])
            } else {
                value.clone()
            };
            for data in [json!({"password": value}), whole] {
                let mut object = secret(json!({}));
                object[field] = data;
                let list = json!({"apiVersion": "v1", "kind": "List", "items": [object]});
                let work =
                    json!({"kind": "ManifestWork", "spec": {"workload": {"manifests": [object]}}});
                for object in [&object, &list, &work] {
                    let text = shown(object).to_string();
                    assert!(!text.contains(CANARY) && !text.contains(&long), "{text}");
                }
            }
        }
    }
    let copy = json!({
        "kubectl.kubernetes.io/last-applied-configuration": CANARY, "example.com/backup": CANARY, "transom.dev/policy": "yes",
    });
    let object = with(secret(json!({})), "/metadata/annotations", copy);
    let found = shown(&object);
    assert!(!found.to_string().contains(CANARY));
    assert_eq!(
        found["metadata"]["annotations"]["transom.dev/policy"],
        json!("yes")
    );
}

#[test]
fn shows_public_content_entirely() {
    let copied = json!({"kind": "ConfigMap", "metadata": {"annotations": {"kubectl.kubernetes.io/last-applied-configuration": CANARY}}});
    assert!(!shown(&copied).to_string().contains(CANARY));
    for object in [
        json!({"kind": "ConfigMap", "data": {"a": "b"}}),
        json!({"kind": "Service", "spec": {}}),
        json!("x"),
    ] {
        assert_eq!(shown(&object), object);
    }
}

/// Every path in a value, as JSON pointers.
fn places(value: &Value, here: &str, found: &mut Vec<String>) {
    found.push(here.to_owned());
    match value {
        Value::Object(map) => map
            .iter()
            .for_each(|(key, item)| places(item, &format!("{here}/{key}"), found)),
        Value::Array(items) => {
            items
                .iter()
                .enumerate()
                .for_each(|(at, item)| places(item, &format!("{here}/{at}"), found));
        }
        _ => {}
    }
}

/// A text with a canary in an allowed or a forbidden place.
fn texts(pointer: &str) -> Vec<String> {
    let wrong = [
        json!(CANARY),
        json!({CANARY: CANARY}),
        json!([CANARY, {CANARY: [CANARY]}]),
        json!(format!(
            "https://{CANARY}:{CANARY}@{CANARY}/?{CANARY}#{CANARY}"
        )),
        json!([{"name": CANARY, "cluster": {"server": CANARY}, "user": {"token": [CANARY]}, "context": CANARY}]),
    ];
    let mut all = Vec::new();
    for value in wrong {
        let mut source = two();
        if let Some(place) = source.pointer_mut(pointer) {
            *place = value;
        }
        let json = source.to_string();
        all.push(serde_yaml::to_string(&source).unwrap_or_default());
        all.push(json.replacen(
            &format!("\"{CANARY}\""),
            &format!("!{CANARY} \"{CANARY}\""),
            1,
        ));
        all.push(json.replacen(&format!("\"{CANARY}\""), &format!("*{CANARY}"), 1));
        all.push(json.replacen(&format!("\"{CANARY}\""), &format!("\"{CANARY}"), 1));
        all.push(json.replacen(&format!("\"{CANARY}\""), &format!("\"\\q{CANARY}\""), 1));
        all.push(json);
    }
    all
}

#[test]
fn leaks_no_canary() {
    let more = [
        (
            "/users/0/user/exec",
            json!({"command": "x", "args": ["y"], "env": [{"name": "n", "value": "v"}]}),
        ),
        (
            "/users/0/user/auth-provider",
            json!({"name": "x", "config": {"id-token": "y"}}),
        ),
        ("/users/0/user/as-user-extra", json!({"a": ["b"]})),
        ("/users/0/user/password", json!("x")),
        (
            "/extensions",
            json!([{"name": "a", "extension": {"b": "c"}}]),
        ),
    ];
    let full = more
        .into_iter()
        .fold(two(), |value, (pointer, field)| with(value, pointer, field));
    let mut pointers = Vec::new();
    places(&full, "", &mut pointers);
    let mut heard = 0;
    for text in pointers.iter().flat_map(|pointer| texts(pointer)) {
        let said = match SourceKubeconfig::parse(text.as_bytes(), &LIMITS) {
            Err(error) => format!("{error} {error:?}"),
            Ok(source) => match assemble(&source, &rewired(&source.view())) {
                Err(error) => format!("{source:?} {error} {error:?}"),
                Ok(result) => format!("{source:?} {result:?}"),
            },
        };
        assert!(
            !said.contains(CANARY) && !said.to_lowercase().contains(&CANARY.to_lowercase()),
            "{said}"
        );
        heard += 1;
    }
    assert!(heard > 1_000, "{heard} texts");
}
