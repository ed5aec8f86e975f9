//! Reads a map of a case, word by word. A word that is left over is an error, so that a misspelt word does not pass for
//! a default.

use anyhow::{Context as _, bail};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// A map of a case, and its place in the file.
pub(super) struct Words {
    place: String,
    map: Map<String, Value>,
}

impl Words {
    /// Reads a whole map; a word in it that is not taken is an error.
    ///
    /// # Errors
    /// When the value is no map, or as `read` fails.
    pub(super) fn inside<T>(
        place: &str,
        value: Value,
        read: impl FnOnce(&mut Self) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        let Value::Object(map) = value else {
            bail!("failed to read {}: not a map", named(place))
        };
        let mut words = Self {
            place: place.to_owned(),
            map,
        };
        let found = read(&mut words)?;
        match words.map.keys().next() {
            Some(word) => bail!(
                "failed to read `{}`: unknown field for this call",
                words.below(word)
            ),
            None => Ok(found),
        }
    }

    /// Whether a word is there, and not yet taken.
    pub(super) fn has(&self, word: &str) -> bool {
        self.map.contains_key(word)
    }

    /// Takes a word as it stands.
    pub(super) fn take(&mut self, word: &str) -> Option<Value> {
        self.map.remove(word)
    }

    /// Takes a plain value; its default when it is left out.
    ///
    /// # Errors
    /// When it has another type.
    pub(super) fn plain<T: DeserializeOwned + Default>(&mut self, word: &str) -> anyhow::Result<T> {
        let Some(value) = self.take(word) else {
            return Ok(T::default());
        };
        // The parser's own text is left out: it may quote the value.
        serde_json::from_value(value)
            .ok()
            .with_context(|| self.wrong(word, "its type differs from the type in `wit/`"))
    }

    /// Takes one word of an enumeration; `otherwise` when it is left out.
    ///
    /// # Errors
    /// When it is none of them.
    pub(super) fn one_of<T: Copy>(
        &mut self,
        word: &str,
        all: &[(&str, T)],
        otherwise: T,
    ) -> anyhow::Result<T> {
        let Some(value) = self.take(word) else {
            return Ok(otherwise);
        };
        let found = all
            .iter()
            .find(|(name, _)| value.as_str() == Some(name))
            .map(|(_, found)| *found);
        found.with_context(|| self.wrong(word, "not one of the names in `wit/`"))
    }

    /// Takes a variant: its name, and what it holds (null when it holds nothing).
    ///
    /// # Errors
    /// When it does not have the form of a variant.
    pub(super) fn variant(&mut self, word: &str) -> anyhow::Result<Option<(String, Value)>> {
        match self.take(word) {
            None => Ok(None),
            Some(Value::String(name)) => Ok(Some((name, Value::Null))),
            Some(Value::Object(map)) if map.len() == 1 => Ok(map.into_iter().next()),
            Some(_) => bail!(self.wrong(word, "expected a name, or a map with one name")),
        }
    }

    /// Takes a map; `None` when it is left out or null.
    ///
    /// # Errors
    /// As `read` fails.
    pub(super) fn maybe<T>(
        &mut self,
        word: &str,
        read: impl FnOnce(&mut Self) -> anyhow::Result<T>,
    ) -> anyhow::Result<Option<T>> {
        let value = self.take(word).filter(|value| !value.is_null());
        value
            .map(|value| Self::inside(&self.below(word), value, read))
            .transpose()
    }

    /// Takes a map; an empty one when it is left out.
    ///
    /// # Errors
    /// As `read` fails.
    pub(super) fn map<T>(
        &mut self,
        word: &str,
        read: impl FnOnce(&mut Self) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        let value = self.take(word).unwrap_or_else(|| Value::Object(Map::new()));
        Self::inside(&self.below(word), value, read)
    }

    /// Takes a list of maps; an empty one when it is left out.
    ///
    /// # Errors
    /// When it is no list, or as `read` fails.
    pub(super) fn each<T>(
        &mut self,
        word: &str,
        read: impl Fn(&mut Self) -> anyhow::Result<T>,
    ) -> anyhow::Result<Vec<T>> {
        let items: Vec<Value> = self.plain(word)?;
        let place = self.below(word);
        let one = |(index, item)| Self::inside(&format!("{place}[{index}]"), item, &read);
        items.into_iter().enumerate().map(one).collect()
    }

    /// The place of a word of this map.
    pub(super) fn below(&self, word: &str) -> String {
        if self.place.is_empty() {
            word.to_owned()
        } else {
            format!("{}.{word}", self.place)
        }
    }

    /// The message about a word that cannot be read.
    pub(super) fn wrong(&self, word: &str, why: &str) -> String {
        format!("failed to read `{}`: {why}", self.below(word))
    }
}

fn named(place: &str) -> String {
    if place.is_empty() {
        "`given.yaml`".to_owned()
    } else {
        format!("`{place}`")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(value: Value) -> Result<(String, u16, Vec<i64>), String> {
        let list = |words: &mut Words| words.each("list", |item| item.plain("n"));
        let all =
            |words: &mut Words| Ok((words.plain("text")?, words.plain("number")?, list(words)?));
        Words::inside("a", value, all).map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn omitted_fields_have_defaults() {
        assert_eq!(read(json!({})), Ok((String::new(), 0, vec![])));
        assert_eq!(
            read(json!({"text": "x", "number": 7, "list": [{"n": 1}, {}]})),
            Ok(("x".into(), 7, vec![1, 0]))
        );
    }

    #[test]
    fn names_unknown_fields_and_wrong_types_without_the_value() {
        for (value, place) in [
            (json!({"txt": "x"}), "`a.txt`"),
            (json!({"text": 1}), "`a.text`"),
            (json!({"number": 70_000}), "`a.number`"),
            (
                json!({"list": [{"n": 1}, {"m": "canary"}]}),
                "`a.list[1].m`",
            ),
            (json!({"list": [{"n": "canary"}]}), "`a.list[0].n`"),
            (json!(["canary"]), "`a`"),
        ] {
            let error = read(value.clone()).unwrap_err();
            assert!(
                error.contains(place) && !error.contains("canary"),
                "{value}: {error}"
            );
        }
    }
}
