//! Labels and annotations that the agent puts on what it writes. The agent never puts one on an object of a user.

/// Label: who manages the object; its value is [`MANAGER`].
pub const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// The value of [`MANAGED_BY`].
pub const MANAGER: &str = "transom";
/// Label: name of the policy that made the object.
pub const POLICY: &str = "transom.dev/policy";
/// Annotation: the subject that the object was made for, as JSON (cluster, apiVersion, kind, namespace, name, uid).
pub const SOURCE: &str = "transom.dev/source";
/// Annotation: digest of the inputs of the last write; credential bytes are not part of it.
pub const INPUTS: &str = "transom.dev/inputs";
/// Annotation: digest of the component that decided the last write.
pub const COMPONENT: &str = "transom.dev/component";
/// Annotation of a user on a subject: any value but `false` pauses it, for every policy.
pub const PAUSED: &str = "transom.dev/paused";
