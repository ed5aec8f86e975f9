//! The kubeconfig world: a guest transforms one kubeconfig, whose credentials it sees by reference, into a Secret.

use super::{Answer, Granted, Lowering, World};
use crate::contract::credentials::{Proposal, ProposedCluster};
use crate::failure::Failure;
use crate::inputs::kubeconfigs::Read;
use crate::kubeconfig::{Assembled, KubeconfigLimits, Terms, url};
use crate::plan::desired::{Content, Desired, Hole, Whole};
use crate::policy::check::{at_most, data_key, pattern, unique};
use crate::policy::manifest::PolicyError;
use crate::policy::{ReadRule, Target, WriteRule};
use crate::projection::path::{Path, Segment};
use crate::reference::dns;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::net::IpAddr;
use transom_api::KnownReason;
use transom_api::policy::bounds::{self, FEW};
use transom_api::policy::{AddressGrant, KubeconfigGrant, Verb, WriteGrant};

type Checked<T> = Result<T, PolicyError>;

/// The kubeconfig world.
pub const KUBECONFIG: &dyn World = &Kubeconfig;

#[derive(Debug)]
struct Kubeconfig;

impl World for Kubeconfig {
    fn name(&self) -> &'static str {
        "kubeconfig-guest"
    }

    fn takes(&self, grants: &[WriteGrant]) -> bool {
        let makes = |grant: &WriteGrant| {
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
        if grant.verbs.is_empty() || grant.verbs.contains(&Verb::Patch) {
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
        let (namespace, name) = (
            named("namespace", &grant.namespace)?,
            named("name", &grant.name)?,
        );
        Ok(WriteRule {
            cluster: grant.cluster.clone(),
            api_version: grant.api_version.clone(),
            kind: "Secret".to_owned(),
            target: Target::Named {
                namespace: Some(namespace),
                name,
            },
            verbs: grant.verbs.iter().copied().collect(),
            fields: vec![Path::key("data").child(key)],
            values: Vec::new(),
            holes: Default::default(),
            taint_keys: std::collections::BTreeSet::new(),
            conditions: Default::default(),
            signers: Default::default(),
            kubeconfig: Some(kubeconfig.clone()),
            hands_on: Vec::new(),
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
            data: BTreeMap::from([(key.to_owned(), Content::Hole(Box::new(document)))]),
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
    source: &'a Read,
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
        ends_seconds: source.kubeconfig.ends_seconds(proposal),
    })
}

/// The text of a kubeconfig, with the source of its credentials.
#[derive(Debug)]
pub(super) struct Document<'a> {
    assembled: Assembled,
    source: &'a Read,
    limits: KubeconfigLimits,
    /// When the first of its client certificates ends, in seconds since 1970.
    pub(super) ends_seconds: Option<i64>,
}

impl Hole for Document<'_> {
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
}

/// Checks where the credential of a kubeconfig may go.
pub(super) fn destinations(
    field: &str,
    grant: &KubeconfigGrant,
    reads: &[ReadRule],
) -> Checked<()> {
    let has = |role: &str, kind: &str| {
        reads
            .iter()
            .any(|rule| rule.role == role && rule.kind == kind && rule.api_version == "v1")
    };
    for (index, server) in grant.server.iter().enumerate() {
        let why = match server.contains("://") {
            true if server.len() > bounds::PLACE => Some("is longer than 1024 bytes".to_owned()),
            true if server.contains('*') => {
                Some("has a `*`: expected one exact URL, patterns are not supported".to_owned())
            }
            true => url::server(server)
                .err()
                .map(|why| format!("is {why}; expected one exact URL")),
            false if server == "source" || has(server, "Service") => None,
            false => {
                Some("is neither the role of a Service, nor `source`, nor an exact URL".to_owned())
            }
        };
        if let Some(why) = why {
            return Err(PolicyError::new(format!("{field}.server[{index}]"), why));
        }
    }
    for (index, role) in grant.ca.iter().enumerate() {
        if !has(role, "Secret") {
            return Err(PolicyError::new(
                format!("{field}.ca[{index}]"),
                "is not the role of a Secret",
            ));
        }
    }
    addresses(field, &grant.addresses, reads)?;
    for (name, list) in [("server", &grant.server), ("ca", &grant.ca)] {
        if list.is_empty() && (name == "ca" || grant.addresses.is_empty()) {
            return Err(PolicyError::new(
                format!("{field}.{name}"),
                "is empty, so nothing could be written",
            ));
        }
        at_most(&format!("{field}.{name}"), list, FEW)?;
    }
    unique(
        &format!("{field}.credentials"),
        grant.credentials.iter().map(|kind| format!("{kind:?}")),
    )?;
    match dns::is_subdomain(&grant.cluster_domain) {
        true => Ok(()),
        false => Err(PolicyError::new(
            format!("{field}.clusterDomain"),
            "is not a DNS subdomain",
        )),
    }
}

/// Checks that each address grant has exactly one form, with all fields of that form and no others.
fn addresses(field: &str, grants: &[AddressGrant], reads: &[ReadRule]) -> Checked<()> {
    at_most(&format!("{field}.addresses"), grants, FEW)?;
    for (index, grant) in grants.iter().enumerate() {
        let at = |name: &str, why: &str| {
            Err(PolicyError::new(
                format!("{field}.addresses[{index}]{name}"),
                why,
            ))
        };
        let role = grant
            .role
            .as_ref()
            .map(|role| reads.iter().find(|rule| rule.role == *role));
        let is = |rule: &ReadRule, kind: &str| rule.api_version == "v1" && rule.kind == kind;
        let path = grant.field.as_ref().or(grant.primary_field.as_ref());
        match (
            grant.node_port,
            grant.load_balancer,
            &grant.field,
            &grant.primary_field,
        ) {
            (true, false, None, None) | (false, true, None, None) => match role {
                Some(Some(rule)) if is(rule, "Service") => {}
                _ => return at(".role", "is not the role of a Service"),
            },
            (false, false, Some(_), None) => match role {
                Some(Some(rule)) if !is(rule, "Secret") => {}
                _ => {
                    return at(
                        ".role",
                        "is not the role of an object whose fields may be read",
                    );
                }
            },
            (false, false, None, Some(_)) if role.is_some() => {
                return at(".role", "cannot be used with `primaryField`");
            }
            (false, false, None, Some(_)) => {}
            _ => {
                return at(
                    "",
                    "must have exactly one of `nodePort`, `loadBalancer`, `field` and `primaryField`",
                );
            }
        }
        if grant.node_port != grant.host.as_deref().is_some_and(is_host)
            || !grant.node_port && grant.host.is_some()
        {
            let why = "must be a host, an address, or `*.` and a domain of two parts or more, and only with `nodePort`";
            return at(".host", why);
        }
        if grant.port == Some(0) || grant.port.is_some() && path.is_none() {
            return at(".port", "is not a valid port, or is used without a field");
        }
        let plain = |path: &Path| {
            path.segments()
                .iter()
                .all(|segment| matches!(segment, Segment::Field(_)))
        };
        if path.is_some_and(|path| !Path::parse(path).is_ok_and(|path| plain(&path))) {
            let name = if grant.field.is_some() {
                ".field"
            } else {
                ".primaryField"
            };
            return at(name, "is not the path of a field");
        }
    }
    Ok(())
}

fn is_host(host: &str) -> bool {
    match host.strip_prefix("*.") {
        Some(domain) => {
            dns::is_subdomain(domain) && domain.contains('.') && domain.parse::<IpAddr>().is_err()
        }
        None => dns::is_subdomain(host) || host.parse::<IpAddr>().is_ok(),
    }
}
