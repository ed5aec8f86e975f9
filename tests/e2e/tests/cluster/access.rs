//! The policy `cluster-access` on a real API server, with exactly the permissions that `transom rbac` prints: what the
//! agents of a cluster may do follows its acceptance, and the roles that clusters share stay while one of them needs
//! them.

use crate::rights::may_do;
use crate::spoke::controllers;
use crate::stage::{DEADLINE, MANAGED, NAMESPACE, Stage, on_stage, policies_at};
use crate::status::wait_for_condition;
use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use transom_e2e::agent::Agent;
use transom_e2e::program;
use transom_test_cluster::{Line, Mark, Proxy, wait};

/// What the names of all roles and bindings begin with.
pub(crate) const PREFIX: &str = "open-cluster-management:managedcluster:";
/// What the names of the clusters begin with.
pub(crate) const CLUSTERS: &str = "registered-";
pub(crate) const RBAC: &str = "rbac.authorization.k8s.io/v1";
pub(crate) const ROLE: (&str, &str) = (RBAC, "ClusterRole");
pub(crate) const BINDING: (&str, &str) = (RBAC, "RoleBinding");
const CLUSTER_BINDING: (&str, &str) = (RBAC, "ClusterRoleBinding");
const WORK: (&str, &str) = ("work.open-cluster-management.io/v1", "ManifestWork");
pub(crate) const WORKS: &str = "manifestworks.work.open-cluster-management.io";

/// Accepts a cluster, or takes that back.
pub(crate) async fn accept(stage: &Stage, name: &str, accepts: bool) -> Result<()> {
    let body = json!({"spec": {"hubAcceptsClient": accepts}});
    stage.patch(MANAGED, None, name, body).await
}

pub(crate) fn decided(accepted: bool) -> Value {
    let (status, word) = match accepted {
        true => ("True", "Accepted"),
        false => ("False", "Denied"),
    };
    json!({"type": "HubAcceptedManagedCluster", "status": status,
        "reason": format!("HubClusterAdmin{word}"), "message": format!("{word} by hub cluster admin")})
}

/// The cluster that a shared role was made for.
async fn keeper(stage: &Stage, role: &str) -> Result<Option<String>> {
    let found = stage.get(ROLE, None, role).await?;
    let source = found.and_then(|mut role| {
        let source = role["metadata"]["annotations"]["transom.dev/source"].take();
        serde_json::from_str::<Value>(source.as_str()?).ok()
    });
    Ok(source.and_then(|source| source["name"].as_str().map(str::to_owned)))
}

/// Rows of `cluster-access`: A03, A06, A07, A15, A18, A19.
#[test]
fn agents_get_rights_with_the_acceptance_and_lose_them_with_a_denial() -> Result<()> {
    on_stage(async |stage| {
        stage.cluster.install_crds(&[WORKS]).await?;
        let [one, two] = ["one", "two"].map(|name| format!("{CLUSTERS}{name}"));
        let here = Some(one.as_str());
        let file = program::policy("cluster-access");
        let words = ["--policies", &file.to_string_lossy()];
        let rights = stage.grant_exactly(&words).await?;
        for name in [&one, &two] {
            undecided(stage, name).await?;
        }
        let mark = stage.mark()?;
        let agent = stage.start_agent(&words)?;
        agent.wait_for_first_pass()?;
        ensure!(stage.get(NAMESPACE, None, &one).await?.is_none());
        for name in [&one, &two] {
            accept(stage, name, true).await?;
            wait_for_condition(stage, MANAGED, name, &decided(true)).await?;
        }
        // The agent of the first one has its rights, and none on the second.
        let group = format!("system:open-cluster-management:{one}");
        let spoke = stage.cluster.user("spoke", &[&group])?;
        let spoke = stage.cluster.client(&spoke).await?;
        let leases = ("coordination.k8s.io", "leases");
        let clusters = ("cluster.open-cluster-management.io", "managedclusters");
        for (verb, resource, namespace, name, allowed) in [
            ("update", leases, Some(&one), "managed-cluster-lease", true),
            ("update", leases, Some(&two), "managed-cluster-lease", false),
            ("update", clusters, None, one.as_str(), true),
            ("get", clusters, None, two.as_str(), false),
        ] {
            let what = format!("{verb} {} {name}: {allowed}", resource.1);
            wait::until(&what, DEADLINE, async || {
                let may = may_do(&spoke, verb, resource, namespace.map(|it| &**it), name).await?;
                Ok((may == allowed).then_some(()))
            })
            .await?;
        }
        // What somebody removes comes back.
        let [registration, work] =
            ["registration", "work"].map(|what| format!("{PREFIX}{one}:{what}"));
        stage.delete(BINDING, Some(&one), &registration).await?;
        stage
            .objects()
            .wait_for(BINDING, (here, &registration), Value::is_object)
            .await?;
        // The one for which the shared roles were made is denied while it has a work: its work agent may clean up.
        let shared = format!("{PREFIX}work");
        let first = keeper(stage, &shared).await?.context("no shared role")?;
        ensure!(first == one, "{first}");
        let manifest = json!({"apiVersion": WORK.0, "kind": WORK.1, "metadata": {"name": "w", "namespace": one}, "spec": {}});
        stage.objects().create(manifest).await?;
        accept(stage, &one, false).await?;
        wait_for_condition(stage, MANAGED, &one, &decided(false)).await?;
        agent.wait_for(
            &format!("ManagedCluster {one}"),
            "Waiting ManifestWorksRemain",
        )?;
        stage
            .objects()
            .wait_for(BINDING, (here, &registration), Value::is_null)
            .await?;
        ensure!(stage.get(BINDING, Some(&one), &work).await?.is_some());
        stage.delete(WORK, Some(&one), "w").await?;
        stage
            .objects()
            .wait_for(BINDING, (here, &work), Value::is_null)
            .await?;
        // The shared roles go over to the other one, and the role of the denied one has one rule.
        wait::until(
            "the shared role for the second cluster",
            DEADLINE,
            async || Ok((keeper(stage, &shared).await?.as_ref() == Some(&two)).then_some(())),
        )
        .await?;
        let own = stage.get(ROLE, None, &format!("{PREFIX}{one}")).await?;
        let rules = own.context("no role")?["rules"].take();
        ensure!(
            rules.as_array().is_some_and(|rules| rules.len() == 1),
            "{rules}"
        );
        let bound = format!("{PREFIX}{one}");
        ensure!(stage.get(CLUSTER_BINDING, None, &bound).await?.is_some());
        // Both go. The namespaces stay.
        for name in [&one, &two] {
            stage.delete(MANAGED, None, name).await?;
        }
        for role in [&one, &two, "registration", "work"] {
            stage
                .objects()
                .wait_for(ROLE, (None, &format!("{PREFIX}{role}")), Value::is_null)
                .await?;
        }
        let namespace = stage.get(NAMESPACE, None, &one).await?;
        let labels = namespace.context("no namespace")?["metadata"]["labels"].take();
        ensure!(labels["transom.dev/policy"].is_null(), "{labels}");
        agent.stop()?;
        stage.nothing_denied(mark).await?;
        // The agent holds what it hands on, and uses none of it; only a write that comes too late is read again.
        let handed_on = [
            "certificatesigningrequests",
            "leases",
            "managedclusteraddons",
            "managedclusteraddons/status",
            "managedclusters",
            "managedclusters/clientcertificates",
            "managedclusters/status",
            "manifestworks",
            "manifestworks/status",
            "events",
        ];
        stage.all_used(&rights, mark, |right| {
            right.is_of(&handed_on) || right.reads()
        })?;
        stage.remove_crd(WORKS).await
    })
}

/// A cluster that nobody has decided about.
pub(crate) async fn undecided(stage: &Stage, name: &str) -> Result<()> {
    stage.managed(name).await?;
    let none = json!({"conditions": []});
    stage.put_status(MANAGED, None, name, &none).await?;
    accept(stage, name, false).await
}

/// The labels of every object of an accepted cluster, by kind and name.
async fn labels(stage: &Stage, cluster: &str) -> Result<Vec<(String, Value)>> {
    let [own, registration, work] =
        ["", ":registration", ":work"].map(|what| format!("{PREFIX}{cluster}{what}"));
    let shared = ["registration", "work"].map(|what| format!("{PREFIX}{what}"));
    let mut all = Vec::new();
    for (kind, namespace, name) in [
        (NAMESPACE, None, cluster),
        (ROLE, None, &own),
        (CLUSTER_BINDING, None, &own),
        (BINDING, Some(cluster), &registration),
        (BINDING, Some(cluster), &work),
        (ROLE, None, &shared[0]),
        (ROLE, None, &shared[1]),
    ] {
        let mut object = stage.get(kind, namespace, name).await?.unwrap_or_default();
        all.push((
            format!("{} {name}", kind.1),
            object["metadata"]["labels"].take(),
        ));
    }
    Ok(all)
}

/// Row of `cluster-access`: A13.
#[test]
fn a13_every_object_of_a_cluster_has_the_labels_of_the_policy_and_the_name_of_the_cluster()
-> Result<()> {
    on_stage(async |stage| {
        stage.cluster.install_crds(&[WORKS]).await?;
        let [one, two] = ["one", "two"].map(|name| format!("{CLUSTERS}{name}"));
        let folder = stage.cluster.folder().join("policies-labelled");
        let put = |team: &str| -> Result<()> {
            let mut policy = program::manifest("cluster-access")?;
            policy["spec"]["own"]["labels"] = json!({"team": team});
            policy["spec"]["guests"]["decide"]["settings"]["namespaceLabels"] =
                json!({"team": team});
            let field = r#"metadata.labels["team"]"#;
            let rules = policy["spec"]["grant"]["write"].as_array_mut();
            for rule in rules.into_iter().flatten() {
                if rule["kind"] == "Namespace" {
                    rule["fields"]
                        .as_array_mut()
                        .context("no fields")?
                        .push(json!(field));
                }
            }
            crate::importing::put(&folder, "cluster-access", &policy)
        };
        put("blue")?;
        let words = policies_at(&folder)?;
        stage.grant_exactly(&words).await?;
        // The namespace of the second one is there already, with a label of others.
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": two, "labels": {"theirs": "kept"}}});
        stage.objects().apply(namespace).await?;
        let mark = stage.mark()?;
        let agent = stage.start_agent(&words)?;
        for name in [&one, &two] {
            undecided(stage, name).await?;
            accept(stage, name, true).await?;
            wait_for_condition(stage, MANAGED, name, &decided(true)).await?;
        }
        // They follow the policy.
        for team in ["blue", "green"] {
            put(team)?;
            for name in [&one, &two] {
                let mut last = Vec::new();
                let came = wait::until("the labels of a policy", DEADLINE, async || {
                    last = labels(stage, name).await?;
                    let shared =
                        |what: &str| what.ends_with(":registration") || what.ends_with(":work");
                    let right = |(what, labels): &(String, Value)| {
                        let own = &labels["open-cluster-management.io/cluster-name"];
                        labels["team"] == team && (own == name || shared(what))
                    };
                    Ok(last.iter().all(right).then_some(()))
                });
                came.await.with_context(|| format!("{team}: {last:#?}"))?;
            }
        }
        // What somebody takes off comes back, on a namespace of either kind.
        for name in [&one, &two] {
            let off = json!({"metadata": {"labels": {"team": null}}});
            stage.patch(NAMESPACE, None, name, off).await?;
            let on = |there: &Value| there["metadata"]["labels"]["team"] == "green";
            stage
                .objects()
                .wait_for(NAMESPACE, (None, name), on)
                .await?;
        }
        let theirs = stage.get(NAMESPACE, None, &two).await?.context("gone")?;
        ensure!(theirs["metadata"]["labels"]["theirs"] == "kept", "{theirs}");
        agent.stop()?;
        stage.nothing_denied(mark).await?;
        stage.remove_crd(WORKS).await
    })
}

/// Row of `cluster-access`: A16. The controller of Kubernetes ends the namespace, and waits for what holds it.
#[test]
fn a16_a_namespace_that_somebody_deletes_comes_back_with_its_bindings_once_the_works_are_gone()
-> Result<()> {
    on_stage(async |stage| {
        stage.cluster.install_crds(&[WORKS]).await?;
        let [one, two] = ["one", "two"].map(|name| format!("{CLUSTERS}{name}"));
        let (here, primary) = (Some(one.as_str()), format!("ManagedCluster {one}"));
        let words = ["--policies", &stage.unlimited("cluster-access")?];
        stage.grant_exactly(&words).await?;
        let mark = stage.mark()?;
        let kubernetes = controllers(&stage.cluster, "namespace", "1h")?;
        let agent = stage.start_agent(&words)?;
        undecided(stage, &one).await?;
        accept(stage, &one, true).await?;
        wait_for_condition(stage, MANAGED, &one, &decided(true)).await?;
        let objects = stage.objects();
        let held = json!({"apiVersion": WORK.0, "kind": WORK.1, "spec": {},
            "metadata": {"name": "w", "namespace": one, "finalizers": ["example.com/hold"]}});
        objects.create(held).await?;
        let [registration, work] =
            ["registration", "work"].map(|what| format!("{PREFIX}{one}:{what}"));
        let before = objects.get(NAMESPACE, (None, &one)).await?["metadata"]["uid"].take();
        stage.delete(NAMESPACE, None, &one).await?;
        // While its works are there, the work agent may clean up.
        let leaves = |object: &Value| object["metadata"]["deletionTimestamp"].is_string();
        let place = (here, registration.as_str());
        objects.wait_for(BINDING, place, Value::is_null).await?;
        objects.wait_for(BINDING, (here, &work), leaves).await?;
        objects.wait_for(WORK, (here, "w"), leaves).await?;
        // Another cluster is accepted meanwhile.
        undecided(stage, &two).await?;
        accept(stage, &two, true).await?;
        wait_for_condition(stage, MANAGED, &two, &decided(true)).await?;
        ensure!(leaves(&objects.get(BINDING, (here, &work)).await?));
        let released = json!({"metadata": {"finalizers": null}});
        stage.patch(WORK, here, "w", released).await?;
        let again = objects.wait_for(NAMESPACE, (None, &one), |namespace| {
            namespace.is_object() && namespace["metadata"]["uid"] != before
        });
        let again = again.await.with_context(|| agent.tail())?;
        ensure!(
            again["metadata"]["labels"]["open-cluster-management.io/cluster-name"] == *one,
            "{again}"
        );
        let is_there = |object: &Value| object.is_object() && !leaves(object);
        for binding in [&registration, &work] {
            let made = objects.wait_for(BINDING, (here, binding), is_there);
            made.await.with_context(|| agent.tail())?;
        }
        agent.wait_for(&primary, "Applied InSync")?;
        wait_for_condition(stage, MANAGED, &one, &decided(true)).await?;
        agent.stop()?;
        drop(kubernetes);
        stage.nothing_denied(mark).await?;
        stage.remove_crd(WORKS).await
    })
}

/// Row of `cluster-access`: A15b. Nobody can change the role in a binding.
#[test]
fn a15b_a_binding_that_somebody_made_anew_with_another_role_is_made_anew_once_more() -> Result<()> {
    on_stage(async |stage| {
        stage.cluster.install_crds(&[WORKS]).await?;
        let one = format!("{CLUSTERS}one");
        let (file, objects) = (program::policy("cluster-access"), stage.objects());
        let words = ["--policies", &file.to_string_lossy()];
        stage.grant_exactly(&words).await?;
        let mark = stage.mark()?;
        let agent = stage.start_agent(&words)?;
        undecided(stage, &one).await?;
        accept(stage, &one, true).await?;
        wait_for_condition(stage, MANAGED, &one, &decided(true)).await?;
        // A running agent might be quicker to make the one that is gone.
        agent.stop()?;
        let [own, work] = ["", ":work"].map(|what| format!("{PREFIX}{one}{what}"));
        let bindings = [
            (BINDING, (Some(one.as_str()), work.as_str())),
            (CLUSTER_BINDING, (None, own.as_str())),
        ];
        let mut before = Vec::new();
        for (kind, place) in bindings {
            let right = objects.get(kind, place).await?;
            // It has all that the agent's own has, also the stamp.
            let mut wrong = right.clone();
            wrong["roleRef"]["name"] = json!("cluster-admin");
            let metadata = wrong["metadata"].as_object_mut().context("no metadata")?;
            for of_server in [
                "uid",
                "resourceVersion",
                "creationTimestamp",
                "managedFields",
            ] {
                metadata.remove(of_server);
            }
            let released = json!({"metadata": {"finalizers": null}});
            stage.patch(kind, place.0, place.1, released).await?;
            stage.delete(kind, place.0, place.1).await?;
            objects.create(wrong).await?;
            before.push(right);
        }
        let agent = stage.start_agent(&words)?;
        for ((kind, place), right) in bindings.into_iter().zip(before) {
            let is_right = |there: &Value| there["roleRef"] == right["roleRef"];
            let made = objects.wait_for(kind, place, is_right);
            let made = made.await.with_context(|| agent.tail())?;
            for part in ["labels", "finalizers"] {
                let (there, right) = (&made["metadata"][part], &right["metadata"][part]);
                ensure!(there == right, "{part}: {there}");
            }
        }
        agent.wait_for(&format!("ManagedCluster {one}"), "Applied InSync")?;
        agent.stop()?;
        stage.nothing_denied(mark).await?;
        stage.remove_crd(WORKS).await
    })
}

/// The HTTP status of each request that changed a resource, in order; of the subresource if one is named.
pub(crate) async fn answers(
    stage: &Stage,
    mark: Mark,
    resource: &str,
    part: &str,
) -> Result<Vec<u16>> {
    let ours = |line: &Line| {
        let target = line.target.as_ref();
        let of = target.is_some_and(|it| it.resource == resource && it.subresource == part);
        of && line.is_write()
    };
    let lines = stage.lines(mark).await?;
    Ok(lines
        .iter()
        .filter(|line| ours(line))
        .map(|line| line.code)
        .collect())
}

/// Row of `cluster-access`: A14.
#[test]
fn a14_a_binding_that_cannot_be_written_is_told_once_and_the_cluster_accepted_when_it_can()
-> Result<()> {
    on_stage(async |stage| {
        let one = format!("{CLUSTERS}one");
        let file = program::policy("cluster-access");
        let words = ["--policies", &file.to_string_lossy()];
        stage.cluster.install_crds(&[WORKS]).await?;
        stage.revoke().await?;
        stage.grant_but(&words, "rolebindings", &["create"]).await?;
        undecided(stage, &one).await?;
        accept(stage, &one, true).await?;
        let mark = stage.mark()?;
        let agent = stage.start_agent(&words)?;
        let binding = format!("{PREFIX}{one}:registration");
        let message = format!("RoleBinding {one}/{binding} could not be written: WriteForbidden");
        let failed = json!({"type": "HubAcceptedManagedCluster", "status": "False",
            "reason": "Error", "message": message});
        wait_for_condition(stage, MANAGED, &one, &failed).await?;
        // It is tried again and again, and said once.
        wait::until("four attempts", DEADLINE, async || {
            let tried = answers(stage, mark, "rolebindings", "").await?;
            Ok((tried.len() >= 4).then_some(()))
        })
        .await?;
        ensure!(answers(stage, mark, "managedclusters", "status").await? == [200]);
        // With the permission both bindings are made, and the decision is told in the same reconcile.
        stage.grant_but(&words, "rolebindings", &[]).await?;
        wait_for_condition(stage, MANAGED, &one, &decided(true)).await?;
        for what in ["registration", "work"] {
            let binding = format!("{PREFIX}{one}:{what}");
            ensure!(
                stage.get(BINDING, Some(&one), &binding).await?.is_some(),
                "{what}"
            );
        }
        agent.wait_for(&format!("ManagedCluster {one}"), "Applied InSync")?;
        agent.stop()?;
        ensure!(answers(stage, mark, "managedclusters", "status").await? == [200, 200]);
        stage.remove_crd(WORKS).await
    })
}

/// Row of `cluster-access`: A14.
#[test]
fn a14_a_binding_of_somebody_else_is_told_like_one_that_cannot_be_written() -> Result<()> {
    on_stage(async |stage| {
        let one = format!("{CLUSTERS}one");
        let (file, bound) = (program::policy("cluster-access"), format!("{PREFIX}{one}"));
        let words = ["--policies", &file.to_string_lossy()];
        stage.cluster.install_crds(&[WORKS]).await?;
        stage.grant_exactly(&words).await?;
        undecided(stage, &one).await?;
        let role =
            json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"});
        let theirs = json!({"apiVersion": RBAC, "kind": CLUSTER_BINDING.1, "metadata": {"name": bound}, "roleRef": role});
        stage.objects().create(theirs).await?;
        let agent = stage.start_agent(&words)?;
        let message = format!("ClusterRoleBinding {bound} could not be written: TargetNotOwned");
        let told = json!({"type": "HubAcceptedManagedCluster", "status": "False",
            "reason": "Error", "message": message});
        accept(stage, &one, true).await?;
        wait_for_condition(stage, MANAGED, &one, &told).await?;
        // What stands before it is there, and nothing after it.
        ensure!(stage.get(ROLE, None, &bound).await?.is_some());
        let registration = format!("{bound}:registration");
        let after = stage.get(BINDING, Some(&one), &registration).await?;
        ensure!(after.is_none(), "{after:?}");
        // A denied cluster does not say that it is accepted either; its role is reduced.
        accept(stage, &one, false).await?;
        let is_reduced = |role: &Value| role["rules"].as_array().is_some_and(|it| it.len() == 1);
        let place = (None, bound.as_str());
        stage.objects().wait_for(ROLE, place, is_reduced).await?;
        wait_for_condition(stage, MANAGED, &one, &told).await?;
        stage.delete(CLUSTER_BINDING, None, &bound).await?;
        accept(stage, &one, true).await?;
        wait_for_condition(stage, MANAGED, &one, &decided(true)).await?;
        agent.wait_for(&format!("ManagedCluster {one}"), "Applied InSync")?;
        agent.stop()?;
        stage.remove_crd(WORKS).await
    })
}

/// The cluster is accepted, and another client writes it while the agent's request to this place is held back.
async fn overtakes(stage: &Stage, agent: &Agent, proxy: &Proxy, place: &'static str) -> Result<()> {
    proxy.hold(Some(place));
    let name = format!("{CLUSTERS}one");
    accept(stage, &name, true).await?;
    let held = wait::until("the agent's request", DEADLINE, async || {
        Ok((proxy.met() > 0).then_some(()))
    });
    held.await
        .with_context(|| format!("it said {}", agent.tail()))?;
    let theirs = json!({"conditions": [{"type": "Theirs", "status": "True", "reason": "Set",
        "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]});
    stage.put_status(MANAGED, None, &name, &theirs).await?;
    proxy.hold(None);
    Ok(())
}

/// Whether the first accept ends well when another client is quicker with this request; `part` is its subresource.
fn first_accept_survives(place: &'static str, part: &str) -> Result<()> {
    on_stage(async |stage| {
        stage.cluster.install_crds(&[WORKS]).await?;
        let one = format!("{CLUSTERS}one");
        let file = program::policy("cluster-access");
        let words = ["--policies", &file.to_string_lossy()];
        stage.grant_exactly(&words).await?;
        undecided(stage, &one).await?;
        let proxy = Proxy::start(&stage.cluster).await?;
        let agent = stage.start_agent_at(&proxy.server(), &words)?;
        agent.wait_for_first_pass()?;
        let mark = stage.mark()?;
        overtakes(stage, &agent, &proxy, place).await?;
        let (_, types) = wait_for_condition(stage, MANAGED, &one, &decided(true)).await?;
        ensure!(
            types.contains(&"Theirs".to_owned()),
            "their condition is lost: {types:?}"
        );
        agent.wait_for(&format!("ManagedCluster {one}"), "Applied InSync")?;
        let cluster = stage.get(MANAGED, None, &one).await?.context("gone")?;
        let kept = json!(["cluster.open-cluster-management.io/api-resource-cleanup"]);
        ensure!(
            cluster["metadata"]["finalizers"] == kept,
            "{}",
            cluster["metadata"]
        );
        agent.stop()?;
        // One conflict, and one write of each part: nothing was told in between.
        let of = |what: &str| match what == part {
            true => vec![409, 200],
            false => vec![200],
        };
        for what in ["", "status"] {
            let codes = answers(stage, mark, "managedclusters", what).await?;
            ensure!(codes == of(what), "{what}: {codes:?}");
        }
        stage.remove_crd(WORKS).await
    })
}

/// Row of `cluster-access`: A17.
#[test]
fn a17_a_conflict_over_the_status_in_the_first_accept_is_tried_again_and_loses_no_condition()
-> Result<()> {
    first_accept_survives("/managedclusters/registered-one/status", "status")
}

#[test]
fn a17_a_conflict_over_the_finalizer_in_the_first_accept_is_tried_again_and_loses_no_condition()
-> Result<()> {
    first_accept_survives("/managedclusters/registered-one?", "")
}
