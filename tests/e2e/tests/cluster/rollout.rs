//! Candidates, approvals and revisions of a policy on a real API server, with users who may approve and who may not.

use crate::components::{PARTS, SOURCES};
use crate::limits::TAINTS;
use crate::objects::{CLUSTERS, OUTPUT, home};
use crate::policies::POLICY;
use crate::stage::{DEADLINE, HOME, HOSTED, PARALLEL, SECRET, Stage, on_stage};
use anyhow::{Context as _, Result, ensure};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use serde_json::{Value, json};
use std::process::{Command, Output};
use std::time::Instant;
use transom_conformance::fixture::trapping;
use transom_core::metrics;
use transom_e2e::agent::Agent;
use transom_e2e::{http, program};
use transom_test_cluster::{User, wait};

const NAME: &str = "external-managed-kubeconfig";
pub(crate) const APPROVAL: &str = include_str!("../../../../host/deploy/base/approval.yaml");
/// The page that says who may approve and go back.
const CHANGE: &str = include_str!("../../../../host/docs/change.md");
/// What the tests add to the objects of the policy.
pub(crate) const TEAM: &str = "example.com/team";
pub(crate) const REVISION: (&str, &str) = ("apps/v1", "ControllerRevision");

impl Stage {
    /// Starts an agent with the bundled policies on a server that asks for approval, with a cluster that is right.
    pub(crate) async fn start_with_approval(&self) -> Result<Agent> {
        self.ready("one", true).await?;
        self.install_policies().await?;
        self.objects().apply_manifest(APPROVAL).await?;
        let agent = self.start_agent(&["--policy-objects", "--lease-namespace", HOME])?;
        self.wait_for_right("one", 6443).await?;
        Ok(agent)
    }

    /// A user who may change policies and go back, or, if told so, approve; with no right that the page does not name.
    pub(crate) async fn person(&self, name: &str, approves: bool) -> Result<User> {
        let user = self.cluster.user(name, &[])?;
        let rules = match approves {
            true => documented("ClusterRole", "transom-approver")?,
            false => {
                json!([{"apiGroups": ["transom.dev"], "resources": ["fleetpolicies"], "verbs": ["get", "update", "patch"]}])
            }
        };
        let (who, role) = ([user.name()], format!("person-{name}"));
        self.objects().allow(&who, None, &role, rules).await?;
        let lists = documented("Role", "transom-history")?;
        self.objects().allow(&who, Some(HOME), &role, lists).await?;
        Ok(user)
    }

    /// Runs `transom` as a user.
    pub(crate) fn transom_as(&self, user: &User, words: &[&str]) -> Result<Output> {
        let mut command = Command::new(program::binary()?);
        command.args(words).arg("--kubeconfig");
        command.arg(self.cluster.write_kubeconfig(user)?);
        Ok(command.output()?)
    }

    /// Patches the policy with kubectl as a user.
    pub(crate) fn patch_as(&self, user: &User, patch: &Value) -> Result<Output> {
        let mut command = self.cluster.kubectl(user)?;
        let patch = patch.to_string();
        command.args(["patch", "fleetpolicy", NAME, "--type=merge", "-p", &patch]);
        Ok(command.output()?)
    }

    /// Checks that the API server refuses whoever may not approve, or would in another name.
    fn refuses(&self, editor: &User, owner: &User, digest: &str) -> Result<()> {
        // Who may only change policies may not approve, in no name, and not switch approval off.
        let output = self.transom_as(editor, &["approve", NAME, digest])?;
        ensure!(
            !output.status.success() && said(&output).contains("fleetpolicies/approval"),
            "{}",
            said(&output)
        );
        let approve = |by: &str| approval(digest, by);
        for (user, patch, why) in [
            (editor, approve(owner.name()), "fleetpolicies/approval"),
            (owner, approve(editor.name()), "approved-by"),
            (
                owner,
                json!({"metadata": {"annotations": {"transom.dev/approved": digest}}}),
                "approved-by",
            ),
            (
                owner,
                json!({"metadata": {"annotations": {"transom.dev/approved": digest, "transom.dev/approved-by": owner.name(), "transom.dev/approved-groups": "system:masters"}}}),
                "approved-groups",
            ),
            (
                editor,
                json!({"spec": {"rollout": {"mode": "Automatic"}}}),
                "without approval",
            ),
            (
                editor,
                json!({"spec": {"rollout": null}}),
                "without approval",
            ),
            (
                editor,
                json!({"spec": {"rollout": {"rollback": {"percent": 100}}}}),
                "taken back",
            ),
        ] {
            let output = self.patch_as(user, &patch)?;
            ensure!(
                !output.status.success() && said(&output).contains(why),
                "{patch}: {}",
                said(&output)
            );
        }
        Ok(())
    }

    /// Waits until the candidate stands where it waits for approval; returns the digest to approve.
    pub(crate) async fn approvable(&self, but: &str) -> Result<String> {
        let status = self
            .wait_for_status("a candidate to approve", |status| {
                let digest = status["candidate"]["approve"].as_str();
                status["candidate"]["gate"] == "Approval" && digest.is_some_and(|one| one != but)
            })
            .await?;
        let digest = status["candidate"]["approve"].as_str();
        Ok(digest.context("no digest")?.to_owned())
    }

    /// Waits until so many ManagedClusters have a taint.
    pub(crate) async fn wait_for_tainted(&self, count: usize) -> Result<()> {
        let tainted = async || Ok((self.tainted().await? == count).then_some(()));
        wait::until(&format!("{count} tainted clusters"), DEADLINE, tainted).await
    }

    /// Waits until the Secret of a HostedCluster has this team, or none.
    pub(crate) async fn wait_for_team(&self, name: &str, team: Option<&str>) -> Result<()> {
        wait::until("the team of a Secret", DEADLINE, async || {
            let secret = self.get(SECRET, Some(&home(name)), OUTPUT).await?;
            let Some(secret) = secret else {
                return Ok(None);
            };
            let found = secret["metadata"]["annotations"][TEAM]
                .as_str()
                .map(str::to_owned);
            Ok((found.as_deref() == team).then_some(()))
        })
        .await
    }
}

/// The rules of a role that the page shows.
fn documented(kind: &str, name: &str) -> Result<Value> {
    let shown = (CHANGE.split("```yaml\n").skip(1)).filter_map(|block| block.split("```").next());
    let documents = shown.flat_map(|block| block.split("---\n"));
    let mut parsed = documents.filter_map(|text| serde_yaml::from_str::<Value>(text).ok());
    let role = parsed.find(|one| one["kind"] == kind && one["metadata"]["name"] == name);
    let mut role = role.with_context(|| format!("the page has no {kind} {name}"))?;
    Ok(role["rules"].take())
}

/// The annotations of an approval.
fn approval(digest: &str, by: &str) -> Value {
    json!({"metadata": {"annotations": {"transom.dev/approved": digest, "transom.dev/approved-by": by}}})
}

pub(crate) fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn only_who_may_approve_lets_a_candidate_in_preview_become_active() -> Result<()> {
    on_stage(async |stage| {
        let agent = stage.start_with_approval().await?;
        let editor = stage.person("editor", false).await?;
        let owner = stage.person("owner", true).await?;
        let change =
            json!({"spec": {"rollout": {"mode": "Preview"}, "own": {"annotations": {TEAM: "a"}}}});
        stage.patch(POLICY, None, NAME, change).await?;
        let digest = stage.approvable("").await?;
        stage.wait_for_team("one", None).await?;

        stage.refuses(&editor, &owner, &digest)?;
        // Another digest than the one of the plan.
        let output = stage.transom_as(&owner, &["approve", NAME, "sha256:0"])?;
        ensure!(
            !output.status.success() && said(&output).contains(&digest),
            "{}",
            said(&output)
        );
        // Without the policy of the API server the agent itself asks who approved.
        let admission = "admissionregistration.k8s.io/v1";
        for kind in [
            "ValidatingAdmissionPolicyBinding",
            "ValidatingAdmissionPolicy",
        ] {
            stage
                .delete(
                    (admission, kind),
                    None,
                    "approval.fleetpolicies.transom.dev",
                )
                .await?;
        }
        let forged = async || {
            let output = stage.patch_as(&editor, &approval(&digest, editor.name()))?;
            Ok(output.status.success().then_some(()))
        };
        wait::until("an approval that nobody checked", DEADLINE, forged).await?;
        stage
            .wait_for_status("a refused approval", |status| {
                status["candidate"]["reason"] == "ApprovalForbidden"
            })
            .await?;
        stage.wait_for_team("one", None).await?;

        let output = stage.transom_as(&owner, &["approve", NAME, &digest])?;
        ensure!(output.status.success(), "{}", said(&output));
        stage.wait_for_team("one", Some("a")).await?;
        stage
            .wait_for_status("no candidate", |status| status["candidate"].is_null())
            .await?;

        // Back to the revision before; it is approved, too.
        let kept = async || Ok((stage.list(REVISION).await?.len() >= 2).then_some(()));
        wait::until("two revisions", DEADLINE, kept).await?;
        let output = stage.transom_as(&owner, &["history", NAME])?;
        let told = program::stdout(&output);
        ensure!(
            told.contains(" active ") && told.contains(" earlier "),
            "{told} {}",
            said(&output)
        );
        let output = stage.transom_as(&owner, &["rollback", NAME])?;
        ensure!(output.status.success(), "{}", said(&output));
        let back = stage.approvable(&digest).await?;
        let output = stage.transom_as(&owner, &["approve", NAME, &back])?;
        ensure!(output.status.success(), "{}", said(&output));
        stage.wait_for_team("one", None).await?;
        agent.stop()?;
        Ok(())
    })
}

/// Clusters beside the one that is added later: one in a hundred.
const FLEET: usize = 99;
/// The longest name for which the guest does not trap.
const LONGEST: usize = 40;

#[test]
fn a_revision_that_traps_for_one_in_a_hundred_is_taken_back_without_a_wrong_write() -> Result<()> {
    on_stage(async |stage| {
        stage.install_policies().await?;
        stage.hold_components().await?;
        stage.lift_limits(TAINTS).await?;
        let made = stream::iter(0..FLEET).map(|index| async move {
            let name = format!("m{index:02}");
            stage.managed(&name).await?;
            stage.set_available(&name, "Unknown").await
        });
        let made = made.buffer_unordered(PARALLEL);
        made.try_collect::<Vec<()>>().await?;
        let flags = ["--policy-objects", "--lease-namespace", HOME];
        let agent = stage.start_agent(&[&flags[..], &["--sources", SOURCES]].concat())?;
        stage.wait_for_tainted(FLEET).await?;
        let first = stage.status_of_taints().await?["revision"]["decide"].take();
        stage.put_component("traps", &trapping(LONGEST)?).await?;
        let decide = json!({"component": format!("configmap:{PARTS}/traps/k")});
        let change = json!({"spec": {"guests": {"decide": decide}}});
        stage.patch(POLICY, None, TAINTS, change).await?;
        // It wants no taints, and fails for nobody: it becomes active.
        stage.wait_for_tainted(0).await?;
        let mark = stage.mark()?;
        let start = Instant::now();
        let long = "x".repeat(LONGEST + 1);
        stage.managed(&long).await?;
        stage.set_available(&long, "Unknown").await?;
        let back = async || {
            let status = stage.status_of_taints().await?;
            let is_back = status["candidate"]["reason"] == "RolledBack";
            Ok((is_back && status["revision"]["decide"] == first).then_some(()))
        };
        wait::until("the revision before", DEADLINE, back).await?;
        let active = start.elapsed();
        stage.wait_for_tainted(FLEET + 1).await?;
        println!(
            "a revision that traps for one of {} primaries: taken back after {:.1} s, all right after {:.1} s",
            FLEET + 1,
            active.as_secs_f64(),
            start.elapsed().as_secs_f64(),
        );
        // Only the revision before wrote, each cluster once.
        let mut lines = stage.lines(mark).await?;
        lines.retain(|line| line.is_write() && line.code < 300);
        let patched = lines.iter().filter_map(|line| line.target.as_ref());
        let mut patched: Vec<&str> = patched
            .filter(|target| target.resource == "managedclusters")
            .map(|target| target.name.as_str())
            .collect();
        patched.sort_unstable();
        let count = patched.len();
        patched.dedup();
        ensure!(
            (count, patched.len()) == (FLEET + 1, FLEET + 1),
            "{count} writes of {} clusters",
            patched.len()
        );
        agent.stop()?;
        Ok(())
    })
}

#[test]
fn a_candidate_that_creates_objects_becomes_active() -> Result<()> {
    on_stage(async |stage| {
        stage.ready("one", true).await?;
        stage.install_policies().await?;
        let agent = stage.start_agent(&["--policy-objects", "--lease-namespace", HOME])?;
        stage.wait_for_right("one", 6443).await?;
        let mark = stage.mark()?;
        let namespaces = |names: Value| json!({"spec": {"primary": {"namespaces": names}}});
        for (names, generation) in [(json!(["elsewhere"]), 2), (json!(["*"]), 3)] {
            if generation == 3 {
                stage.ready("two", true).await?;
            }
            stage.patch(POLICY, None, NAME, namespaces(names)).await?;
            let active = |status: &Value| status["revision"]["generation"] == generation;
            stage
                .wait_for_status("another active revision", active)
                .await?;
        }
        stage.wait_for_right("two", 6443).await?;
        agent.stop()?;
        // What the policy is not about any more is not read without a watch.
        stage.nothing_denied(mark).await
    })
}

#[test]
fn what_a_policy_made_anew_would_remove_waits_for_the_approval() -> Result<()> {
    // However Secrets are read.
    for reads in ["watch", "strict"] {
        on_stage(async |stage| stage.removes_what_an_earlier_policy_made(reads).await)?;
    }
    Ok(())
}

impl Stage {
    /// Makes a policy anew in the mode `Preview`, after one of two primaries went.
    async fn removes_what_an_earlier_policy_made(&self, reads: &str) -> Result<()> {
        for name in ["one", "two"] {
            self.ready(name, true).await?;
        }
        self.install_policies().await?;
        let words = [
            "--policy-objects",
            "--lease-namespace",
            HOME,
            "--secret-reads",
            reads,
        ];
        let start = || self.start_agent(&words);
        let agent = start()?;
        for name in ["one", "two"] {
            self.wait_for_right(name, 6443).await?;
        }
        agent.stop()?;
        self.delete(POLICY, None, NAME).await?;
        self.delete(HOSTED, Some(CLUSTERS), "two").await?;
        let mut policy = program::manifest(NAME)?;
        policy["spec"]["rollout"] = json!({"mode": "Preview"});
        policy["spec"]["own"] = json!({"adopt": "SoleOwner"});
        self.objects().apply_manifest(&policy.to_string()).await?;
        let agent = start()?;
        let digest = self.approvable("").await?;
        let planned = |status: &Value| status["candidate"]["approve"] == digest.as_str();
        let status = self.wait_for_status("its plan", planned).await?;
        let (candidate, removes) = (&status["candidate"], "Secret deleted");
        ensure!(
            candidate["effects"] == json!([{"effect": removes, "count": 1}])
                && candidate["primaries"] == 2,
            "{status}"
        );
        self.wait_for_output("two").await?;
        let owner = self.person("owner", true).await?;
        let output = self.transom_as(&owner, &["approve", NAME, &digest])?;
        ensure!(output.status.success(), "{}", said(&output));
        self.wait_for_no_output("two").await?;
        self.wait_for_right("one", 6443).await?;
        agent.stop().map(drop)
    }
}

#[test]
fn what_is_left_of_a_deleted_policy_is_no_revision_of_the_next_one() -> Result<()> {
    on_stage(async |stage| {
        let agent = stage.start_with_approval().await?;
        let kept = async || Ok((stage.revisions(NAME).await?.len() == 1).then_some(()));
        wait::until("the first revision", DEADLINE, kept).await?;
        agent.stop()?;
        // As `kubectl delete --cascade=orphan` does it.
        let all = stage.list(REVISION).await?.into_iter();
        let mut names = all.filter_map(|one| one.metadata.name);
        let name = names.find(|name| name.starts_with(NAME));
        let orphan = json!({"metadata": {"ownerReferences": null}});
        let name = name.context("no revision")?;
        stage.patch(REVISION, Some(HOME), &name, orphan).await?;
        stage.delete(POLICY, None, NAME).await?;
        let mut policy = program::manifest(NAME)?;
        policy["spec"]["rollout"] = json!({"mode": "Preview"});
        stage.objects().apply_manifest(&policy.to_string()).await?;
        let mut digest = String::new();
        for name in ["two", "three"] {
            stage.ready(name, true).await?;
            let agent = stage.start_agent(&["--policy-objects", "--lease-namespace", HOME])?;
            digest = stage.approvable(&digest).await?;
            let status = stage.policy_status().await?;
            ensure!(status["revision"].is_null(), "{status}");
            agent.stop()?;
            stage.wait_for_no_output(name).await?;
        }
        let agent = stage.start_agent(&["--policy-objects", "--lease-namespace", HOME])?;
        // What is left has the name of the record that this makes.
        let owner = stage.person("owner", true).await?;
        let output = stage.transom_as(&owner, &["approve", NAME, &digest])?;
        ensure!(output.status.success(), "{}", said(&output));
        stage.wait_for_right("two", 6443).await?;
        agent.stop().map(drop)
    })
}

#[test]
fn a_new_leader_works_on_the_revision_of_the_one_before() -> Result<()> {
    on_stage(async |stage| {
        stage.ready("one", true).await?;
        stage.install_policies().await?;
        let words = ["--policy-objects", "--lease-namespace", HOME];
        let first = stage.start_agent(&words)?;
        stage.wait_for_right("one", 6443).await?;
        let change = json!({"spec": {"own": {"annotations": {TEAM: "a"}}}});
        stage.patch(POLICY, None, NAME, change).await?;
        stage.wait_for_team("one", Some("a")).await?;
        let numbers = async || {
            let all = stage.list(REVISION).await?;
            let of = all.iter().filter(|one| {
                one.metadata
                    .name
                    .as_deref()
                    .is_some_and(|name| name.starts_with(NAME))
            });
            Ok((of.count() == 2).then_some(()))
        };
        wait::until("two revisions", DEADLINE, numbers).await?;
        let mark = stage.mark()?;
        // The second one was never asked to swap.
        let second = stage.another_agent("second").await?;
        let second = stage.start_command(&mut stage.command_of(
            &second,
            &stage.cluster.server(),
            &words,
        )?)?;
        second.ready()?;
        first.kill()?;
        stage.ready("two", true).await?;
        stage.wait_for_team("two", Some("a")).await?;
        // Nothing was written without the annotation meanwhile.
        stage.wait_for_team("one", Some("a")).await?;
        let writes = stage.writes(mark).await?;
        ensure!(
            !writes.iter().any(|line| line.contains("klusterlet-one")),
            "{writes:?}"
        );
        second.stop()?;
        Ok(())
    })
}

/// Whether the agent watches Klusterlets, or tries to.
fn watches_klusterlets(agent: &Agent) -> Result<bool> {
    let admin = agent.admin().context("no admin server")?;
    let text = http::get(admin, "/metrics")?.body;
    let families = [metrics::WATCH_OBJECTS.name, metrics::WATCHES_FAILING.name];
    let is_watch = |line: &str| families.iter().any(|name| line.starts_with(name));
    let mut watches = text.lines().filter(|line| is_watch(line));
    Ok(watches.any(|line| line.contains("kind=\"Klusterlet\"")))
}

#[test]
fn the_watches_of_a_candidate_end_with_it() -> Result<()> {
    on_stage(async |stage| {
        let agent = stage.start_with_approval().await?;
        let manifest = program::manifest(OUTPUT)?;
        let whole = json!({"grant": {"read": manifest["spec"]["grant"]["read"]}});
        let mut part = whole.clone();
        let reads = part["grant"]["read"].as_array_mut().context("no reads")?;
        reads.retain(|rule| rule["role"] != "klusterlet");
        let put = async |spec: &Value| stage.patch(POLICY, None, NAME, json!({"spec": spec})).await;
        let watched = |expected: bool| {
            let seen = || match watches_klusterlets(&agent) {
                Ok(seen) => (seen == expected).then_some(()),
                Err(_) => None,
            };
            agent.wait(&format!("watches of Klusterlets: {expected}"), seen)
        };
        watched(true)?;
        // From now on nothing but the role needs the watch.
        put(&json!({"own": {"keepUntilAbsent": null}})).await?;
        put(&part).await?;
        watched(false)?;
        // A candidate that is taken back, and one whose policy is deleted.
        put(&json!({"rollout": {"mode": "Preview"}})).await?;
        put(&whole).await?;
        stage.approvable("").await?;
        watched(true)?;
        put(&part).await?;
        watched(false)?;
        put(&whole).await?;
        stage.approvable("").await?;
        watched(true)?;
        stage.delete(POLICY, None, NAME).await?;
        watched(false)?;
        agent.stop()?;
        Ok(())
    })
}
