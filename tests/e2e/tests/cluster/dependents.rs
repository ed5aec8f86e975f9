//! Objects that are kept until another object is gone, while it is unknown whether that one exists. Outdated knowledge
//! never causes a removal.

use crate::access::CLUSTERS as MANAGED_CLUSTERS;
use crate::leaving::{ADDON, CRDS as LEAVING, WORK};
use crate::objects::{CLUSTERS, primary};
use crate::stage::{CRDS, DEADLINE, HOSTED, KLUSTERLET, MANAGED, Stage, on_stage};
use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use transom_e2e::agent::Told;
use transom_e2e::program;
use transom_test_cluster::{Proxy, wait};

const ROLE: (&str, &str) = ("rbac.authorization.k8s.io/v1", "ClusterRole");

/// The agent's ClusterRole without access to Klusterlets.
async fn forbid_klusterlets(stage: &Stage) -> Result<()> {
    let role = stage.get(ROLE, None, "agent").await?.unwrap_or_default();
    let rules = role["rules"].as_array().cloned().unwrap_or_default();
    let others: Vec<Value> = rules
        .into_iter()
        .filter(|rule| !rule.to_string().contains("klusterlets"))
        .collect();
    stage
        .patch(ROLE, None, "agent", json!({"rules": others}))
        .await
}

#[test]
fn keeps_what_a_klusterlet_needs_while_klusterlets_cannot_be_watched() -> Result<()> {
    on_stage(async |stage| {
        stage.ready("one", true).await?;
        let agent = stage.start_agent(&[])?;
        stage.wait_for_right("one", 6443).await?;
        // The watch ends with its server, and the next server refuses it; the agent still has the earlier list.
        forbid_klusterlets(stage).await?;
        stage.cluster.restart_apiserver().await?;
        agent.wait_for_lines(1, &["failed to watch Klusterlet"])?;
        let klusterlet = json!({"apiVersion": KLUSTERLET.0, "kind": KLUSTERLET.1,
            "metadata": {"name": "klusterlet-one"}, "spec": {}});
        stage.objects().create(klusterlet).await?;
        stage.delete(HOSTED, Some(CLUSTERS), "one").await?;
        let primary = primary("one");
        agent.wait_for(&primary, "Failed ReadForbidden")?;
        ensure!(
            stage.made("one").await?.is_some(),
            "what is needed was removed"
        );
        stage.grant().await?;
        agent.wait_for(&primary, "Waiting StillNeeded")?;
        ensure!(
            stage.made("one").await?.is_some(),
            "what is needed was removed"
        );
        stage.delete(KLUSTERLET, None, "klusterlet-one").await?;
        stage.wait_for_no_output("one").await?;
        agent.stop()?;
        Ok(())
    })
}

#[test]
fn a_later_list_removes_an_object_known_only_from_a_write_response() -> Result<()> {
    on_stage(async |stage| {
        stage.ready("one", true).await?;
        let proxy = Proxy::start(&stage.cluster).await?;
        let agent = stage.start_agent_at(&proxy.server(), &[])?;
        stage.wait_for_right("one", 6443).await?;
        // The API server has no memory of earlier events: Klusterlets are listed again, and the request takes long.
        proxy.hold(Some("/klusterlets?&limit="));
        stage.cluster.restart_apiserver().await?;
        let klusterlet = json!({"apiVersion": KLUSTERLET.0, "kind": KLUSTERLET.1,
            "metadata": {"name": "klusterlet-one"}, "spec": {}});
        stage.objects().create(klusterlet).await?;
        let asked = async || Ok((proxy.met() > 0).then_some(()));
        wait::until("a list of Klusterlets", DEADLINE, asked)
            .await
            .with_context(|| agent.tail())?;
        stage.delete(HOSTED, Some(CLUSTERS), "one").await?;
        // Only a read by name can have found the Klusterlet; it is gone when the list is answered.
        agent.wait_for(&primary("one"), "Waiting StillNeeded")?;
        stage.delete(KLUSTERLET, None, "klusterlet-one").await?;
        proxy.hold(None);
        stage
            .wait_for_no_output("one")
            .await
            .with_context(|| agent.tail())?;
        agent.stop()?;
        Ok(())
    })
}

#[test]
fn keeps_managed_objects_while_a_deciding_kind_is_not_served() -> Result<()> {
    on_stage(async |stage| {
        for name in ["one", "two"] {
            stage.ready(name, true).await?;
        }
        let agent = stage.start_agent(&[])?;
        for name in ["one", "two"] {
            stage.wait_for_right(name, 6443).await?;
        }
        // It is unknown whether a Klusterlet needs it; each further attempt asks the server again.
        stage.remove_crd(CRDS[2]).await?;
        stage.delete(HOSTED, Some(CLUSTERS), "one").await?;
        let refused = |name: &str| {
            let said = |told: &Told| {
                told.primary == primary(name)
                    && told.reason == "KindMissing"
                    && told.cause == "Retry"
            };
            agent.wait("further attempts", || {
                let told = agent.told(0).ok()?;
                (told.iter().filter(|told| said(told)).count() > 1).then_some(())
            })
        };
        refused("one")?;
        // It is also unknown whether the primaries are gone, if their own kind is not served.
        stage.remove_crd(CRDS[0]).await?;
        refused("two")?;
        for name in ["one", "two"] {
            ensure!(
                stage.made(name).await?.is_some(),
                "what was made for {name} was removed"
            );
        }
        stage.cluster.install_crds(&[CRDS[0], CRDS[2]]).await?;
        for name in ["one", "two"] {
            stage
                .wait_for_no_output(name)
                .await
                .with_context(|| agent.tail())?;
        }
        agent.stop()?;
        Ok(())
    })
}

#[test]
fn nothing_is_removed_because_a_watch_lags() -> Result<()> {
    on_stage(async |stage| {
        stage.cluster.install_crds(&LEAVING).await?;
        let file = program::policy("cleanup");
        let words = ["--policies", &file.to_string_lossy()];
        stage.grant_exactly(&words).await?;
        let name = &format!("{MANAGED_CLUSTERS}lagging");
        let of_cluster = format!("ManagedCluster {name}");
        stage.managed(name).await?;
        stage.objects().namespace(name).await?;
        let proxy = Proxy::start(&stage.cluster).await?;
        let agent = stage.start_agent_at(&proxy.server(), &words)?;
        agent.wait_for(&of_cluster, "Applied InSync")?;
        // From here on the agent hears of works and clusters, and not of add-ons.
        proxy.hold(Some("/managedclusteraddons?&watch=true"));
        proxy.cut();
        let asked = async || Ok((proxy.met() > 0).then_some(()));
        wait::until("a watch of add-ons", DEADLINE, asked)
            .await
            .with_context(|| agent.tail())?;
        for kind in [ADDON, WORK] {
            let body = json!({"apiVersion": kind.0, "kind": kind.1, "spec": {},
                "metadata": {"name": "last", "namespace": name, "finalizers": ["example.com/hold"]}});
            stage.objects().create(body).await?;
        }
        stage.delete(MANAGED, None, name).await?;
        agent.wait_for(&of_cluster, "Failed ReadFailed")?;
        let goes = |object: &Option<Value>| {
            let object = object.as_ref();
            object.is_some_and(|object| object["metadata"]["deletionTimestamp"].is_string())
        };
        let work = stage.get(WORK, Some(name), "last").await?;
        ensure!(!goes(&work), "the work goes before the add-on: {work:?}");
        proxy.hold(None);
        let gone = async || {
            let addon = stage.get(ADDON, Some(name), "last").await?;
            Ok(goes(&addon).then_some(()))
        };
        wait::until("the end of the add-on", DEADLINE, gone)
            .await
            .with_context(|| agent.tail())?;
        let work = stage.get(WORK, Some(name), "last").await?;
        ensure!(!goes(&work), "the work goes before the add-on: {work:?}");
        agent.stop()?;
        Ok(())
    })
}
