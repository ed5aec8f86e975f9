//! Which watches an active policy depends on.

use crate::catalogue::CatalogueEntry;
use transom_api::status::WatchStatus;

/// Whether an active policy depends on a watch.
pub(super) fn concerns(entry: &CatalogueEntry, watch: &WatchStatus) -> bool {
    let Some(policy) = entry.revision.as_ref().map(|revision| &revision.policy) else {
        return false;
    };
    let is = |cluster: &str, api_version: &str, kind: &str| {
        // A file that cannot be read may hold any kind.
        let same_kind = watch.api_version == api_version && watch.kind == kind;
        watch.cluster == cluster && (watch.kind.is_empty() || same_kind)
    };
    let mut written = policy.beside().map(|(_, rule)| rule);
    let mut reads = policy.reads.iter();
    let primary = &policy.primary;
    written.any(|rule| is(&rule.cluster, &rule.api_version, &rule.kind))
        || reads.any(|rule| is(&rule.cluster, &rule.api_version, &rule.kind))
        || is(&primary.cluster, &primary.api_version, &primary.kind)
}
