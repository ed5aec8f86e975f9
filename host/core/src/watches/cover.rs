//! Puts watches together: one for each scope, without those that another one covers.

use super::plan::ExplainedWatches;
use super::{Keep, Scope, matches};
use crate::rights::Because;
use std::collections::BTreeSet;
use std::collections::btree_map::Entry;

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
            kept.widen(keep);
            // `append` makes a new set of both each time, which is quadratic over many policies.
            reasons.extend(because);
        }
    }
}

/// Excludes from a watch of Secrets by type those that another watch asks for by name and that it would not keep
/// itself: the Secrets that we made are large, and would arrive twice.
pub(super) fn spare(watches: ExplainedWatches) -> ExplainedWatches {
    let named = |scope: &Scope, keep: &Keep, other: &Scope| {
        let same = (&scope.api_version, &scope.kind) == (&other.api_version, &other.kind);
        other
            .name
            .clone()
            .filter(|name| same && !keep.names.iter().any(|wildcard| matches(wildcard, name)))
    };
    let scopes: BTreeSet<Scope> = watches.keys().cloned().collect();
    let spared = watches.into_iter().map(|(mut scope, (keep, because))| {
        if let Some(fields) = scope.fields.take() {
            let others: BTreeSet<_> = scopes
                .iter()
                .filter_map(|other| named(&scope, &keep, other))
                .collect();
            let apart = others
                .iter()
                .filter(|_| !keep.names.is_empty())
                .map(|name| format!(",metadata.name!={name}"));
            scope.fields = Some(fields + &apart.collect::<String>());
        }
        (scope, (keep, because))
    });
    spared.collect()
}

/// Removes a watch that another one covers, and has that one keep its objects, too.
pub(super) fn narrow(mut watches: ExplainedWatches) -> ExplainedWatches {
    let scopes: Vec<Scope> = watches.keys().cloned().collect();
    for scope in &scopes {
        let holder = watches
            .keys()
            .find(|other| *other != scope && other.holds(scope))
            .cloned();
        let Some((holder, (mut keep, because))) = holder.zip(watches.get(scope).cloned()) else {
            continue;
        };
        watches.remove(scope);
        if let Some(name) = scope.name.as_deref().filter(|_| holder.name.is_none()) {
            keep.names = vec![name.into()];
        }
        if let Some(namespace) = scope
            .namespace
            .as_deref()
            .filter(|_| holder.namespace.is_none())
        {
            keep.namespaces = vec![namespace.into()];
        }
        merge(&mut watches, holder, keep, because);
    }
    watches
}
