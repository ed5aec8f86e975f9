//! For each gate of a rollout a candidate that fails at just that one: it never becomes active, writes nothing, and the
//! status says where it stands and why.

use crate::rollout::{
    LONGEST, POLICY, another_revision, failing, put_available, put_cluster, put_component,
    revision, stage, status, wait_for, wait_for_taints, watch,
};
use crate::signatures::{key_pair, sign};
use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use std::fs;
use std::path::PathBuf;
use transom_api::KnownReason as Reason;
use transom_conformance::fixture::{component, hostile, taints_component, with_case, with_section};
use transom_core::digest::Digest;
use transom_core::rollout::Gate;
use transom_e2e::agent::{Agent, DEADLINE};
use transom_e2e::program;
use transom_e2e::stage::{Stage, put};
use transom_e2e::tree;
use transom_support::wait;

/// A public key that signed nothing: the example of RFC 8410.
const KEY: &str = "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=\n-----END PUBLIC KEY-----\n";

/// A guest that describes itself with zeroes: it has no name.
const NAMELESS: &str = r#"(module
    (memory (export "memory") 1)
    (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) (i32.const 4096))
    (func (export "transom:policy/guest@0.1.0#describe") (result i32) (i32.const 1024))
    (func (export "transom:policy/guest@0.1.0#validate") (param i32 i32) (result i32) (i32.const 1024))
    (func (export "transom:policy/taints@0.1.0#compute") (param i32) (result i32) (i32.const 1024)))"#;

/// A change of the policy with another component.
struct Candidate {
    component: Vec<u8>,
    /// Fields of the policy with their values.
    fields: Vec<(&'static str, Value)>,
    reason: Reason,
}

impl Candidate {
    fn of(component: Vec<u8>, reason: Reason) -> Self {
        Self {
            component,
            fields: Vec::new(),
            reason,
        }
    }

    fn with(mut self, field: &'static str, value: Value) -> Self {
        self.fields.push((field, value));
        self
    }

    /// Makes it the policy, in one change: its component has a file of its own.
    fn put(&self, stage: &Stage, file: &str) -> Result<()> {
        let folder = stage.policies.join(POLICY);
        put(&folder.join(file), &self.component)?;
        let mut policy = program::unlimited_manifest(POLICY)?;
        policy["spec"]["guests"]["decide"]["component"] = file.into();
        for (field, value) in &self.fields {
            let (parent, field) = field.rsplit_once('/').context("no pointer")?;
            let parent = policy.pointer_mut(parent).context("no parent")?;
            parent[field] = value.clone();
        }
        put(&folder.join("policy.yaml"), policy.to_string().as_bytes())
    }
}

/// A guest that traps when it is asked about its settings.
fn trapping() -> Result<Vec<u8>> {
    taints_component(
        r#"(func (export "transom:policy/guest@0.1.0#validate") (param i32 i32) (result i32) unreachable)
        (func (export "transom:policy/taints@0.1.0#compute") (param i32) (result i32) (i32.const 1024))"#,
    )
}

/// A candidate that passes all gates but this one, and the gate after it. The guest that wants no taints would remove
/// one from each cluster.
fn failing_at(gate: Gate) -> Result<(Vec<Candidate>, Option<Gate>)> {
    let good = || program::component("taints");
    let other = || hostile("good");
    Ok(match gate {
        Gate::Manifest => (
            vec![Candidate::of(good()?, Reason::PolicyInvalid).with("/spec/unknown", json!(true))],
            Some(Gate::Source),
        ),
        Gate::Source => (
            vec![
                Candidate::of(good()?, Reason::ComponentNotFound)
                    .with("/spec/guests/decide/component", json!("absent.wasm")),
                Candidate::of(good()?, Reason::ComponentNotAllowed).with(
                    "/spec/guests/decide/component",
                    json!("oci:registry.example/guests/taints:1"),
                ),
            ],
            Some(Gate::Digest),
        ),
        Gate::Digest => (
            vec![Candidate::of(good()?, Reason::DigestMismatch).with(
                "/spec/guests/decide/digest",
                json!(format!("sha256:{}", "0".repeat(64))),
            )],
            Some(Gate::Signature),
        ),
        Gate::Signature => (
            vec![Candidate::of(good()?, Reason::SignatureMissing).with(
                "/spec/verify",
                json!({"keys": [{"name": "release", "file": "release.pub"}]}),
            )],
            Some(Gate::Imports),
        ),
        // One more import than the active component has.
        Gate::Imports => (
            vec![Candidate::of(
                hostile("log-lines")?,
                Reason::ImportNotGranted,
            )],
            Some(Gate::Contract),
        ),
        Gate::Contract => (
            vec![Candidate::of(
                program::component("kubeconfig")?,
                Reason::WorldMismatch,
            )],
            Some(Gate::Compile),
        ),
        Gate::Compile => (
            vec![
                Candidate::of(b"no component".to_vec(), Reason::ComponentInvalid),
                Candidate::of(hostile("large-memory")?, Reason::ComponentTooLarge),
            ],
            Some(Gate::Description),
        ),
        Gate::Description => (
            vec![Candidate::of(
                component(NAMELESS, "taints-guest")?,
                Reason::DescriptionInvalid,
            )],
            Some(Gate::Settings),
        ),
        Gate::Settings => (
            vec![
                Candidate::of(hostile("refuses-settings")?, Reason::SettingsRefused),
                Candidate::of(trapping()?, Reason::GuestTrapped),
            ],
            Some(Gate::Cases),
        ),
        Gate::Cases => (
            vec![
                Candidate::of(with_case(good()?, true)?, Reason::CasesFailed),
                Candidate::of(with_section(good()?, &[0xff; 9])?, Reason::CasesInvalid),
            ],
            Some(Gate::Answers),
        ),
        // It traps for one cluster of four, answers without end, wants a taint that is not granted, and would undo what
        // it did.
        Gate::Answers => (
            vec![
                Candidate::of(failing()?, Reason::GuestTrapped),
                Candidate::of(hostile("giant-answer")?, Reason::AnswerTooLarge),
                Candidate::of(hostile("foreign-taint")?, Reason::TaintKeyNotGranted),
                Candidate::of(program::component("restless")?, Reason::AnswerUnstable),
            ],
            Some(Gate::Limits),
        ),
        Gate::Limits => (
            vec![Candidate::of(other()?, Reason::LimitReached).with(
                "/spec/limits",
                json!({"elementsRemoved": {"count": 1, "percent": 0}}),
            )],
            Some(Gate::Approval),
        ),
        Gate::Approval => (
            vec![
                Candidate::of(other()?, Reason::ApprovalRequired)
                    .with("/spec/rollout", json!({"mode": "Preview"})),
                Candidate::of(other()?, Reason::Shadowing)
                    .with("/spec/rollout", json!({"mode": "Shadow"})),
            ],
            None,
        ),
    })
}

/// Kills the agent and starts it again: the candidate stands where it stood, and what was active is active.
fn restarted(
    stage: &Stage,
    agent: Agent,
    starts: usize,
    (gate, reason, active): (&str, Reason, &Value),
) -> Result<Agent> {
    agent.kill()?;
    fs::remove_file(stage.policy_status(POLICY))?;
    let agent = watch(stage, &format!("log-{starts}"))?;
    let stands = || {
        let candidate = status(stage, "/candidate")?;
        // Until it was tried again.
        (candidate["reason"] != Reason::Trying.as_str()).then_some(candidate)
    };
    let what = format!("{gate} {reason:?} after a restart");
    let candidate = agent.wait(&what, stands)?;
    ensure!(
        candidate["gate"] == gate && candidate["reason"] == reason.as_str(),
        "{what}: {candidate}"
    );
    ensure!(revision(stage)? == *active, "{what}: another is active");
    let looked = || (status(stage, "/counts/total")? == 4).then_some(());
    agent.wait(&format!("{what}: every cluster"), looked)?;
    Ok(agent)
}

#[test]
fn each_gate_stops_the_candidates_that_fail_there_also_after_a_restart() -> Result<()> {
    let stage = stage()?;
    let long = "x".repeat(LONGEST + 1);
    put_cluster(&stage, &long)?;
    // What is active was verified as one of the candidates demands, so that it may be restored.
    let folder = stage.policies.join(POLICY);
    let (keys, public) = key_pair(&stage, "release")?;
    put(&folder.join("release.pub"), &public)?;
    let signature = sign(&keys, &program::component("taints")?)?;
    put(&folder.join("decide.wasm.sig"), signature.as_bytes())?;
    let verify = json!({"keys": [{"name": "release", "file": "release.pub"}]});
    let signed = Candidate::of(program::component("taints")?, Reason::InSync);
    let signed = signed.with("/spec/verify", verify);
    signed.put(&stage, "decide.wasm")?;
    let clusters = ["a", "b", "c", long.as_str()];
    let mut agent = watch(&stage, "log")?;
    let mut starts = 0;
    for name in clusters {
        wait_for_taints(&stage, name, 1)?;
    }
    let active = revision(&stage)?;
    let written = patches(&stage, &clusters)?;
    let mut next = Some(Gate::Manifest);
    while let Some(gate) = next {
        let (candidates, after) = failing_at(gate)?;
        for (index, candidate) in candidates.iter().enumerate() {
            let what = format!("{gate:?} {:?}", candidate.reason);
            candidate.put(&stage, &format!("{}-{index}.wasm", gate.as_str()))?;
            wait_for(&stage, "/candidate/reason", candidate.reason.as_str())
                .with_context(|| what.clone())?;
            let (gate, named) = (gate.as_str(), status(&stage, "/candidate/gate"));
            ensure!(named == Some(gate.into()), "{named:?} instead of {gate}");
            ensure!(revision(&stage)? == active, "{gate}: it became active");
            starts += 1;
            agent = restarted(&stage, agent, starts, (gate, candidate.reason, &active))?;
            ensure!(patches(&stage, &clusters)? == written, "{what}: written");
        }
        next = after;
    }
    ensure!(
        patches(&stage, &clusters)? == written,
        "something was written"
    );
    // The way is not blocked: what passes all of them becomes active.
    let good = with_case(program::component("taints")?, false)?;
    Candidate::of(good, Reason::InSync).put(&stage, "passes.wasm")?;
    another_revision(&stage, &active)?;
    agent.stop()?;
    Ok(())
}

/// Bytes that another policy loaded, without a signature, do not become a part of the agent by their digest.
#[test]
fn a_builtin_component_with_the_digest_of_another_one_is_refused() -> Result<()> {
    let stage = stage()?;
    let agent = watch(&stage, "log")?;
    let first = revision(&stage)?;
    let component = failing()?;
    Candidate::of(component.clone(), Reason::InSync).put(&stage, "other.wasm")?;
    for name in ["a", "b", "c"] {
        wait_for_taints(&stage, name, 0)?;
    }
    let active = another_revision(&stage, &first)?;
    put(
        &stage.policies.join(POLICY).join("release.pub"),
        KEY.as_bytes(),
    )?;
    let path = stage.policies.join(POLICY).join("policy.yaml");
    let mut policy: Value = serde_yaml::from_str(&fs::read_to_string(&path)?)?;
    policy["spec"]["verify"] = json!({"keys": [{"name": "release", "file": "release.pub"}]});
    let digest = Digest::of_bytes(&component).to_string();
    policy["spec"]["guests"]["decide"] = json!({"component": "builtin:taints", "digest": digest});
    put(&path, policy.to_string().as_bytes())?;
    wait_for(&stage, "/conditions/0/reason", "DigestMismatch")?;
    ensure!(revision(&stage)? == active);
    let told = fs::read_to_string(stage.policy_status(POLICY))?;
    ensure!(!told.contains("part of the agent"), "{told}");
    agent.stop()?;
    Ok(())
}

/// Has the active revision fail, and waits until the log tells why it stays.
fn fails_and_stays(stage: &Stage, agent: &Agent, active: &Value) -> Result<()> {
    put_cluster(stage, &"x".repeat(LONGEST + 1))?;
    let told = || {
        let log = agent.log().ok()?;
        log.contains("going back to the revision").then_some(())
    };
    wait::until("why it is not taken back", DEADLINE, told)?;
    ensure!(revision(stage)? == *active);
    Ok(())
}

#[test]
fn a_revision_that_was_not_verified_is_not_put_back_until_the_demand_is_taken_back() -> Result<()> {
    let stage = stage()?;
    let agent = watch(&stage, "log")?;
    wait_for_taints(&stage, "a", 1)?;
    let first = revision(&stage)?;
    let key = stage.policies.join(POLICY).join("release.pub");
    put(&key, KEY.as_bytes())?;
    let candidate = || Ok::<_, anyhow::Error>(Candidate::of(failing()?, Reason::InSync));
    candidate()?.put(&stage, "other.wasm")?;
    wait_for_taints(&stage, "a", 0)?;
    let active = another_revision(&stage, &first)?;
    let verify = json!({"keys": [{"name": "release", "file": "release.pub"}]});
    let demanding = candidate()?.with("/spec/verify", verify);
    demanding.put(&stage, "other.wasm")?;
    wait_for(&stage, "/candidate/reason", "SignatureMissing")?;
    fails_and_stays(&stage, &agent, &active)?;
    candidate()?.put(&stage, "other.wasm")?;
    wait_for(&stage, "/candidate/reason", "RolledBack")?;
    ensure!(revision(&stage)? == first);
    let log = agent.stop()?;
    ensure!(
        log.matches("going back to the revision").count() == 1,
        "{log}"
    );
    Ok(())
}

/// The first key was taken back: what only that one signed stays out, although the demand reads as before.
#[test]
fn a_revision_that_a_key_verified_which_is_replaced_now_is_not_put_back() -> Result<()> {
    let stage = stage()?;
    let folder = stage.policies.join(POLICY);
    let verify = json!({"keys": [{"name": "release", "file": "release.pub"}]});
    let use_signed = |component: Vec<u8>, file: &str, keys: &str| {
        let (keys, public) = key_pair(&stage, keys)?;
        put(&folder.join("release.pub"), &public)?;
        let signature = sign(&keys, &component)?;
        put(&folder.join(format!("{file}.sig")), signature.as_bytes())?;
        let candidate = Candidate::of(component, Reason::InSync);
        candidate
            .with("/spec/verify", verify.clone())
            .put(&stage, file)
    };
    use_signed(program::component("taints")?, "first.wasm", "lost")?;
    let agent = watch(&stage, "log")?;
    wait_for_taints(&stage, "a", 1)?;
    let first = revision(&stage)?;
    use_signed(failing()?, "second.wasm", "new")?;
    wait_for_taints(&stage, "a", 0)?;
    let active = another_revision(&stage, &first)?;
    fails_and_stays(&stage, &agent, &active)?;
    agent.stop().map(drop)
}

/// What is written for each cluster, byte by byte.
fn patches(stage: &Stage, clusters: &[&str]) -> Result<Vec<Vec<u8>>> {
    let patch = |name: &&str| Ok(fs::read(stage.patch(name))?);
    clusters.iter().map(patch).collect()
}

/// A guest that wants a taint when it is asked for the first time, and none when it is asked again: it counts in a
/// variable, in its memory and in a table.
fn counting() -> Result<Vec<u8>> {
    taints_component(
        r#"(global $asked (mut i32) (i32.const 0))
        (table $seen 2 funcref)
        (elem declare func $mark)
        (func $mark)
        (func (export "transom:policy/guest@0.1.0#validate") (param i32 i32) (result i32) (i32.const 1024))
        (func (export "transom:policy/taints@0.1.0#compute") (param i32) (result i32)
          (if (i32.eqz (i32.or (global.get $asked)
              (i32.or (i32.load (i32.const 3072)) (i32.eqz (ref.is_null (table.get $seen (i32.const 0)))))))
            (then
              (i32.store (i32.const 2048) (i32.const 2304)) (i32.store (i32.const 2052) (i32.const 46))
              (i32.store (i32.const 1036) (i32.const 2048)) (i32.store (i32.const 1040) (i32.const 1))))
          (global.set $asked (i32.const 1))
          (i32.store (i32.const 3072) (i32.const 1))
          (table.set $seen (i32.const 0) (ref.func $mark))
          (i32.const 1024))
        (data (i32.const 2304) "cluster.open-cluster-management.io/unavailable")"#,
    )
}

#[test]
fn a_guest_keeps_nothing_from_one_question_to_the_next() -> Result<()> {
    let stage = stage()?;
    let agent = watch(&stage, "log")?;
    wait_for_taints(&stage, "a", 1)?;
    let first = revision(&stage)?;
    put_component(&stage, &counting()?)?;
    // It passes the trial, which asks twice, as one that gives one answer.
    another_revision(&stage, &first)?;
    let wanted = ["cluster.open-cluster-management.io/unavailable"];
    for name in ["a", "b", "c", "d", "e"] {
        put_cluster(&stage, name)?;
        let is = || (stage.taints(name).ok()? == wanted).then_some(());
        wait::until(&format!("the taint of {name}"), DEADLINE, is)?;
    }
    // Asked again and again, it gives the same answer.
    for name in ["a", "b", "c"] {
        put_available(&stage, name, "True")?;
    }
    put_cluster(&stage, "f")?;
    wait_for_taints(&stage, "f", 1)?;
    let settled = || (status(&stage, "/counts/applied")? == 6).then_some(());
    wait::until("all of them applied", DEADLINE, settled)?;
    for name in ["a", "b", "c", "d", "e", "f"] {
        ensure!(stage.taints(name)? == wanted, "{name} has another answer");
    }
    agent.stop().map(drop)
}

const KUBECONFIG: &str = "external-managed-kubeconfig";
/// The first HostedClusters of a fleet, which stay.
const STAY: usize = 3;
const ALL: usize = 20;

/// The policy that makes Secrets, which removes them as this says.
fn pruning(prune: &str, mode: &str) -> Result<Value> {
    let mut policy = program::manifest(KUBECONFIG)?;
    policy["spec"]["own"] = json!({"adopt": "SoleOwner", "prune": prune});
    policy["spec"]["rollout"] = json!({"mode": mode});
    Ok(policy)
}

fn put_policy(stage: &Stage, policy: &Value) -> Result<()> {
    put(
        &stage.policies.join("policy.yaml"),
        policy.to_string().as_bytes(),
    )
}

/// Which HostedClusters have a Secret.
fn with_secret(stage: &Stage) -> Vec<usize> {
    let all = 0..ALL;
    all.filter(|index| stage.secret(*index).exists()).collect()
}

/// An agent with a policy that kept the Secrets of HostedClusters that are gone, all but the first, and which have one.
fn keeping(stay: usize) -> Result<(Stage, Agent, Vec<usize>)> {
    let stage = Stage::new(ALL, 0)?;
    put_policy(&stage, &pruning("Never", "Automatic")?)?;
    let output = stage.once()?;
    let made = with_secret(&stage);
    ensure!(made.len() > STAY + 6, "{made:?}: {output:?}");
    for index in stay..ALL {
        fs::remove_file(stage.hosted(index))?;
    }
    let gone = made.iter().filter(|index| **index >= stay).count();
    let agent = watch(&stage, "log")?;
    let held = || stage.policy_field(KUBECONFIG, "/counts/held")?.as_u64();
    let kept = || (held()? >= gone as u64).then_some(());
    agent.wait("the Secrets that are kept", kept)?;
    ensure!(with_secret(&stage) == made);
    Ok((stage, agent, made))
}

/// The candidate that this change makes, once it was tried; nothing if it is active at once.
fn tried(stage: &Stage, agent: &Agent, policy: &Value) -> Result<Value> {
    let active = || stage.policy_field(KUBECONFIG, "/revision/id");
    let before = active();
    put_policy(stage, policy)?;
    let stands = || {
        let candidate = stage.policy_field(KUBECONFIG, "/candidate");
        let tried = |one: &Value| one["reason"] != Reason::Trying.as_str();
        let passed = || (active() != before).then_some(Value::Null);
        candidate.filter(tried).or_else(passed)
    };
    agent.wait("the trial", stands)
}

/// Checks that a candidate would change what `transom plan` says; returns the digest of the plan.
fn plan_of(stage: &Stage, candidate: &Value) -> Result<String> {
    let mut plan = stage.transom()?;
    plan.args(["plan", KUBECONFIG, "-o", "json", "--dir"])
        .arg(&stage.fleet)
        .arg("--policies")
        .arg(&stage.policies);
    let output = plan.output()?;
    let plan: Value = serde_json::from_slice(&output.stdout)
        .with_context(|| String::from_utf8_lossy(&output.stderr).into_owned())?;
    let of = &plan["primaries"];
    ensure!(
        candidate["primaries"] == of["total"] && candidate["changed"] == of["wouldChange"],
        "{candidate} {of}"
    );
    let digest = plan["digest"].as_str().context("no digest")?;
    Ok(digest.to_owned())
}

#[test]
fn what_a_candidate_removes_of_primaries_that_are_gone_is_in_its_plan() -> Result<()> {
    let (stage, agent, made) = keeping(STAY)?;
    let stay: Vec<_> = made.iter().copied().filter(|one| *one < STAY).collect();
    let gone = made.len() - stay.len();
    let mut policy = pruning("WhenSourceDeleted", "Preview")?;
    let candidate = tried(&stage, &agent, &policy)?;
    let removes = json!([{"effect": "Secret deleted", "count": gone}]);
    ensure!(
        candidate["gate"] == Gate::Approval.as_str() && candidate["effects"] == removes,
        "{candidate}"
    );
    let planned = plan_of(&stage, &candidate)?;
    ensure!(with_secret(&stage) == made, "something was removed");
    policy["metadata"]["annotations"] = json!({"transom.dev/approved": candidate["approve"]});
    put_policy(&stage, &policy)?;
    let removed = || (with_secret(&stage) == stay).then_some(());
    agent.wait("the removal of all that was approved", removed)?;
    let log = agent.stop()?;
    ensure!(!log.contains("LimitReached"), "{log}");
    // What was approved is kept with the revision.
    let objects = stage.own().join("objects");
    let mut kept = tree::contents(&objects)?.into_keys();
    let is_of_plan = |path: PathBuf| {
        let text = fs::read_to_string(objects.join(&path)).unwrap_or_default();
        path.to_string_lossy().contains("ControllerRevision") && text.contains(&planned)
    };
    ensure!(
        kept.any(is_of_plan),
        "another plan was approved than {planned}"
    );
    Ok(())
}

#[test]
fn a_candidate_that_removes_too_much_of_primaries_that_are_gone_stops_at_the_limits() -> Result<()>
{
    let (stage, agent, made) = keeping(STAY)?;
    let candidate = tried(&stage, &agent, &pruning("WhenSourceDeleted", "Automatic")?)?;
    ensure!(
        candidate["gate"] == Gate::Limits.as_str()
            && candidate["reason"] == Reason::LimitReached.as_str(),
        "{candidate}"
    );
    plan_of(&stage, &candidate)?;
    ensure!(with_secret(&stage) == made, "something was removed");
    agent.stop().map(drop)
}

#[test]
fn primaries_that_a_candidate_does_not_select_are_in_its_plan() -> Result<()> {
    let (stage, agent, made) = keeping(ALL)?;
    let mut policy = pruning("WhenSourceDeleted", "Automatic")?;
    policy["spec"]["primary"]["labels"] = json!({"matchLabels": {"tier": "none"}});
    let candidate = tried(&stage, &agent, &policy)?;
    ensure!(
        candidate["gate"] == Gate::Limits.as_str() && candidate["changed"] == made.len(),
        "{candidate}"
    );
    plan_of(&stage, &candidate)?;
    ensure!(with_secret(&stage) == made, "something was removed");
    agent.stop().map(drop)
}
