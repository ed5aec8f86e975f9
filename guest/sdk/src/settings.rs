//! Reads JSON, settings and declared fields, into the guest's own types; a problem names the field at fault.
//! For declared fields it leaves out the parser's message, which may quote a value.

pub mod patterns;

use crate::{Primary, Problem};
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// Reason for settings that do not have the expected form.
pub(crate) const INVALID_SETTINGS: &str = "InvalidSettings";
/// Reason for a declared field with an unexpected type.
pub(crate) const UNREADABLE_FIELDS: &str = "UnreadableFields";

/// The settings of a guest that has none: anything but `{}` is refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NoSettings {}

/// Reads settings as [`read`] does, and refuses a list in the place of a mapping. For
/// [`Guest::check`](crate::Guest::check), once for a policy.
pub(crate) fn check<S: DeserializeOwned + Default>(text: &str) -> Result<S, Problem> {
    let settings = read(text)?;
    match misplaced_list::<S>(text) {
        Some(path) => Err(Problem::in_settings(&path, "is not a mapping")),
        None => Ok(settings),
    }
}

/// The path of a list in the place of a mapping. serde accepts such a list, as the values of the fields in order. To
/// find it, this puts a mapping with an unknown field in the place of each list: serde names that field only where it
/// expects a mapping.
fn misplaced_list<S: DeserializeOwned + Default>(text: &str) -> Option<String> {
    let bytes = text.as_bytes();
    // One buffer for all probes: a guest's memory frees only its last block.
    let mut probe = String::with_capacity(text.len() + PROBE.len());
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' => at = string_end(bytes, at),
            b'[' => {
                probe.clear();
                probe.push_str(text.get(..at)?);
                probe.push_str(PROBE);
                probe.push_str(text.get(list_end(bytes, at)..)?);
                let read = serde_json::from_str::<S>(&probe);
                if read.is_err_and(|error| error.to_string().starts_with("unknown field `?`")) {
                    return Some(join(&levels_to(bytes, at), |_| None));
                }
            }
            _ => {}
        }
        at += 1;
    }
    None
}

/// A mapping with a field that no type has.
const PROBE: &str = r#"{"?":0}"#;

/// Reads settings. Absent settings give the default without parsing.
pub(crate) fn read<S: DeserializeOwned + Default>(text: &str) -> Result<S, Problem> {
    if matches!(text, "" | "{}") {
        return Ok(S::default());
    }
    // serde would read a list as the values of the fields in order.
    if !text.trim_start().starts_with('{') {
        return Err(Problem::new(INVALID_SETTINGS, "settings are not a map"));
    }
    serde_json::from_str(text).map_err(|error| {
        let mut message = error.to_string();
        // The position in the JSON does not help a person who wrote YAML; the field does.
        if let Some(cut) = message.rfind(" at line ") {
            message.truncate(cut);
        }
        let problem = Problem::new(INVALID_SETTINGS, plain(&message));
        match join(&levels_at(text, &error), |_| None) {
            path if path.is_empty() => problem,
            path => problem.at(path),
        }
    })
}

/// Rewrites an error of serde in the words of a policy's author.
fn plain(message: &str) -> String {
    let fault = message
        .strip_prefix("invalid type: ")
        .or_else(|| message.strip_prefix("invalid value: "));
    let Some((found, expected)) = fault.and_then(|fault| fault.rsplit_once(", expected ")) else {
        let Some(rest) = message.strip_prefix("unknown variant `") else {
            // The parser's word for a list or null in the place of a name.
            let place = message == "expected value";
            return if place { "expected a name" } else { message }.to_owned();
        };
        // The value itself may hold what looks like the end of it.
        let names = rest.rsplit_once("`, expected ").map(|(_, names)| names);
        // One name is followed by its quote, several by a list that begins with one.
        return ["unknown value, expected ", names.unwrap_or("another name")].concat();
    };
    // The kind of what was found and never the value: a policy's author may have put a secret there by mistake.
    let found = match found.split([' ', '(']).next().unwrap_or_default() {
        "map" => "a mapping",
        "sequence" => "a list",
        "string" | "character" => "a text",
        "integer" | "floating" => "a number",
        "boolean" => "true or false",
        "null" | "unit" => "null",
        _ => "of another type",
    };
    let expected = match expected {
        "a boolean" => "true or false",
        "a sequence" => "a list",
        "u8" => "a whole number from 0 to 255",
        "u16" => "a whole number from 0 to 65535",
        "u32" => "a whole number from 0 to 4294967295",
        "u64" => "a whole number from 0",
        "i8" | "i16" | "i32" | "i64" => "a whole number",
        name if name.starts_with("struct ") || name == "a map" => "a mapping",
        other => other,
    };
    ["is ", found, ", expected ", expected].concat()
}

impl Primary {
    /// Reads the declared fields. The text leaves out fields that the object does not have, so give the type
    /// `#[serde(default)]`.
    ///
    /// # Errors
    /// A problem with reason `UnreadableFields` if a field has another type than the guest expects.
    pub fn read<'a, T: Deserialize<'a>>(&'a self) -> Result<T, Problem> {
        fields(&self.fields)
    }
}

/// Reads declared fields.
pub(crate) fn fields<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T, Problem> {
    serde_json::from_str(text).map_err(|error| {
        let path = join(&levels_at(text, &error), |start| type_at(text, start));
        Problem::new(UNREADABLE_FIELDS, "a field has an unexpected type").at(path)
    })
}

/// The `type` of the element of a list that starts at `start`. It names the element: those that are not declared are
/// left out, so that its index is another one in the object.
fn type_at(text: &str, start: usize) -> Option<String> {
    #[derive(Deserialize)]
    struct Typed {
        #[serde(rename = "type")]
        kind: String,
    }
    let mut element = serde_json::Deserializer::from_str(text.get(start..)?);
    Typed::deserialize(&mut element).ok().map(|one| one.kind)
}

/// The way to the field at which a parser stopped.
fn levels_at(text: &str, error: &serde_json::Error) -> Vec<Level> {
    let before: usize = text
        .split_inclusive('\n')
        .take(error.line().saturating_sub(1))
        .map(str::len)
        .sum();
    levels_to(text.as_bytes(), before.saturating_add(error.column()))
}

/// One level of nesting on the way to an offset.
enum Level {
    Object(String),
    /// Index of the element, and where it starts.
    Array(usize, usize),
}

/// The keys and indices that lead to the byte at `stop`, in JSON that is valid up to there.
fn levels_to(text: &[u8], stop: usize) -> Vec<Level> {
    let mut levels: Vec<Level> = Vec::new();
    let mut at = 0;
    let mut expects_key = false;
    while at < stop.min(text.len()) {
        match text.get(at) {
            Some(b'{') => {
                levels.push(Level::Object(String::new()));
                expects_key = true;
            }
            Some(b'[') => levels.push(Level::Array(0, at + 1)),
            Some(b'}' | b']') if at + 1 < stop => {
                levels.pop();
            }
            Some(b',') => match levels.last_mut() {
                Some(Level::Array(index, start)) => (*index, *start) = (*index + 1, at + 1),
                _ => expects_key = true,
            },
            Some(b'"') => {
                let end = string_end(text, at);
                if let (true, Some(Level::Object(key))) = (expects_key, levels.last_mut()) {
                    *key = String::from_utf8_lossy(text.get(at + 1..end).unwrap_or_default())
                        .into_owned();
                    expects_key = false;
                }
                at = end;
            }
            _ => {}
        }
        at += 1;
    }
    levels
}

/// Index of the quote that ends the string which starts at `start`.
fn string_end(text: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while let Some(byte) = text.get(at) {
        match byte {
            b'\\' => at += 2,
            b'"' => return at,
            _ => at += 1,
        }
    }
    text.len()
}

/// Index behind the list that starts at `start`.
fn list_end(text: &[u8], start: usize) -> usize {
    let mut depth = 0;
    let mut at = start;
    while let Some(byte) = text.get(at) {
        match byte {
            b'"' => at = string_end(text, at),
            b'[' => depth += 1,
            b']' if depth == 1 => return at + 1,
            b']' => depth -= 1,
            _ => {}
        }
        at += 1;
    }
    text.len()
}

/// A path such as `a.b[0].c`; an element of a list may have a name instead of its index, by where it starts.
fn join(levels: &[Level], name: impl Fn(usize) -> Option<String>) -> String {
    let mut path = String::new();
    for level in levels {
        match level {
            Level::Object(key) if key.is_empty() => {}
            Level::Object(key) => path = below(path, key),
            Level::Array(index, start) => {
                let name = name(*start).unwrap_or_else(|| index.to_string());
                path.extend(["[", &name, "]"]);
            }
        }
    }
    path
}

/// The path of a key in the map at a path. Unusual keys are quoted as in declared paths: `a["b.c/d"]`.
fn below(mut path: String, key: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    if !key.bytes().all(is_plain) {
        path.extend(["[\"", key, "\"]"]);
    } else if path.is_empty() {
        path.push_str(key);
    } else {
        path.extend([".", key]);
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[derive(Debug, Default, PartialEq, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    struct Outer {
        list: Vec<Inner>,
        inner: Inner,
        maybe: Option<Inner>,
        named: BTreeMap<String, Inner>,
        number: Wrapped,
        pair: (u8, u8),
        word: Word,
    }

    #[derive(Debug, Default, PartialEq, Deserialize)]
    struct Wrapped(u8);

    #[derive(Debug, Default, PartialEq, Deserialize)]
    enum Word {
        #[default]
        Yes,
        No,
    }

    #[derive(Debug, Default, PartialEq, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    struct Inner {
        number: u8,
    }

    #[test]
    fn empty_settings_are_the_default() {
        for text in ["", "{}", " {\n}"] {
            assert_eq!(read::<Outer>(text), Ok(Outer::default()), "{text:?}");
        }
    }

    #[test]
    fn an_error_names_its_field() {
        let cases = [
            (r#"{"inner":{"number":"x"}}"#, Some("inner.number")),
            (r#"{"inner":{"number":300}}"#, Some("inner.number")),
            (r#"{"inner":{"nummer":1}}"#, Some("inner.nummer")),
            (r#"{"outer":{}}"#, Some("outer")),
            (
                r#"{"list":[{"number":1},{"number":-1}]}"#,
                Some("list[1].number"),
            ),
            (
                r#"{"list":[{"number":1},[]],"inner":{"number":1},"x":1}"#,
                Some("x"),
            ),
            (
                "{\n \"inner\": {\n  \"number\": null\n }\n}",
                Some("inner.number"),
            ),
            (r#"{"list":[{"number":1}],"inner":3}"#, Some("inner")),
            (r#"{"inner":{"a\"}{":1}}"#, Some(r#"inner["a\"}{"]"#)),
            (r#"{"inner":{"a.b/c":1}}"#, Some(r#"inner["a.b/c"]"#)),
            ("[]", None),
            ("null", None),
        ];
        for (text, field) in cases {
            let problem = read::<Outer>(text).unwrap_err();
            assert_eq!(problem.reason, INVALID_SETTINGS);
            assert_eq!(
                problem.field.as_deref(),
                field,
                "{text}: {}",
                problem.message
            );
            assert!(!problem.message.contains(" line "), "{}", problem.message);
        }
    }

    #[test]
    fn an_error_is_in_the_words_of_a_policy() {
        for (text, message) in [
            (
                r#"{"inner":{"number":"x"}}"#,
                "is a text, expected a whole number from 0 to 255",
            ),
            (
                r#"{"inner":{"number":300}}"#,
                "is a number, expected a whole number from 0 to 255",
            ),
            (r#"{"inner":3}"#, "is a number, expected a mapping"),
            (r#"{"word":"Yse"}"#, "unknown value, expected `Yes` or `No`"),
            (
                r#"{"word":"`, expected canary"}"#,
                "unknown value, expected `Yes` or `No`",
            ),
            (r#"{"word":null}"#, "expected a name"),
            (r#"{"list":{}}"#, "is a mapping, expected a list"),
            (
                r#"{"inner":{"nummer":1}}"#,
                "unknown field `nummer`, expected `number`",
            ),
        ] {
            assert_eq!(read::<Outer>(text).unwrap_err().message, message);
        }
    }

    #[test]
    fn a_list_is_not_a_mapping() {
        for (text, field) in [
            (r#"{"inner":[1]}"#, "inner"),
            (r#"{"list":[{"number":1},[2]]}"#, "list[1]"),
            (r#"{"named":{"a.b":[1]}}"#, r#"named["a.b"]"#),
            (r#"{"word":"Yes","maybe":[1]}"#, "maybe"),
        ] {
            let problem = check::<Outer>(text).unwrap_err();
            assert_eq!(problem.field.as_deref(), Some(field), "{text}");
            assert_eq!(problem.message, "is not a mapping");
        }
        let right = r#"{"list":[{"number":1}],"named":{"a":{}},"maybe":null,"word":"No","number":7,"pair":[1,2]}"#;
        for text in ["", "{}", right] {
            assert_eq!(check::<Outer>(text), read(text), "{text}");
        }
    }

    #[test]
    fn a_type_error_gives_the_path_and_no_value() {
        let primary = Primary {
            fields: r#"{"inner":{"number":"hunter2"}}"#.into(),
            ..Primary::default()
        };
        let problem = primary.read::<Outer>().unwrap_err();
        assert_eq!(problem.field.as_deref(), Some("inner.number"));
        assert!(!format!("{problem:?}").contains("hunter2"));
    }

    #[test]
    fn an_element_of_declared_fields_is_named_by_its_type() {
        #[derive(Debug, Default, Deserialize)]
        #[serde(default)]
        struct Listed {
            list: Vec<Inner>,
        }
        #[derive(Debug, Default, Deserialize)]
        #[serde(default)]
        struct Inner {
            number: u8,
        }
        for (elements, field) in [
            (r#"{"number":"x","type":"A"}"#, "list[A].number"),
            (
                r#"{"type":"A"}, {"type":"B","number":"x"}"#,
                "list[B].number",
            ),
            (r#"{"number":1}, {"number":"x"}"#, "list[1].number"),
            (r#"{"number":"x","type":7}"#, "list[0].number"),
            (r#"7"#, "list[0]"),
        ] {
            let primary = Primary {
                fields: format!(r#"{{"list":[{elements}]}}"#),
                ..Primary::default()
            };
            let problem = primary.read::<Listed>().unwrap_err();
            assert_eq!(problem.field.as_deref(), Some(field), "{elements}");
        }
    }

    #[test]
    fn a_guest_without_settings_refuses_any() {
        assert!(read::<NoSettings>("{}").is_ok());
        assert!(read::<NoSettings>(r#"{"a":1}"#).is_err());
    }

    #[test]
    fn a_path_can_be_reported_from_anywhere() {
        let text = br#"{"a":[{"b":"c"},2],"d":{"e":[]}}"#;
        for stop in 0..=text.len() + 9 {
            join(&levels_to(text, stop), |_| None);
        }
        for text in [&b"{\"a"[..], b"\"\\", b"]]}}", b"{,{,[,"] {
            join(&levels_to(text, 99), |_| None);
        }
    }
}
