//! What crosses of the API server's word about the agent itself, and of a certificate in a Secret, with exactly the
//! permissions that `transom rbac` prints.

use crate::inputs::{reconciles_of, wait_for_seen};
use crate::others::wait_for_refusal;
use crate::stage::{DEADLINE, SECRET, Stage, on_stage, policies_at};
use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use transom_e2e::asking::{
    POLICY, agent_may_list, certificate, need, put_policy_of_agent, put_policy_of_certificates,
    secret,
};
use transom_support::identity::Identity;
use transom_test_cluster::wait;

/// The primary, as a guest names it.
fn primary() -> Value {
    json!({"api-version": "cluster.open-cluster-management.io/v1", "kind": "ManagedCluster", "cluster": "local",
        "namespace": null, "name": "NAME"})
}

#[test]
fn a_guest_is_told_what_the_agent_itself_may_do_and_nothing_that_is_not_granted() -> Result<()> {
    on_stage(async |stage| {
        let folder = stage.cluster.folder().join("policies-of-agent");
        let may_list = need("access", &primary(), &agent_may_list("nodes"));
        put_policy_of_agent(&folder, &[may_list], "nodes")?;
        let words = policies_at(&folder)?;
        stage.grant_exactly(&words).await?;
        stage.managed("one").await?;
        let mark = stage.mark()?;
        let agent = stage.start_agent(&words)?;
        wait_for_seen(stage, "one", "denied").await?;
        // Another question is none that the policy lets it ask.
        let may_read = need("access", &primary(), &agent_may_list("secrets"));
        put_policy_of_agent(&folder, &[may_read], "nodes")?;
        wait_for_refusal(&agent, "ReadNotGranted", "secrets")?;
        agent.stop()?;
        let may_list = need("access", &primary(), &agent_may_list("nodes"));
        put_policy_of_agent(&folder, &[may_list], "nodes")?;
        let rules = json!([{"apiGroups": [""], "resources": ["nodes"], "verbs": ["list"]}]);
        let (objects, asker) = (stage.objects(), stage.agent.name());
        objects.allow(&[asker], None, "lists-nodes", rules).await?;
        let client = stage.cluster.client(&stage.agent).await?;
        wait::until("the right to list nodes", DEADLINE, async || {
            let may = crate::rights::may_do(&client, "list", ("", "nodes"), None, "").await?;
            Ok(may.then_some(()))
        })
        .await?;
        let agent = stage.start_agent(&words)?;
        wait_for_seen(stage, "one", "allowed").await?;
        agent.stop()?;
        for kind in ["ClusterRole", "ClusterRoleBinding"] {
            let kind = (crate::access::RBAC, kind);
            stage.delete(kind, None, "lists-nodes").await?;
        }
        stage.nothing_denied(mark).await
    })
}

/// A Secret with a certificate, and the key beside it.
async fn put_pair(stage: &Stage, certificate: &Identity, key: &Identity) -> Result<()> {
    let data = json!({
        "tls.crt": STANDARD.encode(&certificate.certificate),
        "tls.key": STANDARD.encode(&key.key),
    });
    let secret = json!({"apiVersion": SECRET.0, "kind": SECRET.1, "type": "Opaque",
        "metadata": {"name": "one", "namespace": "default"}, "data": data});
    stage.objects().apply(secret).await.map(drop)
}

/// What the guest saw of a certificate last.
async fn seen(stage: &Stage) -> Result<String> {
    let cluster = stage.get(crate::stage::MANAGED, None, "one").await?;
    let label = cluster.context("gone")?["metadata"]["labels"][transom_e2e::asking::SEEN].take();
    Ok(label.as_str().unwrap_or_default().to_owned())
}

async fn wait_for_pair(stage: &Stage, before: &str, key: &str) -> Result<String> {
    let mut last = String::new();
    let came = wait::until("another certificate", DEADLINE, async || {
        last = seen(stage).await?;
        Ok((last != before && last.ends_with(key)).then_some(()))
    });
    came.await
        .with_context(|| format!("after {before} the guest saw {last}"))?;
    Ok(last)
}

#[test]
fn a_rotated_certificate_wakes_and_its_key_shows_nowhere() -> Result<()> {
    on_stage(async |stage| {
        let folder = stage.cluster.folder().join("policies-of-certificates");
        put_policy_of_certificates(&folder, &[need("secret", &secret(), &certificate())])?;
        let words = policies_at(&folder)?;
        stage.grant_exactly(&words).await?;
        let [first, second] = [1, 2].map(|place| Identity::generate(7, place));
        let (first, second) = (first?, second?);
        // The end of the test looks for every line of the keys in what the agent said.
        for identity in [&first, &second] {
            for line in identity
                .key
                .lines()
                .filter(|line| !line.starts_with("-----"))
            {
                stage.guard.look_for("a line of a private key", line);
            }
        }
        stage.managed("one").await?;
        let mark = stage.mark()?;
        let agent = stage.start_agent(&words)?;
        wait_for_seen(stage, "one", "absent").await?;
        put_pair(stage, &first, &first).await?;
        let one = wait_for_pair(stage, "absent", ".Belongs").await?;
        // The rotation wakes once, since both keys come in one write, and other keys of the Secret wake nobody.
        let before = reconciles_of(&agent, POLICY)?;
        for beat in 0..20 {
            let other = json!({"stringData": {"other": beat.to_string()}});
            stage.patch(SECRET, Some("default"), "one", other).await?;
        }
        put_pair(stage, &second, &second).await?;
        let two = wait_for_pair(stage, &one, ".Belongs").await?;
        let woken = reconciles_of(&agent, POLICY)? - before;
        ensure!(woken == 1.0, "{woken} reconciles");
        // A key that belongs to another certificate, and the first one again.
        put_pair(stage, &second, &first).await?;
        wait_for_pair(stage, &two, ".Other").await?;
        put_pair(stage, &first, &first).await?;
        wait_for_seen(stage, "one", &one).await?;
        agent.stop()?;
        stage.delete(SECRET, Some("default"), "one").await?;
        stage.nothing_denied(mark).await
    })
}
