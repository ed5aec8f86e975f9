//! For any source and any answer: content that the answer does not name stays, and no credential goes elsewhere.

use crate::answers::{SERVER, try_answer, url};
use crate::fixture::{two, with};
use proptest::prelude::*;
use serde_json::{Value, json};

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
