//! When the existing content counts as equal to the desired one, and which source a credential belongs to.

use crate::fixture::{
    CA, LIMITS, OTHER_CA, RSA, admin, assemble, base64, parse, rewired, two, with,
};
use serde_json::{Value, json};
use transom_core::kubeconfig::SourceKubeconfig;

#[test]
fn formatting_does_not_count() {
    let source = parse(&two()).unwrap();
    let result = assemble(&source, &rewired(&source.view())).unwrap();
    let text = result.to_yaml();
    let value: Value = serde_yaml::from_str(text).unwrap();
    let folded = base64(CA)
        .as_bytes()
        .chunks(64)
        .map(|line| String::from_utf8_lossy(line) + "\n")
        .collect::<String>();
    let mut turned = value.clone();
    for list in ["clusters", "users", "contexts"] {
        turned[list].as_array_mut().unwrap().reverse();
    }
    let same = [
        value.clone(),
        turned,
        with(value.clone(), "/apiVersion", Value::Null),
        with(value.clone(), "/preferences", Value::Null),
        with(
            value.clone(),
            "/clusters/0/cluster/insecure-skip-tls-verify",
            json!(false),
        ),
        with(
            value.clone(),
            "/clusters/0/cluster/certificate-authority",
            json!(""),
        ),
        with(
            value.clone(),
            "/clusters/0/cluster/certificate-authority-data",
            json!(folded),
        ),
    ];
    assert!(result.says_the_same(text.as_bytes()));
    for value in same {
        assert!(
            result.says_the_same(value.to_string().as_bytes()),
            "{}",
            value["clusters"]
        );
        assert!(result.says_the_same(serde_yaml::to_string(&value).unwrap().as_bytes()));
    }
    let different = [
        json!({}),
        json!(null),
        with(
            value.clone(),
            "/clusters/0/cluster/server",
            json!("https://kube-apiserver"),
        ),
        with(
            value.clone(),
            "/clusters/0/cluster/insecure-skip-tls-verify",
            json!(true),
        ),
        with(
            value.clone(),
            "/clusters/0/cluster/certificate-authority-data",
            json!(base64(OTHER_CA)),
        ),
        with(value.clone(), "/users/0/user/client-key-data", Value::Null),
        with(value.clone(), "/users/1/user/token", json!("other")),
        with(value.clone(), "/users/1/user/as", Value::Null),
        with(value.clone(), "/current-context", json!("view")),
        with(value.clone(), "/more", json!(1)),
        with(value, "/users", json!([])),
    ];
    for value in different {
        assert!(
            !result.says_the_same(value.to_string().as_bytes()),
            "{}",
            value["clusters"]
        );
    }
    for bytes in [&b"\xff"[..], b"a: [", b"", b"--- a\n--- b\n"] {
        assert!(!result.says_the_same(bytes));
    }
}

#[test]
fn recognises_a_shared_credential_in_any_context() {
    let source = parse(&admin()).unwrap();
    let shares = |value: &Value| source.shares_credential(value.to_string().as_bytes(), &LIMITS);
    assert!(shares(&admin()));
    assert!(shares(&with(
        with(two(), "/clusters/0/cluster/server", json!("https://b")),
        "/users/0/name",
        json!("x")
    )));
    let other = json!({"client-certificate-data": base64(RSA), "client-key-data": base64(include_str!("given/rsa-pkcs8.key"))});
    for user in [
        json!({"token": "x"}),
        json!({}),
        json!({"as": "admin"}),
        other,
    ] {
        assert!(!shares(&with(admin(), "/users/0/user", user)));
    }
    assert!(!source.shares_credential(b"a: [", &LIMITS));
    let nobody = with(admin(), "/users/0/user", json!({}));
    assert!(
        !SourceKubeconfig::parse(nobody.to_string().as_bytes(), &LIMITS)
            .unwrap()
            .shares_credential(nobody.to_string().as_bytes(), &LIMITS)
    );
}
