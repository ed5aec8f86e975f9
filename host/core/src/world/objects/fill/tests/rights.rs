//! Roles and bindings in texts of objects: only what the grant lists gets there.

use super::*;
use crate::policy::rbac::GROUP;

const RBAC: &str = "rbac.authorization.k8s.io/v1";
const READER: &str = r#"{"apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["{primary.name}"], "verbs": ["get", "watch"]}"#;

/// The grant of roles with one rule.
pub(super) fn role() -> Value {
    let reader: Value = serde_json::from_str(READER).unwrap();
    json!({"apiVersion": RBAC, "kind": "ClusterRole", "values": {
        "metadata.name": ["{primary.name}:agent"],
        "rules": [reader],
    }})
}

/// The grant of bindings of one role to one account.
pub(super) fn binding() -> Value {
    json!({"apiVersion": RBAC, "kind": "RoleBinding", "values": {
        "metadata.name": ["{primary.name}:agent"],
        "metadata.namespace": ["{primary.name}"],
        "roleRef": [{"apiGroup": GROUP, "kind": "ClusterRole", "name": "agent-{primary.name}"}],
        "subjects": [account("agent")],
    }})
}

fn account(name: &str) -> Value {
    json!({"kind": "ServiceAccount", "namespace": "{primary.name}", "name": name})
}

/// An object of a text with these fields.
fn of(kind: &str, fields: &Value) -> ObjectManifest {
    let mut content = json!({"apiVersion": RBAC, "kind": kind, "metadata": {"name": "demo:agent"}});
    if kind == "RoleBinding" {
        content["metadata"]["namespace"] = json!("demo");
    }
    for (key, value) in fields.as_object().unwrap() {
        content[key] = value.clone();
    }
    one(&content, vec![])
}

/// The rule that is listed, for the cluster `demo`, with one change.
fn rule(key: &str, value: Value) -> Value {
    let mut rule: Value = serde_json::from_str(&READER.replace("{primary.name}", "demo")).unwrap();
    rule[key] = value;
    json!([rule])
}

fn text(manifest: ObjectManifest) -> Result<String, (String, String)> {
    let filled = filled(vec![(TEXT, Hole::Manifests(vec![manifest]))])?;
    Ok(filled.into_iter().map(|(_, text)| text).collect())
}

#[test]
fn a_text_has_the_rules_roles_and_subjects_that_are_listed() {
    let demo = json!({"kind": "ServiceAccount", "namespace": "demo", "name": "agent"});
    let bound = json!({"apiGroup": GROUP, "kind": "ClusterRole", "name": "agent-demo"});
    for manifest in [
        of(
            "ClusterRole",
            &json!({"rules": rule("verbs", json!(["get", "watch"]))}),
        ),
        of("ClusterRole", &json!({"rules": []})),
        of(
            "RoleBinding",
            &json!({"roleRef": bound, "subjects": [demo]}),
        ),
    ] {
        let (content, text) = (manifest.content.clone(), text(manifest).unwrap());
        let read: Value = serde_yaml::from_str(&text).unwrap();
        assert_eq!(read, serde_json::from_str::<Value>(&content).unwrap());
    }
}

#[test]
fn no_other_right_gets_into_a_text() {
    let demo = json!({"kind": "ServiceAccount", "namespace": "demo", "name": "agent"});
    let bound = |kind: &str, name: &str| json!({"apiGroup": GROUP, "kind": kind, "name": name});
    let labelled = |key: &str| json!({"name": "demo:agent", "labels": {key: "true"}});
    let (value, field) = ("ValueNotGranted", "WriteNotGranted");
    for (kind, fields, reason) in [
        (
            "ClusterRole",
            json!({"rules": rule("verbs", json!(["get", "watch", "list"]))}),
            value,
        ),
        (
            "ClusterRole",
            json!({"rules": rule("verbs", json!(["*"]))}),
            value,
        ),
        (
            "ClusterRole",
            json!({"rules": rule("resourceNames", json!(["other"]))}),
            value,
        ),
        (
            "ClusterRole",
            json!({"rules": rule("nonResourceURLs", json!(["/"]))}),
            value,
        ),
        ("ClusterRole", json!({"rules": null}), value),
        ("ClusterRole", json!({"rules": "*"}), value),
        (
            "ClusterRole",
            json!({"aggregationRule": {"clusterRoleSelectors": [{}]}}),
            field,
        ),
        ("ClusterRole", json!({"subjects": [demo]}), field),
        (
            "ClusterRole",
            json!({"metadata": labelled("rbac.authorization.k8s.io/aggregate-to-admin")}),
            field,
        ),
        (
            "ClusterRole",
            json!({"metadata": labelled("example.org/aggregate-to-work")}),
            field,
        ),
        // What is there already under another name, or in another namespace.
        (
            "ClusterRole",
            json!({"metadata": {"name": "system:basic-user"}, "rules": []}),
            value,
        ),
        (
            "RoleBinding",
            json!({"metadata": {"name": "demo:agent", "namespace": "kube-system"}}),
            value,
        ),
        (
            "RoleBinding",
            json!({"metadata": {"name": "demo:agent", "namespace": 7}}),
            "ContractBroken",
        ),
        (
            "RoleBinding",
            json!({"metadata": {"name": "demo:agent"}}),
            "ContractBroken",
        ),
        (
            "RoleBinding",
            json!({"subjects": [demo, account("agent")]}),
            value,
        ),
        (
            "RoleBinding",
            json!({"subjects": [{"kind": "Group", "name": "system:masters"}]}),
            value,
        ),
        (
            "RoleBinding",
            json!({"roleRef": bound("ClusterRole", "cluster-admin")}),
            value,
        ),
        (
            "RoleBinding",
            json!({"roleRef": bound("Role", "agent-demo")}),
            value,
        ),
        ("RoleBinding", json!({"rules": []}), field),
        // Kinds that are not listed.
        ("Role", json!({"rules": []}), field),
        ("ClusterRoleBinding", json!({"subjects": []}), field),
    ] {
        let refused = text(of(kind, &fields)).unwrap_err();
        assert_eq!(refused.0, reason, "{kind} {fields}: {}", refused.1);
        assert!(refused.1.len() < 1_000, "{}", refused.1);
    }
}

#[test]
fn a_grant_of_a_text_lists_every_right() {
    let at = |kinds: Value| {
        let holes = json!({TEXT: {"kubeconfig": ["admin"], "manifests": kinds}});
        let manifest = with(makes(), &[("/spec/grant/write/0/holes", holes)]);
        let checked = check::policy(manifest::parse(&manifest).unwrap());
        let at = r#"spec.grant.write[0].holes["data["import.yaml"]"].manifests"#;
        checked
            .map(drop)
            .map_err(|error| error.field.replace(at, ""))
    };
    assert_eq!(at(json!([role(), binding()])), Ok(()));
    let changed =
        |grant: Value, pointer: &str, value: Value| json!([with(grant, &[(pointer, value)])]);
    let of_role = |pointer: &str, value| changed(role(), pointer, value);
    let of_binding = |pointer: &str, value| changed(binding(), pointer, value);
    let admin = json!({"apiGroup": GROUP, "kind": "ClusterRole", "name": "*"});
    for (kinds, field) in [
        (
            json!([{"apiVersion": RBAC, "kind": "Role"}]),
            r#"[0].values["metadata.name"]"#,
        ),
        (
            of_role("/values/rules", json!(null)),
            r#"[0].values["rules"]"#,
        ),
        (
            of_role("/values/metadata.name", json!(["*"])),
            r#"[0].values["metadata.name"][0]"#,
        ),
        (
            json!([{"apiVersion": RBAC, "kind": "RoleBinding", "values": {"metadata.name": ["a"]}}]),
            r#"[0].values["metadata.namespace"]"#,
        ),
        (json!([role(), role()]), "[1]"),
        (
            of_role("/values", json!({})),
            r#"[0].values["metadata.name"]"#,
        ),
        (of_role("/kind", json!("Group")), "[0].kind"),
        (
            of_role("/apiVersion", json!("rbac.authorization.k8s.io/v1beta1")),
            "[0].kind",
        ),
        (
            of_role("/values/rules/0/verbs", json!(["*"])),
            r#"[0].values["rules"][0].verbs"#,
        ),
        (
            of_role("/values/rules/0/verbs", json!([])),
            r#"[0].values["rules"][0].verbs"#,
        ),
        (
            of_role("/values/rules/0/nonResourceURLs", json!(["/"])),
            r#"[0].values["rules"][0].nonResourceURLs"#,
        ),
        (
            of_role("/values/rules/0", json!("*")),
            r#"[0].values["rules"][0]"#,
        ),
        (
            of_role("/values/aggregationRule", json!([{}])),
            r#"[0].values["aggregationRule"]"#,
        ),
        (
            of_binding("/values/subjects", json!(null)),
            r#"[0].values["subjects"]"#,
        ),
        (
            of_binding("/values/subjects/0/name", json!("*")),
            r#"[0].values["subjects"][0].name"#,
        ),
        (
            of_binding("/values/roleRef/0", admin),
            r#"[0].values["roleRef"][0].name"#,
        ),
        // Of other kinds the kind is the whole grant.
        (
            json!([{"kind": "Secret", "values": {"type": ["Opaque"]}}]),
            "[0].values",
        ),
    ] {
        assert_eq!(at(kinds.clone()), Err(field.to_owned()), "{kinds}");
    }
}
