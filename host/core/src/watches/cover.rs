//! Puts watches together: one for each scope, without those that another one covers.

use super::plan::ExplainedWatches;
use super::{Keep, Scope};
use crate::rights::Because;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

/// Adds a watch; an existing one of that scope then keeps what both keep.
pub(super) fn merge(
    watches: &mut ExplainedWatches,
    scope: Scope,
    keep: Keep,
    because: BTreeSet<Because>,
) {
    match watches.entry(scope) {
        Entry::Vacant(place) => drop(place.insert((keep, because))),
        Entry::Occupied(mut there) => {
            let (kept, reasons) = there.get_mut();
            kept.widen(&keep);
            // `append` makes a new set of both each time, which is quadratic over many policies.
            reasons.extend(because);
        }
    }
}

/// The most bytes of names that one watch excludes: they are part of the address of a request.
const MAX_EXCLUDED: usize = 2048;

/// Excludes from a watch of Secrets by type those that another watch asks for by name and that it would not keep
/// itself: the Secrets that we made are large, and would arrive twice. Of very many names only the first are excluded.
pub(super) fn spare(watches: ExplainedWatches) -> ExplainedWatches {
    let mut named: BTreeMap<_, BTreeSet<String>> = BTreeMap::new();
    for scope in watches.keys() {
        if let Some(name) = &scope.name {
            let place = (kind_of(scope), scope.namespace.clone());
            named.entry(place).or_default().insert(name.clone());
        }
    }
    let spared = watches.into_iter().map(|(mut scope, (keep, because))| {
        let kind = kind_of(&scope);
        // A watch that keeps every name has none to spare.
        if let Some(fields) = scope.fields.as_mut().filter(|_| !keep.names.are_all()) {
            let of = |namespace| named.get(&(kind.clone(), namespace)).into_iter().flatten();
            let others: BTreeSet<&String> = match &scope.namespace {
                // In another namespace there is nothing to spare.
                Some(here) => of(None).chain(of(Some(here.clone()))).collect(),
                None => {
                    let from = named.range((kind.clone(), None)..);
                    let of_kind = from.take_while(|((of, _), _)| *of == kind);
                    of_kind.flat_map(|(_, names)| names).collect()
                }
            };
            let apart = others.into_iter().filter(|name| !keep.names.admits(name));
            let most = fields.len() + MAX_EXCLUDED;
            for excluded in apart.map(|name| format!(",metadata.name!={name}")) {
                if fields.len() + excluded.len() > most {
                    break;
                }
                fields.push_str(&excluded);
            }
        }
        (scope, (keep, because))
    });
    spared.collect()
}

fn kind_of(scope: &Scope) -> (String, String) {
    (scope.api_version.clone(), scope.kind.clone())
}

/// The scopes that hold another one, the widest first: each lacks some of its bounds.
fn wider(scope: &Scope) -> impl Iterator<Item = Scope> {
    let bounds = |bit: usize| (0..15).map(move |bits| bits & bit > 0);
    let bounds = bounds(8).zip(bounds(4)).zip(bounds(2).zip(bounds(1)));
    let wider = bounds.map(|((namespace, name), (fields, labels))| Scope {
        namespace: scope.namespace.clone().filter(|_| namespace),
        name: scope.name.clone().filter(|_| name),
        fields: scope.fields.clone().filter(|_| fields),
        labels: scope.labels.clone().filter(|_| labels),
        ..Scope::all(&scope.api_version, &scope.kind)
    });
    wider.filter(move |wider| wider != scope)
}

/// Removes a watch that another one covers, and has that one keep its objects, too.
pub(super) fn narrow(mut watches: ExplainedWatches) -> ExplainedWatches {
    let scopes: Vec<Scope> = watches.keys().cloned().collect();
    for scope in &scopes {
        let holder = wider(scope).find(|other| watches.contains_key(other));
        let Some((holder, (mut keep, because))) = holder.zip(watches.get(scope).cloned()) else {
            continue;
        };
        watches.remove(scope);
        if let Some(name) = scope.name.as_deref().filter(|_| holder.name.is_none()) {
            keep.names = [name].into();
        }
        if let Some(namespace) = scope
            .namespace
            .as_deref()
            .filter(|_| holder.namespace.is_none())
        {
            keep.namespaces = [namespace].into();
        }
        merge(&mut watches, holder, keep, because);
    }
    watches
}

#[cfg(test)]
mod tests {
    use super::super::SecretReads;
    use super::super::plan::explained;
    use super::*;
    use crate::policy::Policy;
    use crate::sample::{kubeconfig_manifest, policy, with};
    use serde_json::json;

    /// A policy of 16 namespaces that reads and makes objects in each of them, named by it.
    fn wide() -> Policy {
        let namespaces: Vec<String> = (0..16)
            .map(|number| format!("namespace-{number:02}"))
            .collect();
        let read = |number: usize| {
            let name = match number {
                0 => "*-source".to_owned(),
                number => format!("{{primary.namespace}}-{number:0>150}"),
            };
            json!({"role": format!("r{number}"), "kind": "Secret", "namespace": "{primary.namespace}",
                "name": name, "keys": ["kubeconfig"]})
        };
        let mut manifest = with(
            kubeconfig_manifest(),
            &[
                ("/spec/primary/namespaces", json!(namespaces)),
                ("/spec/grant/read", (0..24).map(read).collect()),
            ],
        );
        let grant = manifest.pointer_mut("/spec/grant/write/0").unwrap();
        grant["kubeconfig"] = json!({"server": ["source"], "ca": ["r0"]});
        manifest["spec"]["own"]
            .as_object_mut()
            .map(|own| own.remove("keepUntilAbsent"));
        policy(&manifest)
    }

    #[test]
    fn a_small_policy_asks_for_each_name_in_its_own_namespace_only() {
        let policy = wide();
        let watches = explained([(&policy, None)], "local", SecretReads::Watch);
        let named = |scope: &&Scope| scope.kind == "Secret" && scope.name.is_some();
        let named: Vec<&Scope> = watches.keys().filter(named).collect();
        // Each name with each namespace would be 5,888, each compared with all others.
        let of_reads = named.iter().filter(|scope| scope.namespace.is_some());
        assert_eq!(of_reads.clone().count(), 23 * 16);
        let own = |scope: &&&Scope| {
            let (namespace, name) = (scope.namespace.as_deref(), scope.name.as_deref());
            name.unwrap().starts_with(namespace.unwrap())
        };
        assert!(of_reads.clone().all(|scope| own(&scope)));
    }

    #[test]
    fn a_name_that_a_watch_keeps_takes_no_room_of_those_that_it_excludes() {
        let scope = |namespace: Option<&str>, name: Option<&str>| Scope {
            namespace: namespace.map(str::to_owned),
            name: name.map(str::to_owned),
            fields: name.is_none().then(|| "type=Opaque".to_owned()),
            ..Scope::all("v1", "Secret")
        };
        let keep = Keep {
            names: ["a*"].into(),
            ..Keep::default()
        };
        // Beside the first twelve there is room for short names only.
        let long = (0..12).map(|at| format!("{at:0>150}"));
        let long: Vec<String> = long.chain([format!("a{:0>150}", 0)]).collect();
        let long = long.iter().map(|name| (Some("n"), name.as_str()));
        let names = long.chain([(Some("n"), "x"), (None, "y"), (Some("other"), "z")]);
        let named = names.map(|(namespace, name)| scope(namespace, Some(name)));
        let named: Vec<Scope> = named.collect();
        for (namespace, excluded) in [
            (Some("n"), "0011,metadata.name!=x,metadata.name!=y"),
            (
                None,
                "0011,metadata.name!=x,metadata.name!=y,metadata.name!=z",
            ),
        ] {
            let all = named.iter().cloned().chain([scope(namespace, None)]);
            let all = all.map(|scope| (scope, (keep.clone(), BTreeSet::new())));
            let spared = spare(all.collect());
            let fields: Vec<&String> = spared
                .keys()
                .filter_map(|scope| scope.fields.as_ref())
                .collect();
            assert!(
                fields.len() == 1 && fields[0].ends_with(excluded),
                "{fields:?}"
            );
        }
    }

    #[test]
    fn a_watch_excludes_names_of_its_namespace_while_a_request_can_bear_them() {
        let policy = wide();
        let watches = explained([(&policy, None)], "local", SecretReads::Watch);
        let excluding = watches.keys().filter_map(|scope| scope.fields.as_deref());
        let excluding: Vec<&str> = excluding.collect();
        assert_eq!(excluding.len(), 16);
        for fields in excluding {
            assert!(fields.matches("metadata.name!=").count() > 5, "{fields}");
            assert!(fields.len() < 2100, "{fields}");
        }
    }
}
