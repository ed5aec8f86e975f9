//! Objects in a form that may be shown: of every credential only its kind, its size and a mark that is valid for one
//! run. In a kubeconfig everything that is not listed is hidden. [`visible`] shows texts without hidden characters.

use crate::kubeconfig::{KubeconfigLimits, SourceKubeconfig};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};
use std::fmt;

/// The annotation in which kubectl keeps a copy of the whole object.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The prefix of our own annotations.
const OURS: &str = "transom.dev/";

/// The key of one run. Equal values have equal marks within it; without the key a mark says nothing about a value.
pub struct Marks {
    key: [u8; 32],
    names: bool,
}

impl Marks {
    /// From random bytes, which must not be used for anything else.
    pub fn new(key: [u8; 32]) -> Self {
        Self { key, names: false }
    }

    /// The same, but names of contexts, clusters and users in kubeconfigs are shown.
    pub fn showing_names(self) -> Self {
        Self {
            names: true,
            ..self
        }
    }

    /// Whether names are shown.
    pub(crate) fn show_names(&self) -> bool {
        self.names
    }

    /// The mark that is shown instead of a value.
    pub fn hide(&self, kind: &str, bytes: &[u8]) -> Value {
        let mut hash = Sha256::new();
        hash.update(self.key);
        hash.update(bytes);
        let mark: String = hash
            .finalize()
            .iter()
            .take(4)
            .map(|byte| format!("{byte:02x}"))
            .collect();
        Value::String(format!("<redacted {kind}, {} bytes, {mark}>", bytes.len()))
    }

    /// The mark for a JSON value: for base64 by its decoded bytes, for other text by its bytes, for anything else by
    /// its JSON; null stays null.
    pub(crate) fn hide_value(&self, kind: &str, value: &Value) -> Value {
        match value {
            Value::Null => Value::Null,
            Value::String(text) => match STANDARD.decode(text) {
                Ok(bytes) if !text.is_empty() => self.hide(kind, &bytes),
                _ => self.hide(kind, text.as_bytes()),
            },
            other => self.hide(kind, other.to_string().as_bytes()),
        }
    }
}

impl fmt::Debug for Marks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Marks(..)")
    }
}

/// An object in a form that may be shown. Hides the content of Secrets wherever they are (in a List, in a
/// ManifestWork), and kubectl's copies of whole objects.
pub fn redact(mut object: Value, marks: &Marks) -> Value {
    hide_in(&mut object, marks);
    object
}

fn hide_in(object: &mut Value, marks: &Marks) {
    match object {
        Value::Object(map) if map.get("kind").and_then(Value::as_str) == Some("Secret") => {
            secret(map, marks);
        }
        Value::Object(map) => {
            for (key, value) in map {
                if key == LAST_APPLIED {
                    *value = marks.hide_value("copy", value);
                } else {
                    hide_in(value, marks);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| hide_in(item, marks)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn secret(map: &mut Map<String, Value>, marks: &Marks) {
    for (key, value) in map {
        match key.as_str() {
            "apiVersion" | "kind" | "type" | "immutable" => {}
            "metadata" => metadata(value, marks),
            "data" => *value = data(value, marks, |text| STANDARD.decode(text).ok()),
            "stringData" => *value = data(value, marks, |text| Some(text.as_bytes().to_vec())),
            _ => *value = marks.hide_value("field", value),
        }
    }
}

/// Hides the annotations of a Secret except ours: others may hold a copy of its data.
fn metadata(value: &mut Value, marks: &Marks) {
    hide_in(value, marks);
    let annotations = value.get_mut("annotations").and_then(Value::as_object_mut);
    for (name, value) in annotations.into_iter().flatten() {
        if !name.starts_with(OURS) && name != LAST_APPLIED {
            *value = marks.hide_value("annotation", value);
        }
    }
}

/// The values of a Secret; one that is a kubeconfig is shown as its structure.
fn data(value: &Value, marks: &Marks, bytes_of: impl Fn(&str) -> Option<Vec<u8>>) -> Value {
    let Value::Object(map) = value else {
        return marks.hide_value("data", value);
    };
    let one = |(key, value): (&String, &Value)| {
        let bytes = value.as_str().and_then(&bytes_of);
        let source = bytes
            .as_deref()
            .and_then(|bytes| SourceKubeconfig::parse(bytes, &KubeconfigLimits::default()).ok());
        let shown = match (source, bytes) {
            (Some(source), _) => source.redacted(marks),
            (None, Some(bytes)) => marks.hide("data", &bytes),
            (None, None) => marks.hide_value("data", value),
        };
        (key.clone(), shown)
    };
    Value::Object(map.iter().map(one).collect())
}

/// Text for people, in one line: without letters that move a cursor, change the direction of text or are invisible.
/// Names of objects and files come from the authors of manifests.
pub mod visible {
    use std::borrow::Cow;
    use std::fmt::Write as _;

    /// The text with a JSON escape (`\n`, `\u001b`) for every letter that [`is_hidden`]. In a string of a JSON document
    /// the escape means the same letter; a second call changes nothing more.
    pub fn visible(text: &str) -> Cow<'_, str> {
        escaped(text, is_hidden)
    }

    /// The same for text of several lines; line feeds stay.
    pub fn visible_lines(text: &str) -> Cow<'_, str> {
        escaped(text, |letter| letter != '\n' && is_hidden(letter))
    }

    /// Whether a letter ends a line, moves a cursor, changes the direction of text, or is invisible.
    pub fn is_hidden(letter: char) -> bool {
        if letter.is_ascii() {
            return letter.is_ascii_control();
        }
        letter.is_control()
            || matches!(letter,
                '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{3164}' | '\u{feff}'
                | '\u{ffa0}' | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}' | '\u{fe00}'..='\u{fe0f}' | '\u{fff0}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}'
                | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
    }

    fn escaped(text: &str, is_hidden: impl Fn(char) -> bool) -> Cow<'_, str> {
        // Fast path: nearly all text is plain, and there are megabytes of it.
        if text
            .bytes()
            .all(|byte| byte.is_ascii() && !is_hidden(char::from(byte)))
        {
            return Cow::Borrowed(text);
        }
        let Some(at) = text.find(&is_hidden) else {
            return Cow::Borrowed(text);
        };
        let (plain, rest) = text.split_at(at);
        let mut shown = plain.to_owned();
        for letter in rest.chars() {
            match letter {
                letter if !is_hidden(letter) => shown.push(letter),
                '\n' => shown.push_str("\\n"),
                '\r' => shown.push_str("\\r"),
                '\t' => shown.push_str("\\t"),
                hidden => hidden.encode_utf16(&mut [0; 2]).iter().for_each(|unit| {
                    let _ = write!(shown, "\\u{unit:04x}");
                }),
            }
        }
        Cow::Owned(shown)
    }
}

#[cfg(test)]
mod tests {
    use super::visible::*;
    use proptest::prelude::*;
    use std::borrow::Cow;

    #[test]
    fn spells_out_invisible_characters() {
        for (text, expected) in [
            (
                "Secret a/b.c_d: ü 木 🦀 e\u{301}",
                "Secret a/b.c_d: ü 木 🦀 e\u{301}",
            ),
            ("a\nb\r\t\u{1b}[31m", "a\\nb\\r\\t\\u001b[31m"),
            ("\u{9b}31m\u{85}\u{7f}\0", "\\u009b31m\\u0085\\u007f\\u0000"),
            (
                "\u{202e}x\u{2066}\u{2028}\u{2029}\u{200b}\u{feff}",
                "\\u202ex\\u2066\\u2028\\u2029\\u200b\\ufeff",
            ),
            ("\u{e0041}", "\\udb40\\udc41"),
            ("back\\slash", "back\\slash"),
        ] {
            assert_eq!(visible(text), expected);
        }
        assert_eq!(visible_lines("a\nb\u{1b}"), "a\nb\\u001b");
        assert!(matches!(visible("plain"), Cow::Borrowed(_)));
    }

    proptest! {
        #[test]
        fn no_invisible_character_remains_and_json_stays_equal(text in "(?s).{0,40}|[\\p{Cc}\\p{Cf}\\p{Zl}\\p{Zp}]{0,20}") {
            let shown = visible(&text).into_owned();
            prop_assert!(!shown.contains(is_hidden));
            prop_assert_eq!(visible(&shown), shown.as_str());
            let json = serde_json::to_string(&text).unwrap();
            prop_assert_eq!(serde_json::from_str::<String>(&visible(&json)).unwrap(), text);
        }

        #[test]
        fn spells_out_every_zero_width_character(letter in "[\\p{Cc}\\p{Cf}\\p{Zl}\\p{Zp}]") {
            // These signs of some scripts are visible.
            let signs = ['\u{600}'..='\u{605}', '\u{6dd}'..='\u{6dd}', '\u{70f}'..='\u{70f}', '\u{890}'..='\u{891}',
                '\u{8e2}'..='\u{8e2}', '\u{110bd}'..='\u{110bd}', '\u{110cd}'..='\u{110cd}', '\u{13430}'..='\u{1345f}'];
            prop_assert!(letter.chars().all(|letter| is_hidden(letter) || signs.iter().any(|signs| signs.contains(&letter))));
        }
    }
}
