//! Which watches an active policy depends on.

use crate::catalogue::CatalogueEntry;
use transom_api::status::WatchStatus;

/// Whether an active policy depends on a watch.
pub(super) fn concerns(entry: &CatalogueEntry, watch: &WatchStatus) -> bool {
    let Some(policy) = entry.revision.as_ref().map(|revision| &revision.policy) else {
        return false;
    };
    let kind = (watch.api_version.as_str(), watch.kind.as_str());
    policy.depends_on(&watch.cluster, (!watch.kind.is_empty()).then_some(kind))
}
