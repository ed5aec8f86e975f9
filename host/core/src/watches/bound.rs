//! From the patterns of a policy to what the API server is asked for.

use super::plan::Bounds;
use super::{Keep, Scope};
use crate::pattern::Pattern;
use crate::policy::Policy;
use crate::projection::Paths;
use std::collections::BTreeSet;
use std::sync::Arc;

/// The watches for objects by wildcards of namespace (none for cluster-scoped kinds) and name: one for each exact
/// namespace and name, else one for all, which keeps only matches.
pub(super) fn bound(
    api_version: &str,
    kind: &str,
    namespaces: &[String],
    names: &[String],
    fields: Option<&Paths>,
) -> Bounds {
    let ((namespaces, kept_namespaces), (names, kept_names)) = (exact(namespaces), exact(names));
    let mut all = Bounds::new();
    let pairs = |namespace| names.iter().map(move |name| (namespace, name));
    for (namespace, name) in namespaces.iter().flat_map(pairs) {
        let scope = Scope {
            namespace: namespace.clone(),
            name: name.clone(),
            ..Scope::all(api_version, kind)
        };
        let keep = Keep {
            names: kept_names.clone(),
            namespaces: kept_namespaces.clone(),
            fields: fields.cloned(),
            ..Keep::default()
        };
        all.push((scope, keep));
    }
    all
}

/// The exact texts to ask for; or, when there are wildcards, one request for all and the wildcards to keep.
fn exact(wildcards: &[String]) -> (Vec<Option<String>>, Vec<Arc<str>>) {
    if !wildcards.is_empty() && wildcards.iter().all(|wildcard| !wildcard.contains('*')) {
        return (wildcards.iter().cloned().map(Some).collect(), Vec::new());
    }
    if wildcards.iter().any(|wildcard| wildcard == "*") {
        return (vec![None], Vec::new());
    }
    let kept = wildcards.iter().map(|wildcard| wildcard.as_str().into());
    (vec![None], kept.collect())
}

/// The wildcards that a pattern gives under a policy, without duplicates.
pub(super) fn wildcards(policy: &Policy, pattern: &Pattern) -> Vec<String> {
    let all: BTreeSet<_> = namespaces(policy)
        .iter()
        .map(|namespace| pattern.wildcard(namespace))
        .collect();
    all.into_iter().collect()
}

/// Wildcards of the namespaces of a policy's primaries.
pub(super) fn namespaces(policy: &Policy) -> Vec<String> {
    let all: BTreeSet<_> = policy
        .primary
        .namespaces
        .iter()
        .map(ToString::to_string)
        .collect();
    if all.contains("*") {
        vec!["*".to_owned()]
    } else {
        all.into_iter().collect()
    }
}
