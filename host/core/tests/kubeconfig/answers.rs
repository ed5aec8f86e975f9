//! The effect of a guest's answer: the result differs from the source only where the answer says so and may.

use crate::fixture::{
    CA, OTHER_CA, admin, assemble, assemble_under, base64, grant, parse, rewired, two, with,
};
use crate::unchanged::unchanged;
use serde_json::{Value, json};
use transom_api::KnownReason;
use transom_api::policy::{CarryGrant, CredentialGrant, InsecureGrant, KubeconfigGrant};
use transom_core::contract::credentials::{Proposal, ProposedCluster, ProposedUser, Url};
use transom_core::kubeconfig::KubeconfigError;

pub(crate) const SERVER: &str = "https://kube-apiserver.clusters-demo.svc.cluster.local:6443";

pub(crate) fn try_answer(
    source: &Value,
    change: impl FnOnce(&mut Proposal),
) -> Result<Value, KubeconfigError> {
    try_under(&grant(), source, change)
}

fn try_under(
    grant: &KubeconfigGrant,
    source: &Value,
    change: impl FnOnce(&mut Proposal),
) -> Result<Value, KubeconfigError> {
    let source = parse(source)?;
    let mut answer = rewired(&source.view());
    change(&mut answer);
    let text = assemble_under(grant, &source, &answer)?
        .to_yaml()
        .to_owned();
    Ok(serde_yaml::from_str(&text).unwrap_or_default())
}

pub(crate) fn url(text: &str) -> Url {
    let (host, port) = text.split_once(':').unwrap_or((text, "443"));
    Url {
        scheme: "https".to_owned(),
        host: host.to_owned(),
        port: port.parse().ok(),
        path: String::new(),
    }
}

#[test]
fn only_the_server_changes() {
    let source = two();
    let expected = with(source.clone(), "/clusters/0/cluster/server", json!(SERVER));
    assert_eq!(try_answer(&source, |_| {}), Ok(expected));
}

#[test]
fn writes_in_the_order_of_client_go() {
    let source = parse(&with(
        with(admin(), "/apiVersion", Value::Null),
        "/zone",
        json!("yes"),
    ))
    .unwrap();
    let result = assemble(&source, &rewired(&source.view())).unwrap();
    let keys: Vec<_> = result
        .to_yaml()
        .lines()
        .filter(|line| !line.starts_with([' ', '-']))
        .filter_map(|line| line.split(':').next())
        .collect();
    assert_eq!(
        keys,
        [
            "apiVersion",
            "clusters",
            "contexts",
            "current-context",
            "kind",
            "preferences",
            "users",
            "zone"
        ]
    );
    assert!(result.to_yaml().starts_with("apiVersion: v1\nclusters:\n"));
    assert!(result.to_yaml().ends_with("zone: \"yes\"\n"));
    assert_eq!(
        format!("{source:?} {result:?}"),
        format!(
            "Source(1 clusters, 1 users) Assembled({} bytes)",
            result.to_yaml().len()
        )
    );
}

#[test]
fn entries_can_be_dropped_and_renamed() {
    let result = try_answer(&two(), |answer| {
        answer.clusters.remove(1);
        answer.users.remove(1);
        answer.contexts.remove(1);
        answer.clusters[0].name = "a".to_owned();
        answer.users[0].name = "b".to_owned();
        answer.contexts[0].name = "c".to_owned();
        answer.contexts[0].cluster = "a".to_owned();
        answer.contexts[0].user = "b".to_owned();
        answer.contexts[0].namespace = None;
        answer.current_context = "c".to_owned();
    })
    .unwrap();
    assert_eq!(
        result["contexts"],
        json!([{"name": "c", "context": {"cluster": "a", "user": "b"}}])
    );
    assert_eq!(
        (&result["clusters"][0]["name"], &result["users"][0]["name"]),
        (&json!("a"), &json!("b"))
    );
    assert_eq!(result["users"][0]["user"], admin()["users"][0]["user"]);
}

#[test]
fn joins_cas_in_order() {
    let result = try_answer(&two(), |answer| answer.clusters[0].authorities = vec![1, 0]).unwrap();
    let data = &result["clusters"][0]["cluster"]["certificate-authority-data"];
    assert_eq!(*data, json!(base64(&format!("{OTHER_CA}{CA}"))));
    let result = try_answer(&two(), |answer| answer.clusters[0].authorities = vec![1]).unwrap();
    assert_eq!(
        result["clusters"][0]["cluster"]["certificate-authority-data"],
        json!(base64(OTHER_CA))
    );
    let cut = with(
        two(),
        "/clusters/0/cluster/certificate-authority-data",
        json!(base64(CA.trim_end())),
    );
    let result = try_answer(&cut, |answer| answer.clusters[0].authorities = vec![0, 1]).unwrap();
    assert_eq!(
        result["clusters"][0]["cluster"]["certificate-authority-data"],
        json!(base64(&format!("{CA}{OTHER_CA}")))
    );
}

/// Clients refuse a file together with data.
#[test]
fn data_of_another_entry_replaces_a_file() {
    let file = json!({"server": "https://a", "certificate-authority": "/etc/ca"});
    let result = try_answer(&with(two(), "/clusters/0/cluster", file), |answer| {
        answer.clusters[0].authorities = vec![0];
    })
    .unwrap();
    let cluster = result["clusters"][0]["cluster"].as_object().unwrap();
    assert_eq!(
        cluster.keys().collect::<Vec<_>>(),
        ["certificate-authority-data", "server"]
    );
}

#[test]
fn removes_what_the_guest_drops() {
    let changes = json!({"insecure-skip-tls-verify": true, "proxy-url": "http://u:p@proxy", "tls-server-name": "a", "x": 1,
        "server": "https://a", "certificate-authority-data": base64(CA)});
    let result = try_answer(&with(admin(), "/clusters/0/cluster", changes), |answer| {
        answer.clusters[0].insecure = false;
        answer.clusters[0].proxy = None;
        answer.clusters[0].tls_server_name = None;
    })
    .unwrap();
    let expected = json!({"x": 1, "server": SERVER, "certificate-authority-data": base64(CA)});
    assert_eq!(result["clusters"][0]["cluster"], expected);
}

#[test]
fn refuses_unknown_entry_numbers() {
    type Change = fn(&mut Proposal);
    let changes: [(&str, Change); 9] = [
        ("clusters[0]", |answer| answer.clusters[0].entry = 2),
        ("clusters[0]", |answer| answer.clusters[0].entry = u32::MAX),
        ("clusters[0]", |answer| {
            answer.clusters[0].authorities.push(2);
        }),
        ("clusters[1]", |answer| answer.clusters[1].proxy = Some(1)),
        ("users[1]", |answer| answer.users[1].entry = 2),
        ("users[0]", |answer| answer.users[0].credential = 7),
        ("users[0]", |answer| answer.users[0].credential = 1),
        ("users[0]", |answer| answer.users[0].entry = 1),
        ("contexts[0]", |answer| answer.contexts[0].entry = 2),
    ];
    for (path, change) in changes {
        let error = try_answer(&two(), change).unwrap_err();
        assert_eq!(
            (error.reason, error.path.as_str()),
            (KnownReason::UnknownReference, path)
        );
    }
}

#[test]
fn names_must_differ() {
    type Change = fn(&mut Proposal);
    let changes: [Change; 3] = [
        |answer| answer.clusters[1].name = "cluster".to_owned(),
        |answer| answer.users[1].name = "admin".to_owned(),
        |answer| answer.contexts[1].name = "admin".to_owned(),
    ];
    for change in changes {
        assert_eq!(
            try_answer(&two(), change).unwrap_err().reason,
            KnownReason::ContractBroken
        );
    }
}

#[test]
fn sends_no_credential_to_a_cluster_it_does_not_belong_to() {
    type Change = fn(&mut Proposal);
    let changes: [Change; 5] = [
        |answer| answer.contexts[0].cluster = "other".to_owned(),
        |answer| answer.contexts[1].user = "admin".to_owned(),
        |answer| answer.contexts[0].entry = 1,
        // The same by renaming the entry that the context names.
        |answer| {
            answer.clusters[0].name = "x".to_owned();
            answer.clusters[1].name = "cluster".to_owned();
        },
        |answer| {
            answer.users[0].name = "x".to_owned();
            answer.users[1].name = "admin".to_owned();
        },
    ];
    for change in changes {
        let error = try_answer(&two(), change).unwrap_err();
        assert_eq!(error.reason, KnownReason::ServerNotGranted);
    }
    // A name that matches nothing in the source must not match something later.
    let dangling = with(two(), "/contexts/1/context/cluster", json!("nowhere"));
    assert!(try_answer(&dangling, |_| {}).is_ok());
    let error = try_answer(&dangling, |answer| {
        answer.clusters[1].name = "nowhere".to_owned();
    })
    .unwrap_err();
    assert_eq!(error.reason, KnownReason::ServerNotGranted);
}

#[test]
fn the_server_is_a_service_address_with_one_of_its_ports() {
    let host = "kube-apiserver.clusters-demo";
    for good in ["", ":443", ".svc:6443", ".svc.cluster.local:6443"] {
        let server = url(&format!("{host}{good}"));
        assert!(
            try_answer(&two(), |answer| answer.clusters[0].server = server).is_ok(),
            "{good}"
        );
    }
    let mut wrong: Vec<Url> = [
        ":53",
        ":80",
        ".svc.cluster.local.evil:6443",
        ".svc.other.local:6443",
        ".svc.:6443",
        ".svc.evil.com:6443",
        "x:6443",
        ".evil.com:6443",
        ".svcx:6443",
    ]
    .iter()
    .map(|tail| url(&format!("{host}{tail}")))
    .collect();
    wrong.extend(
        [
            "kube-apiserver:6443",
            "evil.com:6443",
            "api.demo.example.com:6443",
            "10.0.0.1:6443",
        ]
        .map(url),
    );
    wrong.push(Url {
        scheme: "http".to_owned(),
        ..url("kube-apiserver.clusters-demo:6443")
    });
    wrong.push(Url {
        path: "/".to_owned(),
        ..url("kube-apiserver.clusters-demo:6443")
    });
    for server in wrong {
        let error =
            try_answer(&two(), |answer| answer.clusters[0].server = server.clone()).unwrap_err();
        assert_eq!(
            (error.reason, error.path.as_str()),
            (KnownReason::ServerNotGranted, "clusters[0].cluster.server"),
            "{server:?}"
        );
    }
}

#[test]
fn the_grant_decides_about_each_part() {
    let source = with(
        two(),
        "/clusters/0/cluster/insecure-skip-tls-verify",
        json!(true),
    );
    let source = with(
        source,
        "/clusters/0/cluster/proxy-url",
        json!("http://proxy"),
    );
    let strict = KubeconfigGrant {
        tls_server_name: CarryGrant::Drop,
        ca: Vec::new(),
        ..grant()
    };
    type Change = fn(&mut ProposedCluster);
    fn plain(cluster: &mut ProposedCluster) {
        (cluster.insecure, cluster.proxy) = (false, None);
    }
    let granting = |servers: &[&str]| KubeconfigGrant {
        server: servers.iter().map(|server| (*server).to_owned()).collect(),
        ..grant()
    };
    fn renamed(cluster: &mut ProposedCluster) {
        plain(cluster);
        cluster.tls_server_name = Some("x".to_owned());
    }
    fn with_proxy(cluster: &mut ProposedCluster) {
        (cluster.insecure, cluster.proxy) = (false, Some(1));
    }
    use KnownReason::{
        CANotGranted, InsecureNotGranted, ProxyNotGranted, ServerNameNotGranted, ServerNotGranted,
    };
    let cases: [(KubeconfigGrant, Change, KnownReason); 8] = [
        (grant(), |cluster| cluster.proxy = None, InsecureNotGranted),
        (grant(), |cluster| cluster.insecure = false, ProxyNotGranted),
        (grant(), with_proxy, ProxyNotGranted),
        (strict, plain, CANotGranted),
        (grant(), renamed, ServerNameNotGranted),
        (granting(&["source"]), plain, ServerNotGranted),
        (granting(&[]), plain, ServerNotGranted),
        (granting(&["https://evil.com"]), plain, ServerNotGranted),
    ];
    for (grant, change, word) in cases {
        let found = try_under(&grant, &source, |answer| change(&mut answer.clusters[0]));
        assert_eq!(found.unwrap_err().reason, word);
    }
    let proxy = KubeconfigGrant {
        proxy: CarryGrant::AsSource,
        ..grant()
    };
    let result = try_under(&proxy, &source, |answer| {
        answer.clusters[0].insecure = false;
    })
    .unwrap();
    assert_eq!(
        result["clusters"][0]["cluster"]["proxy-url"],
        json!("http://proxy")
    );
    let error = try_under(&proxy, &source, |answer| {
        (answer.clusters[0].insecure, answer.clusters[0].proxy) = (false, Some(1));
    });
    assert_eq!(
        error.unwrap_err().reason,
        KnownReason::ProxyNotGranted,
        "another entry's proxy"
    );
}

#[test]
fn refuses_to_drop_a_ca() {
    for at in [0, 1] {
        let error = try_answer(&two(), |answer| {
            answer.clusters[at].server = url("kube-apiserver.clusters-demo:6443");
            answer.clusters[at].proxy = None;
            answer.clusters[at].authorities.clear();
        });
        assert_eq!(error.unwrap_err().reason, KnownReason::CANotGranted);
    }
}

#[test]
fn insecure_stays_only_if_the_source_has_it() {
    let insecure = KubeconfigGrant {
        insecure: InsecureGrant::AsSource,
        ..grant()
    };
    let source = with(
        admin(),
        "/clusters/0/cluster",
        json!({"server": "https://a", "insecure-skip-tls-verify": true}),
    );
    assert!(try_under(&insecure, &source, |_| {}).is_ok());
    let error = try_under(&insecure, &admin(), |answer| {
        answer.clusters[0].insecure = true;
        answer.clusters[0].authorities.clear();
    });
    assert_eq!(error.unwrap_err().reason, KnownReason::InsecureNotGranted);
}

#[test]
fn the_source_server_and_listed_servers_can_be_granted() {
    let granted = |server: &str| KubeconfigGrant {
        server: vec![server.to_owned()],
        ..grant()
    };
    let own = |answer: &mut Proposal| answer.clusters[0].server = url("api.demo.example.com:6443");
    let result = try_under(&granted("source"), &admin(), own).unwrap();
    assert_eq!(
        result["clusters"][0]["cluster"]["server"],
        json!("https://api.demo.example.com:6443")
    );
    assert!(try_under(&granted("https://API.demo.example.com:6443"), &admin(), own).is_ok());
    assert_eq!(
        try_under(&granted("https://api.demo.example.com"), &admin(), own)
            .unwrap_err()
            .reason,
        KnownReason::ServerNotGranted
    );
    // The other cluster's server is not this entry's own.
    let swapped = |answer: &mut Proposal| answer.clusters[0].server = url("other.example.com:443");
    assert_eq!(
        try_under(&granted("source"), &two(), swapped)
            .unwrap_err()
            .reason,
        KnownReason::ServerNotGranted
    );
}

#[test]
fn an_entry_that_is_not_current_may_stay_but_not_change() {
    let source = parse(&two()).unwrap();
    let error = assemble(&source, &unchanged(&source.view())).unwrap_err();
    assert_eq!(
        (error.reason, error.path.as_str()),
        (KnownReason::ServerNotGranted, "clusters[0].cluster.server")
    );
    let changes: [fn(&mut ProposedCluster); 5] = [
        |cluster| cluster.server.host = "evil.com".to_owned(),
        |cluster| cluster.authorities = vec![0],
        |cluster| cluster.insecure = true,
        |cluster| cluster.tls_server_name = None,
        |cluster| cluster.entry = 0,
    ];
    for change in changes {
        let error = try_answer(&two(), |answer| change(&mut answer.clusters[1])).unwrap_err();
        assert_eq!(error.reason, KnownReason::ServerNotGranted);
    }
}

#[test]
fn each_kind_of_credential_is_granted_or_refused() {
    let exec = with(admin(), "/users/0/user", json!({"exec": {"command": "x"}}));
    assert!(try_answer(&exec, |_| {}).is_ok());
    let bytes_only = KubeconfigGrant {
        credentials: vec![CredentialGrant::ClientCertificate],
        ..grant()
    };
    assert!(try_under(&bytes_only, &admin(), |_| {}).is_ok());
    let error = try_under(&bytes_only, &exec, |_| {}).unwrap_err();
    assert_eq!(
        (error.reason, error.path.as_str()),
        (KnownReason::CredentialNotGranted, "users[0].user")
    );
}

#[test]
fn omits_the_ca_only_if_source_and_grant_allow_it() {
    let without = with(
        admin(),
        "/clusters/0/cluster",
        json!({"server": "https://a"}),
    );
    assert_eq!(
        try_answer(&without, |_| {}).unwrap_err().reason,
        KnownReason::InvalidAuthority
    );
    let allowed = KubeconfigGrant {
        insecure: InsecureGrant::AsSource,
        ..grant()
    };
    assert!(try_under(&allowed, &without, |_| {}).is_ok());
}

#[test]
fn refuses_an_answer_that_multiplies_before_building_it() {
    let big = "x".repeat(60_000);
    let secret = |field: &str| with(admin(), field, json!(big));
    let many_values = with(admin(), "/users/0/zone", json!(vec![1; 3_000]));
    let many_maps = with(
        admin(),
        "/users/0/zone",
        json!(vec![json!({"a": {}}); 1_000]),
    );
    // What an answer replaces of an entry is kept inside of what it does not replace.
    let kept = with(admin(), "/users/0/user/namespace", json!(big));
    // Each is refused by the rule that runs before anything is built, not for the size of the result.
    let same_ca = |authorities: Vec<u32>| {
        try_answer(&two(), |answer| {
            answer.clusters[0].authorities = authorities;
        })
    };
    for result in [same_ca(vec![0; 250_000]), same_ca(vec![0, 1, 0])] {
        let error = result.unwrap_err();
        assert_eq!(error.reason, KnownReason::ContractBroken);
        assert!(
            error.message.contains("the same CA data twice"),
            "{error:?}"
        );
    }
    let repeated = |source: &Value, times| try_answer(source, |answer| repeat(answer, times));
    let (many, large) = ("more than 1,000 entries", "or of too many values");
    let token = secret("/users/0/user/token");
    for (result, rule) in [
        // Too many entries to examine.
        (repeated(&admin(), 9_000), many),
        (repeated(&admin(), 1_001), many),
        // Few entries, each with a lot of content: text, or many short values.
        (repeated(&token, 900), large),
        (repeated(&token, 18), large),
        (repeated(&many_values, 900), large),
        (repeated(&many_maps, 900), large),
        (repeated(&kept, 900), large),
    ] {
        let error = result.unwrap_err();
        assert_eq!(error.reason, KnownReason::KubeconfigTooLarge);
        assert!(error.message.contains(rule), "want {rule}: {error:?}");
    }
    // What fits is built: the count never exceeds what is written.
    let text = repeated(&token, 10).unwrap();
    assert_eq!(text["users"].as_array().map(Vec::len), Some(10));
}

/// Proposes the first user this often, under different names.
fn repeat(answer: &mut Proposal, times: usize) {
    let first = answer.users[0].clone();
    let named = |at: usize| ProposedUser {
        name: format!("{}-{at}", first.name),
        ..first.clone()
    };
    answer.users.extend((1..times).map(named));
}
