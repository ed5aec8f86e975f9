//! The agent with exactly the permissions that `transom rbac` prints for its flags: no request is denied, and every
//! rule is used.

use crate::admin::from_afar;
use crate::admitted::Refusal;
use crate::leases::LEASES;
use crate::objects::{CLUSTERS, rotated};
use crate::policies::POLICY;
use crate::stage::{DEADLINE, HOME, HOSTED, MANAGED, PARALLEL, SECRET, Stage, on_stage};
use anyhow::{Context as _, Result, ensure};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use kube::api::{Api, PostParams};
use serde_json::{Value, json};
use std::time::Instant;
use transom_core::rights::LEASE;
use transom_e2e::agent::Agent;
use transom_e2e::{http, program};
use transom_support::fleet::Fleet;
use transom_test_cluster::{Line, Mark, wait};

const ROLES: &str = "rbac.authorization.k8s.io/v1";
/// The agent's account, after which its roles are named.
const ACCOUNT: &str = "agent";
/// Managed clusters that change repeatedly.
const MANY: usize = 8;

/// One verb of one rule.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Right {
    namespace: Option<String>,
    group: String,
    resource: String,
    name: Option<String>,
    verb: String,
}

impl Right {
    /// Whether who has this one has the other one, too.
    fn includes(&self, other: &Self) -> bool {
        let is_wider = |wide: &Option<String>, narrow| wide.is_none() || wide == narrow;
        (&self.group, &self.resource, &self.verb) == (&other.group, &other.resource, &other.verb)
            && is_wider(&self.namespace, &other.namespace)
            && is_wider(&self.name, &other.name)
    }

    /// Whether it is one of these, by resource and verb.
    pub(crate) fn is_one_of(&self, some: &[(&str, &str)]) -> bool {
        some.contains(&(self.resource.as_str(), self.verb.as_str()))
    }

    /// Whether it is one on any of these resources.
    pub(crate) fn is_of(&self, some: &[&str]) -> bool {
        some.contains(&self.resource.as_str())
    }

    /// Whether it is one to read single objects.
    pub(crate) fn reads(&self) -> bool {
        self.verb == "get"
    }

    /// Whether a request used it.
    fn served(&self, line: &Line) -> bool {
        let Some(target) = &line.target else {
            return false;
        };
        let resource = match target.subresource.as_str() {
            "" => target.resource.clone(),
            subresource => format!("{}/{subresource}", target.resource),
        };
        let within =
            |bound: &Option<String>, is: &str| bound.as_deref().is_none_or(|bound| bound == is);
        // An apply or a replacement that creates its object needs two permissions, but the log does not show a create.
        let made = ["patch", "update"].contains(&line.verb.as_str())
            && line.code == 201
            && self.verb == "create";
        !line.denied
            && (made || self.verb == line.verb)
            && (&self.group, &self.resource) == (&target.group, &resource)
            && within(&self.namespace, &target.namespace)
            && within(&self.name, &target.name)
    }
}

/// Every verb of every rule of some roles.
fn rights(roles: &Value) -> Vec<Right> {
    let texts = |value: &Value| -> Vec<String> {
        value
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|text| Some(text.as_str()?.to_owned()))
            .collect()
    };
    let mut all = Vec::new();
    for role in roles["items"].as_array().into_iter().flatten() {
        let namespace = role["metadata"]["namespace"].as_str().map(str::to_owned);
        for rule in role["rules"].as_array().into_iter().flatten() {
            for verb in texts(&rule["verbs"]) {
                let one = |field: &str| texts(&rule[field]).pop();
                all.push(Right {
                    namespace: namespace.clone(),
                    group: one("apiGroups").unwrap_or_default(),
                    resource: one("resources").unwrap_or_default(),
                    name: one("resourceNames"),
                    verb,
                });
            }
        }
    }
    all
}

impl Stage {
    /// Grants the agent exactly what is printed for these flags, and waits until the server knows.
    pub(crate) async fn grant_exactly(&self, words: &[&str]) -> Result<Vec<Right>> {
        self.revoke().await?;
        for kind in ["RoleBinding", "Role"] {
            self.delete((ROLES, kind), Some(HOME), ACCOUNT).await?;
        }
        let printed: Value = serde_json::from_str(&self.rights(ACCOUNT, words, "json")?)?;
        for object in printed["items"].as_array().context("no list")? {
            self.objects().apply(object.clone()).await?;
        }
        let rights = rights(&printed);
        let client = self.cluster.client(&self.agent).await?;
        let client = &client;
        let in_force = |right| {
            wait::until("a right in force", DEADLINE, async move || {
                Ok(may(client, right).await?.then_some(()))
            })
        };
        let reviews = stream::iter(&rights).map(in_force);
        reviews
            .buffer_unordered(PARALLEL)
            .try_collect::<()>()
            .await?;
        Ok(rights)
    }

    /// Gives the agent the permissions that `transom rbac` prints for some arguments, but for these verbs on one
    /// resource.
    pub(crate) async fn grant_but(
        &self,
        words: &[&str],
        resource: &str,
        verbs: &[&str],
    ) -> Result<()> {
        let mut printed: Value = serde_json::from_str(&self.rights(ACCOUNT, words, "json")?)?;
        let mut without = 0;
        for object in printed["items"].as_array_mut().context("no list")? {
            if let Some(rules) = object.get_mut("rules").and_then(Value::as_array_mut) {
                for rule in rules.iter_mut() {
                    let of = rule["resources"] == json!([resource]);
                    let kept = rule["verbs"].as_array_mut().context("no verbs")?;
                    let before = kept.len();
                    kept.retain(|verb| !of || verbs.iter().all(|one| verb != one));
                    without += before - kept.len();
                }
                rules.retain(|rule| rule["verbs"] != json!([]));
            }
            self.objects().apply(object.clone()).await?;
        }
        ensure!(
            without > 0 || verbs.is_empty(),
            "{verbs:?} of {resource} were not among the permissions"
        );
        Ok(())
    }

    /// Leaves the agent every second rule of what `transom rbac` prints for some arguments, from this one on, and waits
    /// until the server knows.
    pub(crate) async fn grant_half(&self, words: &[&str], first: usize) -> Result<()> {
        let mut printed: Value = serde_json::from_str(&self.rights(ACCOUNT, words, "json")?)?;
        let mut taken = rights(&printed);
        for object in printed["items"].as_array_mut().context("no list")? {
            if let Some(rules) = object.get_mut("rules").and_then(Value::as_array_mut) {
                *rules = rules.drain(..).skip(first).step_by(2).collect();
                self.objects().apply(object.clone()).await?;
            }
        }
        let left = rights(&printed);
        taken.retain(|right| !left.iter().any(|other| other.includes(right)));
        let client = self.cluster.client(&self.agent).await?;
        let one = taken.first().context("every right is left")?;
        wait::until("the end of a right", DEADLINE, async || {
            Ok((!may(&client, one).await?).then_some(()))
        })
        .await
    }

    /// Checks that the agent used each permission since a mark but these.
    pub(crate) fn all_used(
        &self,
        rights: &[Right],
        since: Mark,
        but: impl Fn(&Right) -> bool,
    ) -> Result<()> {
        let mut unused = self.unused(rights, since)?;
        unused.retain(|right| !but(right));
        ensure!(unused.is_empty(), "unused: {unused:#?}");
        Ok(())
    }

    /// The same; these are `verb resource`, with commas between them.
    pub(crate) fn all_used_but(&self, rights: &[Right], since: Mark, these: &str) -> Result<()> {
        let shown = |right: &Right| format!("{} {}", right.verb, right.resource);
        let these: Vec<&str> = these.split(", ").collect();
        for one in &these {
            let is_one = |right: &Right| shown(right) == *one;
            ensure!(rights.iter().any(is_one), "there is no right to `{one}`");
        }
        self.all_used(rights, since, |right| these.contains(&&*shown(right)))
    }

    /// The permissions that the agent has not used since a mark.
    pub(crate) fn unused(&self, rights: &[Right], since: Mark) -> Result<Vec<Right>> {
        let lines = self.asked(since)?;
        Ok(rights
            .iter()
            .filter(|right| !lines.iter().any(|line| right.served(line)))
            .cloned()
            .collect())
    }

    /// Every request of the agent since a mark, including those still open.
    fn asked(&self, since: Mark) -> Result<Vec<Line>> {
        let lines = self.cluster.audit().since(since)?;
        Ok(lines
            .into_iter()
            .filter(|line| line.user == self.agent.name())
            .collect())
    }
}

/// Whether a client has a permission.
async fn may(client: &kube::Client, right: &Right) -> Result<bool> {
    use k8s_openapi::api::authorization::v1::SelfSubjectAccessReview;
    let (resource, subresource) = right
        .resource
        .split_once('/')
        .unwrap_or((&right.resource, ""));
    let attributes = json!({"group": right.group, "resource": resource, "subresource": subresource,
        "namespace": right.namespace, "name": right.name, "verb": right.verb});
    let review: SelfSubjectAccessReview =
        serde_json::from_value(json!({"spec": {"resourceAttributes": attributes}}))?;
    let answer = Api::all(client.clone())
        .create(&PostParams::default(), &review)
        .await?;
    Ok(answer.status.is_some_and(
        |status: k8s_openapi::api::authorization::v1::SubjectAccessReviewStatus| status.allowed,
    ))
}

/// Whether a client may do something with one object of a resource.
pub(crate) async fn may_do(
    client: &kube::Client,
    verb: &str,
    (group, resource): (&str, &str),
    namespace: Option<&str>,
    name: &str,
) -> Result<bool> {
    let right = Right {
        namespace: namespace.map(str::to_owned),
        group: group.to_owned(),
        resource: resource.to_owned(),
        name: Some(name.to_owned()),
        verb: verb.to_owned(),
    };
    may(client, &right).await
}

/// The objects before the agent starts: a cluster that gets its secret, one that is deleted, one without a source, and
/// one with an unusable source; and managed clusters.
async fn given(stage: &Stage) -> Result<()> {
    for name in ["one", "gone", "sourceless", "broken"] {
        stage.ready(name, true).await?;
    }
    stage
        .delete(SECRET, Some(CLUSTERS), "sourceless-admin-kubeconfig")
        .await?;
    let none = json!({"data": {"kubeconfig": null, "other": "eA=="}});
    stage
        .patch(SECRET, Some(CLUSTERS), "broken-admin-kubeconfig", none)
        .await?;
    stage
        .cluster
        .install_fleet(Fleet {
            clusters: 0,
            managed: MANY,
            seed: 7,
        })
        .await?;
    Ok(())
}

/// Changes that make the agent write, fail and, if requested, conflict.
async fn change(stage: &Stage, round: usize, late: bool) -> Result<()> {
    let port = 7000 + u16::try_from(round)?;
    for name in ["one", "broken"] {
        stage.move_port(name, port).await?;
    }
    if round == 1 {
        stage.delete(HOSTED, Some(CLUSTERS), "gone").await?;
    }
    let source = stage
        .get(SECRET, Some(CLUSTERS), "one-admin-kubeconfig")
        .await?
        .context("no source")?;
    stage
        .patch(
            SECRET,
            Some(CLUSTERS),
            "one-admin-kubeconfig",
            rotated(&source, round)?,
        )
        .await?;
    if stage.has_policies().await? {
        // Revisions are kept, kept again, and removed beyond two; one waits for an approval that is checked.
        let namespace = format!("r{}", [0, 1, 0, 2][round % 4]);
        let revised = json!({"spec": {"rollout": {"history": 2}, "primary": {"namespaces": ["*", namespace]}}});
        stage
            .patch(POLICY, None, "built-in-taints", revised)
            .await?;
        let annotations =
            json!({"transom.dev/approved": "sha256:0", "transom.dev/approved-by": "nobody"});
        let waiting = json!({"metadata": {"annotations": annotations}, "spec": {
            "rollout": {"mode": "Preview"},
            "own": {"annotations": {"example.com/round": round.to_string()}}}});
        stage
            .patch(POLICY, None, "external-managed-kubeconfig", waiting)
            .await?;
    }
    // Others write each cluster while it flips, so that some patch of the agent comes too late.
    let flips = stream::iter(0..MANY).map(|index| async move {
        let name = format!("edge-{index:05}");
        let status = if round.is_multiple_of(2) { "True" } else { "Unknown" };
        let condition = json!({"type": "ManagedClusterConditionAvailable", "status": status, "reason": "Test",
            "message": "", "lastTransitionTime": "2026-11-21T07:00:00Z"});
        stage.put_status(MANAGED, None, &name, &json!({"conditions": [condition]})).await?;
        for beat in 0..if late { 8 } else { 0 } {
            let beat = json!({"metadata": {"annotations": {"example.com/beat": format!("{round}-{beat}")}}});
            stage.patch(MANAGED, None, &name, beat).await?;
        }
        anyhow::Ok(())
    });
    flips
        .buffer_unordered(MANY)
        .try_collect::<Vec<()>>()
        .await?;
    Ok(())
}

/// Runs the agent with these flags and exactly the permissions that are printed for them.
fn exactly(run: &[&str], rbac: &[&str]) -> Result<()> {
    on_stage(async |stage| {
        given(stage).await?;
        // Finding one does not create it.
        stage.delete(LEASES, Some(HOME), LEASE).await?;
        if rbac.contains(&"--policy-objects") {
            stage.install_policies().await?;
            // Below the number of clusters, so that what is changed is recorded.
            let limit = json!({"count": MANY - 1});
            let limits = json!({"elementsAdded": limit, "elementsRemoved": limit});
            let limited = json!({"spec": {"limits": limits}});
            stage
                .patch(POLICY, None, "built-in-taints", limited)
                .await?;
        }
        use_exactly(stage, run, rbac, |line| line.code == 403 || line.denied).await
    })
}

/// The same on existing objects; `denied` says which requests were denied.
async fn use_exactly(
    stage: &Stage,
    run: &[&str],
    rbac: &[&str],
    denied: impl Fn(&Line) -> bool,
) -> Result<()> {
    let rights = stage.grant_exactly(rbac).await?;
    ensure!(!rights.is_empty(), "no rights");
    let mark = stage.mark()?;
    let agent = stage.start_agent(run)?;
    let used = use_all(stage, &agent, &rights, mark).await;
    let log = agent.stop()?;
    let denied: Vec<_> = stage
        .lines(mark)
        .await?
        .into_iter()
        .filter(denied)
        .collect();
    ensure!(denied.is_empty(), "denied: {denied:#?}");
    used.with_context(|| log)
}

/// Makes changes until every permission was used, or until it takes too long.
async fn use_all(stage: &Stage, agent: &Agent, rights: &[Right], mark: Mark) -> Result<()> {
    if rights
        .iter()
        .any(|right| right.resource == "secrets" && right.verb == "delete")
    {
        stage.wait_for_output("gone").await?;
    }
    let (start, mut round) = (Instant::now(), 0);
    loop {
        let unused = stage.unused(rights, mark)?;
        if unused.is_empty() {
            return Ok(());
        }
        ensure!(
            start.elapsed() < DEADLINE,
            "{} rights were never used: {unused:#?}",
            unused.len()
        );
        round += 1;
        let late = unused
            .iter()
            .any(|right| right.resource == "managedclusters" && right.verb == "get");
        change(stage, round, late).await?;
        if unused.iter().any(|right| {
            right.resource == "tokenreviews" || right.resource == "subjectaccessreviews"
        }) {
            metrics(stage, agent)?;
        }
    }
}

/// Requests the metrics from an address that counts as another machine.
fn metrics(stage: &Stage, agent: &Agent) -> Result<()> {
    let address = from_afar(agent)?;
    let answer = http::get_as(address, "/metrics", &stage.token(&stage.agent)?)?;
    ensure!(answer.status == 403, "{answer:?}");
    Ok(())
}

#[test]
fn default_flags_use_every_permission_and_miss_none() -> Result<()> {
    exactly(&[], &[])
}

#[test]
fn an_installed_agent_uses_every_permission_and_misses_none() -> Result<()> {
    let all = &[
        "--policy-objects",
        "--lease-namespace",
        HOME,
        "--admin-address",
        "0.0.0.0:0",
    ];
    exactly(all, all)
}

#[test]
fn strict_reads_use_every_permission_and_miss_none() -> Result<()> {
    exactly(&["--secret-reads", "strict"], &["--secret-reads", "strict"])
}

#[test]
fn a_read_only_agent_uses_every_permission_and_misses_none() -> Result<()> {
    exactly(&["--read-only"], &["--read-only"])
}

#[test]
fn an_installed_read_only_agent_uses_every_permission_and_misses_none() -> Result<()> {
    let all = &[
        "--policy-objects",
        "--lease-namespace",
        HOME,
        "--admin-address",
        "0.0.0.0:0",
        "--read-only",
    ];
    exactly(all, all)
}

/// Refuses taints and no other change to a managed cluster.
const REFUSAL: Refusal = Refusal {
    name: "no-taints",
    rule: "{apiGroups: [cluster.open-cluster-management.io], apiVersions: ['*'], operations: [UPDATE], resources: [managedclusters]}",
    unless: "object.metadata.name != 'edge-00000' || !has(object.spec.taints) || has(oldObject.spec.taints) && object.spec.taints == oldObject.spec.taints",
    within: "{}",
};

#[test]
fn taints_alone_use_every_permission_and_miss_none() -> Result<()> {
    on_stage(async |stage| {
        let policies = [
            "--policies",
            &program::policy("built-in-taints").display().to_string(),
        ];
        given(stage).await?;
        REFUSAL.begin(stage).await?;
        // RBAC allowed it; admission refused it.
        let used = use_exactly(stage, &policies, &policies, |line| line.denied).await;
        REFUSAL.end(stage).await?;
        used
    })
}
