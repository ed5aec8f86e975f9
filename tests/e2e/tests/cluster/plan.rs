//! `transom plan` on a real API server, run by a user with read access only: what it shows, and that it only reads.

use crate::asked::ask;
use crate::objects::CLUSTERS;
use crate::stage::{HOSTED, SECRET, on_stage};
use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use transom_e2e::program;

const POLICY: &str = "external-managed-kubeconfig";
const OUTPUT: &str = "external-managed-kubeconfig";

#[test]
fn a_candidate_is_planned_with_read_only_access() -> Result<()> {
    on_stage(async |stage| {
        stage.install_policies().await?;
        for name in ["one", "two", "sourceless"] {
            stage.ready(name, true).await?;
        }
        stage
            .delete(SECRET, Some(CLUSTERS), "sourceless-admin-kubeconfig")
            .await?;
        let once = stage.command(&["--once", "--policy-objects"])?.output()?;
        ensure!(
            once.status.code() == Some(1),
            "{}",
            String::from_utf8_lossy(&once.stderr)
        );
        let reader = stage.reader().await?;
        let candidate = stage.cluster.folder().join("candidate.wasm");
        std::fs::write(&candidate, program::component("fixture-second")?)?;
        let candidate = candidate.display().to_string();
        let before = written(stage).await?;
        let mark = stage.mark()?;
        // By its name it is the object, without any further flag.
        let (idle, told) = ask(stage, &reader, "plan", &[POLICY])?;
        ensure!(
            idle["primaries"]["wouldChange"] == 0 && idle["primaries"]["failed"] == 1,
            "{idle:#}: {told}"
        );
        let (plan, told) = ask(stage, &reader, "plan", &[POLICY, "--component", &candidate])?;
        ensure!(told.is_empty(), "{told}");
        let effects = json!([{"kind": "Secret", "verb": "updated", "primaries": 2, "fields": {"data.kubeconfig.server": 2}}]);
        ensure!(plan["effects"] == effects, "{plan:#}");
        let beside = json!({"pending": 0, "same": 0, "different": 2, "newlyRefused": 0});
        ensure!(
            plan["active"] == beside && plan["refusals"][0]["reason"] == "SourceMissing",
            "{plan:#}"
        );
        let (again, _) = ask(stage, &reader, "plan", &[POLICY, "--component", &candidate])?;
        ensure!(again == plan, "two plans of the same fleet differ");
        // A manifest that reads one more kind: what it needs is listed when it is planned.
        let text = std::fs::read_to_string(program::policy(POLICY))?;
        let manifest = text.replace("builtin:kubeconfig", "fixture-second.wasm");
        let file = stage.cluster.folder().join("candidate.yaml");
        std::fs::write(&file, manifest)?;
        std::fs::write(
            stage.cluster.folder().join("fixture-second.wasm"),
            program::component("fixture-second")?,
        )?;
        let (of_file, _) = ask(stage, &reader, "plan", &[&file.display().to_string()])?;
        ensure!(of_file["digest"] == plan["digest"], "{of_file:#}");
        // It reads, and nothing else.
        let lines = stage.cluster.audit().since(mark)?;
        let asked: Vec<_> = lines
            .iter()
            .filter(|line| line.user == reader.name())
            .collect();
        let reads = ["get", "list", "watch"];
        let beyond = asked
            .iter()
            .filter(|line| !reads.contains(&line.verb.as_str()) || line.code == 403 || line.denied);
        let beyond: Vec<_> = beyond.collect();
        ensure!(
            !asked.is_empty() && beyond.is_empty(),
            "it asked for {beyond:#?}"
        );
        ensure!(written(stage).await? == before, "something was written");
        // Policies that cannot be listed are not taken for none.
        let nobody = stage.cluster.user("nobody", &[])?;
        let output = stage.transom_as(&nobody, &["plan", POLICY])?;
        let told = String::from_utf8_lossy(&output.stderr);
        ensure!(
            output.status.code() == Some(1) && told.contains("failed to list FleetPolicy"),
            "{told}"
        );
        Ok(())
    })
}

/// The versions of what an agent would write: the secrets, the primaries and the policy.
async fn written(stage: &crate::stage::Stage) -> Result<Vec<Value>> {
    let mut versions = Vec::new();
    let policy = ("transom.dev/v1alpha1", "FleetPolicy");
    for (kind, namespace, name) in [
        (SECRET, Some("klusterlet-one"), OUTPUT),
        (SECRET, Some("klusterlet-two"), OUTPUT),
        (HOSTED, Some(CLUSTERS), "one"),
        (policy, None, POLICY),
    ] {
        let object = stage.get(kind, namespace, name).await?;
        let mut object = object.with_context(|| format!("no {} {name}", kind.1))?;
        versions.push(object["metadata"]["resourceVersion"].take());
    }
    Ok(versions)
}
