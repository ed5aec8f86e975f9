//! The kind `FleetPolicy`: which primaries, which guests, what they may read and write, what is owned.
//! Never judges a policy beyond its shape: unknown fields are refused, sense is checked in `core`.

pub mod bounds;
pub mod kubeconfig;

pub use kubeconfig::{AddressGrant, CarryGrant, CredentialGrant, InsecureGrant, KubeconfigGrant};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// What a policy says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PolicySpec {
    /// Nothing is written or pruned while this is true.
    #[serde(default)]
    pub suspend: bool,
    /// Which objects the policy is about.
    pub primary: PrimarySpec,
    /// Which guests decide.
    pub guests: GuestsSpec,
    /// What the guests may read and have written.
    #[serde(default)]
    pub grant: GrantSpec,
    /// What becomes of the objects that the policy made.
    #[serde(default)]
    pub own: OwnSpec,
    /// Seconds between two resyncs of a primary, jittered; 0 switches the resync off.
    #[serde(default = "default_resync_seconds")]
    pub resync_seconds: u32,
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

/// Which objects a policy is about.
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
    /// Patterns of namespaces, `*` for any text; without meaning for cluster-scoped kinds.
    #[serde(default = "everywhere")]
    pub namespaces: Vec<String>,
}

/// The guests of a policy by role.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GuestsSpec {
    /// Decides when; without it every change of a declared field counts, and every primary is ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trigger: Option<GuestSpec>,
    /// Decides what.
    pub decide: GuestSpec,
}

/// One guest: a component and its settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GuestSpec {
    /// `builtin:<name>`, or the path of a file below the folder that `--components` names; without that flag, of a file
    /// beside the policy's own, below the folder of policies.
    pub component: String,
    /// `sha256:<hex>`; checked when given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// Settings, judged by the guest itself.
    #[serde(default)]
    #[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
    pub settings: Map<String, Value>,
    /// Imports that the guest may use; `log` is the only one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub capabilities: Vec<Capability>,
}

/// What a guest may import.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Capability {
    /// Lines of log, counted and cut.
    Log,
}

/// What a policy allows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GrantSpec {
    /// Names that patterns use as `{name}`: the first choice of which every field is there. `primary.annotations["key"]`
    /// and `primary.labels["key"]` are the primary's, `agent.remoteCluster` is the agent's cluster where that is not the
    /// hub's own, `dashed(primary.name)` has dashes for dots, and a bar stands before the next choice.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub names: BTreeMap<String, String>,
    /// What may be read, by role.
    #[serde(default)]
    pub read: Vec<ReadGrant>,
    /// What may be written.
    #[serde(default)]
    pub write: Vec<WriteGrant>,
}

/// Objects that a guest may ask for under one role. Patterns: `*` for any text, `{primary.namespace}` and
/// `{primary.name}` for the primary's own, `{name}` for one of `grant.names`, or such a template itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ReadGrant {
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
}

/// Objects that may be written, and how.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WriteGrant {
    /// `primary` when the primary itself is written; the fields that name an object are absent then.
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
    /// What may be done.
    pub verbs: Vec<Verb>,
    /// Dotted paths that may be written.
    pub fields: Vec<String>,
    /// Keys of taints that the policy owns.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub taint_keys: Vec<String>,
    /// What a written kubeconfig may say.
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

/// What may be done with an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Verb {
    /// Make it.
    Create,
    /// Replace granted fields of an object that the policy made.
    Update,
    /// Change granted fields of an object of a user.
    Patch,
    /// Remove an object that the policy made.
    Delete,
}

/// What becomes of the objects that a policy made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct OwnSpec {
    /// What to do with a target that exists and bears no stamp.
    #[serde(default)]
    pub adopt: AdoptSpec,
    /// When an object that the policy made is removed.
    #[serde(default)]
    pub prune: PruneSpec,
    /// Roles of objects that must be gone before anything is pruned. Stars and templates of the role's name
    /// stand for what those of the target's namespace stand for.
    #[serde(default)]
    pub keep_until_absent: Vec<String>,
    /// Labels that every object has that the policy makes. Other labels of these objects are left alone.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Annotations that every object has that the policy makes. Other annotations of these objects are left alone.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

/// What to do with a target that exists and bears no stamp.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum AdoptSpec {
    /// Take it over when only this primary claims it and the credential in it is the source's.
    #[default]
    SoleOwner,
    /// Leave it alone.
    Never,
}

/// When an object that the policy made is removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PruneSpec {
    /// When its source is gone or its target moved.
    #[default]
    WhenSourceDeleted,
    /// Never.
    Never,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn smallest() -> Value {
        json!({"primary": {"apiVersion": "v1", "kind": "Node"}, "guests": {"decide": {"component": "builtin:x"}}})
    }

    #[test]
    fn what_is_left_out_has_its_default() {
        let spec: PolicySpec = serde_json::from_value(smallest()).unwrap();
        assert_eq!(
            (spec.primary.cluster.as_str(), spec.primary.namespaces.as_slice()),
            ("local", &["*".to_owned()][..])
        );
        assert_eq!((spec.suspend, spec.resync_seconds, spec.guests.trigger.is_none()), (false, 1800, true));
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
        let grant: KubeconfigGrant = serde_json::from_value(json!({"server": [], "ca": []})).unwrap();
        assert_eq!((grant.insecure, grant.proxy), (InsecureGrant::Never, CarryGrant::Drop));
        assert_eq!((grant.tls_server_name, grant.cluster_domain.as_str()), (CarryGrant::AsSource, "cluster.local"));
    }

    #[test]
    fn what_is_written_is_read_back() {
        let spec: PolicySpec = serde_json::from_value(smallest()).unwrap();
        let again: PolicySpec = serde_json::from_value(serde_json::to_value(&spec).unwrap()).unwrap();
        assert_eq!(again, spec);
    }

    #[test]
    fn unknown_fields_and_words_are_refused_everywhere() {
        for (pointer, value) in [
            ("", json!({"x": 1})),
            ("/primary", json!({"x": 1})),
            ("/guests", json!({"x": 1})),
            ("/guests/decide", json!({"x": 1})),
            ("", json!({"grant": {"x": 1}})),
            ("", json!({"grant": {"read": [{"role": "r", "kind": "K", "name": "n", "x": 1}]}})),
            ("", json!({"grant": {"write": [{"verbs": [], "fields": [], "x": 1}]}})),
            ("", json!({"grant": {"write": [{"verbs": ["approve"], "fields": []}]}})),
            ("", json!({"own": {"x": 1}})),
            ("", json!({"own": {"prune": "Always"}})),
            ("", json!({"own": {"labels": {"team": 1}}})),
            ("", json!({"own": {"annotations": ["team"]}})),
        ] {
            let mut spec = smallest();
            let place = spec.pointer_mut(pointer).unwrap().as_object_mut().unwrap();
            place.extend(value.as_object().unwrap().clone());
            assert!(serde_json::from_value::<PolicySpec>(spec).is_err(), "{pointer} {value}");
        }
    }
}
