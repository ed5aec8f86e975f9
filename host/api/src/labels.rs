//! Labels and annotations that the agent sets on the objects that it creates. It sets none on objects of users.

/// Label: who manages the object; its value is [`MANAGER`].
pub const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// The value of [`MANAGED_BY`].
pub const MANAGER: &str = "transom";
/// Label: name of the policy that created the object.
pub const POLICY: &str = "transom.dev/policy";
/// Label, `true`: the object existed without ownership labels and was adopted. With it, a selector can tell created
/// objects from adopted ones.
pub const ADOPTED: &str = "transom.dev/adopted";
/// Annotation: the primary that the object was created for, as JSON (cluster, apiVersion, kind, namespace, name, uid;
/// on another connection also clusterUid).
pub const SOURCE: &str = "transom.dev/source";
/// Annotation: digest of the inputs of the last write; credential bytes are not part of it.
pub const INPUTS: &str = "transom.dev/inputs";
/// Annotation: digest of the component that decided the last write.
pub const COMPONENT: &str = "transom.dev/component";
/// Annotation: keys of the labels and annotations that the policy set on the object (`spec.own`), as JSON; absent when
/// there are none.
pub const MANAGED_KEYS: &str = "transom.dev/managed-keys";
/// Annotation of a user on a primary: any value but `false` pauses it, for every policy.
pub const PAUSED: &str = "transom.dev/paused";

/// Annotation of a user on a policy: the digest of the plan that is approved, as
/// `status.candidate.approve` or `status.limits.approve` shows it.
pub const APPROVED: &str = "transom.dev/approved";

/// Annotation: the name of the user who set [`APPROVED`]; the API server sees to that.
pub const APPROVED_BY: &str = "transom.dev/approved-by";
/// Annotation: groups of that user, separated by commas, where the right to approve comes from one.
pub const APPROVED_GROUPS: &str = "transom.dev/approved-groups";
/// All annotations of an approval.
pub const APPROVAL: [&str; 3] = [APPROVED, APPROVED_BY, APPROVED_GROUPS];
/// Annotation of a kept revision: why it may not become active again.
pub const BARRED: &str = "transom.dev/barred";
/// Annotation of a kept revision: until when its faults are watched, and how many there were before it became active.
pub const PROBATION: &str = "transom.dev/probation";
/// Annotation of a kept revision: the plan with which it became active, as JSON.
pub const PLAN: &str = "transom.dev/plan";
/// Annotation of a kept revision while it is watched: the same for each primary that it would change, as digests.
pub const EXPECTED: &str = "transom.dev/expected";
/// Annotation of a kept revision: the manifests by which its components were pulled from registries, as JSON (decide,
/// trigger): what their tags meant then.
pub const MANIFESTS: &str = "transom.dev/manifests";

/// Whether a label or annotation is the agent's own to set: [`MANAGED_BY`], and every key of `transom.dev` or below it.
pub fn is_reserved(key: &str) -> bool {
    let prefix = key.split_once('/').map_or("", |(prefix, _)| prefix);
    key == MANAGED_BY
        || prefix == crate::GROUP
        || prefix
            .strip_suffix(crate::GROUP)
            .is_some_and(|rest| rest.ends_with('.'))
}
