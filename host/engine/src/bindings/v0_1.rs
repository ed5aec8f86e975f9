//! The generation `transom:policy@0.1`: generated types, and their conversion to and from the types of the core.
//! Apart from the functions that a linker needs, generated code stays in this module.

mod credentials;
pub(crate) mod description;
pub(crate) mod kubeconfig;
mod shared;
pub(crate) mod taints;
pub(crate) mod trigger;

mod generated {
    // One umbrella world for all three, so that the types that they share exist once; no guest has all of it.
    wasmtime::component::bindgen!({
        path: "../../wit",
        inline: "
            package transom:host;
            world all {
                import transom:policy/log@0.1.0;
                import transom:policy/panic@0.1.0;
                export transom:policy/guest@0.1.0;
                export transom:policy/trigger@0.1.0;
                export transom:policy/kubeconfig@0.1.0;
                export transom:policy/taints@0.1.0;
            }
        ",
        imports: { default: trappable },
    });
}

use generated::exports::transom::policy as exported;
use generated::transom::policy::{
    credentials as wit_credentials, proposals as wit_proposals, types as wit,
};
pub(crate) use generated::transom::policy::{log, panic};

/// The name of an interface of this generation; a component may export a later version of the same `0.1`.
pub(crate) fn interface(name: &str) -> String {
    format!("transom:policy/{name}@0.1.0")
}
