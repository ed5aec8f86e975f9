//! The kind `FleetPolicy`: its primaries, its guests, what they may read and write, and what the policy owns.
//! The shape only: unknown fields are refused here, everything else is validated in `core`.

mod ask;
pub mod budget;
mod every;
pub mod failure;
mod hole;
pub mod kubeconfig;
pub mod labels;
pub mod limits;
mod own;
mod replaces;
pub mod rollout;
pub mod verify;

pub use ask::{AccessReviewGrant, AskAs, AskGrantSpec};
pub use budget::{BudgetSpec, Budgeted};
pub use every::EverySpec;
pub use failure::{FailureMode, OnFailureSpec};
pub use hole::{HoleGrantSpec, ManifestKind};
pub use kubeconfig::{AddressGrant, CarryGrant, CredentialGrant, InsecureGrant, KubeconfigGrant};
pub use labels::{LabelExpression, LabelOperator, LabelSelectorSpec};
pub use limits::{LimitSpec, Limited, LimitsSpec};
pub use own::{AdoptSpec, OwnSpec, PruneSpec};
pub use replaces::ReplacesSpec;
pub use rollout::{ModeSpec, RollbackSpec, RolloutSpec};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
pub use verify::{KeySpec, VerifyMode, VerifySpec};

/// Limits of a policy. The schema of the CRD and the check of a policy both use these numbers.
pub mod bounds {
    /// Maximum number of namespace patterns of a primary, read grants, keys of a Secret, and taint keys.
    pub const MANY: usize = 64;
    /// Maximum number of write grants, servers, CA roles, roles of `keepUntilAbsent`, labels, annotations and names.
    pub const FEW: usize = 16;
    /// Maximum length of a pattern, in characters.
    pub const PATTERN: usize = 253;
    /// Maximum length of a template of `grant.names`, in characters.
    pub const TEMPLATE: usize = 512;
    /// Maximum length of a kind, a connection name and a role, in bytes.
    pub const LABEL: usize = 63;
    /// Maximum length of group and version, in bytes.
    pub const API_VERSION: usize = 317;
    /// Maximum length of a component's path and of a server, in characters.
    pub const PLACE: usize = 1024;
    /// Maximum length of the key of a taint, a label or an annotation, in characters.
    pub const TAINT_KEY: usize = 317;
    /// Maximum length of a key of a Secret's data and of a domain, in bytes.
    pub const DATA_KEY: usize = 253;
    /// Maximum length of the value of an annotation, in characters.
    pub const ANNOTATION: usize = 1024;
}

/// The specification of a policy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PolicySpec {
    /// While this is true, nothing is written or pruned.
    #[serde(default)]
    pub suspend: bool,
    /// The primary objects: the objects that the policy is about.
    pub primary: PrimarySpec,
    /// The guests that decide.
    pub guests: GuestsSpec,
    /// What the guests may read, and what is written on their behalf.
    #[serde(default)]
    pub grant: GrantSpec,
    /// Which keys have to have signed the components. Without it, no signature is needed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verify: Option<VerifySpec>,
    /// Ownership: what happens to the objects that the policy created.
    #[serde(default)]
    pub own: OwnSpec,
    /// How much may change in an interval.
    #[serde(default)]
    pub limits: LimitsSpec,
    /// What happens to the applied state of a primary while its guest fails.
    #[serde(default)]
    pub on_failure: OnFailureSpec,
    /// What one call of the guests may use.
    #[serde(default, skip_serializing_if = "BudgetSpec::is_empty")]
    pub budget: BudgetSpec,
    /// Seconds between two resyncs of a primary, with jitter; 0 disables resync.
    #[serde(default = "default_resync_seconds")]
    pub resync_seconds: u32,
    /// How a new revision becomes active.
    #[serde(default)]
    pub rollout: RolloutSpec,
    /// The controllers of others that do what the policy does. While one of them runs, the status says `Conflicting`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub replaces: Vec<ReplacesSpec>,
}

/// Half an hour.
fn default_resync_seconds() -> u32 {
    1800
}

/// The connection named `local`.
fn local() -> String {
    "local".to_owned()
}

/// The core group.
fn v1() -> String {
    "v1".to_owned()
}

/// Every namespace.
fn everywhere() -> Vec<String> {
    vec!["*".to_owned()]
}

/// The primary objects: the objects that the policy is about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PrimarySpec {
    /// Name of the connection.
    #[serde(default = "local")]
    pub cluster: String,
    /// Group and version.
    pub api_version: String,
    /// Kind.
    pub kind: String,
    /// Patterns of namespaces; `*` matches any text. Ignored for cluster-scoped kinds. Each exact namespace needs
    /// watches of its own, of which a policy has at most 512.
    #[serde(default = "everywhere")]
    pub namespaces: Vec<String>,
    /// Which labels they have. An object that loses one of them is treated like one that is gone.
    #[serde(default, skip_serializing_if = "LabelSelectorSpec::is_empty")]
    pub labels: LabelSelectorSpec,
    /// Whether the annotation `transom.dev/paused` holds a primary.
    #[serde(default, skip_serializing_if = "PauseSpec::is_default")]
    pub pause: PauseSpec,
}

/// What the annotation `transom.dev/paused` on a primary does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PauseSpec {
    /// The agent writes nothing for that primary, and prunes nothing.
    #[default]
    Honor,
    /// No effect: whoever may write the primary, such as the agent of a ManagedCluster, cannot pause it.
    Ignore,
}

impl PauseSpec {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// The guests of a policy by role.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GuestsSpec {
    /// Decides when to reconcile. Without it, every change of a declared field triggers a reconcile, and every primary
    /// is ready. A change of a field that the policy writes on its primary always triggers one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trigger: Option<GuestSpec>,
    /// Decides what to write.
    pub decide: GuestSpec,
}

/// One guest: a component and its settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GuestSpec {
    /// `builtin:<name>`; `configmap:<namespace>/<name>/<key>`, on the connection `local`, with further keys
    /// `<name>/<key>` of the namespace after `+`, whose bytes follow;
    /// `oci:<registry>/<repository>:<tag>` or `@sha256:<hex>`; or the path of a file: relative to the folder that
    /// `--components` names, and below it; without that flag, relative to the policy's own file, and below the folder
    /// of policies. The agent's flag `--sources` bounds what may be named.
    pub component: String,
    /// Expected digest of the component, `sha256:<hex>`; checked when given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// Settings of the guest. The guest itself validates them.
    #[serde(default)]
    #[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
    pub settings: Map<String, Value>,
    /// Imports that the guest may use; `log` is the only one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub capabilities: Vec<GuestCapability>,
}

/// What a guest may import.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum GuestCapability {
    /// Writing log lines, limited in number and size.
    Log,
}

/// What a policy allows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GrantSpec {
    /// Named templates that patterns use as `{name}`. Alternatives are separated by `|`; the first one whose fields
    /// all exist is used. Fields: `primary.annotations["key"]` and `primary.labels["key"]` of the primary;
    /// `agent.remoteCluster`, the agent's cluster if that is not the hub itself. `dashed(primary.name)` replaces dots
    /// with dashes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub names: BTreeMap<String, String>,
    /// What may be read, by role.
    #[serde(default)]
    pub read: Vec<ReadGrantSpec>,
    /// What the guests may ask the API server of the primary.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ask: Vec<AskGrantSpec>,
    /// What may be written. Empty for a guest that only observes: the state and the conditions of the policy tell what
    /// it finds.
    #[serde(default)]
    pub write: Vec<WriteGrantSpec>,
    /// The finalizer that the guest may keep on the primary, so that it can clean up before the primary is gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finalizer: Option<String>,
}

/// Objects that a guest may ask for under one role. In patterns, `*` matches any text, `{primary.namespace}` and
/// `{primary.name}` are those of the primary, `{name}` is one of `grant.names`, and a template may also stand inline.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ReadGrantSpec {
    /// The name by which the guest asks.
    pub role: String,
    /// Name of the connection.
    #[serde(default = "local")]
    pub cluster: String,
    /// Group and version.
    #[serde(default = "v1")]
    pub api_version: String,
    /// Kind.
    pub kind: String,
    /// Pattern of the namespace; absent for cluster-scoped kinds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Pattern of the name.
    pub name: String,
    /// Keys of a Secret's data that may be read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub keys: Vec<String>,
    /// Allows to ask for all objects of the kind at once, in one namespace or in all; the name is then `*`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub every: Option<EverySpec>,
}

/// Objects that may be written, and how.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WriteGrantSpec {
    /// `primary` if the primary itself is written; the fields that name an object are then absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<TargetSpec>,
    /// Name of the connection.
    #[serde(default = "local")]
    pub cluster: String,
    /// Group and version.
    #[serde(default = "v1")]
    pub api_version: String,
    /// Kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Pattern of the namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Pattern of the name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// What the policy may do with the objects: some of `create`, `update` and `delete` with objects that it makes;
    /// `patch` alone with the primary, and with objects that others made.
    pub verbs: Vec<WriteVerb>,
    /// Dotted paths of the fields that may be written; absent for `remove` and `release`. The key of a label or an
    /// annotation may end with `*` and then stands for all that begin so: `metadata.labels["example.com/part-*"]`.
    #[serde(default)]
    pub fields: Vec<String>,
    /// Which labels an object must have for `remove` and `release`. An object that a policy made counts only if the
    /// selector names its label `transom.dev/policy`.
    #[serde(default, skip_serializing_if = "LabelSelectorSpec::is_empty")]
    pub labels: LabelSelectorSpec,
    /// The finalizers that `release` removes. With `create`, `update` and `delete`: the finalizers that each object of
    /// the policy bears until the policy no longer wants the object.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub finalizers: Vec<String>,
    /// For a guest that writes any fields: the allowed values of a field, or of a part of one, by its path. `*` and
    /// templates mean the same as in names; null allows removing the field. Every element of a list must be allowed. A
    /// field that is not listed may get any value. A value has at most 16 KiB, a list of a role's rule 64 texts.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub values: BTreeMap<String, Vec<Value>>,
    /// For Secrets that hold credentials: what each field, as `data.kubeconfig` or `data["tls.crt"]`, may be filled
    /// with. No guest sees the bytes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub holes: BTreeMap<String, HoleGrantSpec>,
    /// Keys of taints that the policy owns.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub taint_keys: Vec<String>,
    /// For the field `status.conditions` of the primary or of objects that others made: types of the conditions that
    /// the policy may set or remove.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<String>,
    /// For the conditions that approve or deny a CertificateSigningRequest: the signers whose requests the policy may
    /// decide.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub signers: Vec<String>,
    /// What a written kubeconfig may contain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubeconfig: Option<KubeconfigGrant>,
}

/// A target that needs no name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum TargetSpec {
    /// The primary itself.
    Primary,
}

/// What the policy may do with an object.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "camelCase")]
pub enum WriteVerb {
    /// Create it.
    Create,
    /// Replace granted fields of an object that the policy created.
    Update,
    /// Change granted fields of an object that the policy did not create.
    Patch,
    /// Delete an object that the policy created.
    Delete,
    /// Delete an object that others created.
    Remove,
    /// Take granted finalizers off an object that others created and that is being deleted.
    Release,
}

impl WriteVerb {
    /// Whether it removes objects that others created, or their finalizers.
    pub fn is_of_others(&self) -> bool {
        matches!(self, Self::Remove | Self::Release)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn smallest() -> Value {
        json!({"primary": {"apiVersion": "v1", "kind": "Node"}, "guests": {"decide": {"component": "builtin:x"}}})
    }

    #[test]
    fn omitted_fields_have_defaults() {
        let spec: PolicySpec = serde_json::from_value(smallest()).unwrap();
        assert_eq!(
            (
                spec.primary.cluster.as_str(),
                spec.primary.namespaces.as_slice()
            ),
            ("local", &["*".to_owned()][..])
        );
        assert_eq!(
            (
                spec.suspend,
                spec.resync_seconds,
                spec.guests.trigger.is_none()
            ),
            (false, 1800, true)
        );
        assert_eq!(
            spec.own,
            OwnSpec {
                adopt: AdoptSpec::SoleOwner,
                prune: PruneSpec::WhenSourceDeleted,
                keep_until_absent: vec![],
                labels: BTreeMap::new(),
                annotations: BTreeMap::new(),
            }
        );
        assert_eq!(spec.on_failure, OnFailureSpec::default());
        assert_eq!(
            (spec.limits, spec.budget),
            (LimitsSpec::default(), BudgetSpec::default())
        );
        let grant: KubeconfigGrant =
            serde_json::from_value(json!({"server": [], "ca": []})).unwrap();
        assert_eq!(
            (grant.insecure, grant.proxy),
            (InsecureGrant::Never, CarryGrant::Drop)
        );
        assert_eq!(
            (grant.tls_server_name, grant.cluster_domain.as_str()),
            (CarryGrant::AsSource, "cluster.local")
        );
    }

    #[test]
    fn written_policies_read_back_equal() {
        let spec: PolicySpec = serde_json::from_value(smallest()).unwrap();
        let again: PolicySpec =
            serde_json::from_value(serde_json::to_value(&spec).unwrap()).unwrap();
        assert_eq!(again, spec);
    }

    #[test]
    fn refuses_unknown_fields_and_values_everywhere() {
        for (pointer, value) in [
            ("", json!({"x": 1})),
            ("/primary", json!({"x": 1})),
            ("/guests", json!({"x": 1})),
            ("/guests/decide", json!({"x": 1})),
            ("", json!({"grant": {"x": 1}})),
            (
                "",
                json!({"grant": {"read": [{"role": "r", "kind": "K", "name": "n", "x": 1}]}}),
            ),
            (
                "",
                json!({"grant": {"write": [{"verbs": [], "fields": [], "x": 1}]}}),
            ),
            (
                "",
                json!({"grant": {"write": [{"verbs": ["approve"], "fields": []}]}}),
            ),
            ("", json!({"limits": {"x": 1}})),
            ("", json!({"onFailure": {"x": 1}})),
            ("", json!({"onFailure": {"mode": "Ignore"}})),
            ("", json!({"budget": {"x": 1}})),
            ("", json!({"budget": {"logLines": -1}})),
            ("", json!({"limits": {"elementsAdded": {"share": 1}}})),
            ("", json!({"own": {"x": 1}})),
            ("", json!({"own": {"prune": "Always"}})),
            ("", json!({"own": {"labels": {"team": 1}}})),
            ("", json!({"own": {"annotations": ["team"]}})),
        ] {
            let mut spec = smallest();
            let place = spec.pointer_mut(pointer).unwrap().as_object_mut().unwrap();
            place.extend(value.as_object().unwrap().clone());
            assert!(
                serde_json::from_value::<PolicySpec>(spec).is_err(),
                "{pointer} {value}"
            );
        }
    }
}
