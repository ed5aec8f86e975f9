//! Rights that an admission webhook asks for when certain fields are written. RBAC alone does not show them: the
//! webhook sends a SubjectAccessReview for whoever writes.

use super::Verb;
use crate::policy::WriteRule;
use crate::projection::path::Path;
use crate::reference::group;

/// What the agent lists where a policy owns taints: group, plural, and why.
pub(super) const OF_TAINTS: (&str, &str, &str) = (
    "admissionregistration.k8s.io",
    "mutatingwebhookconfigurations",
    "checks whether a webhook sets the times of taints",
);

/// A field, and the right that a webhook asks for when it changes.
struct Reviewed {
    /// Group and kind of the object.
    kind: (&'static str, &'static str),
    /// Dotted path of the field.
    field: &'static str,
    /// The verb that the webhook asks about.
    verb: Verb,
    /// Group and plural with subresource, likewise.
    resource: (&'static str, &'static str),
    /// For people.
    why: &'static str,
}

/// The webhook of Open Cluster Management's registration.
const REVIEWED: [Reviewed; 2] = [
    Reviewed {
        kind: (CLUSTERS, "ManagedCluster"),
        field: "spec.hubAcceptsClient",
        verb: Verb::Update,
        resource: (
            "register.open-cluster-management.io",
            "managedclusters/accept",
        ),
        why: "the hub's webhook asks who may accept clusters",
    },
    Reviewed {
        kind: (CLUSTERS, "ManagedCluster"),
        field: r#"metadata.labels["cluster.open-cluster-management.io/clusterset"]"#,
        verb: Verb::Create,
        resource: (CLUSTERS, "managedclustersets/join"),
        why: "the hub's webhook asks who may put clusters into a set",
    },
];
const CLUSTERS: &str = "cluster.open-cluster-management.io";

/// A right that a webhook asks for: group, plural with subresource, verb, and why.
pub(super) type WebhookRight = (&'static str, &'static str, Verb, &'static str);

/// What webhooks ask for when the fields of a rule are written.
pub(super) fn reviews(rule: &WriteRule) -> impl Iterator<Item = WebhookRight> {
    let group = group(&rule.api_version);
    let is_written = |field: &str| {
        let field = Path::parse(field).ok();
        field.is_some_and(|field| rule.fields.iter().any(|own| own.grants(&field)))
    };
    REVIEWED
        .iter()
        .filter(move |one| one.kind == (group, &*rule.kind) && is_written(one.field))
        .map(|one| (one.resource.0, one.resource.1, one.verb.clone(), one.why))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_is_a_path() {
        for one in REVIEWED {
            assert!(Path::parse(one.field).is_ok(), "{}", one.field);
        }
    }
}
