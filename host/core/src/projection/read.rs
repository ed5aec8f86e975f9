//! Parses only the declared parts of an object's text, so that the rest costs neither time nor memory. Lists are read
//! whole; `Paths::retain` cuts them later.

use super::{Node, Paths};
use serde::Deserialize as _;
use serde::de::value::SeqAccessDeserializer;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};
use std::fmt;

/// The body of an object as JSON: `apiVersion`, `kind`, metadata without `managedFields`, and below maps only what is
/// declared; without declared fields, everything.
///
/// # Errors
/// When it is not JSON, or nested too deeply in what is read.
pub fn object(text: &str, fields: Option<&Paths>) -> serde_json::Result<Value> {
    let mut json = serde_json::Deserializer::from_str(text);
    let value = Part::Object(fields.map(|paths| &paths.0.root)).deserialize(&mut json)?;
    json.end()?;
    Ok(value)
}

/// Which part of a value is read.
#[derive(Clone, Copy)]
enum Part<'a> {
    /// A whole object, or its declared fields.
    Object(Option<&'a Node>),
    /// Metadata.
    Metadata,
    /// The fields that are declared below a place.
    Below(&'a Node),
    /// Everything.
    Whole,
}

impl Part<'_> {
    /// Which part of the value under a key is read; `None` to skip it.
    fn of(self, key: &str) -> Option<Self> {
        match (self, key) {
            (Self::Object(_), "metadata") => Some(Self::Metadata),
            (Self::Object(_), "apiVersion" | "kind") => Some(Self::Whole),
            (Self::Metadata, "managedFields") => None,
            (Self::Below(node), _) if node.whole => Some(Self::Whole),
            (Self::Object(Some(node)) | Self::Below(node), _) => {
                node.fields.get(key).map(Self::Below)
            }
            (Self::Object(None) | Self::Metadata | Self::Whole, _) => Some(Self::Whole),
        }
    }
}

impl<'de> DeserializeSeed<'de> for Part<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Part<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, access: A) -> Result<Value, A::Error> {
        Value::deserialize(SeqAccessDeserializer::new(access))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = access.next_key::<String>()? {
            match self.of(&key) {
                Some(part) => drop(map.insert(key, access.next_value_seed(part)?)),
                None => drop(access.next_value::<IgnoredAny>()?),
            }
        }
        Ok(Value::Object(map))
    }
}
