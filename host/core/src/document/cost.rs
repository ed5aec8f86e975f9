//! What parsing a text may cost in memory: eight times its bytes, or 96 MiB if that is more. Costs are paid before
//! memory is taken: those of the YAML parser are estimated from the text, values pay while they are read. The
//! estimates may be too high, but not too low.

use super::ParseLimits;
use super::error::DocumentFault;
use std::cell::Cell;

/// Bytes of memory that one byte of a text may cost in all.
const TIMES: usize = 8;
/// Of these, the share of the text itself, of a copy without its long words, of its later form, and of memory that
/// the allocator has not given back yet.
const KEPT: usize = 4;
/// Any text may cost this much: the largest allowed object needs it when it is written loosely.
const LEAST: usize = 96 << 20;

/// Bytes for each event of the YAML parser, which holds all events of a document in one list that grows by doubling.
const EVENT: usize = 140;
/// A value in a list, which grows by doubling.
pub(crate) const ITEM: usize = 80;
/// A map with at least one entry: its first node has room for eleven.
pub(crate) const MAP: usize = 640;
/// An entry of a map, in nodes that may be half empty.
pub(crate) const ENTRY: usize = 110;
/// A text, beside its bytes.
pub(crate) const TEXT: usize = 16;
/// A document, beside its value.
pub(super) const DOCUMENT: usize = 128;

/// The depth of brackets up to which the parser is still quick.
const DEEPEST: usize = 1_000;

/// How many brackets, commas and indicators a text may have for each value that is allowed.
const MARKS_PER_VALUE: usize = 4;

/// A text of up to so many bytes never takes the parser long.
const HARMLESS: usize = 8 << 10;

/// The memory that is left for one text.
pub(super) struct ParseMemory {
    left: Cell<usize>,
}

impl ParseMemory {
    /// What a text of so many bytes may cost beside the share that is kept for it.
    pub(super) fn of(length: usize) -> Self {
        let most = length.saturating_mul(TIMES).max(LEAST);
        Self {
            left: Cell::new(most.saturating_sub(length.saturating_mul(KEPT))),
        }
    }

    /// Takes so many bytes; false when fewer are left.
    pub(super) fn take(&self, bytes: usize) -> bool {
        let left = self.left.get().checked_sub(bytes);
        self.left.set(left.unwrap_or_default());
        left.is_some()
    }

    /// What is left now, for [`Self::back`].
    pub(super) fn left(&self) -> usize {
        self.left.get()
    }

    /// Gives back everything that was taken since [`Self::left`] returned this value.
    pub(super) fn back(&self, left: usize) {
        self.left.set(left);
    }
}

/// What in a text is too much for the YAML parser; checked before parsing, because the parser keeps all events of a
/// document at once and its time grows with the square of the depth of brackets. Brackets and commas in quoted text
/// count.
pub(super) fn excess(
    text: &str,
    limits: ParseLimits,
    memory: &ParseMemory,
) -> Option<DocumentFault> {
    if text.len() <= HARMLESS {
        return None;
    }
    let (mut marks, mut events, mut depth, mut before) = (0_usize, 0_usize, 0_usize, b'\n');
    for byte in text.bytes() {
        match byte {
            b'[' | b'{' if follows_structure(before) => {
                marks += 1;
                events += 2;
                depth += 1;
                if depth > DEEPEST {
                    return Some(DocumentFault::TooDeep);
                }
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            b',' => {
                marks += 1;
                events += 2;
            }
            b' ' | b'\t' | b'\r' | b'\n' if matches!(before, b':' | b'-' | b'?') => {
                marks += 1;
                // A missing value or a missing key is an event, too.
                events += if before == b'?' { 4 } else { 2 };
            }
            _ => {}
        }
        events += usize::from(byte == b'\n');
        before = byte;
    }
    if marks / MARKS_PER_VALUE > limits.nodes {
        return Some(DocumentFault::TooManyValues);
    }
    (!memory.take(events.saturating_mul(EVENT))).then_some(DocumentFault::TooCostly)
}

/// Whether a bracket after this byte can begin a collection.
fn follows_structure(before: u8) -> bool {
    matches!(
        before,
        b' ' | b'\t' | b'\r' | b'\n' | b'[' | b'{' | b',' | b':' | b'-' | b'?' | b'"' | b'\''
    )
}
