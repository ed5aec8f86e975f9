//! The setting for measuring short tasks: one engine, the guests with their policies' settings, the documents of this
//! folder.

use anyhow::{Context as _, Result, anyhow};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use std::path::Path;
use transom_core::catalogue;
use transom_core::contract::description::Role;
use transom_core::contract::{AgentFacts, Context};
use transom_core::document::{ParseLimits, parse_many};
use transom_core::object::Object;
use transom_core::policy::{Policy, check, manifest};
use transom_core::reference::{LOCAL, ObjectRef};
use transom_core::world::{self, TAINTS};
use transom_engine::{Capabilities, Engine, EngineOptions};

const HOSTED: &str = include_str!("../documents/hosted-cluster.yaml");
const MANAGED: &str = include_str!("../documents/managed-cluster.yaml");
const KUBECONFIG: &str = include_str!("../documents/kubeconfig.yaml");
const KUBECONFIG_POLICY: &str =
    include_str!("../../../policies/external-managed-kubeconfig/policy.yaml");
const TAINTS_POLICY: &str = include_str!("../../../policies/built-in-taints/policy.yaml");

/// A guest with its description.
pub(crate) struct Asked {
    /// The compiled guest.
    pub(crate) guest: transom_engine::Guest,
    /// Its description, for decisions.
    pub(crate) described: catalogue::guest::GuestFacts,
}

/// Everything that guests receive.
pub(crate) struct Scene {
    /// The policy of kubeconfigs.
    pub(crate) policy: Policy,
    /// Decides when to reconcile.
    pub(crate) trigger: Asked,
    /// Decides the content of a kubeconfig.
    pub(crate) kubeconfig: Asked,
    /// Decides the taints.
    pub(crate) taints: Asked,
    /// Does nothing.
    pub(crate) calm: Asked,
    /// A HostedCluster and the objects beside it.
    pub(crate) objects: Vec<Object>,
    /// A ManagedCluster.
    pub(crate) managed: Object,
    _engine: Engine,
}

impl Scene {
    /// Loads guests and documents.
    pub(crate) fn load(guests: &Path) -> Result<Self> {
        let engine = Engine::new(EngineOptions::default())?;
        let (policy, taints_policy) = (policy(KUBECONFIG_POLICY)?, policy(TAINTS_POLICY)?);
        let empty = serde_json::Map::new();
        let load = |name: &str,
                    role,
                    settings: &serde_json::Map<String, serde_json::Value>|
         -> Result<Asked> {
            let path = guests.join(name).with_extension("wasm");
            let bytes = std::fs::read(&path).with_context(|| {
                format!(
                    "failed to read `{}`: run `cargo xtask guests`",
                    path.display()
                )
            })?;
            let guest = engine.load(&bytes, role, &Capabilities::default())?;
            let described = catalogue::guest::GuestFacts::load(
                guest.digest(),
                guest.description().clone(),
                settings,
            );
            Ok(Asked {
                described: described.map_err(|failure| anyhow!("{failure}"))?,
                guest,
            })
        };
        let trigger_settings = policy
            .trigger
            .as_ref()
            .map_or(&empty, |spec| &spec.settings);
        Ok(Self {
            trigger: load("trigger", Role::Trigger, trigger_settings)?,
            kubeconfig: load(
                "kubeconfig",
                Role::Decide(world::KUBECONFIG),
                &policy.decide.settings,
            )?,
            taints: load(
                "taints",
                Role::Decide(TAINTS),
                &taints_policy.decide.settings,
            )?,
            calm: load("calm", Role::Decide(TAINTS), &empty)?,
            objects: objects(HOSTED)?,
            managed: objects(MANAGED)?
                .pop()
                .context("failed to find the ManagedCluster")?,
            policy,
            _engine: engine,
        })
    }

    /// The guest's context besides its arguments.
    pub(crate) fn context(asked: &Asked) -> Context {
        let agent = AgentFacts::new("local-cluster", None);
        Context {
            now_seconds: 1_795_000_000,
            settings: asked.described.settings.clone(),
            agent,
        }
    }

    /// The HostedCluster.
    pub(crate) fn hosted(&self) -> Result<&Object> {
        let found = self
            .objects
            .iter()
            .find(|object| object.reference.kind == "HostedCluster");
        found.context("failed to find the HostedCluster")
    }

    /// The kubeconfig as text.
    pub(crate) fn text(&self) -> &'static str {
        KUBECONFIG
    }
}

fn policy(text: &str) -> Result<Policy> {
    let value: serde_json::Value = serde_yaml::from_str(text)?;
    Ok(manifest::parse(&value).and_then(check::policy)?)
}

fn objects(text: &str) -> Result<Vec<Object>> {
    let limits = ParseLimits {
        bytes: 1 << 20,
        nodes: 100_000,
        depth: 64,
    };
    let mut objects = Vec::new();
    for parsed in parse_many(text.as_bytes(), limits) {
        let mut body = parsed.value?;
        if body["kind"] == "Secret" {
            // The kubeconfig is in a separate file, for human readers.
            body["data"] = serde_json::json!({"kubeconfig": STANDARD.encode(KUBECONFIG)});
        }
        let text = |pointer: &str| {
            body.pointer(pointer)
                .and_then(serde_json::Value::as_str)
                .map(str::to_owned)
        };
        let reference = ObjectRef {
            cluster: LOCAL.to_owned(),
            api_version: text("/apiVersion").unwrap_or_default(),
            kind: text("/kind").unwrap_or_default(),
            namespace: text("/metadata/namespace"),
            name: text("/metadata/name").unwrap_or_default(),
        };
        objects.push(Object {
            reference,
            version: String::new(),
            body,
        });
    }
    Ok(objects)
}
