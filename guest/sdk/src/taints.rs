//! Guests that decide which taints a managed cluster carries.
//! They set no time: `timeAdded` is set by the host or a webhook.

use crate::bindings::guest::transom::policy::types::Context as RawContext;
use crate::{Context, Failure, Guest};
use bindings::exports::transom::policy::taints as wit;

pub use wit::{Answer, Condition, Decision, Effect, ManagedCluster, Pair, Status, Taint, Wanted};

#[doc(hidden)]
pub use Taints as World;

/// What wit-bindgen makes of this world.
#[doc(hidden)]
pub mod bindings {
    wit_bindgen::generate!({
        path: "../../wit",
        inline: "package transom:sdk; world taints { export transom:policy/taints@0.2.0; }",
        pub_export_macro: true,
        export_macro_name: "export",
        default_bindings_module: "::transom_guest::taints::bindings",
        runtime_path: "::transom_guest::wit_bindgen::rt",
        additional_derives: [PartialEq, Eq, serde::Serialize, serde::Deserialize],
        additional_type_attributes: {
            "transom:policy/taints@0.2.0/taint": [#[derive(Default)] #[serde(default, deny_unknown_fields, rename_all = "kebab-case")]],
            "transom:policy/taints@0.2.0/condition": [#[derive(Default)] #[serde(default, deny_unknown_fields, rename_all = "kebab-case")]],
            "transom:policy/taints@0.2.0/pair": [#[derive(Default)] #[serde(default, deny_unknown_fields, rename_all = "kebab-case")]],
            "transom:policy/taints@0.2.0/managed-cluster": [#[derive(Default)] #[serde(default, deny_unknown_fields, rename_all = "kebab-case")]],
            "transom:policy/taints@0.2.0/wanted": [#[derive(Default)] #[serde(default, deny_unknown_fields, rename_all = "kebab-case")]],
            "transom:policy/taints@0.2.0/effect": [#[serde(rename_all = "kebab-case")]],
            "transom:policy/taints@0.2.0/status": [#[serde(rename_all = "kebab-case")]],
            "transom:policy/taints@0.2.0/decision": [#[serde(rename_all = "kebab-case")]],
            "transom:policy/taints@0.2.0/answer": [#[serde(rename_all = "kebab-case")]],
        },
        with: { "transom:policy/types@0.2.0": ::transom_guest::bindings::guest::transom::policy::types },
    });
}

/// A guest that decides which taints a managed cluster carries.
pub trait Taints: Guest {
    /// The taints that the cluster should carry, of the keys that the policy owns. All other taints keep their place
    /// and time.
    ///
    /// # Errors
    /// Why there is no answer; the kind of failure says how the host should react.
    fn compute(
        context: &Context<Self::Settings>,
        cluster: &ManagedCluster,
    ) -> Result<Answer, Failure>;
}

impl<T: Taints> wit::Guest for T {
    fn compute(context: RawContext, cluster: ManagedCluster) -> Result<Answer, Failure> {
        let context = Context::read(context).map_err(Failure::Invalid)?;
        T::compute(&context, &cluster)
    }
}

impl Default for Effect {
    fn default() -> Self {
        Self::NoSelect
    }
}

impl Default for Status {
    fn default() -> Self {
        Self::Unknown
    }
}
