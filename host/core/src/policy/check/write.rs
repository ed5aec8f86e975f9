//! What a policy may write: the write grants choose the world of the guest that decides, and that world checks them.

use super::super::manifest::PolicyError;
use super::super::{ReadRule, WriteRule};
use super::{Checked, at_most, connection, unique};
use crate::pattern::template::Names;
use crate::world::{self, Granted, World};
use transom_api::policy::bounds::FEW;
use transom_api::policy::{PolicySpec, WriteGrant};

/// Checks the write grants of a policy; returns its world and the rules.
pub(super) fn writes(
    spec: &PolicySpec,
    reads: &[ReadRule],
    names: &Names,
) -> Checked<(&'static dyn World, Vec<WriteRule>)> {
    let grants = &spec.grant.write;
    at_most("spec.grant.write", grants, FEW)?;
    let world = world::ALL.iter().find(|world| world.takes(grants));
    let mut rules = Vec::new();
    for (index, grant) in grants.iter().enumerate() {
        let field = format!("spec.grant.write[{index}]");
        connection(&field, &grant.cluster)?;
        let verbs = grant.verbs.iter().map(|verb| format!("{verb:?}"));
        unique(&format!("{field}.verbs"), verbs)?;
        let Some(world) = world.filter(|world| world.takes(std::slice::from_ref(grant))) else {
            return Err(unusable(&field, grant));
        };
        rules.push(world.rule(&Granted {
            field: &field,
            grant,
            primary: &spec.primary,
            reads,
            names,
        })?);
    }
    let primaries = rules.iter().filter(|rule| rule.named().is_none());
    if primaries.count() > 1 {
        let why = "grants fields of the primary twice; use one grant";
        return Err(PolicyError::new("spec.grant.write", why));
    }
    let empty = || {
        let why = "is empty: it must grant at least one write";
        PolicyError::new("spec.grant.write", why)
    };
    let world = world.filter(|_| !rules.is_empty()).ok_or_else(empty)?;
    Ok((*world, rules))
}

fn unusable(field: &str, grant: &WriteGrant) -> PolicyError {
    if grant.api_version.starts_with("rbac.authorization.k8s.io/") {
        return PolicyError::new(
            format!("{field}.kind"),
            "RBAC kinds cannot be granted: write access to them is cluster-admin access",
        );
    }
    if grant.kubeconfig.is_some() || grant.target.is_some() {
        let why = "grants taints and something else; use two policies";
        return PolicyError::new("spec.grant.write", why);
    }
    PolicyError::new(
        field,
        "has neither `kubeconfig` nor `target: primary`, so no guest could use it",
    )
}
