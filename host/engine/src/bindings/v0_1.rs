//! The generation `transom:policy@0.1` of the contract: generated types, and their conversion to and from the types of
//! the core, which all other code uses. Later generations take over what they do not change. Generated code stays in
//! the files of the generations. A world is one file in this folder, its `mod` line, and one line in [`WORLDS`].

#[cfg(feature = "facts")]
pub(super) mod facts;
mod grant;
pub(super) mod kubeconfig;
pub(super) mod objects;
mod shared;
pub(super) mod taints;
pub(crate) mod trigger;

use super::{Binding, Decide, decided};

pub(super) mod generated {
    // What every guest has. Each world generates its own interface, with the types from here.
    wasmtime::component::bindgen!({
        path: "../../wit/released/0.1.0",
        inline: "
            package transom:host;
            world every-guest {
                import transom:policy/log@0.1.0;
                import transom:policy/panic@0.1.0;
                export transom:policy/guest@0.1.0;
            }
        ",
        imports: { default: trappable },
    });
}

use generated::transom::policy::types as wit;
pub(crate) use generated::transom::policy::{log, panic};
pub(crate) use shared::About;

/// Every world that guests can be loaded for.
pub(super) const WORLDS: &[&dyn Binding] = &[
    kubeconfig::BINDING,
    #[cfg(feature = "facts")]
    facts::BINDING,
    taints::BINDING,
    objects::BINDING,
];
