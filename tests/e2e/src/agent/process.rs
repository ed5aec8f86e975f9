//! The state of a process, as the kernel shows it.

use std::fs;

/// The state of a process, and the id of its parent; none if it does not exist.
pub(super) fn process(number: u32) -> Option<(String, String)> {
    let stat = fs::read_to_string(format!("/proc/{number}/stat")).ok()?;
    // A name in parentheses precedes them and may contain spaces.
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    Some((fields.next()?.to_owned(), fields.next()?.to_owned()))
}

/// Whether a process has ended, even if it was not reaped yet.
pub fn has_ended(number: u32) -> bool {
    process(number).is_none_or(|(state, _)| ["Z", "X"].contains(&state.as_str()))
}
