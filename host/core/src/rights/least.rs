//! Leaves out rights that other rights cover; and tells which of those that are left RBAC cannot limit.

use super::{AgentDuties, Because, CoveredObjects, Right, Rights, RightsRequest, Verb, kinds};
use crate::policy::Policy;
use crate::watches::SecretReads;
use std::collections::BTreeSet;

/// The same rights without those that others cover; a removed right passes its reasons to one that covers it.
pub(super) fn of(mut rights: Rights) -> Rights {
    let all: Vec<CoveredObjects> = rights.keys().cloned().collect();
    for objects in &all {
        let Some(Right { mut verbs, because }) = rights.remove(objects) else {
            continue;
        };
        for outer in wider(objects) {
            if let Some(right) = rights.get_mut(&outer) {
                verbs = take(right, verbs, &because);
            }
        }
        if !verbs.is_empty() {
            rights.insert(objects.clone(), Right { verbs, because });
        }
    }
    rights
}

/// The verbs that are left when those of a wider right are removed; the wider right gets their reasons, too.
fn take(wider: &mut Right, verbs: BTreeSet<Verb>, because: &BTreeSet<Because>) -> BTreeSet<Verb> {
    let (held, left): (BTreeSet<Verb>, _) = verbs
        .into_iter()
        .partition(|verb| wider.verbs.contains(verb));
    if !held.is_empty() {
        wider.because.extend(because.iter().cloned());
    }
    left
}

/// The objects of rights that cover that to some objects: each bound of theirs is also one of these.
fn wider(objects: &CoveredObjects) -> impl Iterator<Item = CoveredObjects> {
    let bounds = [(false, false), (false, true), (true, false)].into_iter();
    let wider = bounds.map(|(namespace, name)| CoveredObjects {
        namespace: objects.namespace.clone().filter(|_| namespace),
        name: objects.name.clone().filter(|_| name),
        ..objects.clone()
    });
    wider.filter(move |wider| wider != objects)
}

/// What a grant allows that RBAC cannot limit: one sentence for each connection on which a policy needs rights to
/// every Secret.
pub fn every_secret(policy: &Policy, secrets: SecretReads, read_only: bool) -> Vec<String> {
    let connections: BTreeSet<&str> = policy.clusters().map(|(_, cluster)| cluster).collect();
    let sentence = |connection: &&str| {
        let kind = |_: &str, kind: &str| kinds::guess(kind);
        let asked = RightsRequest {
            connection,
            home: "",
            secrets,
            read_only,
            own: AgentDuties::default(),
            kind: &kind,
        };
        let rights = super::of(&[policy], asked);
        let Right { verbs, because } = rights.get(&CoveredObjects::all("", "secrets"))?;
        let verbs: Vec<_> = verbs.iter().map(super::Verb::as_str).collect();
        let line = |because: &Because| match because {
            Because::Policy { line, .. } => line.clone(),
            Because::Agent(what) => (*what).to_owned(),
        };
        let lines: Vec<_> = because.iter().map(line).collect();
        Some(format!(
            "the agent may {} every Secret of `{connection}`: RBAC restricts access only by exact names and \
             namespaces, and there are patterns in {}",
            verbs.join(", "),
            lines.join(", "),
        ))
    };
    connections.iter().filter_map(sentence).collect()
}
