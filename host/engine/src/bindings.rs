//! Index of the contract generations that the engine serves, one file each.
//! Generated types never leave this module: everything outside speaks the words of `transom_core::contract`.

pub(crate) mod v0_1;
