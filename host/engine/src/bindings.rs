//! The contract generations that the engine serves, one file each. Generated types stay in this module: all other
//! code uses the types of `transom_core::contract`.

pub(crate) mod v0_1;
