//! Own policies as values of the chart, with the rights that `transom rbac` printed for them. Needs no cluster.

use crate::chart::{by_name, policy};
use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;
use transom_e2e::program;
use transom_test_cluster::helm;
use transom_test_deploy::rendered::{chart, folder, said};

/// What an own policy may say that is written in several ways: numbers, letters that are escaped, what a server adds.
const OWN_POLICY: &str = r#"apiVersion: transom.dev/v1alpha1
kind: FleetPolicy
metadata:
  name: own
  uid: 4b6e
  labels: {team: "a<b>&c"}
  annotations: {note: "1\u2028 \u00e9 'x' \"y\" \\ \t", transom.dev/approved: "sha256:0"}
spec:
  primary: {apiVersion: cluster.open-cluster-management.io/v1, kind: ManagedCluster}
  resyncSeconds: 600
  guests:
    decide: {component: "builtin:cluster-sets", settings: {rules: [], a: 1.0, b: 16777216, c: 0.25, d: -3, e: 1e30, f: null}}
  grant:
    write: [{target: primary, verbs: [patch], fields: ['metadata.labels["set"]']}]
"#;

/// What `transom rbac` prints for a policy of a user.
fn own_values(folder: &Path, words: &[&str]) -> Result<String> {
    let [own, values] = ["own.yaml", "values.yaml"].map(|name| folder.join(name));
    fs::write(&own, OWN_POLICY)?;
    let mut transom = Command::new(program::binary()?);
    transom.args(["rbac", "--output", "values", "--policies"]);
    fs::write(&values, said(transom.arg(&own).args(words))?)?;
    Ok(values.display().to_string())
}

#[test]
fn own_policies_come_with_their_rights_or_not_at_all() -> Result<()> {
    let top = tempfile::tempdir()?;
    let values = own_values(top.path(), &[])?;
    let (before, after) = (chart(&[])?, chart(&["--values", &values])?);
    let own = policy(&after, "own")?;
    let written: Value = serde_yaml::from_str(OWN_POLICY)?;
    assert_eq!(own["spec"]["grant"], written["spec"]["grant"]);
    let note = "1\u{2028} \u{e9} 'x' \"y\" \\ \t";
    assert_eq!(own["metadata"]["annotations"], json!({"note": note}));
    assert!(own["metadata"].get("uid").is_none(), "{own}");
    let more: BTreeSet<_> = by_name(after).into_keys().collect();
    let fewer: BTreeSet<_> = by_name(before).into_keys().collect();
    let new: Vec<_> = more.difference(&fewer).map(String::as_str).collect();
    // Events about objects without a namespace lie in `default`.
    let expected = [
        "ClusterRole transom-own",
        "ClusterRoleBinding transom-own",
        "FleetPolicy own",
        "Role default/transom-own",
        "RoleBinding default/transom-own",
    ];
    assert_eq!(new, expected);
    let strict = own_values(top.path(), &["--secret-reads", "strict", "--read-only"])?;
    let deployment = Value::from(chart(&["--values", &strict])?).to_string();
    assert!(deployment.contains("--read-only") && deployment.contains("--secret-reads=strict"));
    // The policy, and what else its rights depend on, may not change after they were printed.
    let values = own_values(top.path(), &[])?;
    for (set, told) in [
        ("ownPolicies[0].spec.resyncSeconds=601", "print them again"),
        ("secretReads=strict", "print them again"),
        ("readOnly=true", "print them again"),
        ("rbac.own.digest=sha256:0", "schema"),
        ("ownPolicies[0].kind=Secret", "schema"),
        (
            "ownPolicies[0].metadata.name=built-in-taints,rbac.create=false",
            "bundled policy",
        ),
    ] {
        let refused = chart(&["--values", &values, "--set", set]);
        let error = refused
            .err()
            .with_context(|| format!("`--set {set}` was taken"))?;
        assert!(format!("{error:#}").contains(told), "{set}: {error:#}");
    }
    // Nor may the version of the agent.
    let newer = top.path().join("newer");
    said(
        Command::new("cp")
            .arg("-r")
            .arg(folder("chart"))
            .arg(&newer),
    )?;
    let about = newer.join("Chart.yaml");
    let version = format!("appVersion: {}", env!("CARGO_PKG_VERSION"));
    fs::write(
        &about,
        fs::read_to_string(&about)?.replace(&version, "appVersion: 99.0.0"),
    )?;
    let mut helm = helm()?;
    helm.args(["template", "transom"]).arg(newer);
    let error = said(helm.args(["--values", &values])).err();
    assert!(format!("{error:?}").contains("for transom 99.0.0: print them again"));
    let by_hand = chart(&["--values", &values, "--set", "rbac.create=false"])?;
    policy(&by_hand, "own")?;
    assert!(!rendered_roles(&by_hand));
    Ok(())
}

fn rendered_roles(objects: &[Value]) -> bool {
    let mut kinds = objects.iter().filter_map(|object| object["kind"].as_str());
    kinds.any(|kind| kind.contains("Role"))
}

#[test]
fn values_are_printed_for_own_policies_only() -> Result<()> {
    let printed = said(Command::new(program::binary()?).args(["rbac", "--output", "values"]));
    let error = printed
        .err()
        .context("the bundled policies are no values")?;
    assert!(format!("{error:#}").contains("--policies"), "{error:#}");
    Ok(())
}
