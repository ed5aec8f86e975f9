//! Whether one pattern limits names at least as much as another.

use super::{Part, Pattern};

impl Pattern {
    /// Whether it matches every name that another pattern may match, whatever the primary: then a limit by both is a
    /// limit by the other. Also false when that cannot be decided.
    pub fn covers(&self, other: &Self) -> bool {
        covers(&self.letters(), &other.letters())
    }

    /// Whether some name may match both, whatever the primary.
    pub fn meets(&self, other: &Self) -> bool {
        meet(&self.letters(), &other.letters())
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

/// Whether both may match one name, treating each part that is neither a star nor text as a star.
fn meet(one: &[Result<char, &Part>], other: &[Result<char, &Part>]) -> bool {
    // For the parts of `one` so far, the positions that they can reach in `other`.
    let mut reached = vec![false; other.len() + 1];
    let leading = other.iter().take_while(|part| part.is_err()).count();
    reached
        .iter_mut()
        .take(leading + 1)
        .for_each(|at| *at = true);
    for part in one {
        let before = std::mem::replace(&mut reached, vec![false; other.len() + 1]);
        for at in 0..=other.len() {
            let is = |at: Option<&bool>| at.copied().unwrap_or_default();
            let last = at.checked_sub(1);
            let there = last.and_then(|last| other.get(last));
            let reaches = match (part, there) {
                // A star matches nothing, or one more of the other.
                (Err(_), _) => is(before.get(at)) || last.is_some_and(|last| is(reached.get(last))),
                (Ok(_), None) => false,
                (Ok(_), Some(Err(_))) => {
                    is(before.get(at)) || last.is_some_and(|last| is(reached.get(last)))
                }
                (Ok(letter), Some(Ok(theirs))) => {
                    letter == theirs && last.is_some_and(|last| is(before.get(last)))
                }
            };
            if let Some(place) = reached.get_mut(at) {
                *place = reaches;
            }
        }
    }
    reached.last().copied().unwrap_or_default()
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
