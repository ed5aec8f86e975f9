//! The whole path of a kubeconfig, with the functions that the controller calls, against a native rewrite of the same
//! document: what a controller without a sandbox does. Reads and writes no files.

use crate::rounds::{Times, times};
use crate::scene::{Asked, Scene};
use crate::table::{Figure, Row, Table};
use anyhow::{Context as _, Result, anyhow, bail};
use serde_yaml::Value;
use std::hint::black_box;
use std::sync::Arc;
use transom_core::contract::credentials::Proposal;
use transom_core::contract::decide::{Input, Need};
use transom_core::contract::{Primary, Readiness};
use transom_core::failure::Failure;
use transom_core::inputs::secrets::Secrets;
use transom_core::inputs::{self, Found};
use transom_core::kubeconfig::{KubeconfigLimits, SourceKubeconfig, Terms};
use transom_core::object::Object;
use transom_core::pattern::TemplateData;
use transom_core::reference::ObjectRef;
use transom_core::requirements::{NextRound, Rounds};
use transom_engine::CallLimits;

/// Seconds since 1970 for the validity of certificates.
const NOW: i64 = 1_795_000_000;
/// The server that the native rewrite sets.
pub(crate) const SERVER: &str =
    "https://kube-apiserver.clusters-hosted-00000.svc.cluster.local:6443";

/// The inputs that a guest requested.
pub(crate) struct Gathered {
    /// The primary as the guest sees it.
    pub(crate) view: Primary,
    /// The inputs as the guest sees them.
    pub(crate) inputs: Vec<Input>,
    source: SourceKubeconfig,
    target: ObjectRef,
}

/// Measures it.
pub(crate) fn measure(scene: &Scene, table: &mut Table) -> Result<()> {
    let found = Objects::of(scene);
    let written = found.way()?;
    if !written.contains(SERVER) {
        bail!("failed to find the new server in what the way wrote");
    }
    let [way, native]: [Times; 2] = times([
        &mut || found.way().map(|text| drop(black_box(text))),
        &mut || rewrite(scene.text(), SERVER).map(|text| drop(black_box(text))),
    ])?;
    table.add(Row {
        what: "whole way of a kubeconfig: parse, ready, require, transform, check, write out"
            .to_owned(),
        figure: Figure::Micros(way.median),
        against: "native parse, edit, write".to_owned(),
        floor: Figure::Micros(native.median),
        fastest: Some(way.min / native.min),
        target: Some(1.4),
    })
}

/// The objects of the scene, where the controller looks for them.
pub(crate) struct Objects<'a> {
    scene: &'a Scene,
    objects: Vec<Arc<Object>>,
}

impl<'a> Objects<'a> {
    /// Those of a scene.
    pub(crate) fn of(scene: &'a Scene) -> Self {
        Self {
            scene,
            objects: scene.objects.iter().cloned().map(Arc::new).collect(),
        }
    }

    /// From the Secret's bytes to the text of the new kubeconfig.
    fn way(&self) -> Result<String> {
        let scene = self.scene;
        let hosted = scene.hosted()?;
        let Asked { guest, described } = &scene.trigger;
        let view = inputs::primary(hosted, described).map_err(told)?;
        match guest
            .ready(
                &CallLimits::default(),
                &Scene::context(&scene.trigger),
                &view,
            )
            .result?
            .answer
        {
            Readiness::Ready => {}
            Readiness::NotReady(problem) => {
                bail!("the HostedCluster is not ready: {}", problem.message)
            }
        }
        let gathered = self.gather()?;
        let proposal = gathered.transform(scene)?;
        gathered.check(scene, &proposal)
    }

    /// Asks the guest for its requirements until there are no new ones.
    pub(crate) fn gather(&self) -> Result<Gathered> {
        let asked = &self.scene.kubeconfig;
        let hosted = self.scene.hosted()?;
        let view = inputs::primary(hosted, &asked.described).map_err(told)?;
        let context = Scene::context(asked);
        let (mut rounds, mut crossed, mut source) = (Rounds::default(), Vec::new(), None);
        loop {
            let answer = asked
                .guest
                .require(&CallLimits::default(), &context, &view, &crossed)
                .result?;
            let answer = answer.map_err(|refusal| anyhow!("the guest refused: {refusal:?}"))?;
            let data = TemplateData {
                object: hosted,
                agent: &context.agent,
            };
            match rounds
                .answer(&self.scene.policy, &data, answer)
                .map_err(told)?
            {
                NextRound::Complete(complete) => {
                    let source = source.context("failed to find the kubeconfig among the needs")?;
                    let target = complete.target;
                    return Ok(Gathered {
                        view,
                        inputs: crossed,
                        source,
                        target: target.context("the guest names no target")?,
                    });
                }
                NextRound::Read(needs) => (crossed, source) = self.read(needs)?,
            }
        }
    }

    fn read(&self, needs: Vec<Need>) -> Result<(Vec<Input>, Option<SourceKubeconfig>)> {
        let mut source = None;
        let object = |need: &Need| {
            self.objects
                .iter()
                .find(|object| object.reference == need.reference)
                .cloned()
        };
        let one = |need: Need| {
            let there = object(&need);
            Found::one(need, there)
        };
        let mut found: Vec<Found> = needs.into_iter().map(one).collect();
        let described = &self.scene.kubeconfig.described;
        inputs::check_present(&found, described).map_err(told)?;
        let secrets = &mut Secrets::default();
        let inputs = inputs::cross(&mut found, described, 0, secrets, |_, object, key| {
            let bytes = object.secret_bytes(key).unwrap_or_default();
            let parsed = SourceKubeconfig::parse(&bytes, &KubeconfigLimits::default())
                .map_err(|error| Failure::known(error.reason, error.to_string()))?;
            let view = parsed.view();
            source = Some(parsed);
            Ok(view)
        });
        Ok((inputs.map_err(told)?, source))
    }
}

impl Gathered {
    /// Asks the guest for the kubeconfig.
    pub(crate) fn transform(&self, scene: &Scene) -> Result<Proposal> {
        let asked = &scene.kubeconfig;
        let answer = asked
            .guest
            .transform(
                &CallLimits::default(),
                &Scene::context(asked),
                &self.view,
                &self.inputs,
            )
            .result?;
        Ok(answer
            .map_err(|refusal| anyhow!("the guest refused: {refusal:?}"))?
            .answer)
    }

    /// Checks the answer against the grant, and writes it.
    fn check(&self, scene: &Scene, proposal: &Proposal) -> Result<String> {
        let context = Scene::context(&scene.kubeconfig);
        let data = TemplateData {
            object: scene.hosted()?,
            agent: &context.agent,
        };
        let rule = scene.policy.whole(&self.target, &data).map_err(told)?;
        let grant = rule
            .kubeconfig
            .as_ref()
            .context("the policy grants no kubeconfig")?;
        let terms = Terms {
            grant,
            source_role: "source",
            inputs: &self.inputs,
            primary: &self.view.fields,
            now_seconds: NOW,
            limits: KubeconfigLimits::default(),
        };
        Ok(self.source.assemble(proposal, &terms)?.to_yaml().to_owned())
    }
}

fn told(failure: Failure) -> anyhow::Error {
    anyhow!("{failure}")
}

/// The kubeconfig with another server in its first cluster.
pub(crate) fn rewrite(text: &str, server: &str) -> Result<String> {
    let mut document: Value = serde_yaml::from_str(text)?;
    let cluster = document
        .get_mut("clusters")
        .and_then(|clusters| clusters.get_mut(0));
    let cluster = cluster
        .and_then(|entry| entry.get_mut("cluster"))
        .context("failed to find the first cluster")?;
    let cluster = cluster
        .as_mapping_mut()
        .context("failed to read the first cluster")?;
    cluster.insert("server".into(), server.into());
    Ok(serde_yaml::to_string(&document)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_only_the_server() {
        let text = "clusters:\n- cluster:\n    server: https://a\n  name: cluster\nkind: Config\n";
        assert_eq!(
            rewrite(text, "https://b").unwrap(),
            text.replace("https://a", "https://b")
        );
    }
}
