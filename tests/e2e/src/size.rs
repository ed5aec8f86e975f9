//! How large a soak is: its full size, unless the environment names another one, as `cargo xtask soak` does.

use anyhow::{Context as _, Result};
use std::env;

/// Names the number of rounds.
const ROUNDS: &str = "TRANSOM_SOAK_ROUNDS";
/// Names the number of clusters.
const CLUSTERS: &str = "TRANSOM_SOAK_CLUSTERS";

/// The size of a soak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Kills, swaps, leaders or writes.
    pub rounds: usize,
    /// Clusters in the fleet.
    pub clusters: usize,
}

impl Size {
    /// The size that was asked for, or else this one.
    ///
    /// # Errors
    /// When what was asked for is no number.
    pub fn given(rounds: usize, clusters: usize) -> Result<Self> {
        Ok(Self {
            rounds: asked(ROUNDS)?.unwrap_or(rounds),
            clusters: asked(CLUSTERS)?.unwrap_or(clusters),
        })
    }
}

fn asked(name: &str) -> Result<Option<usize>> {
    let asked = env::var(name).ok();
    let number = asked.map(|text| text.parse().with_context(|| format!("{name} is no number")));
    number.transpose()
}
