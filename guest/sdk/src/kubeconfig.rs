//! Guests that decide where a kubeconfig is written, and its content.
//! They get no byte of a credential, only numbers that are valid for one call.

use crate::bindings::guest::transom::policy::types::Context as RawContext;
use crate::{Context, Failure, Guest, Primary};
use bindings::exports::transom::policy::kubeconfig as wit;
use bindings::transom::policy::{credentials, proposals, services};

pub use credentials::Kubeconfig as Source;
pub use credentials::{
    Authority, AuthoritySource, Cluster, ClusterContext, Credential, Proxy, Url, User,
};
pub use proposals::{Proposal, ProposedCluster, ProposedUser};
pub use services::{Protocol, Service, ServicePort};
pub use wit::{Absence, Answer, Form, Input, Need, Requirement, Value};

#[doc(hidden)]
pub use Kubeconfig as World;

/// What wit-bindgen makes of this world.
#[doc(hidden)]
pub mod bindings {
    wit_bindgen::generate!({
        path: "../../wit",
        inline: "package transom:sdk; world kubeconfig { export transom:policy/kubeconfig@0.2.0; }",
        pub_export_macro: true,
        export_macro_name: "export",
        default_bindings_module: "::transom_guest::kubeconfig::bindings",
        runtime_path: "::transom_guest::wit_bindgen::rt",
        additional_derives: [PartialEq, Eq, serde::Serialize, serde::Deserialize],
        additional_type_attributes: {
            "transom:policy/credentials@0.2.0/url": [#[derive(Default)] #[serde(default, deny_unknown_fields, rename_all = "kebab-case")]],
            "transom:policy/credentials@0.2.0/authority": [#[derive(Default)] #[serde(default, deny_unknown_fields, rename_all = "kebab-case")]],
            "transom:policy/credentials@0.2.0/proxy": [#[derive(Default)] #[serde(default, deny_unknown_fields, rename_all = "kebab-case")]],
            "transom:policy/credentials@0.2.0/cluster": [#[derive(Default)] #[serde(default, deny_unknown_fields, rename_all = "kebab-case")]],
            "transom:policy/credentials@0.2.0/credential": [#[derive(Default)] #[serde(default, deny_unknown_fields, rename_all = "kebab-case")]],
            "transom:policy/credentials@0.2.0/user": [#[derive(Default)] #[serde(default, deny_unknown_fields, rename_all = "kebab-case")]],
            "transom:policy/credentials@0.2.0/cluster-context": [#[derive(Default)] #[serde(default, deny_unknown_fields, rename_all = "kebab-case")]],
            "transom:policy/credentials@0.2.0/kubeconfig": [#[derive(Default)] #[serde(default, deny_unknown_fields, rename_all = "kebab-case")]],
            "transom:policy/credentials@0.2.0/authority-source": [#[serde(rename_all = "kebab-case")]],
            "transom:policy/proposals@0.2.0/proposed-cluster": [#[derive(Default)] #[serde(default, deny_unknown_fields, rename_all = "kebab-case")]],
            "transom:policy/proposals@0.2.0/proposed-user": [#[derive(Default)] #[serde(default, deny_unknown_fields, rename_all = "kebab-case")]],
            "transom:policy/proposals@0.2.0/proposal": [#[derive(Default)] #[serde(default, deny_unknown_fields, rename_all = "kebab-case")]],
            "transom:policy/services@0.2.0/service-port": [#[derive(Default)] #[serde(default, deny_unknown_fields, rename_all = "kebab-case")]],
            "transom:policy/services@0.2.0/service": [#[derive(Default)] #[serde(default, deny_unknown_fields, rename_all = "kebab-case")]],
            "transom:policy/kubeconfig@0.2.0/input": [#[derive(Default)] #[serde(default, deny_unknown_fields, rename_all = "kebab-case")]],
            "transom:policy/kubeconfig@0.2.0/form": [#[serde(rename_all = "kebab-case")]],
            "transom:policy/kubeconfig@0.2.0/absence": [#[serde(rename_all = "kebab-case")]],
            "transom:policy/kubeconfig@0.2.0/need": [#[serde(rename_all = "kebab-case")]],
            "transom:policy/kubeconfig@0.2.0/requirement": [#[serde(rename_all = "kebab-case")]],
            "transom:policy/services@0.2.0/protocol": [#[serde(rename_all = "kebab-case")]],
            "transom:policy/kubeconfig@0.2.0/value": [#[serde(rename_all = "kebab-case")]],
            "transom:policy/kubeconfig@0.2.0/answer": [#[serde(rename_all = "kebab-case")]],
        },
        generate_all,
        with: { "transom:policy/types@0.2.0": ::transom_guest::bindings::guest::transom::policy::types },
    });
}

/// A guest that decides where a kubeconfig is written, and its content.
pub trait Kubeconfig: Guest {
    /// The object to write, and the objects to read for it. The host calls this again with what it found until there
    /// are no new needs: at most three rounds. It may ask for several kubeconfigs, and exactly one of them may be there
    /// in the end: [`Kubeconfig::transform`] makes its answer of that one.
    ///
    /// # Errors
    /// Why there is no answer; the kind of failure says how the host should react.
    fn require(
        context: &Context<Self::Settings>,
        primary: &Primary,
        found: &[Input],
    ) -> Result<Requirement, Failure>;

    /// The kubeconfig to write, made of the inputs, which come in the order of the needs.
    ///
    /// # Errors
    /// Why there is no answer; the kind of failure says how the host should react.
    fn transform(
        context: &Context<Self::Settings>,
        primary: &Primary,
        inputs: Vec<Input>,
    ) -> Result<Answer, Failure>;
}

impl<T: Kubeconfig> wit::Guest for T {
    fn require(
        context: RawContext,
        primary: Primary,
        found: Vec<Input>,
    ) -> Result<Requirement, Failure> {
        let context = Context::read(context).map_err(Failure::Invalid)?;
        T::require(&context, &primary, &found)
    }

    fn transform(
        context: RawContext,
        primary: Primary,
        inputs: Vec<Input>,
    ) -> Result<Answer, Failure> {
        let context = Context::read(context).map_err(Failure::Invalid)?;
        T::transform(&context, &primary, inputs)
    }
}

impl Default for AuthoritySource {
    fn default() -> Self {
        Self::None
    }
}

/// The default of Kubernetes.
impl Default for Protocol {
    fn default() -> Self {
        Self::Tcp
    }
}

impl Default for Value {
    fn default() -> Self {
        Self::Absent
    }
}

/// The kubeconfig as it is, without proxies.
impl From<Source> for Proposal {
    fn from(source: Source) -> Self {
        Self {
            clusters: source.clusters.into_iter().map(Into::into).collect(),
            users: source.users.into_iter().map(Into::into).collect(),
            contexts: source.contexts,
            current_context: source.current_context,
        }
    }
}

/// The entry as it is, without its proxy.
impl From<Cluster> for ProposedCluster {
    fn from(cluster: Cluster) -> Self {
        let authorities = match cluster.authority {
            AuthoritySource::Data(authority) => vec![authority.reference],
            AuthoritySource::None | AuthoritySource::File => Vec::new(),
        };
        Self {
            entry: cluster.entry,
            name: cluster.name,
            server: cluster.server,
            authorities,
            insecure: cluster.insecure,
            proxy: None,
            tls_server_name: cluster.tls_server_name,
        }
    }
}

/// The entry with its credential.
impl From<User> for ProposedUser {
    fn from(user: User) -> Self {
        Self {
            entry: user.entry,
            name: user.name,
            credential: user.credential.reference,
        }
    }
}
