//! What a grant allows that RBAC cannot limit.

use super::{Asked, Because, Objects, Own, Right, kinds, of};
use crate::policy::Policy;
use crate::watches::SecretReads;
use std::collections::BTreeSet;

/// What a grant allows that RBAC cannot limit: one sentence for each connection on which a policy needs rights to
/// every Secret.
pub fn every_secret(policy: &Policy, secrets: SecretReads, read_only: bool) -> Vec<String> {
    let connections: BTreeSet<&str> = policy.clusters().map(|(_, cluster)| cluster).collect();
    let sentence = |connection: &&str| {
        let kind = |_: &str, kind: &str| kinds::guess(kind);
        let asked = Asked {
            connection,
            home: "",
            secrets,
            read_only,
            own: Own::default(),
            kind: &kind,
        };
        let all = Objects {
            namespace: None,
            group: String::new(),
            resource: "secrets".to_owned(),
            name: None,
        };
        let rights = of(&[policy], asked);
        let Right { verbs, because } = rights.get(&all)?;
        let verbs: Vec<_> = verbs.iter().map(|verb| verb.as_str()).collect();
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
