//! What is accepted as a kubeconfig, what is refused, and what a guest sees of one.

use crate::fixture::{CA, LIMITS, OTHER_CA, RSA, admin, base64, parse, two, with};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use proptest::prelude::*;
use serde_json::{Value, json};
use transom_api::KnownReason;
use transom_core::contract::credentials::{AuthoritySource, Proxy, Url};
use transom_core::kubeconfig::{KubeconfigLimits, SourceKubeconfig};

#[test]
fn shows_a_guest_everything_except_secrets() {
    let view = parse(&two()).unwrap().view();
    assert_eq!(view.current_context, "admin");
    let cluster = &view.clusters[1];
    assert_eq!((cluster.entry, cluster.name.as_str()), (1, "other"));
    assert!(!cluster.insecure);
    let url = |scheme: &str, host: &str, port, path: &str| Url {
        scheme: scheme.into(),
        host: host.into(),
        port,
        path: path.into(),
    };
    assert_eq!(cluster.server, url("https", "other.example.com", None, ""));
    let proxy = Proxy {
        reference: 0,
        url: url("http", "proxy.example.com", Some(3128), ""),
    };
    assert_eq!(cluster.proxy.as_ref(), Some(&proxy));
    assert_eq!(cluster.tls_server_name.as_deref(), Some("other"));
    let AuthoritySource::Data(authority) = &cluster.authority else {
        panic!("no data")
    };
    assert_eq!((authority.reference, authority.is_ca), (1, true));
    assert_eq!(authority.ends_seconds, Some(2_082_585_600));
    assert_eq!(
        authority.fingerprints,
        ["c20ec86328510654f84c99f1bd357e9ad4a3038207f3c4cfc5081fbabf52eb63"]
    );
    let admin = &view.users[0].credential;
    assert!(admin.client_certificate && !admin.token && !admin.basic && !admin.exec && !admin.file);
    assert_eq!(
        (admin.reference, admin.ends_seconds),
        (0, Some(2_082_585_600))
    );
    let viewer = &view.users[1].credential;
    assert!(viewer.token && !viewer.client_certificate && viewer.ends_seconds.is_none());
    let context = &view.contexts[1];
    assert_eq!((&*context.cluster, &context.namespace), ("other", &None));
    let shown = format!("{view:?}");
    for secret in ["opaque", "pass", "PRIVATE", &base64(RSA)[..40]] {
        assert!(!shown.contains(secret), "{secret}");
    }
}

#[test]
fn names_kinds_of_credentials_and_cas() {
    let kinds = |user: Value| {
        let view = parse(&with(admin(), "/users/0/user", user)).unwrap().view();
        let found = view.users[0].credential.clone();
        [
            found.client_certificate,
            found.token,
            found.basic,
            found.exec,
            found.auth_provider,
            found.file,
        ]
    };
    for (user, held) in [
        (json!({}), None),
        (json!({"username": "a", "token": ""}), Some(2)),
        (json!({"exec": {"command": "x"}}), Some(3)),
        (json!({"auth-provider": {"name": "x"}}), Some(4)),
        (json!({"tokenFile": "/x", "exec": null}), Some(5)),
    ] {
        let expected = [0, 1, 2, 3, 4, 5].map(|kind| Some(kind) == held);
        assert_eq!(kinds(user.clone()), expected, "{user}");
    }
    for empty in [json!({"name": "a"}), json!({"name": "a", "user": null})] {
        let source = with(admin(), "/users/-", empty.clone());
        let written = parse(&source).unwrap().view().users.pop();
        let alike = with(admin(), "/users/-", json!({"name": "a", "user": {}}));
        assert_eq!(
            written,
            parse(&alike).unwrap().view().users.pop(),
            "{empty}"
        );
    }
    let cluster = json!({"server": "https://a", "certificate-authority": "/x"});
    let view = parse(&with(admin(), "/clusters/0/cluster", cluster))
        .unwrap()
        .view();
    assert_eq!(view.clusters[0].authority, AuthoritySource::File);
    let several = base64(&format!("primary=/CN=a\n{CA}\n# and\n{OTHER_CA}{RSA}"));
    let data = "/clusters/0/cluster/certificate-authority-data";
    let view = parse(&with(admin(), data, json!(several))).unwrap().view();
    let AuthoritySource::Data(authority) = &view.clusters[0].authority else {
        panic!("no data")
    };
    assert_eq!((authority.fingerprints.len(), authority.is_ca), (3, false));
}

#[test]
fn accepts_what_clients_accept() {
    let folded = base64(CA)
        .as_bytes()
        .chunks(64)
        .map(|line| String::from_utf8_lossy(line) + "\r\n")
        .collect::<String>();
    for (pointer, value) in [
        ("/apiVersion", Value::Null),
        ("/kind", Value::Null),
        ("/apiVersion", json!("")),
        ("/kind", json!("")),
        ("/users", Value::Null),
        ("/contexts", json!([])),
        ("/anything", json!({"else": [1, null]})),
        (
            "/clusters/0/cluster/certificate-authority-data",
            json!(folded),
        ),
        ("/clusters/0/cluster/certificate-authority-data", json!("")),
        ("/clusters/0/cluster/insecure-skip-tls-verify", json!(true)),
        ("/users/0/user/client-key", json!("/path")),
        (
            "/users/0/user/as-user-extra",
            json!({"a": ["b"], "c": null}),
        ),
        (
            "/users/0/user/extensions",
            json!([{"name": "x", "extension": 1}]),
        ),
    ] {
        let source = parse(&with(admin(), pointer, value));
        assert!(source.is_ok(), "{pointer}: {source:?}");
    }
}

#[test]
fn takes_from_ca_data_what_clients_take() {
    let headers = CA.replacen("-----\n", "-----\nSubject: x\n\n", 1);
    let trusted = CA.replace("CERTIFICATE", "TRUSTED CERTIFICATE");
    let (broken, bare) = (CA.replace("MII", "M!I"), CA.split_at(80).0);
    let found = |text: &[u8]| {
        let data = json!(STANDARD.encode(text));
        let pointer = "/clusters/0/cluster/certificate-authority-data";
        let source = parse(&with(admin(), pointer, data)).ok()?;
        match &source.view().clusters[0].authority {
            AuthoritySource::Data(authority) => Some(authority.fingerprints.len()),
            _ => None,
        }
    };
    for none in [&headers, &trusted, &broken, bare, &format!(" {CA}")] {
        assert_eq!(found(none.as_bytes()), None, "{none}");
        let text = format!("{none}\n{OTHER_CA}# a remark\n{none}");
        assert_eq!(found(text.as_bytes()), Some(1), "{text}");
    }
    assert_eq!(found(&[b"\xe4\n", CA.as_bytes()].concat()), Some(1));
    assert_eq!(found(CA.replace('\n', " \r\n").as_bytes()), Some(1));
    let key = "-----BEGIN RSA PRIVATE KEY-----\nMII";
    assert_eq!(found(format!("{CA}{key}").as_bytes()), None);
}

/// Sets fields, each to a value that is refused for this reason. The error names the field itself, or what is wrong
/// below it.
fn refuses(word: KnownReason, rows: &[(&str, Value, &str)]) {
    for (field, value, below) in rows {
        let pointer = format!("/{}", field.replace(['.', '['], "/").replace(']', ""));
        let error = parse(&with(admin(), &pointer, value.clone())).err();
        let error = error.map(|error| (error.reason, error.path));
        assert_eq!(error, Some((word, format!("{field}{below}"))), "{value}");
    }
}

#[test]
fn names_reason_and_path_of_a_wrong_shape() {
    refuses(
        KnownReason::NotAKubeconfig,
        &[("apiVersion", json!("v2"), ""), ("kind", json!(1), "")],
    );
    refuses(
        KnownReason::NoClusters,
        &[("clusters", json!([]), ""), ("clusters", Value::Null, "")],
    );
    let (user, cluster) = ("users[0].user", "clusters[0].cluster");
    let of_user = |field: &str| format!("{user}.{field}");
    let of_cluster = |field: &str| format!("{cluster}.{field}");
    let no_cluster = json!([{"name": "a", "cluster": null}]);
    let exec = json!({"env": [{"value": 1}]});
    refuses(
        KnownReason::KubeconfigInvalid,
        &[
            ("clusters", json!({}), ""),
            ("clusters", json!([null]), "[0]"),
            ("clusters", no_cluster, "[0].cluster"),
            ("users", json!([{"name": "a", "user": []}]), "[0].user"),
            ("users", json!([{"user": {}}]), "[0].name"),
            ("current-context", json!(["admin"]), ""),
            (&of_user("token"), json!({"x": 1}), ""),
            (&of_user("as-groups"), json!(["a", 1]), "[1]"),
            (&of_user("as-user-extra"), json!({"hunter": 1}), ".?"),
            (&of_user("exec"), exec, ".env[0].value"),
            (&of_cluster("certificate-authority"), json!("/ca"), ""),
            (&of_cluster("insecure-skip-tls-verify"), json!("yes"), ""),
        ],
    );
    refuses(
        KnownReason::InvalidUrl,
        &[
            (&of_cluster("server"), json!("https://u:p@a"), ""),
            (&of_cluster("server"), json!("api.example.com?a"), ""),
            (&of_cluster("server"), json!("10.0.0.1#a"), ""),
        ],
    );
    for list in ["clusters", "users", "contexts"] {
        let twice = with(admin(), &format!("/{list}/-"), admin()[list][0].clone());
        let error = parse(&twice).unwrap_err();
        assert_eq!(error.reason, KnownReason::DuplicateEntry);
        assert_eq!(error.path, format!("{list}[1].name"));
    }
    let extensions = json!([{"name": "x", "extension": 1}, {"name": "x", "extension": 2}]);
    for place in [
        "",
        &format!("{user}."),
        &format!("{cluster}."),
        "preferences.",
    ] {
        let field = format!("{place}extensions");
        let twice = [(&*field, extensions.clone(), "[1].name")];
        refuses(KnownReason::DuplicateEntry, &twice);
    }
}

#[test]
fn names_reason_and_path_of_a_wrong_value() {
    let authority = "clusters[0].cluster.certificate-authority-data";
    let certificate = "users[0].user.client-certificate-data";
    let key = "users[0].user.client-key-data";
    let key_in_ca = format!("{CA}{}", include_str!("given/rsa-pkcs1.key"));
    let encrypted = include_str!("given/encrypted.key");
    refuses(
        KnownReason::InvalidBase64,
        &[
            (authority, json!("%%%"), ""),
            (certificate, json!("a"), ""),
            (key, json!("Zm9vYmE"), ""),
        ],
    );
    refuses(
        KnownReason::InvalidAuthority,
        &[
            (authority, json!(base64("no PEM")), ""),
            (authority, json!(base64(&key_in_ca)), ""),
            (authority, json!(base64(&CA.replace("MII", "MIJ"))), ""),
        ],
    );
    refuses(
        KnownReason::InvalidCertificate,
        &[
            (certificate, json!(base64("x")), ""),
            (key, Value::Null, ""),
            (key, json!(base64(CA)), ""),
            (key, json!(base64(encrypted)), ""),
        ],
    );
    let unknown = json!({
        "client-certificate-data": base64(include_str!("given/secp256k1.pem")),
        "client-key-data": base64(include_str!("given/secp256k1-pkcs8.key")),
    });
    let of_key = [("users[0].user", unknown, ".client-key-data")];
    refuses(KnownReason::InvalidCertificate, &of_key);
}

#[test]
fn refuses_texts_that_are_not_kubeconfigs() {
    let small = KubeconfigLimits { bytes: 100 };
    assert_eq!(
        SourceKubeconfig::parse(&[b' '; 101], &small)
            .unwrap_err()
            .reason,
        KnownReason::KubeconfigTooLarge
    );
    for (text, word, line) in [
        ("", KnownReason::KubeconfigEmpty, None),
        ("# nothing\n", KnownReason::KubeconfigEmpty, None),
        ("[]", KnownReason::NotAKubeconfig, None),
        ("hunter", KnownReason::NotAKubeconfig, None),
        ("{}", KnownReason::NoClusters, None),
        (
            "a: 1\n---\nb: 1\n",
            KnownReason::KubeconfigUnparsable,
            Some(3),
        ),
        ("a: 1\nb: [\n", KnownReason::KubeconfigUnparsable, Some(3)),
        ("a: 1\na: 1\n", KnownReason::DuplicateEntry, Some(2)),
        ("a: \0", KnownReason::KubeconfigUnparsable, Some(1)),
        // Clients decode it.
        (
            "current-context: !!binary YWRtaW4=\n",
            KnownReason::KubeconfigUnparsable,
            None,
        ),
    ] {
        let error = SourceKubeconfig::parse(text.as_bytes(), &LIMITS).unwrap_err();
        assert_eq!((error.reason, error.line), (word, line), "{text:?}");
    }
    assert_eq!(
        SourceKubeconfig::parse(b"a: \xff", &LIMITS)
            .unwrap_err()
            .reason,
        KnownReason::KubeconfigUnparsable
    );
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        prop_assert!(SourceKubeconfig::parse(&bytes, &LIMITS).is_err());
    }

    #[test]
    fn no_change_of_one_byte_makes_it_panic(at in 0_usize..6_000, byte in any::<u8>()) {
        let mut bytes = two().to_string().into_bytes();
        let length = bytes.len();
        bytes[at % length] = byte;
        let _ = SourceKubeconfig::parse(&bytes, &LIMITS);
    }

    #[test]
    fn no_change_of_one_byte_of_der_makes_it_panic(which in 0_usize..3, at in 0_usize..2_000, byte in any::<u8>()) {
        use base64::Engine as _;
        let given = [("CERTIFICATE", CA, "/clusters/0/cluster/certificate-authority-data"),
            ("CERTIFICATE", RSA, "/users/0/user/client-certificate-data"),
            ("RSA PRIVATE KEY", include_str!("given/rsa-pkcs1.key"), "/users/0/user/client-key-data")];
        let (label, pem, pointer) = given[which];
        let body: String = pem.lines().filter(|line| !line.starts_with('-')).collect();
        let engine = base64::engine::general_purpose::STANDARD;
        let mut der = engine.decode(body).unwrap();
        let length = der.len();
        der[at % length] = byte;
        let pem = format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", engine.encode(der));
        let _ = parse(&with(admin(), pointer, json!(base64(&pem))));
    }
}
