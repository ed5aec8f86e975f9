//! The generation `transom:policy@0.2` of the contract. It adds forms of inputs; all else is that of 0.1.

mod objects;

use super::{Binding, v0_1};

/// Every world that guests can be loaded for.
pub(super) const WORLDS: &[&dyn Binding] = &[
    v0_1::kubeconfig::BINDING,
    #[cfg(feature = "facts")]
    v0_1::facts::BINDING,
    v0_1::taints::BINDING,
    objects::BINDING,
];
