//! Servers and proxies of a source that are no URLs: nothing of them is shown, and they are refused only where they are
//! kept.

use crate::answers::SERVER;
use crate::fixture::{assemble_under, grant, parse, rewired, two, with};
use serde_json::{Value, json};
use transom_api::KnownReason;
use transom_api::policy::{CarryGrant, KubeconfigGrant};

/// Texts that are no URL of a server or proxy, yet cannot hold a user, a query or a fragment.
const NO_URLS: [&str; 7] = [
    "hunter.example.com:6443",
    "10.0.0.1",
    "https://hunter:",
    "https://[fe80::1%hunter]:6443",
    "ftp://hunter",
    "hunter 2",
    "",
];

#[test]
fn a_server_or_proxy_that_is_no_url_is_refused_only_where_it_is_kept() {
    let grant = KubeconfigGrant {
        server: vec!["service".to_owned(), "source".to_owned()],
        proxy: CarryGrant::AsSource,
        ..grant()
    };
    for text in NO_URLS {
        for field in ["server", "proxy-url"] {
            let path = format!("/clusters/0/cluster/{field}");
            let source = with(two(), &path, json!(text));
            let source = with(source, "/clusters/1/cluster/server", json!(text));
            let source = with(source, "/clusters/1/cluster/proxy-url", json!(text));
            let read = parse(&source).unwrap();
            let seen = format!("{:?}", read.view().clusters);
            assert!(!seen.contains("hunter") && !seen.contains("10.0"), "{seen}");

            let mut answer = rewired(&read.view());
            answer.clusters[0].proxy = None;
            let written = assemble_under(&grant, &read, &answer).unwrap();
            let written: Value = serde_yaml::from_str(written.to_yaml()).unwrap();
            assert_eq!(written["clusters"][0]["cluster"]["server"], SERVER);
            assert!(written["clusters"][0]["cluster"]["proxy-url"].is_null());

            let mut answer = rewired(&read.view());
            if field == "server" {
                answer.clusters[0].server = read.view().clusters[0].server.clone();
            }
            let kept = assemble_under(&grant, &read, &answer);
            if field == "proxy-url" && text.is_empty() {
                kept.unwrap();
                continue;
            }
            let error = kept.unwrap_err();
            let path = format!("clusters[0].cluster.{field}");
            let found = (error.reason, error.path.as_str());
            assert_eq!(found, (KnownReason::InvalidUrl, path.as_str()), "{text}");
            assert!(!error.to_string().contains("hunter"), "{error}");
        }
    }
}
