//! What is accepted as a kubeconfig, what is refused, and what a guest sees of one.

use crate::fixture::{CA, LIMITS, OTHER_CA, RSA, admin, base64, parse, two, with};
use proptest::prelude::*;
use serde_json::{Value, json};
use transom_api::KnownReason;
use transom_core::contract::credentials::{AuthoritySource, Proxy, Url};
use transom_core::kubeconfig::{KubeconfigLimits, Source};

#[test]
fn shows_a_guest_everything_except_secrets() {
    let view = parse(&two()).unwrap().view();
    assert_eq!(view.current_context, "admin");
    let cluster = &view.clusters[1];
    assert_eq!(
        (cluster.entry, cluster.name.as_str(), cluster.insecure),
        (1, "other", false)
    );
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
    assert_eq!(
        (cluster.proxy.as_ref(), cluster.tls_server_name.as_deref()),
        (Some(&proxy), Some("other"))
    );
    let AuthoritySource::Data(authority) = &cluster.authority else {
        panic!("no data")
    };
    assert_eq!(
        (authority.reference, authority.is_ca, authority.ends_seconds),
        (1, true, Some(2_082_585_600))
    );
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
    assert_eq!(
        (
            view.contexts[1].cluster.as_str(),
            view.contexts[1].namespace.as_deref()
        ),
        ("other", None)
    );
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
    assert_eq!(kinds(json!({})), [false; 6]);
    assert_eq!(
        kinds(json!({"username": "a", "token": ""})),
        [false, false, true, false, false, false]
    );
    assert_eq!(
        kinds(json!({"exec": {"command": "x"}})),
        [false, false, false, true, false, false]
    );
    assert_eq!(
        kinds(json!({"auth-provider": {"name": "x"}})),
        [false, false, false, false, true, false]
    );
    assert_eq!(
        kinds(json!({"tokenFile": "/x", "exec": null})),
        [false, false, false, false, false, true]
    );
    let cluster = json!({"server": "https://a", "certificate-authority": "/x"});
    let view = parse(&with(admin(), "/clusters/0/cluster", cluster))
        .unwrap()
        .view();
    assert_eq!(view.clusters[0].authority, AuthoritySource::File);
    let several = base64(&format!("primary=/CN=a\n{CA}\n# and\n{OTHER_CA}{RSA}"));
    let view = parse(&with(
        admin(),
        "/clusters/0/cluster/certificate-authority-data",
        json!(several),
    ))
    .unwrap()
    .view();
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

/// The path of a field, its value, and the expected reason and path in the error.
type Wrong = (&'static str, Value, KnownReason, &'static str);

fn named(cases: impl IntoIterator<Item = Wrong>) {
    for (pointer, value, word, path) in cases {
        let error = parse(&with(admin(), pointer, value))
            .err()
            .map(|error| (error.reason, error.path));
        assert_eq!(error, Some((word, path.to_owned())), "{pointer}");
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table of cases")]
fn names_reason_and_path_of_a_wrong_shape() {
    named([
        (
            "/apiVersion",
            json!("v2"),
            KnownReason::NotAKubeconfig,
            "apiVersion",
        ),
        ("/kind", json!(1), KnownReason::NotAKubeconfig, "kind"),
        ("/clusters", json!([]), KnownReason::NoClusters, "clusters"),
        (
            "/clusters",
            Value::Null,
            KnownReason::NoClusters,
            "clusters",
        ),
        (
            "/clusters",
            json!({}),
            KnownReason::KubeconfigInvalid,
            "clusters",
        ),
        (
            "/clusters",
            json!([null]),
            KnownReason::KubeconfigInvalid,
            "clusters[0]",
        ),
        (
            "/clusters",
            json!([{"name": "a", "cluster": null}]),
            KnownReason::KubeconfigInvalid,
            "clusters[0].cluster",
        ),
        (
            "/users",
            json!([{"name": "a"}]),
            KnownReason::KubeconfigInvalid,
            "users[0].user",
        ),
        (
            "/users",
            json!([{"user": {}}]),
            KnownReason::KubeconfigInvalid,
            "users[0].name",
        ),
        (
            "/current-context",
            json!(["admin"]),
            KnownReason::KubeconfigInvalid,
            "current-context",
        ),
        (
            "/clusters/-",
            admin()["clusters"][0].clone(),
            KnownReason::DuplicateEntry,
            "clusters[1].name",
        ),
        (
            "/users/-",
            admin()["users"][0].clone(),
            KnownReason::DuplicateEntry,
            "users[1].name",
        ),
        (
            "/contexts/-",
            admin()["contexts"][0].clone(),
            KnownReason::DuplicateEntry,
            "contexts[1].name",
        ),
        (
            "/users/0/user/token",
            json!({"x": 1}),
            KnownReason::KubeconfigInvalid,
            "users[0].user.token",
        ),
        (
            "/clusters/0/cluster/certificate-authority",
            json!("/ca.crt"),
            KnownReason::KubeconfigInvalid,
            "clusters[0].cluster.certificate-authority",
        ),
        (
            "/users/0/user/as-groups",
            json!(["a", 1]),
            KnownReason::KubeconfigInvalid,
            "users[0].user.as-groups[1]",
        ),
        (
            "/users/0/user/as-user-extra",
            json!({"hunter": 1}),
            KnownReason::KubeconfigInvalid,
            "users[0].user.as-user-extra.?",
        ),
        (
            "/users/0/user/exec",
            json!({"env": [{"value": 1}]}),
            KnownReason::KubeconfigInvalid,
            "users[0].user.exec.env[0].value",
        ),
        (
            "/clusters/0/cluster/insecure-skip-tls-verify",
            json!("yes"),
            KnownReason::KubeconfigInvalid,
            "clusters[0].cluster.insecure-skip-tls-verify",
        ),
        (
            "/clusters/0/cluster/server",
            Value::Null,
            KnownReason::InvalidUrl,
            "clusters[0].cluster.server",
        ),
        (
            "/clusters/0/cluster/server",
            json!("https://u:p@a"),
            KnownReason::InvalidUrl,
            "clusters[0].cluster.server",
        ),
        (
            "/clusters/0/cluster/proxy-url",
            json!("ftp://a"),
            KnownReason::InvalidUrl,
            "clusters[0].cluster.proxy-url",
        ),
    ]);
}

#[test]
fn names_reason_and_path_of_a_wrong_value() {
    let authority = "/clusters/0/cluster/certificate-authority-data";
    let certificate = "/users/0/user/client-certificate-data";
    let key = "/users/0/user/client-key-data";
    let key_in_ca = format!("{CA}{}", include_str!("given/rsa-pkcs1.key"));
    named([
        (
            authority,
            json!("%%%"),
            KnownReason::InvalidBase64,
            "clusters[0].cluster.certificate-authority-data",
        ),
        (
            authority,
            json!(base64("no PEM")),
            KnownReason::InvalidAuthority,
            "clusters[0].cluster.certificate-authority-data",
        ),
        (
            authority,
            json!(base64(&key_in_ca)),
            KnownReason::InvalidAuthority,
            "clusters[0].cluster.certificate-authority-data",
        ),
        (
            authority,
            json!(base64(&CA.replace("MII", "MIJ"))),
            KnownReason::InvalidAuthority,
            "clusters[0].cluster.certificate-authority-data",
        ),
        (
            certificate,
            json!("a"),
            KnownReason::InvalidBase64,
            "users[0].user.client-certificate-data",
        ),
        (
            certificate,
            json!(base64("x")),
            KnownReason::InvalidCertificate,
            "users[0].user.client-certificate-data",
        ),
        (
            key,
            Value::Null,
            KnownReason::InvalidCertificate,
            "users[0].user.client-key-data",
        ),
        (
            key,
            json!("Zm9vYmE"),
            KnownReason::InvalidBase64,
            "users[0].user.client-key-data",
        ),
        (
            key,
            json!(base64(CA)),
            KnownReason::InvalidCertificate,
            "users[0].user.client-key-data",
        ),
        (
            key,
            json!(base64(include_str!("given/encrypted.key"))),
            KnownReason::InvalidCertificate,
            "users[0].user.client-key-data",
        ),
    ]);
}

#[test]
fn refuses_texts_that_are_not_kubeconfigs() {
    let small = KubeconfigLimits { bytes: 100 };
    assert_eq!(
        Source::parse(&[b' '; 101], &small).unwrap_err().reason,
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
    ] {
        let error = Source::parse(text.as_bytes(), &LIMITS).unwrap_err();
        assert_eq!((error.reason, error.line), (word, line), "{text:?}");
    }
    assert_eq!(
        Source::parse(b"a: \xff", &LIMITS).unwrap_err().reason,
        KnownReason::KubeconfigUnparsable
    );
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        prop_assert!(Source::parse(&bytes, &LIMITS).is_err());
    }

    #[test]
    fn no_change_of_one_byte_makes_it_panic(at in 0_usize..6_000, byte in any::<u8>()) {
        let mut bytes = two().to_string().into_bytes();
        let length = bytes.len();
        bytes[at % length] = byte;
        let _ = Source::parse(&bytes, &LIMITS);
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
