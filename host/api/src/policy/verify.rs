//! Which keys have to have signed the components of a policy.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Which keys have to have signed the components. Builtin components need no signature: they are part of the agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct VerifySpec {
    /// Whether one signature is enough.
    #[serde(default)]
    pub mode: VerifyMode,
    /// The trusted public keys.
    pub keys: Vec<KeySpec>,
}

/// How many of the keys have to have signed a component.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum VerifyMode {
    /// One of the keys.
    #[default]
    Any,
    /// Every key.
    All,
}

/// A trusted public key, ECDSA on P-256 or Ed25519, as PEM: in a ConfigMap or in a file. The agent's flag `--sources`
/// bounds what may be named, as for components.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct KeySpec {
    /// The name by which the status shows who signed.
    pub name: String,
    /// `<namespace>/<name>/<key>`: the key of a ConfigMap on the connection `local`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_map: Option<String>,
    /// The path of a file, as `component` of a guest names one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
}
