//! Parses YAML or JSON text into values, document by document, within budgets. Errors hold no text of a document, only
//! place and kind.

mod aside;
mod chunk;
pub mod client_go;
pub(crate) mod cost;
pub mod emit;
mod error;
mod list;
mod seed;

use aside::Aside;
use chunk::{Chunk, chunks};
use cost::ParseMemory;
pub use error::{DocumentError, DocumentFault};
pub use list::{List, Piece, flatten_list, list_of, of_kind};
use seed::{ParseState, ValueSeed};
use serde::de::DeserializeSeed as _;
use serde_json::Value;
use std::convert::Infallible;
use std::fmt;

/// What parsing one text may cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParseLimits {
    /// Bytes of the text.
    pub bytes: usize,
    /// Values in one document; those behind an alias count each time it is used. A short text has a smaller budget:
    /// one value for each of its bytes, and a thousand.
    pub nodes: usize,
    /// Nested maps and lists; at most 120.
    pub depth: usize,
}

/// One document of a text. Its debug form leaves out the value.
pub struct Parsed {
    /// Counted from 1, without empty documents.
    pub number: usize,
    /// The line on which it begins, counted from 1.
    pub line: usize,
    /// The value, or why there is none.
    pub value: Result<Value, DocumentError>,
}

impl fmt::Debug for Parsed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let error = self.value.as_ref().err();
        write!(
            f,
            "Parsed(document {}, line {}, {error:?})",
            self.number, self.line
        )
    }
}

/// Parses a text of one document; a text without any is null.
///
/// # Errors
/// When it is not one well-formed document within the limits.
pub fn parse_one(bytes: &[u8], limits: ParseLimits) -> Result<Value, DocumentError> {
    let mut found = None;
    for parsed in parse_many(bytes, limits) {
        let line = parsed.line;
        if found.replace(parsed.value?).is_some() {
            return Err(DocumentError {
                line: Some(line),
                ..DocumentError::new(DocumentFault::SeveralDocuments)
            });
        }
    }
    Ok(found.unwrap_or(Value::Null))
}

/// Parses every document of a text; a broken one does not hide the others. Leaves out empty documents.
pub fn parse_many(bytes: &[u8], limits: ParseLimits) -> Vec<Parsed> {
    let mut all = Vec::new();
    let Ok(()) = parse_each(bytes, limits, |parsed| -> Result<(), Infallible> {
        all.push(parsed);
        Ok(())
    });
    all
}

/// Hands each document of a text to `each` as soon as it is parsed, until `each` fails: a document need not stay in
/// memory while the next one is parsed. Leaves out empty documents.
///
/// # Errors
/// The first error of `each`.
pub fn parse_each<E>(
    bytes: &[u8],
    limits: ParseLimits,
    mut each: impl FnMut(Parsed) -> Result<(), E>,
) -> Result<(), E> {
    let text = match text_of(bytes, limits) {
        Ok(text) => text,
        Err(error) => {
            return each(Parsed {
                number: 1,
                line: error.line.unwrap_or(1),
                value: Err(error),
            });
        }
    };
    let memory = ParseMemory::of(text.len());
    let (left, mut number) = (memory.left(), 0);
    for chunk in chunks(text) {
        for parsed in parse_chunk(&chunk, limits, &memory) {
            number += 1;
            each(Parsed { number, ..parsed })?;
        }
        memory.back(left);
    }
    Ok(())
}

/// Checks what can be checked before parsing.
fn text_of(bytes: &[u8], limits: ParseLimits) -> Result<&str, DocumentError> {
    if bytes.len() > limits.bytes {
        return Err(DocumentError::new(DocumentFault::TooLarge));
    }
    let text = std::str::from_utf8(bytes).map_err(|error| {
        DocumentError::new(DocumentFault::InvalidUtf8).on(line_at(bytes, error.valid_up_to()))
    })?;
    if let Some(at) = text.find('\0') {
        return Err(DocumentError::new(DocumentFault::Nul).on(line_at(bytes, at)));
    }
    Ok(text.strip_prefix('\u{feff}').unwrap_or(text))
}

/// The line of a byte, counted from 1.
fn line_at(bytes: &[u8], at: usize) -> usize {
    1 + bytes.iter().take(at).filter(|byte| **byte == b'\n').count()
}

/// Parses the documents of one chunk, nearly always one. After a duplicate key it parses again, exactly, to find its
/// place.
fn parse_chunk(chunk: &Chunk<'_>, limits: ParseLimits, memory: &ParseMemory) -> Vec<Parsed> {
    let left = memory.left();
    let mut parsing = Parsing::new(chunk, limits, memory);
    parsing.all();
    if parsing.ends_at_a_duplicate_key() {
        parsing.restart(left);
        parsing.exact = true;
        parsing.all();
    }
    parsing.found
}

/// The documents of a chunk that are parsed so far.
struct Parsing<'p> {
    chunk: &'p Chunk<'p>,
    limits: ParseLimits,
    memory: &'p ParseMemory,
    exact: bool,
    found: Vec<Parsed>,
}

impl<'p> Parsing<'p> {
    fn new(chunk: &'p Chunk<'p>, limits: ParseLimits, memory: &'p ParseMemory) -> Self {
        Self {
            chunk,
            limits,
            memory,
            exact: false,
            found: Vec::new(),
        }
    }

    /// Drops what is parsed so far, and its cost.
    fn restart(&mut self, left: usize) {
        self.found.clear();
        self.memory.back(left);
    }

    fn push(&mut self, line: usize, value: Result<Value, DocumentError>) {
        let number = self.found.len() + 1;
        self.found.push(Parsed {
            number,
            line,
            value,
        });
    }

    fn ends_at_a_duplicate_key(&self) -> bool {
        let twice = |error: &DocumentError| error.fault == DocumentFault::DuplicateKey;
        let last = self.found.last();
        last.is_some_and(|parsed| parsed.value.as_ref().is_err_and(twice))
    }

    fn all(&mut self) {
        let left = self.memory.left();
        let json = self.chunk.json();
        if json.is_none_or(|text| self.json(text).is_err()) {
            self.restart(left);
            self.yaml();
        }
    }

    fn yaml(&mut self) {
        let (text, line) = (self.chunk.text, self.chunk.line);
        if let Some(fault) = cost::excess(text, self.limits, self.memory) {
            return self.push(line, Err(DocumentError::new(fault).on(line)));
        }
        let left = self.memory.left();
        if Aside::of(text).is_some_and(|aside| self.text(&aside)) {
            return;
        }
        // Parse the original text, so that the error names its true place.
        self.restart(left);
        self.text(&Aside::nothing(text));
    }

    /// Parses the text of the chunk as YAML; returns whether it is free of errors.
    fn text(&mut self, aside: &Aside<'_>) -> bool {
        let (length, line) = (self.chunk.text.len(), self.chunk.line);
        for document in serde_yaml::Deserializer::from_str(&aside.text) {
            let reader = ParseState::new(length, aside, self.memory, self.limits, self.exact);
            match reader.begin(|| ValueSeed::root(&reader).deserialize(document)) {
                Ok(Value::Null) => {}
                Ok(value) => self.push(line, Ok(value)),
                Err(error) => {
                    let place = error.location().map(|at| (at.line(), at.column()));
                    self.push(line, Err(reader.error(place, self.chunk.offset)));
                    return false;
                }
            }
        }
        true
    }

    /// Parses the text of the chunk as JSON documents, one after the other.
    ///
    /// # Errors
    /// When it is not JSON. Other faults, such as an exceeded limit, are among the parsed documents instead.
    fn json(&mut self, text: &str) -> Result<(), ()> {
        let aside = Aside::nothing(text);
        // Each document is parsed from its own beginning, because the parser counts lines from the beginning of its
        // text.
        let (mut rest, mut above, mut before) = (text, self.chunk.offset, 0);
        let mut line = self.chunk.line;
        loop {
            let mut json = serde_json::Deserializer::from_str(rest);
            let reader = ParseState::new(text.len(), &aside, self.memory, self.limits, self.exact);
            match reader.begin(|| ValueSeed::root(&reader).deserialize(&mut json)) {
                Ok(Value::Null) => {}
                Ok(value) => self.push(line, Ok(value)),
                Err(error) => {
                    let before = if error.line() == 1 { before } else { 0 };
                    let error = reader.error(Some((error.line(), error.column() + before)), above);
                    if matches!(
                        error.fault,
                        DocumentFault::Syntax | DocumentFault::KeyNotText
                    ) {
                        return Err(());
                    }
                    self.push(line, Err(error));
                    return Ok(());
                }
            }
            let Err(more) = json.end() else {
                return Ok(());
            };
            let lines = rest.split_inclusive('\n').take(more.line() - 1);
            let column = more.column().saturating_sub(1);
            before = if more.line() == 1 {
                before + column
            } else {
                column
            };
            above += more.line() - 1;
            line = above + 1;
            let parsed = lines.map(str::len).sum::<usize>() + column;
            rest = rest.get(parsed..).ok_or(())?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_end_before_markers_and_know_their_lines() {
        let text = "# one\na: 1\n---\n# two\nb: 2\n----\n--- {c: 3}\n---";
        let found: Vec<_> = chunks(text)
            .map(|chunk| (chunk.text, chunk.offset, chunk.line))
            .collect();
        assert_eq!(
            found,
            [
                ("# one\na: 1\n", 0, 2),
                ("---\n# two\nb: 2\n----\n", 2, 5),
                ("--- {c: 3}\n", 6, 7),
                ("---", 7, 9)
            ]
        );
    }

    #[test]
    fn directives_stay_with_their_document() {
        assert_eq!(
            chunks("%YAML 1.2\n# about\n---\na: 1\n---\nb: 2\n").count(),
            2
        );
        assert_eq!(chunks("").count(), 1);
    }
}
