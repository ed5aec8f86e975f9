//! Whether one pattern stands for all that another may stand for. Never looks at a name or a primary.

use super::{Part, Pattern};
use std::collections::BTreeSet;

impl Pattern {
    /// Whether it stands for every name that another pattern may stand for, whatever the primary: then something that
    /// is limited by both is limited by the other. False also where that cannot be told.
    pub fn covers(&self, other: &Self) -> bool {
        covers(&self.letters(), &other.letters())
    }

    /// Letter by letter, each other part as it is.
    fn letters(&self) -> Vec<Result<char, &Part>> {
        let mut letters = Vec::new();
        for part in &self.parts {
            match part {
                Part::Text(text) => letters.extend(text.chars().map(Ok)),
                other => letters.push(Err(other)),
            }
        }
        letters
    }
}

/// Whether one matches the other as if each of its parts were a letter that only a star, or the same part, matches.
fn covers(one: &[Result<char, &Part>], other: &[Result<char, &Part>]) -> bool {
    // What is left of `other` after what came before in `one`, in every way that stars allow.
    let mut left = BTreeSet::from([0]);
    for part in one {
        left = match part {
            Err(Part::Star) => (left.first().copied().unwrap_or(usize::MAX)..=other.len()).collect(),
            part => left.into_iter().filter(|at| other.get(*at) == Some(part)).map(|at| at + 1).collect(),
        };
    }
    left.contains(&other.len())
}
