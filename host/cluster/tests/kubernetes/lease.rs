//! Leader election, with permissions for one named Lease only.

use crate::support::{DEADLINE, Scene, options};
use anyhow::{Context as _, Result, ensure};
use serde_json::json;
use std::time::{Duration, Instant};
use transom_api::KnownReason;
use transom_cluster::kubernetes::{Kubernetes, Leadership, Leading, LeaseOptions};
use transom_core::lease::Timing;
use transom_core::object::Object;
use transom_core::plan::Step;
use transom_core::rights::LEASE;
use transom_test_cluster::{Carries, Mark, Wire, wait};

/// So long that it does not expire within a test.
const LONG: Timing = Timing {
    lease_ms: 300_000,
    hold_ms: 200_000,
    retry_ms: 200,
};
/// So short that a test can wait for its expiry.
const SHORT: Timing = Timing {
    lease_ms: 9_000,
    hold_ms: 6_000,
    retry_ms: 400,
};

/// Gives the replicas what `transom rbac` grants for the Lease, in the namespace of the test.
async fn allow(scene: &Scene<'_>) -> Result<()> {
    let rights = "
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: leader, namespace: HOME}
rules: [{apiGroups: [coordination.k8s.io], resources: [leases], resourceNames: [transom], verbs: [get, create, update]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: leader, namespace: HOME}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: leader}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: HOME}]
";
    let rights = rights.replace("HOME", &scene.namespace);
    scene.objects.apply_manifest(&rights).await
}

/// A replica that campaigns for the Lease, at an address of the API server, and writes only while it holds it. Its user
/// and group belong to the test.
async fn replica(
    scene: &Scene<'_>,
    server: &str,
    name: &str,
    timing: Timing,
) -> Result<(Kubernetes, Leadership)> {
    let home = scene.namespace.clone();
    let user = scene.cluster.user(&format!("{home}-{name}"), &[&home])?;
    let kubernetes = Kubernetes::connect(options(scene.cluster, &user, server)?).await?;
    let options = LeaseOptions {
        namespace: home,
        name: LEASE.to_owned(),
        instance: name.to_owned(),
        timing,
    };
    let leadership = Leadership::new(&kubernetes, &options);
    kubernetes.writer().lead_by(leadership.leading());
    leadership.stand();
    Ok((kubernetes, leadership))
}

/// Tries to create a Secret; returns the reason if this fails.
async fn word_of_write(scene: &Scene<'_>, replica: &Kubernetes) -> Option<KnownReason> {
    let reference = scene.secret("s");
    let body = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": scene.namespace}});
    let desired = Object {
        reference,
        version: String::new(),
        body,
    };
    let done = replica.perform("policy", &Step::Create { desired }).await;
    done.result.err().map(|failure| failure.reason)
}

async fn gained(leading: &mut Leading, who: &str) -> Result<()> {
    tokio::time::timeout(DEADLINE, leading.gained())
        .await
        .with_context(|| format!("{who} did not lead in time"))
}

async fn lost(leading: &mut Leading, who: &str) -> Result<()> {
    tokio::time::timeout(DEADLINE, leading.lost())
        .await
        .with_context(|| format!("{who} led for too long"))
}

/// Checks that every request of the replicas since a mark was allowed, and was about the one Lease by its name.
fn only_the_lease(scene: &Scene<'_>, since: Mark) -> Result<()> {
    let lines = scene.cluster.audit().since(since)?;
    let users = format!("{}-", scene.namespace);
    let ours = lines.iter().filter(|line| line.user.starts_with(&users));
    let mut verbs: Vec<&str> = Vec::new();
    for line in ours.filter(|line| line.target.is_some()) {
        let target = line.target.clone().unwrap_or_default();
        ensure!(
            !line.denied && (&*target.resource, &*target.name) == ("leases", LEASE),
            "{line:?}"
        );
        verbs.push(&line.verb);
    }
    verbs.sort_unstable();
    verbs.dedup();
    // A write by name is an update even if it creates the object.
    ensure!(verbs == ["get", "update"], "{verbs:?}");
    Ok(())
}

#[tokio::test]
async fn a_released_lease_is_acquired_at_once() -> Result<()> {
    let scene = Scene::new("released").await?;
    let server = scene.cluster.server();
    let (_, one) = replica(&scene, &server, "one", LONG).await?;
    let (mut first, mut looking) = (one.leading(), one.leading());
    let denied = async {
        loop {
            looking.changed().await;
            if let Some(trouble) = looking.trouble() {
                return trouble;
            }
        }
    };
    let trouble = tokio::time::timeout(DEADLINE, denied)
        .await
        .context("nothing was told of missing rights")?;
    assert_eq!(
        trouble.reason,
        KnownReason::ReadForbidden,
        "{}",
        trouble.message
    );
    assert!(
        trouble.message.contains("Lease released/transom") && !first.leads(),
        "{}",
        trouble.message
    );

    allow(&scene).await?;
    gained(&mut first, "the only replica").await?;
    assert_eq!(first.trouble(), None);
    let mark = scene.cluster.audit().mark()?;
    let (writes, two) = replica(&scene, &server, "two", LONG).await?;
    let mut second = two.leading();
    wait::until("the second replica sees the first", DEADLINE, async || {
        Ok(second
            .holder()
            .filter(|holder| holder.starts_with("one_"))
            .map(drop))
    })
    .await?;
    assert!(first.leads() && !second.leads());
    assert_eq!(
        word_of_write(&scene, &writes).await,
        Some(KnownReason::NotLeading)
    );

    one.release().await;
    assert!(!first.leads());
    gained(&mut second, "the second replica").await?;
    only_the_lease(&scene, mark)?;
    assert_eq!(
        word_of_write(&scene, &writes).await,
        Some(KnownReason::WriteForbidden),
        "it is sent, though without the right"
    );
    let lease = scene
        .objects
        .api("coordination.k8s.io/v1", "Lease", Some(&scene.namespace))
        .await?
        .get(LEASE)
        .await?;
    assert_eq!(lease.data["spec"]["leaseTransitions"], 1);
    Ok(())
}

#[tokio::test]
async fn a_lost_leader_is_replaced_and_never_leads_beside_another() -> Result<()> {
    let scene = Scene::new("replaced").await?;
    let server = scene.cluster.server();
    allow(&scene).await?;
    let wire = Wire::to(&server)?;
    let (_, dead) = replica(&scene, &server, "one", SHORT).await?;
    let mut first = dead.leading();
    gained(&mut first, "the first replica").await?;
    let (_, cut) = replica(&scene, &wire.server(), "two", SHORT).await?;
    let mut second = cut.leading();
    wait::until("the second replica sees the first", DEADLINE, async || {
        Ok(second.holder().map(drop))
    })
    .await?;

    let died = Instant::now();
    drop(dead);
    gained(&mut second, "the second replica").await?;
    assert!(
        !first.leads() && died.elapsed() > Duration::from_millis(SHORT.hold_ms),
        "{:?}",
        died.elapsed()
    );

    let (_, three) = replica(&scene, &server, "one", SHORT).await?;
    let mut third = three.leading();
    wire.carry(Carries::Nothing);
    gained(&mut third, "the third replica").await?;
    assert!(!second.leads(), "two lead");
    // The request in flight arrives too late.
    wire.carry(Carries::All);
    let sees =
        |holder: Option<String>| holder.filter(|holder| holder.starts_with("one_")).map(drop);
    wait::until("the second replica sees the third", DEADLINE, async || {
        Ok(sees(second.holder()))
    })
    .await?;
    gained(&mut third, "the third replica").await?;
    assert!(!second.leads(), "two lead");

    // Someone takes the Lease by hand, for a second.
    let leases = scene
        .objects
        .api("coordination.k8s.io/v1", "Lease", Some(&scene.namespace))
        .await?;
    let stolen = json!({"spec": {"holderIdentity": "thief", "leaseDurationSeconds": 1}});
    leases
        .patch(LEASE, &Default::default(), &kube::api::Patch::Merge(stolen))
        .await?;
    lost(&mut third, "the robbed replica").await?;
    tokio::select! {
        gained = gained(&mut second, "one of two") => gained?,
        gained = gained(&mut third, "one of two") => gained?,
    }
    assert!(!(second.leads() && third.leads()), "two lead");
    Ok(())
}
