//! `host/deploy/hosting/admission.yaml` on a real API server, for a hosting cluster with tenants: who may say which
//! ManagedCluster a HostedCluster has.

use crate::hub_admission::{Refusal, Right, Said, is_right, person, said};
use crate::importing::{IMPORTED, SELF_MANAGED, on_hub, other_hub, policy, put, two_servers};
use crate::objects::{CLUSTERS, primary};
use crate::stage::{CRDS, DEADLINE, HOSTED, MANAGED, Stage, on_stage, policies_at};
use anyhow::{Context as _, Result, ensure};
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use transom_e2e::program;
use transom_test_cluster::{Objects, wait};

const ADMISSION: &str = include_str!("../../../../host/deploy/hosting/admission.yaml");
/// The annotation with the name of the ManagedCluster.
const NAMED: &str = "cluster.open-cluster-management.io/managedcluster-name";
const HOSTED_CLUSTERS: (&str, &str) = ("hypershift.openshift.io", "hostedclusters");
const MANAGED_CLUSTERS: (&str, &str) = ("cluster.open-cluster-management.io", "managedclusters");
/// What a tenant may do with HostedClusters.
const TENANT: Right<'static> = (HOSTED_CLUSTERS, &["get", "create", "patch", "update"], "");
/// The one that is there before the checks. The policy may import it.
const BEFORE: &str = "import-before";

/// What a tenant is told who changes an annotation.
const fn may_not(annotation: &'static str) -> Option<Refusal> {
    Some((403, annotation))
}

/// Somebody sets or removes an annotation of a HostedCluster.
async fn sets(by: &Objects, name: &str, annotation: &str, value: impl Into<Value>) -> Result<Said> {
    let value: Value = value.into();
    let patch = json!({"metadata": {"annotations": {annotation: value}}});
    changes(by, name, patch, &PatchParams::default()).await
}

async fn changes(by: &Objects, name: &str, patch: Value, how: &PatchParams) -> Result<Said> {
    let api = by.api(HOSTED.0, HOSTED.1, Some(CLUSTERS)).await?;
    said(api.patch(name, how, &Patch::Merge(patch)).await)
}

/// Somebody creates a HostedCluster like one that is there.
async fn creates(by: &Objects, name: &str, annotations: Value) -> Result<Said> {
    let like = by.get(HOSTED, (Some(CLUSTERS), BEFORE)).await?;
    let object = json!({"apiVersion": HOSTED.0, "kind": HOSTED.1, "spec": like["spec"],
        "metadata": {"name": name, "namespace": CLUSTERS, "annotations": annotations}});
    let object: DynamicObject = serde_json::from_value(object)?;
    let api = by.api(HOSTED.0, HOSTED.1, Some(CLUSTERS)).await?;
    said(api.create(&PostParams::default(), &object).await)
}

/// Waits until the server refuses what a tenant may not write, or takes it again.
async fn is_checked(tenant: &Objects, checked: bool) -> Result<()> {
    let dry = PatchParams {
        dry_run: true,
        ..PatchParams::default()
    };
    let patch = json!({"metadata": {"annotations": {NAMED: "try"}}});
    wait::until("the checks of a hosting cluster", DEADLINE, async || {
        let said = changes(tenant, BEFORE, patch.clone(), &dry).await?;
        let expected = may_not(NAMED).filter(|_| checked);
        Ok(is_right("try", said, expected).is_ok().then_some(()))
    })
    .await
}

/// Applies the shipped file, and waits until the server enforces it.
async fn begin(stage: &Stage, tenant: &Objects) -> Result<()> {
    stage.objects().apply_manifest(ADMISSION).await?;
    is_checked(tenant, true).await
}

/// Removes it, and waits until nothing of it is enforced on what the next test does.
async fn end(stage: &Stage, tenant: &Objects) -> Result<()> {
    for kind in [
        "ValidatingAdmissionPolicyBinding",
        "ValidatingAdmissionPolicy",
    ] {
        let kind = ("admissionregistration.k8s.io/v1", kind);
        let name = "hostedclusters.hosting.transom.dev";
        stage.delete(kind, None, name).await?;
    }
    is_checked(tenant, false).await
}

#[test]
fn a_tenant_names_no_managed_cluster_that_they_may_not_patch() -> Result<()> {
    on_stage(async |stage| {
        stage.ready(BEFORE, false).await?;
        let tenant = person(stage, "hosting-tenant", &[TENANT]).await?;
        // Without the file a tenant claims any ManagedCluster.
        let said = sets(&tenant, BEFORE, NAMED, "theirs").await?;
        is_right("unchecked", said, None)?;
        begin(stage, &tenant).await?;
        // The agent of a registered cluster may update its ManagedCluster, but not patch it.
        let agent: &[Right<'_>] = &[TENANT, (MANAGED_CLUSTERS, &["update"], "mine")];
        let agent = person(stage, "hosting-agent", agent).await?;
        let patch: &[&str] = &["patch"];
        let owner: &[Right<'_>] = &[
            TENANT,
            (MANAGED_CLUSTERS, patch, "mine"),
            (MANAGED_CLUSTERS, patch, "next"),
        ];
        let owner = person(stage, "hosting-owner", owner).await?;

        let said = creates(&tenant, "tenant-one", json!({"example.com/note": "x"})).await?;
        is_right("no name", said, None)?;
        for (annotation, created) in [(NAMED, "tenant-named"), (IMPORTED, "tenant-imported")] {
            let no = may_not(annotation);
            let row = |what: &str| format!("{annotation}: {what}");
            let named = |name: &str| json!({annotation: name});
            let said = creates(&tenant, "tenant-two", named("mine")).await?;
            is_right(&row("created"), said, no)?;
            let said = creates(&owner, created, named("mine")).await?;
            is_right(&row("created by its owner"), said, None)?;

            let set =
                async |by: &Objects, value: Value| sets(by, "tenant-one", annotation, value).await;
            let (mine, next) = (json!("mine"), json!("next"));
            is_right(&row("empty"), set(&tenant, json!("")).await?, None)?;
            for (by, name) in [
                (&tenant, &mine),
                (&agent, &mine),
                (&owner, &json!("theirs")),
            ] {
                is_right(&row("set"), set(by, name.clone()).await?, no)?;
            }
            is_right(&row("set by its owner"), set(&owner, mine).await?, None)?;
            // What stays as it is, is not asked for.
            let said = sets(&tenant, "tenant-one", "example.com/note", "y").await?;
            is_right(&row("another annotation"), said, None)?;
            let spec =
                json!({"metadata": {"labels": {"x": "y"}, "finalizers": ["example.com/hold"]}});
            let said = changes(&tenant, "tenant-one", spec, &PatchParams::default()).await?;
            is_right(&row("other fields"), said, None)?;
            for value in [next.clone(), json!(""), Value::Null] {
                is_right(&row("changed"), set(&tenant, value).await?, no)?;
            }
            is_right(&row("changed by its owner"), set(&owner, next).await?, None)?;
            let said = sets(stage.objects(), "tenant-one", annotation, "theirs").await?;
            is_right(&row("by an administrator"), said, None)?;
            let said = set(&owner, json!("mine")).await?;
            is_right(&row("taken from another"), said, no)?;
            is_right(&row("removed"), set(&owner, Value::Null).await?, no)?;
        }
        // Nor while it is being deleted: the note says what goes with it.
        stage.delete(HOSTED, Some(CLUSTERS), "tenant-one").await?;
        let said = sets(&tenant, "tenant-one", IMPORTED, "mine").await?;
        is_right("being deleted", said, may_not(IMPORTED))?;
        let released = json!({"metadata": {"finalizers": null}});
        let said = changes(&tenant, "tenant-one", released, &PatchParams::default()).await?;
        is_right("released", said, None)?;
        end(stage, &tenant).await
    })
}

#[test]
fn the_agent_notes_an_import_on_a_hosting_cluster_that_checks_names() -> Result<()> {
    on_stage(async |stage| {
        stage.ready(BEFORE, false).await?;
        let tenant = person(stage, "hosting-tenant", &[TENANT]).await?;
        begin(stage, &tenant).await?;
        let folder = stage.cluster.folder().join("policies-hosting-admission");
        let import = program::unlimited_manifest("auto-import")?;
        put(&folder, "auto-import", &import)?;
        let words = policies_at(&folder)?;
        stage.grant_exactly(&words).await?;
        let mark = stage.mark()?;
        let agent = stage.start_agent(&[&words[..], &SELF_MANAGED[..]].concat())?;
        let name = "import-checked";
        stage.ready(name, false).await?;
        let is_noted = |hosted: &Value| hosted["metadata"]["annotations"][IMPORTED] == name;
        let place = (Some(CLUSTERS), name);
        let noted = stage.objects().wait_for(HOSTED, place, is_noted).await;
        noted.with_context(|| agent.tail())?;
        agent.wait_for(&primary(name), "Applied InSync")?;
        // A tenant who undoes the note would have it imported once more, under another name.
        let said = sets(&tenant, name, IMPORTED, Value::Null).await?;
        is_right("undone", said, may_not(IMPORTED))?;
        agent.stop()?;
        stage.nothing_denied(mark).await?;
        end(stage, &tenant).await
    })
}

#[test]
fn where_the_hub_is_another_server_the_agent_needs_the_right_to_the_names_as_well() -> Result<()> {
    on_stage(async |stage| {
        stage.ready(BEFORE, false).await?;
        let tenant = person(stage, "hosting-tenant", &[TENANT]).await?;
        begin(stage, &tenant).await?;
        let (hub, account) = other_hub(stage, &[CRDS[1]]).await?;
        let folder = stage.cluster.folder().join("policies-hosting-hub");
        put(&folder, "auto-import", &policy("auto-import", on_hub)?)?;
        let path = folder.to_str().context("the folder has another name")?;
        let (agent, _) = two_servers(stage, &hub, &account, path).await?;
        agent.wait_for(&primary(BEFORE), "Failed AdmissionRefused")?;
        let there = (None, "host-1-import-before");
        let made = hub.objects().get(MANAGED, there).await?;
        ensure!(made.is_object(), "{made}");
        // As the page says it. Here the right is about names only: the ManagedCluster lies on the hub.
        let (group, resource) = MANAGED_CLUSTERS;
        let rules = json!([{"apiGroups": [group], "resources": [resource], "verbs": ["patch"]}]);
        let users = [stage.agent.name()];
        let objects = stage.objects();
        objects.allow(&users, None, "names", rules).await?;
        let is_noted = |hosted: &Value| hosted["metadata"]["annotations"][IMPORTED] == there.1;
        let place = (Some(CLUSTERS), BEFORE);
        let noted = objects.wait_for(HOSTED, place, is_noted).await;
        noted.with_context(|| agent.tail())?;
        agent.stop()?;
        let binding = ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding");
        stage.delete(binding, None, "names").await?;
        end(stage, &tenant).await
    })
}
