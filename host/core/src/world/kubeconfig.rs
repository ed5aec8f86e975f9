//! The kubeconfig world: a guest transforms one kubeconfig, whose credentials it sees by reference, into a Secret.

mod destinations;

use super::{Answer, Granted, Lowering, World};
use crate::contract::credentials::{Proposal, ProposedCluster};
use crate::failure::Failure;
use crate::inputs::kubeconfigs::ReadKubeconfig;
use crate::kubeconfig::{Assembled, KubeconfigLimits, Terms};
use crate::plan::desired::{Desired, HoleContent, KeyContent, Whole};
use crate::policy::check::{data_key, pattern};
use crate::policy::manifest::PolicyError;
use crate::policy::{Target, WriteRule};
use crate::projection::path::Path;
pub(super) use destinations::destinations;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use transom_api::KnownReason;
use transom_api::policy::{KubeconfigGrant, WriteGrantSpec, WriteVerb};

type Checked<T> = Result<T, PolicyError>;

/// The kubeconfig world.
pub const KUBECONFIG: &dyn World = &Kubeconfig;

#[derive(Debug)]
struct Kubeconfig;

impl World for Kubeconfig {
    fn name(&self) -> &'static str {
        "kubeconfig-guest"
    }

    fn takes(&self, grants: &[WriteGrantSpec]) -> bool {
        let makes = |grant: &WriteGrantSpec| {
            grant.kubeconfig.is_some() && grant.target.is_none() && grant.holes.is_empty()
        };
        grants.iter().any(makes)
    }

    fn rule(&self, granted: &Granted<'_>) -> Checked<WriteRule> {
        let Granted { field, grant, .. } = *granted;
        let Some(kubeconfig) = &grant.kubeconfig else {
            return Err(PolicyError::new(
                format!("{field}.kubeconfig"),
                "is missing",
            ));
        };
        let required = |name: &str, given: &Option<String>| {
            let missing = || PolicyError::new(format!("{field}.{name}"), "is missing");
            given.clone().ok_or_else(missing)
        };
        if grant.api_version != "v1" || required("kind", &grant.kind)? != "Secret" {
            let why = "a kubeconfig can be written only to a Secret of v1";
            return Err(PolicyError::new(format!("{field}.kind"), why));
        }
        if !grant.taint_keys.is_empty() {
            let why = "a Secret has no taints";
            return Err(PolicyError::new(format!("{field}.taintKeys"), why));
        }
        if grant.verbs.is_empty() || grant.verbs.contains(&WriteVerb::Patch) {
            let why = "must be some of create, update, delete";
            return Err(PolicyError::new(format!("{field}.verbs"), why));
        }
        let key = match grant.fields.as_slice() {
            [only] => only.strip_prefix("data.").unwrap_or_default(),
            _ => "",
        };
        data_key(&format!("{field}.fields"), key)?;
        destinations(&format!("{field}.kubeconfig"), kubeconfig, granted.reads)?;
        let named = |name: &str, given: &Option<String>| {
            pattern(
                &format!("{field}.{name}"),
                &required(name, given)?,
                granted.names,
            )
        };
        let target = Target::Named {
            namespace: Some(named("namespace", &grant.namespace)?),
            name: named("name", &grant.name)?,
            finalizers: BTreeSet::new(),
        };
        Ok(WriteRule {
            fields: vec![Path::key("data").child(key)],
            kubeconfig: Some(kubeconfig.clone()),
            ..granted.rule(target)
        })
    }

    fn requires(&self) -> bool {
        true
    }
}

impl Answer for Proposal {
    fn lower<'a>(&'a self, given: &Lowering<'a>) -> Result<Vec<Desired<'a>>, Failure> {
        let source = given.kubeconfigs.only()?;
        let rule = given.policy.whole(given.target, &given.data)?;
        let (Some(grant), Some(key)) = (&rule.kubeconfig, rule.data_keys().next()) else {
            let message = format!("the policy does not grant a kubeconfig in {}", given.target);
            return Err(Failure::known(KnownReason::WriteNotGranted, message));
        };
        let document = made(self, source, grant, given)?;
        Ok(vec![Desired::Whole(Whole {
            object: given.target.clone(),
            fixed: Map::from_iter([("type".to_owned(), json!("Opaque"))]),
            content: Map::new(),
            ends_seconds: document.ends_seconds,
            data: BTreeMap::from([(key.to_owned(), KeyContent::Hole(Box::new(document)))]),
        })])
    }

    fn shown(&self) -> Option<Value> {
        let server = |cluster: &ProposedCluster| {
            let url = &cluster.server;
            let port = url.port.map(|port| format!(":{port}")).unwrap_or_default();
            format!("{}://{}{port}", url.scheme, url.host)
        };
        let servers: Vec<String> = self.clusters.iter().map(server).collect();
        let (users, contexts) = (self.users.len(), self.contexts.len());
        Some(json!({"servers": servers, "users": users, "contexts": contexts}))
    }
}

/// Makes the kubeconfig that a guest proposes of one that was read, within the grant. The same for every world.
///
/// # Errors
/// References that were never given, anything that is not granted, and an unsound result.
pub(super) fn made<'a>(
    proposal: &Proposal,
    source: &'a ReadKubeconfig,
    grant: &KubeconfigGrant,
    given: &Lowering<'a>,
) -> Result<Document<'a>, Failure> {
    let limits = given.kubeconfigs.limits();
    let terms = Terms {
        grant,
        source_role: &source.role,
        inputs: given.inputs,
        primary: &given.primary.fields,
        now_seconds: given.now_seconds,
        limits,
    };
    let assembled = source.kubeconfig.assemble(proposal, &terms);
    Ok(Document {
        assembled: assembled.map_err(|error| source.failure(&error))?,
        source,
        limits,
        ends_seconds: source.kubeconfig.ends_seconds(proposal, given.now_seconds),
    })
}

/// The text of a kubeconfig, with the source of its credentials.
#[derive(Debug)]
pub(super) struct Document<'a> {
    assembled: Assembled,
    source: &'a ReadKubeconfig,
    limits: KubeconfigLimits,
    /// When the next of its certificates ends, in seconds since 1970.
    pub(super) ends_seconds: Option<i64>,
}

impl HoleContent for Document<'_> {
    fn bytes(&self) -> &[u8] {
        self.assembled.to_yaml().as_bytes()
    }

    fn equals(&self, bytes: &[u8]) -> bool {
        self.assembled.says_the_same(bytes)
    }

    fn shares_credential(&self, bytes: &[u8]) -> bool {
        self.source
            .kubeconfig
            .shares_credential(bytes, &self.limits)
    }

    fn open(&self) -> Option<Value> {
        self.assembled.open()
    }
}
