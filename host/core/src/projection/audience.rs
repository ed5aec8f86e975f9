//! For whom a part of a value is selected. Of one object of a set only the beginning of long texts crosses: its objects
//! share the limits of the set, so a writer of one of them could otherwise use up what is there for all. What is there
//! stays there: a selector without one of its labels, say, would select more.

use super::{Paths, null, select};
use serde_json::{Map, Value};

/// The most bytes that cross of a text or a key of one object of a set. Every name, label and finalizer is shorter.
const TEXT: usize = 4_096;

/// For whom the selected part of a value is.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Audience {
    /// For a guest: a value of another shape than a path needs is left out.
    Guest,
    /// For a guest, as one object of a set: long texts are cut, too.
    Set,
    /// For the host: a value of another shape is emptied.
    Host,
}

impl Audience {
    /// What it gets of a value at a declared path; nothing if that is null and a guest reads it.
    pub(super) fn whole(self, value: &Value) -> Option<Value> {
        match self {
            Self::Host => Some(value.clone()),
            Self::Guest | Self::Set if value.is_null() => None,
            Self::Guest => Some(null::present(value)),
            Self::Set => Some(short(value)),
        }
    }
}

impl Paths {
    /// As [`Paths::project`], for one object of a set: of a longer text or key only the beginning is left, wherever it
    /// stands.
    pub fn project_member(&self, value: &Value) -> Value {
        let selected = select(&self.0.root, value, Audience::Set);
        selected.unwrap_or_else(|| Value::Object(Map::new()))
    }
}

/// A copy of a value in which no text is longer, no key of a map, and no field null.
fn short(value: &Value) -> Value {
    match value {
        Value::String(text) => Value::from(beginning(text)),
        Value::Array(items) => items.iter().map(short).collect(),
        Value::Object(map) => {
            let entries = map.iter().filter(|(_, value)| !value.is_null());
            let entries = entries.map(|(key, value)| (beginning(key).to_owned(), short(value)));
            Value::Object(entries.collect())
        }
        other => other.clone(),
    }
}

/// The first of [`TEXT`] bytes, up to the end of a character.
fn beginning(text: &str) -> &str {
    &text[..text.floor_char_boundary(TEXT)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn of_a_long_text_the_beginning_crosses_wherever_it_stands_and_everything_else_whole() {
        let (long, most) = ("x".repeat(TEXT + 1), "x".repeat(TEXT));
        let (long, most) = (long.as_str(), most.as_str());
        // The last character that does not fit is left out whole.
        let (wide, fits) = ("é".repeat(TEXT), "é".repeat(TEXT / 2));
        let shape = |long: &str| {
            [
                json!({"a": {"b": long, "c": 1}}),
                json!({"m": {"k": long, "l": "x"}}),
                json!({"m": {long: 1, "l": 2}}),
                json!({"m": {"k": [long, 1, [long], null, {"l": long}]}}),
                json!({"m": long}),
                json!({"l": [{"type": "X", "s": long}]}),
            ]
        };
        let paths = Paths::parse(&["a.b", "a.c", "m", "l[X].s"]).unwrap();
        for (has, crosses) in [(long, most), (most, most), (wide.as_str(), fits.as_str())] {
            for (has, crosses) in shape(has).iter().zip(shape(crosses)) {
                assert_eq!(paths.project_member(has), crosses);
            }
        }
        // A single object is read as it is.
        let alone = json!({"m": {"k": long}});
        assert_eq!(paths.project(&alone), alone);
    }
}
