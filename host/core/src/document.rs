//! Parses YAML or JSON text into values, within budgets. Errors hold no text of a document, only place and kind.

mod aside;
pub mod client_go;
pub(crate) mod cost;
pub mod emit;
mod error;
mod fields;
mod list;
mod seed;
mod split;

use aside::Aside;
use cost::Memory;
pub use error::{DocumentError, Fault};
pub use list::List;
use seed::{Reader, ValueSeed};
use serde::de::DeserializeSeed as _;
use serde_json::Value;
use split::Chunk;
use std::convert::Infallible;
use std::fmt;

/// What parsing one text may cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
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
pub fn parse_one(bytes: &[u8], limits: Limits) -> Result<Value, DocumentError> {
    let mut found = None;
    for parsed in parse_many(bytes, limits) {
        let line = parsed.line;
        if found.replace(parsed.value?).is_some() {
            return Err(DocumentError {
                line: Some(line),
                ..DocumentError::new(Fault::SeveralDocuments)
            });
        }
    }
    Ok(found.unwrap_or(Value::Null))
}

/// Parses every document of a text; a broken one does not hide the others. Leaves out empty documents.
pub fn parse_many(bytes: &[u8], limits: Limits) -> Vec<Parsed> {
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
    limits: Limits,
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
    let memory = Memory::of(text.len());
    let (left, mut number) = (memory.left(), 0);
    for chunk in split::chunks(text) {
        let mut found = Vec::new();
        parse_chunk(&chunk, limits, &memory, &mut found);
        for parsed in found {
            number += 1;
            each(Parsed { number, ..parsed })?;
        }
        memory.back(left);
    }
    Ok(())
}

/// Checks what can be checked before parsing.
fn text_of(bytes: &[u8], limits: Limits) -> Result<&str, DocumentError> {
    if bytes.len() > limits.bytes {
        return Err(DocumentError::new(Fault::TooLarge));
    }
    let text = std::str::from_utf8(bytes).map_err(|error| {
        DocumentError::new(Fault::InvalidUtf8).on(line_at(bytes, error.valid_up_to()))
    })?;
    if let Some(at) = text.find('\0') {
        return Err(DocumentError::new(Fault::Nul).on(line_at(bytes, at)));
    }
    Ok(text.strip_prefix('\u{feff}').unwrap_or(text))
}

/// The line of a byte, counted from 1.
fn line_at(bytes: &[u8], at: usize) -> usize {
    1 + bytes.iter().take(at).filter(|byte| **byte == b'\n').count()
}

/// Parses the documents of one chunk, nearly always one. After a duplicate key it parses again, exactly, to find its
/// place.
fn parse_chunk(chunk: &Chunk<'_>, limits: Limits, memory: &Memory, all: &mut Vec<Parsed>) {
    let left = memory.left();
    for exact in [false, true] {
        all.clear();
        memory.back(left);
        if chunk
            .json()
            .is_none_or(|text| parse_json(text, chunk, limits, memory, exact, all).is_err())
        {
            all.clear();
            memory.back(left);
            parse_yaml(chunk, limits, memory, exact, all);
        }
        let twice = |error: &DocumentError| error.fault == Fault::DuplicateKey;
        if !all
            .last()
            .is_some_and(|parsed| parsed.value.as_ref().is_err_and(twice))
        {
            return;
        }
    }
}

fn parse_yaml(
    chunk: &Chunk<'_>,
    limits: Limits,
    memory: &Memory,
    exact: bool,
    all: &mut Vec<Parsed>,
) {
    if let Some(fault) = cost::excess(chunk.text, limits, memory) {
        return push(
            all,
            chunk.line,
            Err(DocumentError::new(fault).on(chunk.line)),
        );
    }
    let left = memory.left();
    let shortened = Aside::of(chunk.text);
    if shortened.is_some_and(|aside| parse_text(&aside, chunk, limits, memory, exact, all)) {
        return;
    }
    // Parse the original text, so that the error names its true place.
    all.clear();
    memory.back(left);
    parse_text(
        &Aside::nothing(chunk.text),
        chunk,
        limits,
        memory,
        exact,
        all,
    );
}

/// Parses the text of a chunk as YAML; returns whether it is free of errors.
fn parse_text(
    aside: &Aside<'_>,
    chunk: &Chunk<'_>,
    limits: Limits,
    memory: &Memory,
    exact: bool,
    all: &mut Vec<Parsed>,
) -> bool {
    for document in serde_yaml::Deserializer::from_str(&aside.text) {
        let reader = Reader::new(chunk.text.len(), aside, memory, limits, exact);
        match reader.begin(|| ValueSeed::root(&reader).deserialize(document)) {
            Ok(Value::Null) => {}
            Ok(value) => push(all, chunk.line, Ok(value)),
            Err(error) => {
                let place = error.location().map(|at| (at.line(), at.column()));
                push(all, chunk.line, Err(reader.error(place, chunk.offset)));
                return false;
            }
        }
    }
    true
}

/// Parses a chunk as JSON documents, one after the other.
///
/// # Errors
/// When it is not JSON. Other faults, such as an exceeded limit, go into the list instead.
fn parse_json(
    text: &str,
    chunk: &Chunk<'_>,
    limits: Limits,
    memory: &Memory,
    exact: bool,
    all: &mut Vec<Parsed>,
) -> Result<(), ()> {
    let aside = Aside::nothing(text);
    // Each document is parsed from its own beginning, because the parser counts lines from the beginning of its text.
    let (mut rest, mut above, mut before) = (text, chunk.offset, 0);
    let mut line = chunk.line;
    loop {
        let mut json = serde_json::Deserializer::from_str(rest);
        let reader = Reader::new(text.len(), &aside, memory, limits, exact);
        match reader.begin(|| ValueSeed::root(&reader).deserialize(&mut json)) {
            Ok(Value::Null) => {}
            Ok(value) => push(all, line, Ok(value)),
            Err(error) => {
                let before = if error.line() == 1 { before } else { 0 };
                let error = reader.error(Some((error.line(), error.column() + before)), above);
                if matches!(error.fault, Fault::Syntax | Fault::KeyNotText) {
                    return Err(());
                }
                push(all, line, Err(error));
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

fn push(all: &mut Vec<Parsed>, line: usize, value: Result<Value, DocumentError>) {
    all.push(Parsed {
        number: all.len() + 1,
        line,
        value,
    });
}

/// The objects of a document: the items when it is a List of any kind, else the document itself.
pub fn flatten_list(value: Value) -> Vec<Value> {
    let is_list = value
        .get("kind")
        .and_then(Value::as_str)
        .is_some_and(|kind| kind.ends_with("List"))
        && value.get("items").is_some_and(Value::is_array);
    match value {
        Value::Object(mut map) if is_list => match map.remove("items") {
            Some(Value::Array(items)) => items.into_iter().flat_map(flatten_list).collect(),
            _ => Vec::new(),
        },
        other => vec![other],
    }
}
