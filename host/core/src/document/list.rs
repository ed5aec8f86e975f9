//! The items of a List. A large one is cut into them: parsing one item at a time costs a fraction of parsing all of
//! them at once. Only cuts: a caller to whom a piece is not one item reads the whole text instead.

use crate::share::room::quoted_length;
use serde_json::{Map, Value};

/// No object has fewer bytes; a List of smaller items is not cut.
const LEAST_ITEM: usize = 16;

/// The objects of a document: the items when it is a List of any kind, else the document itself.
pub fn flatten_list(mut document: Value) -> Vec<Value> {
    let kind = document.as_object().and_then(list_of);
    let items = document.get_mut("items").and_then(Value::as_array_mut);
    let (Some(kind), Some(items)) = (kind, items) else {
        return vec![document];
    };
    let items = std::mem::take(items).into_iter();
    let version = document.get("apiVersion");
    let items = items.map(|item| of_kind(item, kind.as_deref(), version));
    items.flat_map(flatten_list).collect()
}

/// Whether an object is a List, and the kind of its items if its own kind says so. An object with a name is no List.
pub fn list_of(object: &Map<String, Value>) -> Option<Option<String>> {
    let item_kind = object.get("kind")?.as_str()?.strip_suffix("List")?;
    let named = object
        .get("metadata")
        .and_then(|metadata| metadata.get("name"))
        .is_some();
    (!named).then(|| (!item_kind.is_empty()).then(|| item_kind.to_owned()))
}

/// Adds kind and version to an item, because an API server leaves them out of the items of a typed List.
pub fn of_kind(mut item: Value, kind: Option<&str>, version: Option<&Value>) -> Value {
    if let (Some(kind), Some(item)) = (kind, item.as_object_mut()) {
        item.entry("kind").or_insert_with(|| kind.into());
        if let Some(version) = version {
            item.entry("apiVersion").or_insert_with(|| version.clone());
        }
    }
    item
}

/// A text that looks like one List, in block YAML or in JSON.
#[derive(Debug, PartialEq, Eq)]
pub struct List<'t> {
    /// The text without its items.
    pub head: String,
    items: &'t str,
    /// Lines before the first item.
    offset: usize,
    cut: Cut,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Cut {
    /// Before every dash after so many spaces.
    Dashes(usize),
    /// At these commas, as bytes from the first item.
    Commas(Vec<usize>),
}

/// The text of one item.
#[derive(Debug, PartialEq, Eq)]
pub struct Piece<'t> {
    /// In YAML, a list of just this item.
    pub text: &'t str,
    /// Lines before it.
    pub offset: usize,
}

impl<'t> List<'t> {
    /// Finds the items; `None` when the text is written in another way.
    pub fn of(bytes: &'t [u8]) -> Option<Self> {
        let text = std::str::from_utf8(bytes).ok()?;
        if text.trim_start().starts_with('{') {
            Self::of_json(text)
        } else {
            Self::of_yaml(text)
        }
    }

    fn of_yaml(text: &'t str) -> Option<Self> {
        let mut at = 0;
        let mut lines = text.split_inclusive('\n').map(|line| {
            let start = at;
            at += line.len();
            (start, line)
        });
        let (key, line) = lines
            .by_ref()
            .find(|(_, line)| line.trim_end() == "items:")?;
        let start = key + line.len();
        let mut lines = lines
            .filter(|(_, line)| !line.trim().is_empty() && !line.trim_start().starts_with('#'))
            .peekable();
        let indent = indent_of(lines.peek()?.1);
        let ends = |line: &str| {
            indent_of(line) < indent || (indent_of(line) == indent && !is_item(line, indent))
        };
        let end = lines
            .find(|(_, line)| ends(line))
            .map_or(text.len(), |(end, _)| end);
        let (before, items, after) = (text.get(..key)?, text.get(start..end)?, text.get(end..)?);
        let head = format!("{before}items: []\n{after}");
        Some(Self {
            head,
            items,
            offset: newlines(before) + 1,
            cut: Cut::Dashes(indent),
        })
    }

    fn of_json(text: &'t str) -> Option<Self> {
        let (mut depth, mut start, mut commas) = (0_usize, None, Vec::new());
        for (at, mark) in marks(text) {
            let before = depth;
            depth = match mark {
                b'[' | b'{' => depth + 1,
                b']' | b'}' => depth.saturating_sub(1),
                _ => depth,
            };
            match (mark, start) {
                (b'[', None) if (before, depth) == (1, 2) => {
                    let key = text.get(..at)?.trim_end().strip_suffix(':')?.trim_end();
                    start = key.ends_with("\"items\"").then_some(at + 1);
                }
                (b',', Some(start)) if depth == 2 => {
                    // So many commas would cost more memory than cutting saves.
                    if commas.len() > text.len() / LEAST_ITEM {
                        return None;
                    }
                    commas.push(at - start);
                }
                (b']', Some(start)) if (before, depth) == (2, 1) => {
                    let (head, items, rest) =
                        (text.get(..start)?, text.get(start..at)?, text.get(at..)?);
                    return Some(Self {
                        head: format!("{head}{rest}"),
                        items,
                        offset: newlines(head),
                        cut: Cut::Commas(commas),
                    });
                }
                _ => {}
            }
        }
        None
    }

    /// Whether a piece is a YAML list of one item.
    pub fn is_yaml(&self) -> bool {
        matches!(self.cut, Cut::Dashes(_))
    }

    /// The items in their order.
    pub fn pieces(&self) -> impl Iterator<Item = Piece<'t>> {
        let (mut rest, mut offset) = (self.items, self.offset);
        let mut commas = match &self.cut {
            Cut::Commas(commas) => commas.as_slice(),
            Cut::Dashes(_) => &[],
        }
        .iter();
        std::iter::from_fn(move || {
            if rest.trim_start().is_empty() {
                return None;
            }
            let (length, skipped) = match self.cut {
                Cut::Dashes(indent) => (item_length(rest, indent), 0),
                Cut::Commas(_) => {
                    let passed = self.items.len() - rest.len();
                    (commas.next().map_or(rest.len(), |comma| comma - passed), 1)
                }
            };
            let text = rest.get(..length)?;
            let piece = Piece { text, offset };
            offset += newlines(text);
            rest = rest.get(length + skipped..).unwrap_or_default();
            Some(piece)
        })
    }
}

/// Counts in a byte for each run of bytes: the compiler then counts many bytes with one instruction.
fn newlines(text: &str) -> usize {
    let runs = text.as_bytes().chunks(usize::from(u8::MAX));
    let each = runs.map(|run| run.iter().map(|byte| u8::from(*byte == b'\n')).sum::<u8>());
    each.map(usize::from).sum()
}

fn indent_of(line: &str) -> usize {
    line.len() - line.trim_start_matches(' ').len()
}

/// Whether a line begins an item of a list after so many spaces.
fn is_item(line: &str, indent: usize) -> bool {
    indent_of(line) == indent
        && line
            .get(indent..)
            .is_some_and(|rest| rest.starts_with("- ") || rest.trim_end() == "-")
}

/// Bytes up to the second line that begins an item.
fn item_length(text: &str, indent: usize) -> usize {
    let mut found = false;
    let mut length = 0;
    for line in text.split_inclusive('\n') {
        if is_item(line, indent) && std::mem::replace(&mut found, true) {
            return length;
        }
        length += line.len();
    }
    length
}

/// The brackets and commas of a JSON text that are not in quotes, each with its place.
fn marks(text: &str) -> impl Iterator<Item = (usize, u8)> {
    let (bytes, mut next) = (text.as_bytes(), 0);
    std::iter::from_fn(move || {
        loop {
            let (at, byte) = (next, *bytes.get(next)?);
            next += 1;
            match byte {
                b'"' => next += quoted_length(bytes.get(next..).unwrap_or_default()),
                b'[' | b'{' | b']' | b'}' | b',' => return Some((at, byte)),
                _ => {}
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(text: &str) -> (String, Vec<(String, usize)>) {
        let list = List::of(text.as_bytes()).unwrap();
        let pieces = list
            .pieces()
            .map(|piece| (piece.text.to_owned(), piece.offset))
            .collect();
        (list.head, pieces)
    }

    #[test]
    fn cuts_a_list_before_and_after_its_items() {
        let pieces = |all: &[(&str, usize)]| {
            all.iter()
                .map(|(text, line)| ((*text).to_owned(), *line))
                .collect::<Vec<_>>()
        };
        for indent in ["", "  "] {
            let text = format!(
                "kind: List\nitems:\n{indent}- a: 1\n\n# x\n{indent}  b: |\n{indent}    - c\n{indent}-\n{indent}  d: 2\nmetadata: {{}}\n"
            );
            let (head, found) = cut(&text);
            assert_eq!(head, "kind: List\nitems: []\nmetadata: {}\n");
            let first = format!("{indent}- a: 1\n\n# x\n{indent}  b: |\n{indent}    - c\n");
            assert_eq!(
                found,
                pieces(&[(&first, 2), (&format!("{indent}-\n{indent}  d: 2\n"), 7)])
            );
        }
        let (head, found) =
            cut("{\"a\": [1], \"items\" :\n[{\"x\": \",]\\\"\"}, [2,\n3] ], \"kind\": \"List\"}");
        assert_eq!(head, "{\"a\": [1], \"items\" :\n[], \"kind\": \"List\"}");
        assert_eq!(
            found,
            pieces(&[("{\"x\": \",]\\\"\"}", 1), (" [2,\n3] ", 1)])
        );
        assert!(cut("{\"items\": []}").1.is_empty());
        assert_eq!(
            List::of(format!("{{\"items\": [{}1]}}", "1,".repeat(100)).as_bytes()),
            None
        );
        for other in [
            "",
            "a: 1\n",
            "items:\n",
            "items: [a]\n",
            "{\"a\": {\"items\": [1]}}",
            "{\"items\": 1}",
            "{\"items\": [1",
        ] {
            assert_eq!(List::of(other.as_bytes()), None, "{other}");
        }
    }
}
