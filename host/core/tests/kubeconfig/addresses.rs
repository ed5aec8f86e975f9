//! Servers outside the cluster's DNS: what an address grant allows, and what an error about an answer says.

use crate::answers::url;
use crate::fixture::{admin, assemble_from, grant, parse, rewired, service, with};
use serde_json::{Value, json};
use transom_api::policy::{AddressGrant, CredentialGrant, KubeconfigGrant};
use transom_core::contract::credentials::{Proposal, Url};
use transom_core::contract::decide::{Input, InputValue, Protocol, Service, ServicePort};
use transom_core::kubeconfig::KubeconfigError;

/// A Service with node ports and a load balancer, a Route, and a primary with its endpoint.
fn inputs() -> (Vec<Input>, Value) {
    let plain = service();
    let port = |port: &ServicePort| ServicePort {
        node_port: Some(if port.protocol == Protocol::Udp {
            30_053
        } else {
            24_557 + port.port
        }),
        ..port.clone()
    };
    let ingress = ["lb.example.com", "192.0.2.7", "2001:DB8:0::7"]
        .map(str::to_owned)
        .to_vec();
    let service = Service {
        ports: plain.ports.iter().map(port).collect(),
        ingress,
        ..plain
    };
    let input = |role: &str, value| Input {
        role: role.to_owned(),
        value,
    };
    let inputs = vec![
        input("service", InputValue::Service(service)),
        input(
            "route",
            InputValue::Object(
                json!({"spec": {"host": "api.apps.example.com", "port": 443, "odd": ["x"]}}),
            ),
        ),
    ];
    let endpoint = json!({"host": "api.demo.example.com", "port": 7443});
    let status = json!({
        "controlPlaneEndpoint": endpoint,
        "text": "text.example.com:8443", "bare": "bare.example.com", "v6": "2001:db8::9", "url": "https://url.example.com/k8s",
        "longest": format!("https://url.example.com/{}", "k".repeat(1000)),
        "long": format!("https://url.example.com/{}", "k".repeat(1001)),
        "http": "http://url.example.com", "user": "https://u:p@url.example.com", "query": "https://url.example.com?a",
        "list": ["a.example.com"], "number": 7, "empty": "", "port0": {"host": "a.b", "port": 0},
        "wrongport": {"host": "a.b", "port": "7443"}, "twoports": {"host": "a.b:1", "port": 2}, "inurl": {"host": "https://a.b"},
    });
    (inputs, json!({"status": status}))
}

fn under(grant: &KubeconfigGrant, server: Url) -> Result<(), KubeconfigError> {
    let (inputs, primary) = inputs();
    let source = parse(&admin())?;
    let mut answer = rewired(&source.view());
    answer.clusters[0].server = server;
    assemble_from(grant, &source, &answer, &inputs, &primary).map(drop)
}

fn granted(address: Value, server: Url) -> bool {
    let address: AddressGrant = serde_json::from_value(address).unwrap_or_default();
    assert_ne!(address, AddressGrant::default(), "a form that is none");
    let grant = KubeconfigGrant {
        server: Vec::new(),
        addresses: vec![address],
        ..grant()
    };
    under(&grant, server).is_ok()
}

#[test]
fn uses_the_node_port_of_the_service_on_a_granted_host() {
    let wildcard = json!({"role": "service", "nodePort": true, "host": "*.nodes.example.com"});
    for (server, expected) in [
        ("a.nodes.example.com:31000", true),
        ("a.b.nodes.example.com:31000", true),
        ("a.nodes.example.com:25000", true),
        ("nodes.example.com:31000", false),
        (".nodes.example.com:31000", false),
        ("a.nodes.example.com.evil.com:31000", false),
        ("evilnodes.example.com:31000", false),
        ("a_b.nodes.example.com:31000", false),
        ("a.nodes.example.com:6443", false),
        ("a.nodes.example.com:443", false),
        ("a.nodes.example.com:30053", false),
        ("kube-apiserver.clusters-demo.svc:31000", false),
        ("10.0.0.1:31000", false),
    ] {
        assert_eq!(granted(wildcard.clone(), url(server)), expected, "{server}");
    }
    let without = Url {
        port: None,
        ..url("a.nodes.example.com")
    };
    assert!(!granted(wildcard.clone(), without));
    let http = Url {
        scheme: "http".to_owned(),
        ..url("a.nodes.example.com:31000")
    };
    let path = Url {
        path: "/x".to_owned(),
        ..url("a.nodes.example.com:31000")
    };
    assert!(!granted(wildcard.clone(), http) && !granted(wildcard, path));
    let v6 = Url {
        host: "2001:db8::1".to_owned(),
        ..url("x:31000")
    };
    for (host, server, expected) in [
        ("192.0.2.1", url("192.0.2.1:31000"), true),
        ("192.0.2.1", url("192.0.2.2:31000"), false),
        ("2001:DB8:0:0::1", v6.clone(), true),
        ("2001:db8::2", v6, false),
        ("a.example.com", url("a.example.com:31000"), true),
        ("a.example.com", url("b.a.example.com:31000"), false),
        ("*.0.2.1", url("192.0.2.1:31000"), false),
    ] {
        let shown = server.host.clone();
        assert_eq!(
            granted(
                json!({"role": "service", "nodePort": true, "host": host}),
                server
            ),
            expected,
            "{host} {shown}"
        );
    }
    assert!(!granted(
        json!({"role": "other", "nodePort": true, "host": "a.b"}),
        url("a.b:31000")
    ));
}

#[test]
fn reaches_a_load_balancer_by_its_names_and_service_ports() {
    let balancer = json!({"role": "service", "loadBalancer": true});
    let v6 = Url {
        host: "2001:db8::7".to_owned(),
        ..url("x:6443")
    };
    assert!(granted(balancer.clone(), v6));
    for (server, expected) in [
        ("lb.example.com:6443", true),
        ("lb.example.com:443", true),
        ("192.0.2.7:6443", true),
        ("lb.example.com:31000", false),
        ("lb.example.com:53", false),
        ("x.lb.example.com:6443", false),
        ("192.0.2.8:6443", false),
    ] {
        assert_eq!(granted(balancer.clone(), url(server)), expected, "{server}");
    }
    let without = Url {
        port: None,
        ..url("lb.example.com")
    };
    assert!(granted(balancer, without), "no port is 443");
}

#[test]
fn a_field_gives_a_host_a_url_or_both_parts() {
    let primary = |field: &str| json!({"primaryField": format!("status.{field}")});
    let on_6443 = |field: &str| json!({"primaryField": format!("status.{field}"), "port": 6443});
    let of = |role: &str, field: &str| json!({"role": role, "field": format!("spec.{field}")});
    for (address, name, port, expected) in [
        (primary("controlPlaneEndpoint"), "api.demo", 7443, true),
        (primary("controlPlaneEndpoint"), "api.demo", 443, false),
        (primary("controlPlaneEndpoint"), "evil", 7443, false),
        (primary("controlPlaneEndpoint.host"), "api.demo", 443, true),
        (
            primary("controlPlaneEndpoint.host"),
            "api.demo",
            7443,
            false,
        ),
        (primary("text"), "text", 8443, true),
        (primary("text"), "text", 443, false),
        (primary("bare"), "bare", 443, true),
        (on_6443("bare"), "bare", 6443, true),
        (on_6443("bare"), "bare", 443, false),
        (on_6443("text"), "text", 6443, false),
        (primary("http"), "url", 443, false),
        (primary("user"), "url", 443, false),
        (primary("query"), "url", 443, false),
        (primary("url"), "url", 443, false),
        (primary("list"), "a", 443, false),
        (of("route", "host"), "api.apps", 443, true),
        (of("route", "host"), "api.apps", 6443, false),
        (of("service", "host"), "api.apps", 443, false),
        (of("nobody", "host"), "api.apps", 443, false),
    ] {
        let server = format!("{name}.example.com:{port}");
        assert_eq!(
            granted(address.clone(), url(&server)),
            expected,
            "{address} {server}"
        );
    }
    for (address, server) in [
        (primary("number"), "7:443"),
        (primary("empty"), ":443"),
        (primary("wrongport"), "a.b:7443"),
        (primary("wrongport"), "a.b:443"),
        (primary("twoports"), "a.b:2"),
        (primary("inurl"), "a.b:443"),
        (primary("nothing"), "a.b:443"),
        (of("route", "odd"), "x:443"),
    ] {
        assert!(!granted(address.clone(), url(server)), "{address} {server}");
    }
    let path = |path: &str| Url {
        path: path.to_owned(),
        ..url("url.example.com:443")
    };
    assert!(granted(primary("url"), path("/k8s")));
    for (field, letters, expected) in [("longest", 1000, true), ("long", 1001, false)] {
        let server = path(&format!("/{}", "k".repeat(letters)));
        assert_eq!(granted(primary(field), server), expected, "{field}");
    }
    let v6 = Url {
        host: "2001:db8:0::9".to_owned(),
        ..url("x:443")
    };
    assert!(granted(primary("v6"), v6));
}

#[test]
fn an_error_names_the_proposal_and_the_grant() {
    let both = KubeconfigGrant {
        server: ["service", "source", "https://a.example.com"]
            .map(str::to_owned)
            .to_vec(),
        addresses: [
            json!({"role": "service", "nodePort": true, "host": "*.example.com"}),
            json!({"role": "service", "loadBalancer": true}),
            json!({"role": "route", "field": "spec.host"}),
            json!({"primaryField": "status.controlPlaneEndpoint"}),
        ]
        .map(|address| serde_json::from_value(address).unwrap())
        .to_vec(),
        ..grant()
    };
    assert_eq!(
        under(&both, url("evil.example.org:6443"))
            .unwrap_err()
            .to_string(),
        "the guest proposed server https://evil.example.org:6443 for `clusters[0].cluster.server`; granted: \
         https://kube-apiserver.clusters-demo[.svc[.cluster.local]]:6443|443, https://api.demo.example.com:6443 of the source, \
         https://a.example.com, *.example.com with a node port of service, a load balancer of service, `spec.host` of route, \
         `status.controlPlaneEndpoint` of the primary"
    );
    let none = KubeconfigGrant {
        server: vec!["other".to_owned()],
        ..grant()
    };
    let odd = Url {
        path: "?x".to_owned(),
        ..url("evil.example.org:6443")
    };
    assert_eq!(
        under(&none, odd).unwrap_err().to_string(),
        "the guest proposed server that is not a URL for `clusters[0].cluster.server`; granted: the Service other, \
         which does not exist"
    );
}

/// Names from inside the document are not shown; an error about the source still names the source.
#[test]
fn errors_about_an_answer_name_the_proposal_and_nothing_of_the_document() {
    type Change = fn(&mut Proposal);
    let secret = |value: Value| {
        let text = value
            .to_string()
            .replace("\"admin\"", "\"hunter2\"")
            .replace("\"cluster\",", "\"hunter3\",");
        serde_json::from_str::<Value>(&text).unwrap()
    };
    let source = secret(with(
        admin(),
        "/clusters/0/cluster/proxy-url",
        json!("http://hunter4:x@proxy"),
    ));
    let changes: [(&str, Change); 10] = [
        ("clusters[0]", |answer| answer.clusters[0].entry = 7),
        ("clusters[0]", |answer| {
            answer.clusters[0].authorities = vec![7];
        }),
        ("users[0]", |answer| answer.users[0].credential = 7),
        ("current-context", |answer| answer.current_context.clear()),
        ("current-context", |answer| answer.current_context.push('x')),
        ("contexts", |answer| answer.contexts[0].cluster.push('x')),
        ("clusters[0].cluster.proxy-url", |_| {}),
        ("clusters[0].cluster.insecure-skip-tls-verify", |answer| {
            answer.clusters[0].authorities.clear();
            answer.clusters[0].insecure = true;
        }),
        ("clusters[0].cluster.certificate-authority-data", |answer| {
            answer.clusters[0].authorities.clear();
        }),
        ("clusters[0].cluster.tls-server-name", |answer| {
            answer.clusters[0].tls_server_name = Some("hunter5".to_owned());
        }),
    ];
    let (inputs, primary) = inputs();
    for (path, change) in changes {
        let source = parse(&source).unwrap();
        let mut answer = rewired(&source.view());
        if !path.ends_with("proxy-url") {
            answer.clusters[0].proxy = None;
        }
        change(&mut answer);
        let error = assemble_from(&grant(), &source, &answer, &inputs, &primary).unwrap_err();
        let text = error.to_string();
        assert!(
            error.proposed && text.starts_with("the guest proposed ") && error.path == path,
            "{text}"
        );
        assert!(
            text.contains(&format!("`{path}`")) && !text.contains("hunter"),
            "{text}"
        );
    }
    let certificates = KubeconfigGrant {
        credentials: vec![CredentialGrant::Token],
        ..grant()
    };
    let source = parse(&with(admin(), "/clusters/0/cluster/proxy-url", Value::Null)).unwrap();
    let answer = rewired(&source.view());
    let error = assemble_from(&certificates, &source, &answer, &inputs, &primary).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the guest proposed a client certificate for `users[0].user`; granted: Token"
    );
    let late = with(
        admin(),
        "/users/0/user/client-key-data",
        json!(crate::fixture::base64("x")),
    );
    assert!(!parse(&late).unwrap_err().proposed);
}
