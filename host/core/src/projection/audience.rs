//! For whom a part of a value is selected. One object of a set crosses without long texts: its objects share the limits
//! of the set, so a writer of one of them could otherwise use up what is there for all.

use super::{Paths, select};
use serde_json::{Map, Value};

/// The most bytes that a text or a key of one object of a set has. Every name, label and finalizer is shorter.
const TEXT: usize = 4_096;

/// For whom the selected part of a value is.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Audience {
    /// For a guest: a value of another shape than a path needs is left out.
    Guest,
    /// For a guest, as one object of a set: long texts are left out, too.
    Set,
    /// For the host: a value of another shape is emptied.
    Host,
}

impl Audience {
    /// What it gets of a value at a declared path.
    pub(super) fn whole(self, value: &Value) -> Option<Value> {
        match self {
            Self::Set => short(value),
            Self::Guest | Self::Host => Some(value.clone()),
        }
    }
}

impl Paths {
    /// As [`Paths::project`], for one object of a set: a longer text, or an entry of a map with a longer key, is left
    /// out wherever it stands, as if the object did not have it.
    pub fn project_member(&self, value: &Value) -> Value {
        let selected = select(&self.0.root, value, Audience::Set);
        selected.unwrap_or_else(|| Value::Object(Map::new()))
    }
}

/// A copy of a value without what is too long; `None` for a text that is. Lists and maps stay, also when they are empty
/// then.
fn short(value: &Value) -> Option<Value> {
    Some(match value {
        Value::String(text) if text.len() > TEXT => return None,
        Value::Array(items) => items.iter().filter_map(short).collect(),
        Value::Object(map) => {
            let entries = map.iter().filter(|(key, _)| key.len() <= TEXT);
            let entries = entries.filter_map(|(key, value)| Some((key.clone(), short(value)?)));
            Value::Object(entries.collect())
        }
        other => other.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_long_text_is_left_out_wherever_it_stands_and_nothing_else() {
        let (long, most) = ("x".repeat(TEXT + 1), "x".repeat(TEXT));
        // What an object has, and what of it crosses.
        for (has, crosses) in [
            (json!({"a": {"b": long}}), json!({})),
            (json!({"a": {"b": most}}), json!({"a": {"b": most}})),
            (json!({"a": {"b": long, "c": 1}}), json!({"a": {"c": 1}})),
            (
                json!({"m": {"k": long, "l": "x"}}),
                json!({"m": {"l": "x"}}),
            ),
            (
                json!({"m": {long.as_str(): 1, most.as_str(): 2}}),
                json!({"m": {most.as_str(): 2}}),
            ),
            (
                json!({"m": {"k": [long, 1, [long], null]}}),
                json!({"m": {"k": [1, [], null]}}),
            ),
            (json!({"m": {"k": {"l": long}}}), json!({"m": {"k": {}}})),
            (json!({"m": long}), json!({})),
            (
                json!({"l": [{"type": "X", "s": long, "t": 1}]}),
                json!({"l": [{"type": "X"}]}),
            ),
        ] {
            let paths = Paths::parse(&["a.b", "a.c", "m", "l[X].s"]).unwrap();
            assert_eq!(paths.project_member(&has), crosses);
            let shortened = paths.project(&crosses);
            assert_eq!(
                shortened, crosses,
                "it is what would cross of an object without them"
            );
        }
        // A single object is read as it is.
        let alone = json!({"m": {"k": long}});
        assert_eq!(Paths::parse(&["m"]).unwrap().project(&alone), alone);
    }
}
