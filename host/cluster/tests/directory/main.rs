//! A directory of manifests on real folders, through its public API only. Never sleeps.

mod state;
mod support;
mod writes;
