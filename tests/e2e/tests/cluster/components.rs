//! Components in ConfigMaps: swapped when a ConfigMap changes, refused when it is damaged, gone or not allowed, and
//! read with exactly the permissions that `transom rbac` prints.

use crate::policies::POLICY;
use crate::stage::{DEADLINE, HOME, Stage, on_stage};
use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube::ResourceExt as _;
use kube::api::DynamicObject;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use transom_conformance::fixture::with_case;
use transom_core::digest::Digest;
use transom_e2e::program;
use transom_test_cluster::{Access, Mark, Registry, Target, User, wait};

const CONFIG_MAP: (&str, &str) = ("v1", "ConfigMap");
const NAME: &str = "external-managed-kubeconfig";
/// The namespace of the components.
pub(crate) const PARTS: &str = "parts";
pub(crate) const SOURCES: &str = "builtin,configmap:parts/*";

/// The bundled component with a custom section at its end: other bytes, same behaviour.
pub(crate) fn component(letter: u8) -> Result<Vec<u8>> {
    program::variant("kubeconfig", letter)
}

/// The digest of a component, as a status shows it.
fn digest(component: &[u8]) -> String {
    Digest::of_bytes(component).to_string()
}

impl Stage {
    /// Writes a ConfigMap whose key `k` holds these bytes.
    pub(crate) async fn put_component(&self, name: &str, bytes: &[u8]) -> Result<()> {
        let config_map = json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"namespace": PARTS, "name": name}, "binaryData": {"k": STANDARD.encode(bytes)}});
        self.objects().apply(config_map).await.map(drop)
    }

    /// Makes the namespace of the components, whose ConfigMaps the agent may read.
    pub(crate) async fn hold_components(&self) -> Result<()> {
        self.objects().namespace(PARTS).await?;
        self.allow_components(&[&self.agent]).await
    }

    /// Lets agents read the ConfigMaps, as the chart does for its own namespace.
    pub(crate) async fn allow_components(&self, agents: &[&User]) -> Result<()> {
        let names: Vec<&str> = agents.iter().map(|user| user.name()).collect();
        let rules =
            json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list", "watch"]}]);
        let (objects, place) = (self.objects(), Some(PARTS));
        objects.allow(&names, place, "components", rules).await
    }

    /// Has the policy use a component.
    async fn use_component(&self, component: &str) -> Result<()> {
        let body = json!({"spec": {"guests": {"decide": {"component": component}}}});
        self.patch(POLICY, None, NAME, body).await
    }

    /// Waits until a component is active and nothing is refused.
    async fn wait_for_component(&self, bytes: &[u8]) -> Result<()> {
        let digest = digest(bytes);
        let active = |status: &Value| {
            status["revision"]["decide"] == digest && loaded(status) == ("True", "Loaded")
        };
        self.wait_for_status("the component", active)
            .await
            .map(drop)
    }

    /// Waits until the newest revision is refused with this in the message, while a component stays active.
    async fn wait_for_message(&self, reason: &str, why: &str, active: &[u8]) -> Result<()> {
        let refused = |status: &Value| {
            let message = condition(status).and_then(|one| one["message"].as_str());
            loaded(status) == ("False", reason) && message.is_some_and(|text| text.contains(why))
        };
        let status = self.wait_for_status(why, refused).await?;
        let digest = digest(active);
        ensure!(status["revision"]["decide"] == digest, "{status}");
        Ok(())
    }
}

fn condition(status: &Value) -> Option<&Value> {
    let all = status["conditions"].as_array()?;
    all.iter().find(|one| one["type"] == "Loaded")
}

/// Status and reason of the condition `Loaded`.
fn loaded(status: &Value) -> (&str, &str) {
    let text = |field: &str| condition(status).and_then(|one| one[field].as_str());
    (
        text("status").unwrap_or_default(),
        text("reason").unwrap_or_default(),
    )
}

/// The requests of the agent for ConfigMaps of a namespace since a mark.
async fn requests(stage: &Stage, mark: Mark, namespace: &str) -> Result<usize> {
    let lines = stage.lines(mark).await?;
    let of = |target: &Target| target.resource == "configmaps" && target.namespace == namespace;
    let targets = lines.iter().filter_map(|line| line.target.as_ref());
    Ok(targets.filter(|target| of(target)).count())
}

#[test]
fn a_component_whose_own_case_fails_never_becomes_active() -> Result<()> {
    on_stage(async |stage| {
        stage.install_policies().await?;
        stage.hold_components().await?;
        stage.ready("one", true).await?;
        let first = component(b'a')?;
        stage.put_component("mine", &first).await?;
        stage.use_component("configmap:parts/mine/k").await?;
        let agent = stage.start_agent(&["--policy-objects", "--sources", SOURCES])?;
        stage.wait_for_component(&first).await?;
        let failing = with_case(component(b'b')?, true)?;
        stage.put_component("mine", &failing).await?;
        let why = "case `settings/none`: the answer is not the expected one";
        stage.wait_for_message("CasesFailed", why, &first).await?;
        let at_gate = |status: &Value| status["candidate"]["gate"] == "Cases";
        stage.wait_for_status("the gate", at_gate).await?;
        // The active revision goes on; a component whose cases pass takes over.
        stage.move_port("one", 7443).await?;
        stage.wait_for_right("one", 7443).await?;
        let passing = with_case(component(b'b')?, false)?;
        stage.put_component("mine", &passing).await?;
        stage.wait_for_component(&passing).await?;
        agent.stop()?;
        Ok(())
    })
}

#[test]
fn a_changed_config_map_swaps_the_component_and_a_damaged_one_is_refused() -> Result<()> {
    on_stage(async |stage| {
        stage.install_policies().await?;
        stage.hold_components().await?;
        stage.ready("one", true).await?;
        let (first, second) = (component(b'a')?, component(b'b')?);
        stage.put_component("mine", &first).await?;
        stage.use_component("configmap:parts/mine/k").await?;
        let words = ["--policy-objects", "--sources", SOURCES];
        let agent = stage.start_agent(&words)?;
        stage.wait_for_component(&first).await?;
        stage.wait_for_right("one", 6443).await?;
        stage.put_component("mine", &second).await?;
        stage.wait_for_component(&second).await?;
        for (damage, why) in [
            (&second[..second.len() / 2], "failed to parse"),
            (&[][..], "not a WebAssembly component"),
            (&b"\0asm\x01\0\0\0"[..], "core module"),
        ] {
            stage.put_component("mine", damage).await?;
            stage
                .wait_for_message("ComponentInvalid", why, &second)
                .await?;
        }
        stage.delete(CONFIG_MAP, Some(PARTS), "mine").await?;
        let why = "ConfigMap parts/mine does not exist";
        stage
            .wait_for_message("ComponentNotFound", why, &second)
            .await?;
        // The active revision goes on.
        stage.move_port("one", 7443).await?;
        stage.wait_for_right("one", 7443).await?;
        stage.put_component("mine", &first).await?;
        stage.wait_for_component(&first).await?;
        parts_and_restart(stage, &first).await?;
        agent.stop()?;
        // A restart goes on with what was loaded, also without the ConfigMap.
        stage.delete(CONFIG_MAP, Some(PARTS), "head").await?;
        let again = stage.start_agent(&words)?;
        let why = "ConfigMap parts/head does not exist";
        stage
            .wait_for_message("ComponentNotFound", why, &first)
            .await?;
        stage.move_port("one", 6443).await?;
        stage.wait_for_right("one", 6443).await?;
        let (head, _) = first.split_at(first.len() / 2);
        stage.put_component("head", head).await?;
        stage.wait_for_component(&first).await?;
        again.stop().map(drop)
    })
}

/// The digests of the components of all revisions that ever were active.
async fn ever_active(stage: &Stage) -> Result<BTreeSet<String>> {
    let all = stage.list(("apps/v1", "ControllerRevision")).await?;
    let of = all.iter().filter(|one| one.name_any().starts_with(NAME));
    let decide = |one: &DynamicObject| {
        let digest = &one.data["data"]["components"]["decide"];
        digest.as_str().map(str::to_owned)
    };
    Ok(of.filter_map(decide).collect())
}

#[test]
fn a_component_whose_parts_are_replaced_one_after_the_other_is_never_mixed() -> Result<()> {
    on_stage(async |stage| {
        stage.install_policies().await?;
        stage.hold_components().await?;
        stage.ready("one", true).await?;
        // They differ in both parts.
        let both = [component(b'a')?, program::component("fixture-second")?];
        let put = async |version: usize, parts: [usize; 2]| {
            let (head, tail) = both[version].split_at(both[version].len() / 2);
            for part in parts {
                let (name, bytes) = [("head", head), ("tail", tail)][part];
                stage.put_component(name, bytes).await?;
            }
            anyhow::Ok(())
        };
        put(0, [0, 1]).await?;
        stage.use_component("configmap:parts/head/k+tail/k").await?;
        let words = ["--policy-objects", "--lease-namespace", HOME];
        let agent = stage.start_agent(&[&words[..], &["--sources", SOURCES]].concat())?;
        stage.wait_for_component(&both[0]).await?;
        stage.wait_for_right("one", 6443).await?;
        // Seen in between: refused, and the active revision goes on.
        let (head, tail) = both[1].split_at(both[1].len() / 2);
        stage.put_component("head", head).await?;
        let why = "failed to parse";
        stage
            .wait_for_message("ComponentInvalid", why, &both[0])
            .await?;
        stage.move_port("one", 7443).await?;
        stage.wait_for_right("one", 7443).await?;
        stage.put_component("tail", tail).await?;
        stage.wait_for_component(&both[1]).await?;
        // One right after the other, in either order.
        for round in 0..6 {
            let parts = if round % 3 == 0 { [1, 0] } else { [0, 1] };
            put(round % 2, parts).await?;
        }
        stage.wait_for_component(&both[1]).await?;
        put(0, [1, 0]).await?;
        stage.wait_for_component(&both[0]).await?;
        let whole: BTreeSet<String> = both.iter().map(|one| digest(one)).collect();
        let active = ever_active(stage).await?;
        ensure!(active == whole, "{active:?} instead of {whole:?}");
        agent.stop().map(drop)
    })
}

/// A component in keys of two ConfigMaps, put there one after the other.
async fn parts_and_restart(stage: &Stage, whole: &[u8]) -> Result<()> {
    let (head, tail) = whole.split_at(whole.len() / 2);
    stage.put_component("head", head).await?;
    stage.use_component("configmap:parts/head/k+tail/k").await?;
    let why = "parts/tail does not exist";
    stage
        .wait_for_message("ComponentNotFound", why, whole)
        .await?;
    stage.put_component("tail", tail).await?;
    stage.wait_for_component(whole).await
}

#[test]
fn a_config_map_may_change_while_the_agent_starts_and_become_readable_later() -> Result<()> {
    on_stage(async |stage| {
        stage.install_policies().await?;
        stage.objects().namespace(PARTS).await?;
        stage.ready("one", true).await?;
        let (first, second) = (component(b'a')?, component(b'b')?);
        stage.put_component("late", &first).await?;
        stage.use_component("configmap:parts/late/k").await?;
        let words = ["--policy-objects", "--sources", SOURCES];
        let agent = stage.start_agent(&words)?;
        let refused = |status: &Value| loaded(status) == ("False", "ReadForbidden");
        stage.wait_for_status("the refusal", refused).await?;
        stage.allow_components(&[&stage.agent]).await?;
        stage.wait_for_component(&first).await?;
        agent.stop()?;
        let mark = stage.mark()?;
        let agent = stage.start_agent(&words)?;
        wait::until("the first read", DEADLINE, async || {
            Ok((requests(stage, mark, PARTS).await? > 0).then_some(()))
        })
        .await?;
        stage.put_component("late", &second).await?;
        stage.wait_for_component(&second).await?;
        agent.stop().map(drop)
    })
}

#[test]
fn a_policy_names_only_allowed_sources_and_the_agent_reads_no_other_config_map() -> Result<()> {
    on_stage(async |stage| {
        stage.install_policies().await?;
        stage.ready("one", true).await?;
        let secret = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"k": "not yours"},
            "metadata": {"namespace": "kube-system", "name": "theirs"}});
        stage.objects().apply(secret).await?;
        let mark = stage.mark()?;
        let agent = stage.start_agent(&["--policy-objects", "--sources", SOURCES])?;
        let bundled = program::component("kubeconfig")?;
        stage.wait_for_component(&bundled).await?;
        let mut said = Vec::new();
        for name in ["theirs", "nothing-is-here"] {
            let component = format!("configmap:kube-system/{name}/k");
            stage.use_component(&component).await?;
            let refused = |status: &Value| {
                let message = condition(status).and_then(|one| one["message"].as_str());
                loaded(status) == ("False", "ComponentNotAllowed")
                    && message.is_some_and(|message| message.contains(name))
            };
            let status = stage.wait_for_status(name, refused).await?;
            let message = condition(&status).map(|one| one["message"].to_string());
            said.push(message.unwrap_or_default().replace(name, ""));
        }
        ensure!(said[0] == said[1], "{said:?}");
        ensure!(said[0].contains(SOURCES), "{said:?}");
        agent.stop()?;
        ensure!(requests(stage, mark, "kube-system").await? == 0);
        Ok(())
    })
}

#[test]
fn reads_a_component_with_exactly_the_permissions_of_transom_rbac() -> Result<()> {
    on_stage(async |stage| {
        stage.objects().namespace(PARTS).await?;
        stage.ready("one", true).await?;
        let (first, second) = (component(b'a')?, component(b'b')?);
        let path = stage.cluster.folder().join("component.yaml");
        let policy = fs::read_to_string(program::policy(NAME))?;
        let named = policy.replace("builtin:kubeconfig", "configmap:parts/own/k");
        ensure!(named != policy, "the policy names another component");
        fs::write(&path, named)?;
        let path = path.to_str().context("the folder has another name")?;
        let printed = ["--policies", path, "--sources", SOURCES];
        let rights = stage.grant_exactly(&printed).await?;
        ensure!(!rights.is_empty(), "no rights");
        let mark = stage.mark()?;
        let words = ["--policies", path, "--sources", SOURCES];
        // The ConfigMap does not exist yet.
        let agent = stage.start_agent(&words)?;
        agent.wait_for_lines(1, &["ComponentNotFound"])?;
        stage.put_component("own", &first).await?;
        stage.wait_for_right("one", 6443).await?;
        stage.put_component("own", &second).await?;
        agent.wait_for_lines(1, &["swapped"])?;
        agent.stop()?;
        ensure!(requests(stage, mark, PARTS).await? > 0);
        stage.nothing_denied(mark).await?;
        // No more requests than a list, a watch and one read for each version.
        let all = requests(stage, mark, PARTS).await?;
        ensure!(all <= 10, "{all} requests for one ConfigMap");
        Ok(())
    })
}

#[test]
fn a_moved_tag_is_an_event_and_a_condition_of_its_policy() -> Result<()> {
    on_stage(async |stage| {
        let registry = Registry::start(Access::default())?;
        stage.install_policies().await?;
        stage.ready("one", true).await?;
        let (first, second) = (component(b'a')?, component(b'b')?);
        let pulled = registry.push("kubeconfig:v1", &first)?;
        let place = registry.place("kubeconfig");
        stage.use_component(&format!("oci:{place}:v1")).await?;
        let (address, sources) = (registry.address(), format!("builtin,oci:{place}"));
        let words = ["--policy-objects", "--sources", &sources];
        let more = ["--registry-http", &address, "--tag-resync-seconds", "1"];
        let mut command = stage.command(&[&words[..], &more].concat())?;
        // The cache of a user may know this address from the registry of an earlier test.
        command.env("XDG_CACHE_HOME", registry.folder().join("cache"));
        let agent = stage.start_command(&mut command)?;
        stage.wait_for_component(&first).await?;
        let moved = registry.push("kubeconfig:v1", &second)?;
        let event = wait::until("the Event", DEADLINE, async || {
            let events = stage.list(("events.k8s.io/v1", "Event")).await?;
            let mut events = events.into_iter().map(|one| one.data);
            // Another test on this server may have left an Event about its own registry.
            let here = |one: &Value| {
                one["note"]
                    .as_str()
                    .is_some_and(|note| note.contains(&place))
            };
            Ok(events.find(|one| one["reason"] == "TagMoved" && here(one)))
        });
        let event = event.await?;
        let note = event["note"].as_str().context("an Event without a note")?;
        ensure!(
            note.contains(&pulled) && note.contains(&moved),
            "pulled {pulled}, moved to {moved}: {event}"
        );
        let regarding = &event["regarding"];
        ensure!(
            regarding["kind"] == "FleetPolicy" && regarding["name"] == NAME,
            "{event}"
        );
        ensure!(regarding["uid"].as_str().is_some_and(|uid| !uid.is_empty()));
        let is_told = |status: &Value| {
            let all = status["conditions"].as_array().cloned().unwrap_or_default();
            let has = |kind: &str| {
                let mut all = all.iter();
                all.any(|one| one["type"] == kind && one["status"] == "True")
            };
            has("TagMoved") && has("Ready")
        };
        stage.wait_for_status("the condition", is_told).await?;
        agent.stop().map(drop)
    })
}

/// A word of a guest that no binary contains is found by the policy that names the guest.
#[test]
fn explain_knows_the_words_of_the_components_of_policy_objects() -> Result<()> {
    on_stage(async |stage| {
        stage.install_policies().await?;
        stage.objects().namespace(PARTS).await?;
        stage
            .put_component("mine", &program::component("fixture-answers")?)
            .await?;
        let admin = stage.cluster.admin();
        let explain = [
            "explain",
            "--policy-objects",
            "--sources",
            "builtin,configmap:parts/*",
        ];
        let words = [&explain[..], &["NothingGiven"]].concat();
        let before = stage.transom_as(admin, &words)?;
        ensure!(before.status.code() == Some(2), "{before:?}");
        stage.use_component("configmap:parts/mine/k").await?;
        let known = stage.transom_as(admin, &words)?;
        let told = program::stdout(&known);
        ensure!(
            known.status.success() && told.starts_with("NothingGiven ("),
            "{known:?}"
        );
        // One component that cannot be read hides no word of the others.
        stage.use_component("configmap:parts/none/k").await?;
        let words = [&explain[..], &["PrimaryDeleting"]].concat();
        let others = stage.transom_as(admin, &words)?;
        let told = String::from_utf8_lossy(&others.stderr).into_owned();
        ensure!(
            others.status.success() && told.contains("`configmap:parts/none/k`"),
            "{others:?}"
        );
        Ok(())
    })
}
