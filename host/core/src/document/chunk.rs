//! Cuts a text into the parts between markers.

/// A part of a text that holds one document, rarely none or several.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Chunk<'t> {
    /// The part.
    pub(super) text: &'t str,
    /// Lines before it.
    pub(super) offset: usize,
    /// The line, counted from 1 in the whole text, where the content begins.
    pub(super) line: usize,
}

impl<'t> Chunk<'t> {
    /// The text without its marker, when it begins like JSON; its lines are those of the chunk.
    pub(super) fn json(&self) -> Option<&'t str> {
        let text = self.text.strip_prefix("---").unwrap_or(self.text);
        text.trim_start().starts_with(['{', '[']).then_some(text)
    }
}

/// Cuts a text before every line that begins with `---`, which no scalar can hold. A part of directives alone is
/// joined with the part after it.
pub(super) fn chunks(text: &str) -> impl Iterator<Item = Chunk<'_>> {
    let (mut start, mut offset) = (0, 0);
    let cuts = text
        .match_indices('\n')
        .map(|(at, _)| at + 1)
        .filter(move |at| is_marker(text.as_bytes(), *at));
    cuts.chain([text.len()]).filter_map(move |cut| {
        let part = text.get(start..cut).unwrap_or_default();
        if cut < text.len() && is_preamble(part) {
            return None;
        }
        let empty = part.lines().take_while(|line| says_nothing(line)).count();
        let chunk = Chunk {
            text: part,
            offset,
            line: offset + empty + 1,
        };
        start = cut;
        offset += if cut < text.len() {
            part.matches('\n').count()
        } else {
            0
        };
        Some(chunk)
    })
}

/// Whether a line that begins at this byte is a marker: three dashes that do not begin a word.
fn is_marker(text: &[u8], at: usize) -> bool {
    let line = text.get(at..).unwrap_or_default();
    line.starts_with(b"---") && matches!(line.get(3), None | Some(b' ' | b'\t' | b'\r' | b'\n'))
}

/// Whether a part holds directives, which belong to the document that follows.
fn is_preamble(part: &str) -> bool {
    let mut lines = part
        .lines()
        .map(str::trim_end)
        .filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.next().is_some_and(|line| line.starts_with('%'))
        && lines.all(|line| line.starts_with('%'))
}

fn says_nothing(line: &str) -> bool {
    let line = line.trim();
    line.is_empty() || line.starts_with('#') || line == "---"
}
