//! What is kept of the plan of a revision, changed as if its trial had planned something else.

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

/// The annotation of a kept revision that has its plan for each primary.
pub const EXPECTED: &str = "transom.dev/expected";
/// A mark: eight bytes stand for a question, four for what is planned.
const MARK: usize = 12;
const ASKED: usize = 8;

/// For how many primaries a plan is kept at most.
const MOST: u64 = 10_000;

/// The value of [`EXPECTED`] with another plan for each primary, and as many questions that nobody asks as there is
/// room for; and for how many primaries it was.
///
/// # Errors
/// When it is not such a value.
pub fn forged(kept: &str) -> Result<(String, usize)> {
    let mut kept: Value = serde_json::from_str(kept)?;
    let marks = kept["marks"].as_str().context("no marks")?;
    let mut marks = STANDARD.decode(marks)?;
    ensure!(marks.len().is_multiple_of(MARK), "half a mark");
    for mark in marks.chunks_mut(MARK) {
        for byte in &mut mark[ASKED..] {
            *byte ^= 1;
        }
    }
    let count = marks.len() / MARK;
    for other in u64::try_from(count)?..MOST {
        marks.extend(other.to_be_bytes().into_iter().chain([0; MARK - ASKED]));
    }
    kept["marks"] = json!(STANDARD.encode(&marks));
    Ok((kept.to_string(), count))
}
