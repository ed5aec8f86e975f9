//! What operators apply: how it is generated and rendered, and the pages that explain it, for the tests beside this
//! crate. Not part of the shipped agent.

pub mod expression;
pub mod generated;
pub mod page;
pub mod rendered;
pub mod shown;
