//! Candidates that lie about what they were given, or answer without measure: none becomes active, each with its
//! reason, and the active revision goes on untouched.

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use std::fs;
use transom_api::KnownReason as Reason;
use transom_e2e::agent::DEADLINE;
use transom_e2e::program;
use transom_e2e::stage::{Stage, put};
use transom_e2e::swap::POLICY;
use transom_support::wait;

/// Settings of the bundled policy for the bundled guest.
const SETTINGS: &str =
    "        clusterDomain: cluster.local\n        naming:\n          precedence: Annotation\n";
/// What each candidate asks for, and the reason why it is refused.
const FORGERIES: [(&str, Reason); 9] = [
    ("UnknownCredential", Reason::UnknownReference),
    ("ForeignAuthority", Reason::UnknownReference),
    ("UnknownEntry", Reason::UnknownReference),
    ("ManyAuthorities", Reason::ContractBroken),
    ("ForeignServer", Reason::ServerNotGranted),
    ("Insecure", Reason::InsecureNotGranted),
    ("ForeignTarget", Reason::WriteNotGranted),
    ("ForeignRead", Reason::ReadNotGranted),
    ("Endless", Reason::TooManyRounds),
];

#[test]
fn a_candidate_that_forges_a_reference_or_grows_its_answer_never_becomes_active() -> Result<()> {
    let stage = Stage::new(2, 0)?;
    stage.put_policy(POLICY, &[])?;
    put(
        &stage.policies.join(POLICY).join("answers.wasm"),
        &program::component("fixture-answers")?,
    )?;
    let agent = stage.watch()?;
    stage.wait_for_secret(0, "the secret", |_| true)?;
    stage.wait_for_secret(1, "the secret", |_| true)?;
    let active = wait::until("a revision", DEADLINE, || {
        stage.policy_field(POLICY, "/revision/id")
    })?;
    let secrets = || -> Result<Vec<String>> {
        let each = [0, 1].map(|index| fs::read_to_string(stage.secret(index)));
        each.into_iter().map(|text| Ok(text?)).collect()
    };
    let written = secrets()?;
    let mut before = Value::Null;
    for (ask, reason) in FORGERIES {
        let settings = format!("        ask: {ask}\n");
        let changes = [
            ("builtin:kubeconfig", "answers.wasm"),
            (SETTINGS, &*settings),
        ];
        stage.put_policy(POLICY, &changes)?;
        let refused = || {
            let candidate = stage.policy_field(POLICY, "/candidate")?;
            let another = candidate["id"] != before && candidate["reason"] != "Trying";
            another.then_some(candidate)
        };
        let candidate = wait::until("a refusal", DEADLINE, refused).context(ask)?;
        ensure!(
            candidate["reason"] == reason.as_str() && candidate["gate"] == "Answers",
            "{ask}: {candidate}"
        );
        before = candidate["id"].clone();
        ensure!(stage.policy_field(POLICY, "/revision/id").as_ref() == Some(&active));
    }
    ensure!(secrets()? == written, "something was written");
    // The active revision goes on.
    stage.follows_port(0, 7443)?;
    ensure!(stage.policy_field(POLICY, "/revision/id").as_ref() == Some(&active));
    agent.stop()?;
    Ok(())
}
