//! What operators apply: how it is generated and rendered, and the pages that say how, for the tests beside this crate.
//! Never part of what ships, and never a second place that says what is applied.

pub mod generated;
pub mod page;
pub mod rendered;
