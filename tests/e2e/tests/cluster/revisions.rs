//! The history of a policy that cannot be written for a while: what becomes active waits for it and says so, and what
//! is to be kept is kept later, also by an agent that did not lead meanwhile.

use crate::components::{PARTS, SOURCES};
use crate::limits::TAINTS;
use crate::policies::POLICY;
use crate::rollout::REVISION;
use crate::stage::{DEADLINE, HOME, Stage, on_stage};
use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use transom_api::labels;
use transom_conformance::fixture::trapping;
use transom_core::metrics::LEADING;
use transom_e2e::http;
use transom_test_cluster::{Carries, Wire, wait};

const NAME: &str = "external-managed-kubeconfig";
const TEAM: &str = "example.com/team";
/// Refuses every write of a revision.
const DENIED: &str = "no-revisions";
/// The longest name for which the guest does not trap.
const LONGEST: usize = 40;
const ADMISSION: &str = "admissionregistration.k8s.io/v1";

impl Stage {
    /// Has the API server refuse all writes of revisions, and waits until it does.
    async fn deny_revisions(&self) -> Result<()> {
        let rule = json!({"apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"],
            "resources": ["controllerrevisions"]});
        let policy = json!({"apiVersion": ADMISSION, "kind": "ValidatingAdmissionPolicy", "metadata": {"name": DENIED},
            "spec": {"failurePolicy": "Fail", "matchConstraints": {"resourceRules": [rule]},
                "validations": [{"expression": "false", "message": "not now", "reason": "Forbidden"}]}});
        let binding = json!({"apiVersion": ADMISSION, "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": {"name": DENIED}, "spec": {"policyName": DENIED, "validationActions": ["Deny"]}});
        for object in [policy, binding] {
            self.objects().apply(object).await?;
        }
        let mut count = 0;
        wait::until("revisions that are refused", DEADLINE, async || {
            count += 1;
            let probe = json!({"apiVersion": "apps/v1", "kind": "ControllerRevision",
                "metadata": {"namespace": HOME, "name": "probe"}, "revision": count, "data": {}});
            let refused = self.objects().apply(probe).await.err();
            let why = refused
                .map(|error| format!("{error:#}"))
                .unwrap_or_default();
            Ok(why.contains("not now").then_some(()))
        })
        .await
    }

    async fn allow_revisions(&self) -> Result<()> {
        for kind in [
            "ValidatingAdmissionPolicyBinding",
            "ValidatingAdmissionPolicy",
        ] {
            self.delete((ADMISSION, kind), None, DENIED).await?;
        }
        Ok(())
    }

    /// The numbers of the kept revisions of a policy, each with why it is barred.
    pub(crate) async fn revisions(&self, policy: &str) -> Result<Vec<(Value, Option<String>)>> {
        let all = self.list(REVISION).await?.into_iter();
        let own = all.filter(|one| {
            let labels = one.metadata.labels.as_ref();
            labels.and_then(|labels| labels.get(labels::POLICY)) == Some(&policy.to_owned())
        });
        let mut own: Vec<_> = own
            .map(|one| {
                let annotations = one.metadata.annotations.unwrap_or_default();
                let barred = annotations.get(labels::BARRED).cloned();
                (one.data["revision"].clone(), barred)
            })
            .collect();
        own.sort_by_key(|(number, _)| number.as_i64());
        Ok(own)
    }

    /// Waits until the candidate passed all gates and cannot be kept.
    async fn wait_for_unkept(&self) -> Result<()> {
        let told = |status: &Value| {
            let conditions = status["conditions"].as_array();
            let mut messages =
                (conditions.into_iter().flatten()).filter_map(|one| one["message"].as_str());
            messages.any(|message| message.contains("could not be kept as the active revision"))
                && status["candidate"]["reason"] == "AdmissionRefused"
        };
        let told = self.wait_for_status("why the candidate waits", told);
        told.await.map(drop)
    }
}

#[test]
fn a_candidate_that_cannot_be_kept_says_so_and_a_replaced_one_is_never_kept() -> Result<()> {
    on_stage(async |stage| {
        stage.ready("one", true).await?;
        stage.install_policies().await?;
        let owner = stage.person("owner", true).await?;
        let agent = stage.start_agent(&["--policy-objects", "--lease-namespace", HOME])?;
        stage.wait_for_right("one", 6443).await?;
        let first = async || Ok((stage.revisions(NAME).await?.len() == 1).then_some(()));
        wait::until("the first revision", DEADLINE, first).await?;
        stage.deny_revisions().await?;
        let team = |team: &str, mode: &str| json!({"spec": {"rollout": {"mode": mode}, "own": {"annotations": {TEAM: team}}}});
        stage
            .patch(POLICY, None, NAME, team("a", "Automatic"))
            .await?;
        stage.wait_for_unkept().await?;
        // Another one takes its place, and its approval is withdrawn while it cannot be kept.
        stage
            .patch(POLICY, None, NAME, team("b", "Preview"))
            .await?;
        let digest = stage.approvable("").await?;
        let approved = |digest: Value| json!({"metadata": {"annotations": {"transom.dev/approved": digest, "transom.dev/approved-by": owner.name()}}});
        let approve = || stage.patch(POLICY, None, NAME, approved(json!(digest)));
        approve().await?;
        stage.wait_for_unkept().await?;
        stage
            .patch(POLICY, None, NAME, approved(Value::Null))
            .await?;
        stage.approvable("").await?;
        stage.allow_revisions().await?;
        // The plan is another one with another cluster: the candidate was tried since.
        stage.ready("two", true).await?;
        stage.wait_for_right("two", 6443).await?;
        let digest = stage.approvable(&digest).await?;
        stage.wait_for_team("one", None).await?;
        ensure!(stage.revisions(NAME).await?.len() == 1, "it was kept");
        stage
            .patch(POLICY, None, NAME, approved(json!(digest)))
            .await?;
        stage.wait_for_team("one", Some("b")).await?;
        let kept = stage.revisions(NAME).await?;
        ensure!(kept.len() == 2, "{kept:?}");
        agent.stop()?;
        Ok(())
    })
}

#[test]
fn a_rollback_that_was_not_kept_is_kept_once_the_agent_leads_again() -> Result<()> {
    on_stage(async |stage| {
        stage.install_policies().await?;
        stage.hold_components().await?;
        stage.lift_limits(TAINTS).await?;
        stage.managed("a").await?;
        stage.set_available("a", "Unknown").await?;
        let wire = Wire::to(&stage.cluster.server())?;
        let words = [
            "--policy-objects",
            "--lease-namespace",
            HOME,
            "--sources",
            SOURCES,
        ];
        let agent =
            stage.start_command(&mut stage.command_of(&stage.agent, &wire.server(), &words)?)?;
        let admin = agent.ready()?;
        stage.wait_for_tainted(1).await?;
        stage.put_component("traps", &trapping(LONGEST)?).await?;
        let decide = json!({"component": format!("configmap:{PARTS}/traps/k")});
        let change = json!({"spec": {"guests": {"decide": decide}}});
        stage.patch(POLICY, None, TAINTS, change).await?;
        stage.wait_for_tainted(0).await?;
        stage.deny_revisions().await?;
        let long = "x".repeat(LONGEST + 1);
        stage.managed(&long).await?;
        stage.set_available(&long, "Unknown").await?;
        stage.wait_for_tainted(2).await?;
        let leads = async |leads: f64| {
            let seen = async || Ok((http::metric(admin, LEADING.name, "")? == leads).then_some(()));
            wait::until("a word on who leads", DEADLINE, seen).await
        };
        wire.carry(Carries::Answers);
        leads(0.0).await?;
        wire.carry(Carries::All);
        leads(1.0).await?;
        stage.allow_revisions().await?;
        let barred = async || {
            let kept = stage.revisions(TAINTS).await?;
            let (_, why) = kept.last().context("no revision")?;
            Ok(why.clone())
        };
        wait::until("the bar of the failed revision", DEADLINE, barred).await?;
        let rolled_back = async || {
            let status = stage.status_of_taints().await?;
            Ok((status["candidate"]["reason"] == "RolledBack").then_some(()))
        };
        wait::until("what became of it", DEADLINE, rolled_back).await?;
        stage.wait_for_tainted(2).await?;
        agent.stop()?;
        Ok(())
    })
}
