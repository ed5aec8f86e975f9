//! A candidate that fails for one object is refused as long as that object stays as it is.

use anyhow::Result;
use serde_json::{Value, json};
use transom_core::reference::ObjectRef;
use transom_e2e::agent::DEADLINE;
use transom_e2e::program;
use transom_e2e::stage::{Stage, put};
use transom_support::wait;

const POLICY: &str = "cluster-sets-by-rule";
const LABEL: &str = "cluster.open-cluster-management.io/clusterset";

/// The policy with these rules, which may put clusters into the set `a` only.
fn put_rules(stage: &Stage, rules: Value) -> Result<()> {
    let mut policy = program::unlimited_manifest(POLICY)?;
    let spec = &mut policy["spec"];
    spec["guests"]["decide"]["settings"] = json!({"rules": rules});
    let field = format!("metadata.labels[\"{LABEL}\"]");
    spec["grant"]["write"][0]["values"] = json!({field: ["a"]});
    let file = stage.policies.join("policy.yaml");
    put(&file, policy.to_string().as_bytes())
}

fn cluster(name: &str) -> ObjectRef {
    let api_version = "cluster.open-cluster-management.io/v1";
    ObjectRef::local(api_version, "ManagedCluster", None, name)
}

fn put_cluster(stage: &Stage, name: &str, env: &str) -> Result<()> {
    let object = cluster(name);
    let body = json!({"apiVersion": object.api_version, "kind": object.kind,
        "metadata": {"name": name, "labels": {"env": env}}, "spec": {"hubAcceptsClient": true}});
    let file = stage.fleet.join(format!("{name}.yaml"));
    put(&file, body.to_string().as_bytes())
}

/// Waits until a cluster is in the set `a`.
fn wait_for_set(stage: &Stage, name: &str) -> Result<()> {
    let is_in = || {
        let there = stage.object(&cluster(name)).ok()??;
        (there.body["metadata"]["labels"][LABEL] == "a").then_some(())
    };
    Ok(wait::until("the set of a cluster", DEADLINE, is_in)?)
}

#[test]
fn a_candidate_is_tried_again_when_the_object_that_it_fails_for_is_gone_or_another_one()
-> Result<()> {
    for is_gone in [true, false] {
        let stage = Stage::new(0, 0)?;
        for (name, env) in [("e1", "a"), ("e2", "b"), ("e3", "c")] {
            put_cluster(&stage, name, env)?;
        }
        put_rules(&stage, json!([{"set": "a", "labels": {"env": ["a"]}}]))?;
        let agent = stage.watch()?;
        wait_for_set(&stage, "e1")?;
        let b = json!({"set": "b", "labels": {"env": ["b"]}});
        put_rules(
            &stage,
            json!([{"set": "a", "labels": {"env": ["a", "c"]}}, b]),
        )?;
        let refused = || {
            let reason = stage.policy_field(POLICY, "/candidate/reason")?;
            (reason == "ValueNotGranted").then_some(())
        };
        agent.wait("the refusal", refused)?;
        match is_gone {
            true => std::fs::remove_file(stage.fleet.join("e2.yaml"))?,
            false => put_cluster(&stage, "e2", "c")?,
        }
        wait_for_set(&stage, "e3")?;
        agent.stop()?;
    }
    Ok(())
}
