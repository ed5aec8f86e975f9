//! Whether a result is valid: contexts, CAs, certificates and keys of the entries that current-context leads to. And
//! for any source and any answer: content that the answer does not name stays, and no credential goes elsewhere.

use crate::answers::{SERVER, try_answer, url};
use crate::fixture::{
    CA, NOW, OTHER_CA, RSA, RSA_KEY, admin, assemble, base64, grant, parse, rewired, service, two,
    with,
};
use proptest::prelude::*;
use serde_json::{Value, json};
use transom_api::KnownReason;
use transom_core::contract::decide::{Input, InputValue};
use transom_core::kubeconfig::{KubeconfigError, KubeconfigLimits, Terms};

const EC: &str = include_str!("given/ec.pem");
const ED25519: &str = include_str!("given/ed25519.pem");

fn outcome(source: &Value) -> Result<(), KubeconfigError> {
    let source = parse(source)?;
    assemble(&source, &rewired(&source.view())).map(|_| ())
}

fn with_key(certificate: &str, key: &str) -> Value {
    with(
        admin(),
        "/users/0/user",
        json!({"client-certificate-data": base64(certificate), "client-key-data": base64(key)}),
    )
}

#[test]
fn a_key_must_match_its_certificate() {
    let rsa = [
        include_str!("given/rsa-pkcs1.key"),
        include_str!("given/rsa-pkcs8.key"),
    ];
    let ec = [
        include_str!("given/ec-sec1.key"),
        include_str!("given/ec-pkcs8.key"),
    ];
    let ed25519 = include_str!("given/ed25519-pkcs8.key");
    let others = [
        include_str!("given/other-rsa-pkcs1.key"),
        include_str!("given/other-ec-sec1.key"),
    ];
    let chain = format!("{RSA}{CA}");
    let before = format!(
        "-----BEGIN EC PARAMETERS-----\nBggqhkjOPQMBBw==\n-----END EC PARAMETERS-----\n{}",
        ec[0]
    );
    let good = [
        (RSA, rsa[0]),
        (RSA, rsa[1]),
        (&chain, rsa[0]),
        (EC, ec[0]),
        (EC, ec[1]),
        (EC, &before),
        (ED25519, ed25519),
    ];
    for (at, (certificate, key)) in good.iter().enumerate() {
        assert_eq!(outcome(&with_key(certificate, key)), Ok(()), "{at}");
    }
    let bad = [
        (RSA, others[0]),
        (RSA, ec[0]),
        (RSA, ec[1]),
        (RSA, ed25519),
        (EC, others[1]),
        (EC, rsa[0]),
        (ED25519, rsa[1]),
        (ED25519, ec[1]),
    ];
    for (at, (certificate, key)) in bad.iter().enumerate() {
        let error = outcome(&with_key(certificate, key)).unwrap_err();
        assert_eq!(
            (error.reason, error.path.as_str()),
            (
                KnownReason::CertificateKeyMismatch,
                "users[0].user.client-key-data"
            ),
            "{at}"
        );
    }
}

#[test]
fn validates_only_the_current_user() {
    let mismatch =
        with_key(RSA, include_str!("given/other-rsa-pkcs1.key"))["users"][0]["user"].clone();
    assert_eq!(
        outcome(&with(two(), "/users/1/user", mismatch.clone())),
        Ok(())
    );
    assert!(outcome(&with(two(), "/users/0/user", mismatch)).is_err());
}

#[test]
fn a_fault_counts_only_where_its_entry_is_used() {
    let in_ca = "cluster/certificate-authority-data";
    for (list, field, value, word) in [
        (
            "clusters",
            in_ca,
            json!(base64("no PEM")),
            KnownReason::InvalidAuthority,
        ),
        (
            "clusters",
            in_ca,
            json!(base64(RSA_KEY)),
            KnownReason::InvalidAuthority,
        ),
        (
            "clusters",
            "cluster/certificate-authority",
            json!("/ca"),
            KnownReason::KubeconfigInvalid,
        ),
        (
            "users",
            "user/client-certificate-data",
            json!(base64("x")),
            KnownReason::InvalidCertificate,
        ),
        (
            "users",
            "user/client-certificate-data",
            json!(base64(RSA)),
            KnownReason::InvalidCertificate,
        ),
    ] {
        let source = with(two(), &format!("/{list}/1/{field}"), value);
        let expected = with(source.clone(), "/clusters/0/cluster/server", json!(SERVER));
        assert_eq!(try_answer(&source, |_| {}), Ok(expected), "{field}");

        let current = with(source.clone(), "/current-context", json!("view"));
        assert_eq!(parse(&current).unwrap_err().reason, word, "{field}: in use");
        let uses = try_answer(&source, |answer| {
            answer.current_context = "view".to_owned();
            let first = answer.clusters[0].clone();
            let second = &mut answer.clusters[1];
            (second.server, second.proxy) = (first.server, None);
        });
        assert_eq!(
            uses.unwrap_err().reason,
            word,
            "{field}: chosen by the guest"
        );
        if list == "clusters" {
            let moves = try_answer(&source, |answer| {
                answer.clusters[0].authorities = answer.clusters[1].authorities.clone();
            });
            assert_eq!(
                moves.unwrap_err().reason,
                word,
                "{field}: moved to the entry in use"
            );
            let changes = try_answer(&source, |answer| answer.clusters[1].proxy = None);
            assert_eq!(changes.unwrap_err().reason, word, "{field}: changed");
        }
    }
    let undecodable = with(two(), "/users/1/user/client-key-data", json!("%"));
    let error = parse(&undecodable).unwrap_err();
    assert_eq!(
        error.reason,
        KnownReason::InvalidBase64,
        "clients cannot read it at all"
    );
}

#[test]
fn a_client_certificate_must_be_valid_at_the_time_of_the_call() {
    let source = parse(&admin()).unwrap();
    let answer = rewired(&source.view());
    let (inputs, grant) = (
        [Input {
            role: "service".to_owned(),
            value: InputValue::Service(service()),
        }],
        grant(),
    );
    let at = |now_seconds| {
        let limits = KubeconfigLimits::default();
        let terms = Terms {
            grant: &grant,
            source_role: "source",
            inputs: &inputs,
            primary: &Value::Null,
            now_seconds,
            limits,
        };
        source
            .assemble(&answer, &terms)
            .map(|_| ())
            .map_err(|error| (error.reason, error.path))
    };
    let (starts, ends) = (1_767_225_600, 2_082_585_600);
    assert_eq!([at(starts), at(ends)], [Ok(()), Ok(())]);
    let authority = "clusters[0].cluster.certificate-authority-data".to_owned();
    assert_eq!(
        at(starts - 1),
        Err((KnownReason::CertificateNotYetValid, authority.clone()))
    );
    assert_eq!(
        at(ends + 1),
        Err((KnownReason::CertificateExpired, authority))
    );
    let old = with(
        admin(),
        "/clusters/0/cluster/certificate-authority-data",
        json!(base64(include_str!("given/expired-ca.pem"))),
    );
    assert_eq!(
        outcome(&old).unwrap_err().reason,
        KnownReason::CertificateExpired
    );
    let user = with(
        admin(),
        "/users/0/user/client-certificate-data",
        json!(base64(include_str!("given/expired-ca.pem"))),
    );
    let user = with(
        user,
        "/users/0/user/client-key-data",
        json!(base64(include_str!("given/other-ec-sec1.key"))),
    );
    let error = outcome(&user).unwrap_err();
    assert_eq!(
        (error.reason, error.path.as_str()),
        (
            KnownReason::CertificateExpired,
            "users[0].user.client-certificate-data"
        )
    );
    assert!((starts..ends).contains(&NOW));
}

#[test]
fn the_ca_must_exist_and_be_a_ca() {
    let of = |pem: &str| {
        with(
            admin(),
            "/clusters/0/cluster/certificate-authority-data",
            json!(base64(pem)),
        )
    };
    let (expired, future) = (
        include_str!("given/expired-ca.pem"),
        include_str!("given/future-ca.pem"),
    );
    assert_eq!(
        outcome(&of(&format!("{expired}{RSA}{OTHER_CA}"))),
        Ok(()),
        "one that is valid is enough"
    );
    for (pem, word) in [
        (RSA, KnownReason::InvalidAuthority),
        (expired, KnownReason::CertificateExpired),
        (future, KnownReason::CertificateNotYetValid),
    ] {
        assert_eq!(outcome(&of(pem)).unwrap_err().reason, word);
    }
    assert_eq!(
        outcome(&of(&format!("{expired}{future}")))
            .unwrap_err()
            .reason,
        KnownReason::CertificateNotYetValid
    );
    let none = with(
        admin(),
        "/clusters/0/cluster/certificate-authority-data",
        Value::Null,
    );
    assert_eq!(
        outcome(&none).unwrap_err().reason,
        KnownReason::InvalidAuthority
    );
    let file = with(
        none,
        "/clusters/0/cluster/certificate-authority",
        json!("/ca.crt"),
    );
    assert_eq!(
        outcome(&file).unwrap_err().reason,
        KnownReason::InvalidAuthority
    );
}

#[test]
fn a_kept_tls_server_name_must_be_a_name_or_an_address() {
    let named = |name: &str| with(admin(), "/clusters/0/cluster/tls-server-name", json!(name));
    for name in [
        "kubernetes.default.svc",
        "API_1.example.com.",
        "localhost",
        "10.0.0.1",
        "2001:db8::1",
        "[::1]",
        "",
    ] {
        assert_eq!(outcome(&named(name)), Ok(()), "{name}");
    }
    for name in [
        "hunter 2",
        "https://hunter",
        "hunter:443",
        "-hunter",
        "hunter..a",
        ".",
        "[hunter]",
        "*.hunter",
        "hünter",
        "hunter\n",
    ] {
        let error = outcome(&named(name)).unwrap_err();
        let path = "clusters[0].cluster.tls-server-name";
        let found = (error.reason, error.path.as_str());
        assert_eq!(found, (KnownReason::KubeconfigInvalid, path), "{name}");
        assert!(!error.to_string().contains("hunter"), "{error}");
        let dropped = try_answer(&named(name), |answer| {
            answer.clusters[0].tls_server_name = None;
        });
        assert!(dropped.is_ok(), "{name}: {dropped:?}");
        let unused = with(two(), "/clusters/1/cluster/tls-server-name", json!(name));
        assert_eq!(outcome(&unused), Ok(()), "{name}: not in use");
    }
}

#[test]
fn current_context_must_lead_to_a_cluster_and_a_user() {
    for (pointer, value, path) in [
        ("/current-context", Value::Null, "current-context"),
        ("/current-context", json!("nowhere"), "current-context"),
        ("/contexts/0/context/cluster", json!("nowhere"), "contexts"),
        ("/contexts/0/context/user", Value::Null, "contexts"),
    ] {
        let error = outcome(&with(admin(), pointer, value)).unwrap_err();
        assert_eq!(
            (error.reason, error.path.as_str()),
            (KnownReason::ContextUnresolved, path)
        );
    }
}

#[test]
fn clients_must_be_able_to_use_the_user() {
    let token = |more: Value| {
        let mut user = json!({"token": "hunter2"});
        if let (Some(user), Value::Object(more)) = (user.as_object_mut(), more) {
            user.extend(more);
        }
        user
    };
    for (user, field) in [
        (token(json!({"username": "hunter"})), "username"),
        (token(json!({"password": "hunter"})), "password"),
        (
            json!({"tokenFile": "/t", "username": "a", "password": "b"}),
            "username",
        ),
        (token(json!({"as-uid": "hunter"})), "as-uid"),
        (token(json!({"as-groups": ["hunter"]})), "as-groups"),
        (
            token(json!({"as-user-extra": {"hunter": null}})),
            "as-user-extra",
        ),
        (json!({"token": "hunter2\n"}), "token"),
        (json!({"token": "hun\u{7f}ter2"}), "token"),
        (token(json!({"as": "hunter\r"})), "as"),
        (
            token(json!({"as": "a", "as-groups": ["b", "hunter\n"]})),
            "as-groups",
        ),
        (
            token(json!({"as": "a", "as-user-extra": {"b": ["hunter\0"]}})),
            "as-user-extra",
        ),
    ] {
        let error = outcome(&with(admin(), "/users/0/user", user.clone())).unwrap_err();
        let path = format!("users[0].user.{field}");
        let found = (error.reason, error.path.as_str());
        assert_eq!(
            found,
            (KnownReason::KubeconfigInvalid, path.as_str()),
            "{user}"
        );
        assert!(!error.to_string().contains("hun"), "{error}");
        assert_eq!(
            outcome(&with(two(), "/users/1/user", user)),
            Ok(()),
            "not in use"
        );
    }
    for user in [
        json!({}),
        json!({"username": "a", "password": "b"}),
        token(json!({"username": "", "as-uid": "", "as-groups": [], "as-user-extra": {}})),
        token(
            json!({"as": "a", "as-uid": "b", "as-groups": ["c"], "as-user-extra": {"d": ["e"], "f": null}}),
        ),
        json!({"token": "tab\tand ä"}),
        json!({"username": "a\n", "password": "b\n"}),
    ] {
        let outcome = outcome(&with(admin(), "/users/0/user", user.clone()));
        assert_eq!(outcome, Ok(()), "{user}");
    }
}

#[test]
fn refuses_insecure_beside_a_ca_as_clients_do() {
    use transom_api::policy::InsecureGrant;
    let source = parse(&with(
        admin(),
        "/clusters/0/cluster/insecure-skip-tls-verify",
        json!(true),
    ))
    .unwrap();
    let grant = transom_api::policy::KubeconfigGrant {
        insecure: InsecureGrant::AsSource,
        ..grant()
    };
    let error =
        crate::fixture::assemble_under(&grant, &source, &rewired(&source.view())).unwrap_err();
    assert_eq!(error.reason, KnownReason::KubeconfigInvalid);
}

#[test]
fn refuses_a_result_over_the_size_limit() {
    let source = parse(&admin()).unwrap();
    let (inputs, grant) = (
        [Input {
            role: "service".to_owned(),
            value: InputValue::Service(service()),
        }],
        grant(),
    );
    let limits = KubeconfigLimits { bytes: 1_000 };
    let terms = Terms {
        grant: &grant,
        source_role: "source",
        inputs: &inputs,
        primary: &Value::Null,
        now_seconds: NOW,
        limits,
    };
    assert_eq!(
        source
            .assemble(&rewired(&source.view()), &terms)
            .unwrap_err()
            .reason,
        KnownReason::KubeconfigTooLarge
    );
}

/// Any JSON of small size.
fn anything() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        ".{0,9}".prop_map(Value::from)
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[a-z<=~ ]{0,6}", inner, 0..4).prop_map(|map| json!(map)),
        ]
    })
}

proptest! {
    #[test]
    fn keeps_unrelated_content_of_a_source(
        key in "x-[a-z]{0,5}",
        all in prop::collection::vec(anything(), 6),
        command in ".{0,12}",
        token in "[!-~]{0,30}",
    ) {
        let mut source = two();
        for (pointer, value) in ["", "/clusters/0", "/clusters/0/cluster", "/users/0/user", "/contexts/0/context", "/users/1"].iter().zip(all) {
            source = with(source, &format!("{pointer}/{key}"), value);
        }
        source = with(source, "/users/0/user/exec", json!({"command": command, "env": [{"name": "A", "value": command}]}));
        source = with(source, "/users/1/user/token", json!(token));
        let expected = with(source.clone(), "/clusters/0/cluster/server", json!(SERVER));
        prop_assert_eq!(try_answer(&source, |_| {}).unwrap(), expected);
    }

    #[test]
    fn no_answer_panics_or_sends_a_credential_elsewhere(
        numbers in prop::collection::vec(0_u32..4, 12),
        names in prop::collection::vec(prop::sample::select(vec!["cluster", "other", "admin", "viewer", "view", "x", ""]), 8),
        servers in prop::collection::vec(prop::sample::select(vec!["kube-apiserver.clusters-demo.svc:6443", "other.example.com:443", "api.demo.example.com:6443", "evil.com"]), 2),
    ) {
        let source = two();
        let result = try_answer(&source, |answer| {
            for at in 0..2 {
                answer.clusters[at].entry = numbers[at];
                answer.clusters[at].name = names[at].to_owned();
                answer.clusters[at].server = url(servers[at]);
                answer.clusters[at].authorities = vec![numbers[2 + at]];
                answer.users[at].entry = numbers[4 + at];
                answer.users[at].credential = numbers[6 + at];
                answer.users[at].name = names[2 + at].to_owned();
                answer.contexts[at].entry = numbers[8 + at];
                answer.contexts[at].cluster = names[4 + at].to_owned();
                answer.contexts[at].user = names[6 + at].to_owned();
            }
        });
        if let Ok(result) = result {
            let find = |list: &str, name: &Value| result[list].as_array().into_iter().flatten().find(|entry| entry["name"] == *name).cloned();
            let current = find("contexts", &result["current-context"]).unwrap();
            let cluster = find("clusters", &current["context"]["cluster"]).unwrap();
            prop_assert_eq!(&cluster["cluster"]["server"], &json!("https://kube-apiserver.clusters-demo.svc:6443"));
            prop_assert!(!result.to_string().contains("evil"));
        }
    }
}
