//! Builds a value from a parser's events: counts its cost against the budget, finds duplicate keys, merges. Errors hold
//! no message of the parser.

mod fields;

use super::ParseLimits;
use super::aside::Aside;
use super::cost::{DOCUMENT, ITEM, ParseMemory, TEXT};
use super::error::{DocumentError, DocumentFault, shown};
use fields::MapFields;
use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Number, Value};
use std::cell::{Cell, RefCell};
use std::fmt;

/// Segments of a path that are shown.
const LONGEST_PATH: usize = 12;

/// What has been spent on one document, and what went wrong.
pub(super) struct ParseState<'t> {
    aside: &'t Aside<'t>,
    memory: &'t ParseMemory,
    exact: bool,
    depth: usize,
    nodes: Cell<usize>,
    bytes: Cell<usize>,
    fault: Cell<Option<DocumentFault>>,
    /// Innermost first.
    path: RefCell<Vec<Segment>>,
}

enum Segment {
    Key(&'static str),
    Item(usize),
}

impl<'t> ParseState<'t> {
    /// Starts a document in a text of so many bytes, of which some are put aside. An exact reader looks up every key
    /// before it goes on, so that it knows the place of a duplicate.
    pub(super) fn new(
        length: usize,
        aside: &'t Aside<'t>,
        memory: &'t ParseMemory,
        limits: ParseLimits,
        exact: bool,
    ) -> Self {
        Self {
            aside,
            memory,
            exact,
            depth: limits.depth.min(120),
            nodes: Cell::new(limits.nodes.min(length.saturating_add(1_000))),
            bytes: Cell::new(length.saturating_mul(2).saturating_add(65_536)),
            fault: Cell::new(None),
            path: RefCell::new(Vec::new()),
        }
    }

    /// The error, at the place that the parser names (line and column from 1), in a text that begins after `offset`
    /// lines.
    pub(super) fn error(&self, place: Option<(usize, usize)>, offset: usize) -> DocumentError {
        let mut path = String::new();
        for (at, segment) in self.path.borrow().iter().rev().enumerate() {
            match segment {
                _ if at == LONGEST_PATH => path.push_str(".."),
                _ if at > LONGEST_PATH => break,
                Segment::Item(index) => path.push_str(&format!("[{index}]")),
                Segment::Key(key) if path.is_empty() => path.push_str(key),
                Segment::Key(key) => path.extend([".", key]),
            }
        }
        DocumentError {
            fault: self.fault.get().unwrap_or(DocumentFault::Syntax),
            line: place.map(|(line, _)| line + offset),
            column: place.map(|(_, column)| column),
            path,
        }
    }

    fn fail<E: de::Error>(&self, fault: DocumentFault) -> E {
        self.fault.set(Some(fault));
        E::custom("")
    }

    /// Pays for one value with so many bytes of text.
    fn spend<E: de::Error>(&self, nodes: usize, bytes: usize) -> Result<(), E> {
        match (
            self.nodes.get().checked_sub(nodes),
            self.bytes.get().checked_sub(bytes),
        ) {
            (Some(nodes), Some(bytes)) => {
                self.nodes.set(nodes);
                self.bytes.set(bytes);
                Ok(())
            }
            _ => Err(self.fail(DocumentFault::TooManyValues)),
        }
    }

    /// Reads a document; even an empty one costs memory.
    pub(super) fn begin<E: de::Error>(
        &self,
        read: impl FnOnce() -> Result<Value, E>,
    ) -> Result<Value, E> {
        self.hold(DOCUMENT)?;
        read()
    }

    /// Pays for bytes of memory.
    fn hold<E: de::Error>(&self, bytes: usize) -> Result<(), E> {
        if self.memory.take(bytes) {
            Ok(())
        } else {
            Err(self.fail(DocumentFault::TooCostly))
        }
    }

    fn inside<E>(&self, segment: Segment, error: E) -> E {
        self.path.borrow_mut().push(segment);
        error
    }

    /// Whether a key that points into the text is unquoted there.
    fn is_plain(&self, key: &str) -> bool {
        let text = &self.aside.text;
        let at = (key.as_ptr() as usize).wrapping_sub(text.as_ptr() as usize);
        let before = at.checked_sub(1).and_then(|at| text.as_bytes().get(at));
        !matches!(before, Some(b'"' | b'\''))
    }
}

/// Reads one value.
#[derive(Clone, Copy)]
pub(super) struct ValueSeed<'r, 't> {
    reader: &'r ParseState<'t>,
    depth: usize,
}

impl<'r, 't> ValueSeed<'r, 't> {
    /// Reads a whole document.
    pub(super) fn root(reader: &'r ParseState<'t>) -> Self {
        Self {
            reader,
            depth: reader.depth,
        }
    }

    fn deeper<E: de::Error>(self) -> Result<Self, E> {
        match self.depth.checked_sub(1) {
            Some(depth) => Ok(Self { depth, ..self }),
            None => Err(self.reader.fail(DocumentFault::TooDeep)),
        }
    }

    fn number<E: de::Error>(self, number: Option<Number>) -> Result<Value, E> {
        self.reader.spend(1, 0)?;
        number
            .map(Value::Number)
            .ok_or_else(|| self.reader.fail(DocumentFault::Number))
    }
}

impl<'de> DeserializeSeed<'de> for ValueSeed<'_, '_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ValueSeed<'_, '_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E: de::Error>(self) -> Result<Value, E> {
        self.reader.spend(1, 0)?;
        Ok(Value::Null)
    }

    fn visit_none<E: de::Error>(self) -> Result<Value, E> {
        self.visit_unit()
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<Value, E> {
        self.reader.spend(1, 0)?;
        Ok(Value::Bool(value))
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Value, E> {
        self.number(Some(value.into()))
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Value, E> {
        self.number(Some(value.into()))
    }

    // As in JSON, what is beyond 64 bits is a float.
    #[expect(clippy::cast_precision_loss, reason = "a float holds no more")]
    fn visit_u128<E: de::Error>(self, value: u128) -> Result<Value, E> {
        self.number(Number::from_f64(value as f64))
    }

    #[expect(clippy::cast_precision_loss, reason = "a float holds no more")]
    fn visit_i128<E: de::Error>(self, value: i128) -> Result<Value, E> {
        self.number(Number::from_f64(value as f64))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Value, E> {
        self.number(Number::from_f64(value))
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<Value, E> {
        let value = self.reader.aside.whole(value);
        self.reader.spend(1, value.len())?;
        self.reader.hold(TEXT + value.len())?;
        Ok(Value::String(value.into_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        self.reader.spend(1, 0)?;
        let inner = self.deeper()?;
        let mut items = Vec::new();
        loop {
            match access.next_element_seed(inner) {
                Ok(Some(item)) => {
                    self.reader.hold(ITEM)?;
                    items.push(item);
                }
                Ok(None) => return Ok(Value::Array(items)),
                Err(error) => return Err(self.reader.inside(Segment::Item(items.len()), error)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        self.reader.spend(1, 0)?;
        let inner = self.deeper()?;
        let mut fields = MapFields::default();
        while let Some(key) = access.next_key_seed(KeySeed {
            reader: self.reader,
            fields: &fields,
        })? {
            self.reader.hold(fields.price(key.as_deref()))?;
            let value = match access.next_value_seed(inner) {
                Ok(value) => value,
                Err(error) => {
                    let shown = key.as_deref().map_or("<<", shown);
                    return Err(self.reader.inside(Segment::Key(shown), error));
                }
            };
            let fault = match key {
                Some(key) => fields.put(key, value),
                None => {
                    self.reader.hold(MapFields::price_of(&value))?;
                    fields.merge(value)
                }
            };
            if let Some(fault) = fault {
                return Err(self.reader.fail(fault));
            }
        }
        Ok(Value::Object(fields.map))
    }

    fn visit_enum<A: de::EnumAccess<'de>>(self, _: A) -> Result<Value, A::Error> {
        Err(self.reader.fail(DocumentFault::Tag))
    }
}

/// Reads one key of a map; `None` for a merge key. A scalar that is no text counts as it is spelled, as a JSON key
/// would be.
struct KeySeed<'r, 't, 'm> {
    reader: &'r ParseState<'t>,
    fields: &'m MapFields,
}

impl<'de> DeserializeSeed<'de> for KeySeed<'_, '_, '_> {
    type Value = Option<String>;

    fn deserialize<D: Deserializer<'de>>(
        self,
        deserializer: D,
    ) -> Result<Option<String>, D::Error> {
        let reader = self.reader;
        deserializer.deserialize_str(self).inspect_err(|_| {
            if reader.fault.get().is_none() {
                reader.fault.set(Some(DocumentFault::KeyNotText));
            }
        })
    }
}

impl<'de> Visitor<'de> for KeySeed<'_, '_, '_> {
    type Value = Option<String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_borrowed_str<E: de::Error>(self, key: &'de str) -> Result<Option<String>, E> {
        if key == "<<" && self.reader.is_plain(key) {
            self.reader.spend(0, key.len())?;
            return Ok(None);
        }
        self.visit_str(key)
    }

    fn visit_str<E: de::Error>(self, key: &str) -> Result<Option<String>, E> {
        let key = self.reader.aside.whole(key);
        self.reader.spend(0, key.len())?;
        if self.reader.exact && self.fields.has(&key) {
            return Err(self.reader.inside(
                Segment::Key(shown(&key)),
                self.reader.fail(DocumentFault::DuplicateKey),
            ));
        }
        Ok(Some(key.into_owned()))
    }
}
