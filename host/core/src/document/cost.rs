//! What a text would cost the YAML parser, estimated before it is asked: it keeps all events of a document at once,
//! and its time grows with the square of the depth of brackets. Never exact: brackets and commas in quoted text count.

use super::Limits;
use super::error::Fault;

/// Brackets inside each other that the parser still goes through quickly.
const DEEPEST: usize = 1_000;

/// How many marks of structure a text may have for each value that is allowed.
const MARKS_PER_VALUE: usize = 4;

/// No text of so many bytes takes the parser long, whatever is in it.
const HARMLESS: usize = 8 << 10;

/// What is too much in a text.
pub(super) fn excess(text: &str, limits: Limits) -> Option<Fault> {
    if text.len() <= HARMLESS {
        return None;
    }
    let (mut marks, mut depth, mut before) = (0_usize, 0_usize, b'\n');
    for byte in text.bytes() {
        match byte {
            b'[' | b'{' if follows_structure(before) => {
                marks += 1;
                depth += 1;
                if depth > DEEPEST {
                    return Some(Fault::TooDeep);
                }
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            b',' => marks += 1,
            b' ' | b'\t' | b'\r' | b'\n' if matches!(before, b':' | b'-' | b'?') => marks += 1,
            _ => {}
        }
        before = byte;
    }
    (marks / MARKS_PER_VALUE > limits.nodes).then_some(Fault::TooManyValues)
}

/// Whether a bracket after this byte can begin a collection.
fn follows_structure(before: u8) -> bool {
    matches!(before, b' ' | b'\t' | b'\r' | b'\n' | b'[' | b'{' | b',' | b':' | b'-' | b'?' | b'"' | b'\'')
}
