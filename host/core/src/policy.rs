//! A policy that has been checked: patterns parsed, grants sorted by purpose. The catalogue has its components.

pub mod bound;
pub mod check;
pub mod manifest;

use crate::failure::Failure;
use crate::object::Object;
use crate::pattern::{Pattern, TemplateData};
use crate::reference::ObjectRef;
use std::collections::BTreeSet;
use std::sync::Arc;
use transom_api::policy::{GuestSpec, KubeconfigGrant, OwnSpec, Verb};
use transom_api::{KnownReason, labels};

/// A checked policy; made by [`check::policy`].
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    /// Its name: a DNS subdomain of at most 63 bytes, so that it fits a label.
    pub name: Arc<str>,
    /// Whether the policy is suspended: no write and no prune.
    pub suspend: bool,
    /// Which objects are its primaries.
    pub primary: PrimaryRule,
    /// The trigger guest, which decides when to reconcile, if there is one.
    pub trigger: Option<GuestSpec>,
    /// The guest that decides what to write; its world is [`Writes::world`].
    pub decide: GuestSpec,
    /// What may be read, by role; roles are unique.
    pub reads: Vec<ReadRule>,
    /// What may be written.
    pub writes: Writes,
    /// How the policy treats the objects that it made.
    pub own: OwnSpec,
    /// Seconds between two resyncs, 0 for none.
    pub resync_seconds: u32,
}

impl Policy {
    /// Each field that names a connection, with that connection.
    pub fn clusters(&self) -> impl Iterator<Item = (String, &str)> {
        let reads = self.reads.iter().enumerate();
        let reads = reads.map(|(at, rule)| {
            (
                format!("spec.grant.read[{at}].cluster"),
                rule.cluster.as_str(),
            )
        });
        let writes = self.secrets().iter().enumerate();
        let writes = writes.map(|(at, rule)| {
            (
                format!("spec.grant.write[{at}].cluster"),
                rule.cluster.as_str(),
            )
        });
        [(
            "spec.primary.cluster".to_owned(),
            self.primary.cluster.as_str(),
        )]
        .into_iter()
        .chain(reads)
        .chain(writes)
    }
}

/// Which objects are primaries of a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrimaryRule {
    /// Name of the connection.
    pub cluster: String,
    /// Group and version.
    pub api_version: String,
    /// Kind.
    pub kind: String,
    /// Patterns of namespaces; ignored for objects without one.
    pub namespaces: Vec<Pattern>,
}

/// Objects that may be read under one role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadRule {
    /// The role.
    pub role: String,
    /// Name of the connection.
    pub cluster: String,
    /// Group and version.
    pub api_version: String,
    /// Kind.
    pub kind: String,
    /// Absent for cluster-scoped kinds.
    pub namespace: Option<Pattern>,
    /// Name.
    pub name: Pattern,
    /// Keys of a Secret's data that may be read.
    pub keys: BTreeSet<String>,
}

/// What a policy may write: one of these.
#[derive(Clone, Debug, PartialEq)]
pub enum Writes {
    /// Secrets that hold a kubeconfig, made by the policy.
    Kubeconfig(Vec<SecretRule>),
    /// Taints of the primary.
    Taints(TaintsRule),
}

/// Secrets that a policy may make.
#[derive(Clone, Debug, PartialEq)]
pub struct SecretRule {
    /// Name of the connection.
    pub cluster: String,
    /// Namespace.
    pub namespace: Pattern,
    /// Name.
    pub name: Pattern,
    /// What may be done: create, update, delete.
    pub verbs: BTreeSet<Verb>,
    /// The key of `data` that may be written.
    pub key: String,
    /// Where the credential may go.
    pub kubeconfig: KubeconfigGrant,
}

/// Taints of the primary that a policy owns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaintsRule {
    /// The owned keys.
    pub keys: BTreeSet<String>,
}

impl PrimaryRule {
    /// Whether an object is a primary.
    pub fn admits(&self, object: &ObjectRef) -> bool {
        let kind = self.cluster == object.cluster
            && self.api_version == object.api_version
            && self.kind == object.kind;
        let namespace = object.namespace.as_deref();
        kind && namespace.is_none_or(|name| {
            self.namespaces
                .iter()
                .any(|pattern| pattern.matches_text(name))
        })
    }
}

impl ReadRule {
    /// Whether an object may be read for a primary.
    pub fn admits(&self, object: &ObjectRef, data: &TemplateData<'_>) -> bool {
        let kind = self.cluster == object.cluster
            && self.api_version == object.api_version
            && self.kind == object.kind;
        let namespace = match (&self.namespace, &object.namespace) {
            (None, None) => true,
            (Some(pattern), Some(name)) => pattern.matches(name, data),
            _ => false,
        };
        kind && namespace && self.name.matches(&object.name, data)
    }

    /// What it admits for a primary, for people: `Secret clusters/demo-admin-kubeconfig`.
    pub fn shown(&self, data: &TemplateData<'_>) -> String {
        let namespace = self
            .namespace
            .as_ref()
            .map(|pattern| format!("{}/", pattern.shown(data)));
        format!(
            "{} {}{}",
            self.kind,
            namespace.unwrap_or_default(),
            self.name.shown(data)
        )
    }
}

impl SecretRule {
    /// Whether an object may be written for a primary.
    pub fn admits(&self, object: &ObjectRef, data: &TemplateData<'_>) -> bool {
        let namespace = object.namespace.as_deref();
        self.is_kind_of(object)
            && namespace.is_some_and(|name| self.namespace.matches(name, data))
            && self.name.matches(&object.name, data)
    }

    /// Whether an object may have been written for a primary, whatever labels and annotations the primary had then.
    pub fn made(&self, object: &ObjectRef, primary: &ObjectRef) -> bool {
        let namespace = object.namespace.as_deref();
        self.is_kind_of(object)
            && namespace.is_some_and(|name| self.namespace.captures(name, primary).is_some())
            && self.name.captures(&object.name, primary).is_some()
    }

    fn is_kind_of(&self, object: &ObjectRef) -> bool {
        self.cluster == object.cluster && object.api_version == "v1" && object.kind == "Secret"
    }
}

impl Policy {
    /// Checks that a primary is not held: for a held one nothing is written and nothing pruned.
    ///
    /// # Errors
    /// `Suspended` or `Paused`.
    pub fn held(&self, primary: &Object) -> Result<(), Failure> {
        if self.suspend {
            return Err(Failure::known(
                KnownReason::Suspended,
                "the policy is suspended",
            ));
        }
        if primary.paused() {
            let message = format!(
                "{} has the annotation {}",
                primary.reference,
                labels::PAUSED
            );
            return Err(Failure::known(KnownReason::Paused, message));
        }
        Ok(())
    }

    /// The read grant of a role.
    pub fn read(&self, role: &str) -> Option<&ReadRule> {
        self.reads.iter().find(|rule| rule.role == role)
    }

    /// The write grant that covers a Secret for a primary.
    ///
    /// # Errors
    /// `WriteNotGranted`, with what is granted for this primary.
    pub fn secret(
        &self,
        target: &ObjectRef,
        data: &TemplateData<'_>,
    ) -> Result<&SecretRule, Failure> {
        self.secrets()
            .iter()
            .find(|rule| rule.admits(target, data))
            .ok_or_else(|| {
                let granted = |rule: &SecretRule| {
                    format!(
                        "Secret {}/{}",
                        rule.namespace.shown(data),
                        rule.name.shown(data)
                    )
                };
                let granted: Vec<_> = self.secrets().iter().map(granted).collect();
                let message = format!(
                    "the policy does not grant writing {target}; granted: {}",
                    granted.join(", ")
                );
                Failure::known(KnownReason::WriteNotGranted, message)
            })
    }

    /// The write grant that covers a Secret which was made for a primary; the primary may be gone or changed since.
    pub fn made(&self, output: &ObjectRef, primary: &ObjectRef) -> Option<&SecretRule> {
        self.secrets()
            .iter()
            .find(|rule| rule.made(output, primary))
    }

    fn secrets(&self) -> &[SecretRule] {
        match &self.writes {
            Writes::Kubeconfig(rules) => rules,
            Writes::Taints(_) => &[],
        }
    }
}

impl Writes {
    /// The world that the decide guest is built for.
    pub fn world(&self) -> crate::contract::description::World {
        match self {
            Self::Kubeconfig(_) => crate::contract::description::World::Kubeconfig,
            Self::Taints(_) => crate::contract::description::World::Taints,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::Class;
    use crate::sample::{hosted, kubeconfig_manifest, object, policy};
    use serde_json::json;

    #[test]
    fn the_policy_or_the_primary_may_suspend() {
        let reason = |policy: &Policy, body| {
            policy
                .held(&object(hosted("demo"), body))
                .map_err(|failure| (failure.reason, failure.class))
        };
        let paused = json!({"metadata": {"annotations": {"transom.dev/paused": "true"}}});
        let mut policy = policy(&kubeconfig_manifest());
        assert_eq!(reason(&policy, json!({})), Ok(()));
        assert_eq!(
            reason(&policy, paused.clone()),
            Err((KnownReason::Paused.into(), Class::Held))
        );
        policy.suspend = true;
        assert_eq!(
            reason(&policy, paused),
            Err((KnownReason::Suspended.into(), Class::Held))
        );
    }
}
