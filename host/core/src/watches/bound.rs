//! From the patterns of a policy to what the API server is asked for.

use super::plan::Bounds;
use super::{Keep, KeptNames, Scope};
use crate::pattern::Pattern;
use crate::policy::Policy;
use crate::projection::Paths;
use std::collections::BTreeSet;

/// Where objects may be: wildcards of namespace (none for cluster-scoped kinds) and name.
pub(super) type Places = BTreeSet<(Option<String>, String)>;

/// The watches for objects at these places: one for each exact namespace and name that go together, else one for all,
/// which keeps only matches.
pub(super) fn bound(
    api_version: &str,
    kind: &str,
    places: &Places,
    fields: Option<&Paths>,
) -> Bounds {
    let kept_namespaces = kept(
        places
            .iter()
            .filter_map(|(namespace, _)| namespace.as_deref()),
    );
    let kept_names = kept(places.iter().map(|(_, name)| name.as_str()));
    let asked = places.iter().map(|(namespace, name)| {
        let namespace = namespace.as_ref().filter(|_| kept_namespaces.is_none());
        (namespace, Some(name).filter(|_| kept_names.is_none()))
    });
    let asked: BTreeSet<_> = asked.collect();
    let watch = |(namespace, name): (Option<&String>, Option<&String>)| {
        let scope = Scope {
            namespace: namespace.cloned(),
            name: name.cloned(),
            ..Scope::all(api_version, kind)
        };
        let keep = Keep {
            names: kept_names.clone().unwrap_or_default(),
            namespaces: kept_namespaces.clone().unwrap_or_default(),
            fields: fields.cloned(),
            ..Keep::default()
        };
        (scope, keep)
    };
    asked.into_iter().map(watch).collect()
}

/// What to keep of one request for all, none of it for everything; `None` when each text is exact, so that each is
/// asked for.
fn kept<'w>(wildcards: impl Iterator<Item = &'w str>) -> Option<KeptNames> {
    let wildcards: BTreeSet<&str> = wildcards.collect();
    if !wildcards.is_empty() && wildcards.iter().all(|wildcard| !wildcard.contains('*')) {
        return None;
    }
    if wildcards.contains("*") {
        return Some(KeptNames::default());
    }
    Some(wildcards.into_iter().collect())
}

/// The places that patterns give under a policy. Both patterns are about the same primary, so each of its namespaces
/// gives one place, and not each namespace with each name.
pub(super) fn places(policy: &Policy, namespace: Option<&Pattern>, name: &Pattern) -> Places {
    let place = |of: &String| {
        let namespace = namespace.map(|pattern| pattern.wildcard(of));
        (namespace, name.wildcard(of))
    };
    everywhere_if_none(namespaces(policy).iter().map(place).collect())
}

/// The places of the primaries of a policy.
pub(super) fn places_of_primaries(policy: &Policy) -> Places {
    let place = |namespace| (Some(namespace), "*".to_owned());
    everywhere_if_none(namespaces(policy).into_iter().map(place).collect())
}

/// A policy whose newest manifest left it no namespace may have had primaries anywhere.
fn everywhere_if_none(mut places: Places) -> Places {
    if places.is_empty() {
        places.insert((None, "*".to_owned()));
    }
    places
}

/// Wildcards of the namespaces of a policy's primaries.
fn namespaces(policy: &Policy) -> Vec<String> {
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
