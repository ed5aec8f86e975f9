//! Whether one pattern limits names at least as much as another.

use super::{Part, Pattern};

impl Pattern {
    /// Whether it matches every name that another pattern may match, whatever the primary: then a limit by both is a
    /// limit by the other. Also false when that cannot be decided.
    pub fn covers(&self, other: &Self) -> bool {
        covers(&self.letters(), &other.letters())
    }

    /// The text letter by letter; every other part as it is.
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

/// Whether one covers the other, treating each part as a letter that only a star or the same part matches.
fn covers(one: &[Result<char, &Part>], other: &[Result<char, &Part>]) -> bool {
    // The positions in `other` that the parts of `one` so far can reach, with every choice for stars; in order.
    let mut left = vec![0];
    for part in one {
        left = match part {
            Err(Part::Star) => {
                (left.first().copied().unwrap_or(usize::MAX)..=other.len()).collect()
            }
            part => left
                .into_iter()
                .filter(|at| other.get(*at) == Some(part))
                .map(|at| at + 1)
                .collect(),
        };
    }
    left.contains(&other.len())
}
