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
        if let Some(fields) = scope.fields.take() {
            let kind = kind_of(&scope);
            // In another namespace there is nothing to spare.
            let others = named.iter().filter(|((of, namespace), _)| {
                let anywhere = scope.namespace.is_none() || namespace.is_none();
                *of == kind && (anywhere || *namespace == scope.namespace)
            });
            let others: BTreeSet<&String> = others.flat_map(|(_, names)| names).collect();
            let kept = |name: &str| keep.names.admits(name);
            let mut apart = String::new();
            for name in others.into_iter().filter(|_| !keep.names.are_all()) {
                let excluded = format!(",metadata.name!={name}");
                if apart.len() + excluded.len() > MAX_EXCLUDED {
                    break;
                }
                if !kept(name) {
                    apart.push_str(&excluded);
                }
            }
            scope.fields = Some(fields + &apart);
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
    use super::super::plan::explained;
    use super::super::{Scope, SecretReads};
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
