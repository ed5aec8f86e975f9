//! What a contender may do with its target, and who else wants it.

use super::Contender;
use crate::work::Key;
use std::collections::BTreeMap;

/// What a contender may do with its target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ownership {
    /// It keeps the target.
    Owner {
        /// Who else wants it.
        rivals: Rivals,
    },
    /// Another contender keeps it: wait for its release.
    OwnedBy {
        /// The key that keeps it.
        owner: Key,
        /// Whether this one may write it all the same: all primaries share it, and its owner could not.
        stands_in: bool,
    },
    /// Not decided yet: some primaries have not been located since the start.
    Pending {
        /// How many.
        remaining: usize,
    },
}

impl Ownership {
    /// Whether another contender keeps it, and this one may write it all the same.
    pub fn stands_in(&self) -> bool {
        matches!(self, Self::OwnedBy { stands_in, .. } if *stands_in)
    }
}

/// Who wants a target beside the one that keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rivals {
    /// Nobody.
    None,
    /// Nobody who is known, but so many other primaries of the policy have not been located since the start.
    Unlocated(usize),
    /// Only other primaries of the same policy.
    OfPolicy,
    /// Also primaries of other policies.
    OfOthers,
}

impl Rivals {
    /// Those of one of these contenders, which are in the order of their policies; so many others are not located.
    pub(super) fn among(contenders: &BTreeMap<Key, Contender>, unlocated: usize) -> Self {
        let ends = contenders.keys().next().zip(contenders.keys().next_back());
        match ends {
            Some((first, last)) if first.policy != last.policy => Self::OfOthers,
            _ if contenders.len() > 1 => Self::OfPolicy,
            _ if unlocated > 0 => Self::Unlocated(unlocated),
            _ => Self::None,
        }
    }
}
