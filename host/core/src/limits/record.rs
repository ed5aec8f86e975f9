//! What is kept of the limits of a policy beyond the end of a process: numbers and marks, no name of an object.

use super::marks::LimitMarks;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use transom_api::policy::Limited;

/// One interval of a policy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LimitRecord {
    /// When it began, in seconds since 1970.
    pub started_seconds: i64,
    /// When it ends, unless something is withheld then.
    pub ends_seconds: i64,
    /// How many primaries the policy had, at most.
    pub primaries: u32,
    /// For how many primaries changes may have been made.
    pub reserved: BTreeMap<Limited, u32>,
    /// How many more were approved.
    #[serde(default)]
    pub approved: BTreeMap<Limited, u32>,
    /// The digest of the revision that it was approved for: it ends with that revision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approved_for: Option<String>,
    /// Whether something is withheld.
    #[serde(default)]
    pub reached: bool,
    /// Who counts, as of the last agent that ended in order; those that it does not mark may count twice.
    #[serde(default, skip_serializing_if = "LimitMarks::is_empty")]
    pub(super) marks: LimitMarks,
}

impl LimitRecord {
    /// An interval that begins now, in which nothing was changed.
    pub(super) fn new(now_seconds: i64, interval_seconds: u32) -> Self {
        Self {
            started_seconds: now_seconds,
            ends_seconds: now_seconds.saturating_add(i64::from(interval_seconds)),
            ..Self::default()
        }
    }

    /// Whether it is over for so long that it says nothing any more. A stop lasts until it is approved or nothing is
    /// withheld, so it says something for a month.
    pub fn is_old(&self, now_seconds: i64) -> bool {
        const DAY: i64 = 86_400;
        let days = if self.reached { 30 } else { 1 };
        now_seconds.saturating_sub(self.ends_seconds) > days * DAY
    }

    /// Reads a record.
    ///
    /// # Errors
    /// When the text is not one.
    pub fn parse(text: &str) -> Result<Self, String> {
        serde_json::from_str(text).map_err(|error| error.to_string())
    }

    /// The text that [`Self::parse`] reads.
    pub fn text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// The text with no more marks than have room in so many bytes. The numbers are always there, and who is not marked
    /// counts again: too little room makes a limit narrower, never wider.
    pub fn text_within(&self, bytes: usize) -> String {
        let text = self.text();
        let surplus = text.len().saturating_sub(bytes);
        if surplus == 0 {
            return text;
        }
        let mut shorter = self.clone();
        shorter.marks.shorten(surplus);
        shorter.text()
    }
}
