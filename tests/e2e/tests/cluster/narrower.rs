//! A component takes over that reads less than the one before, again and again: no guest is shown an object without a
//! field that it declares, so nothing is written.

use crate::components::SOURCES;
use crate::limits::TAINTS;
use crate::policies::POLICY;
use crate::stage::{DEADLINE, HOME, PARALLEL, on_stage};
use anyhow::{Result, ensure};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use serde_json::json;
use transom_conformance::fixture::trapping;
use transom_core::digest::Digest;
use transom_e2e::program;
use transom_test_cluster::wait;

/// With so many, some are reconciled between the new watch and the new revision.
const CLUSTERS: usize = 200;
const SWAPS: usize = 6;

#[test]
fn what_a_new_revision_does_not_read_is_never_absent_for_the_one_before() -> Result<()> {
    on_stage(async |stage| {
        stage.install_policies().await?;
        stage.hold_components().await?;
        let available = stream::iter(0..CLUSTERS).map(|index| async move {
            let name = format!("m{index:03}");
            stage.managed(&name).await?;
            stage.set_available(&name, "True").await
        });
        let available = available.buffer_unordered(PARALLEL);
        available.try_collect::<()>().await?;
        // It wants no taint of any cluster, and does not read whether one is available.
        let (taints, none) = (program::component("taints")?, trapping(253)?);
        stage.put_component("none", &none).await?;
        let mark = stage.mark()?;
        let words = ["--policy-objects", "--lease-namespace", HOME];
        let agent = stage.start_agent(&[&words[..], &["--sources", SOURCES]].concat())?;
        let components = [
            ("builtin:taints", &taints),
            ("configmap:parts/none/k", &none),
        ];
        for (component, bytes) in components.into_iter().cycle().take(SWAPS) {
            let decide = json!({"spec": {"guests": {"decide": {"component": component}}}});
            stage.patch(POLICY, None, TAINTS, decide).await?;
            let digest = Digest::of_bytes(bytes).to_string();
            wait::until(component, DEADLINE, async || {
                let status = stage.status_of_taints().await?;
                let is_there = status["revision"]["decide"] == digest
                    && status["counts"]["applied"] == CLUSTERS;
                Ok(is_there.then_some(()))
            })
            .await?;
        }
        agent.stop()?;
        let patched = stage.patched(mark).await?;
        ensure!(patched.is_empty(), "{patched:?} were patched");
        Ok(())
    })
}
