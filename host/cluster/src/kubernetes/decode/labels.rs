//! Reads only those labels and annotations of an object that are asked for.

use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use std::borrow::Cow;
use std::fmt;
use transom_api::labels as names;
use transom_core::stamp::Stamp;

/// The labels whose keys are wanted, of an object of which [`kept`] made these bytes. Looks for them where they stand:
/// a set asks this of thousands of objects.
pub(in crate::kubernetes) fn labels(bytes: &[u8], wanted: impl Fn(&str) -> bool) -> Labels<'_> {
    texts(bytes, "labels", wanted)
}

/// The stamp of an object of which [`kept`] made these bytes.
pub(in crate::kubernetes) fn stamp(bytes: &[u8]) -> Option<Stamp> {
    let of_policy = [names::MANAGED_BY, names::POLICY];
    let labels = texts(bytes, "labels", |key| of_policy.contains(&key));
    let of_source = [names::SOURCE, names::INPUTS, names::COMPONENT];
    let annotations = texts(bytes, "annotations", |key| of_source.contains(&key));
    Stamp::of_metadata(|key| labels.get(key), |key| annotations.get(key))
}

fn texts<'a>(bytes: &'a [u8], field: &'static str, wanted: impl Fn(&str) -> bool) -> Labels<'a> {
    let found = Within("metadata", Within(field, WantedLabels(wanted)));
    let found = found.deserialize(&mut serde_json::Deserializer::from_slice(bytes));
    found.unwrap_or_default()
}

/// Labels, or annotations, that were looked for.
#[derive(Default)]
pub(in crate::kubernetes) struct Labels<'a>(Vec<(Text<'a>, Text<'a>)>);

/// A text that is copied only if it has escapes. Within a map serde borrows no `Cow` by itself.
#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

/// What is below a field; the rest is skipped.
struct Within<T>(&'static str, T);

/// The labels with these keys.
struct WantedLabels<F>(F);

impl Labels<'_> {
    /// The value of a key.
    pub(in crate::kubernetes) fn get(&self, key: &str) -> Option<&str> {
        let found = self.0.iter().find(|(one, _)| one.0 == key);
        found.map(|(_, value)| &*value.0)
    }
}

impl<'de, T: DeserializeSeed<'de, Value: Default>> DeserializeSeed<'de> for Within<T> {
    type Value = T::Value;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<T::Value, D::Error> {
        from.deserialize_map(self)
    }
}

impl<'de, T: DeserializeSeed<'de, Value: Default>> Visitor<'de> for Within<T> {
    type Value = T::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a map with `{}`", self.0)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<T::Value, A::Error> {
        let (mut seed, mut found) = (Some(self.1), T::Value::default());
        while let Some(key) = map.next_key::<Text<'de>>()? {
            match seed.take_if(|_| key.0 == self.0) {
                Some(seed) => found = map.next_value_seed(seed)?,
                None => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(found)
    }
}

impl<'de, F: Fn(&str) -> bool> DeserializeSeed<'de> for WantedLabels<F> {
    type Value = Labels<'de>;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Labels<'de>, D::Error> {
        from.deserialize_map(self)
    }
}

impl<'de, F: Fn(&str) -> bool> Visitor<'de> for WantedLabels<F> {
    type Value = Labels<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map of labels")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Labels<'de>, A::Error> {
        let mut labels = Labels::default();
        while let Some(key) = map.next_key::<Text<'de>>()? {
            if self.0(&key.0) {
                labels.0.push((key, map.next_value()?));
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(labels)
    }
}
