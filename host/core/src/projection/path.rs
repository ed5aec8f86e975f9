//! Paths of fields: `status.version.history`, `metadata.annotations["a.b/c"]`, `status.conditions[Available]`.

use serde_json::Value;
use std::fmt;

/// The most segments that a path may have.
const MAX_SEGMENTS: usize = 16;
/// The most bytes that a path may have.
const MAX_BYTES: usize = 512;

/// One step of a path.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Segment {
    /// The value under this key of a map.
    Field(Box<str>),
    /// The elements of a list whose `type` is this.
    Element(Box<str>),
}

/// A parsed path; at least one segment, and the first is a field.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Path(Vec<Segment>);

/// Why a text is not a path.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("parse path `{path}`: {why}")]
pub struct PathError {
    /// The text, cut.
    pub path: String,
    /// What is wrong with it.
    pub why: &'static str,
}

impl Path {
    /// Reads a path.
    ///
    /// # Errors
    /// When it is empty, too long, or not of a form like those at the top of this file.
    pub fn parse(text: &str) -> Result<Self, PathError> {
        let fail = |why| PathError {
            path: text.chars().take(80).collect(),
            why,
        };
        if text.len() > MAX_BYTES {
            return Err(fail("longer than 512 bytes"));
        }
        let mut segments = Vec::new();
        let mut rest = text;
        while !rest.is_empty() || segments.is_empty() {
            let (segment, after) = next(rest, segments.is_empty()).map_err(fail)?;
            segments.push(segment);
            rest = after;
        }
        match segments.first() {
            Some(Segment::Element(_)) => Err(fail("starts with an element of a list")),
            _ if segments.len() > MAX_SEGMENTS => Err(fail("more than 16 segments")),
            _ => Ok(Self(segments)),
        }
    }

    /// The path of a top-level field.
    pub fn key(key: &str) -> Self {
        Self(vec![Segment::Field(key.into())])
    }

    /// The keys from the top down; `None` when it leads through an element of a list.
    pub fn keys(&self) -> Option<Vec<&str>> {
        let mut keys = Vec::with_capacity(self.0.len());
        for segment in &self.0 {
            match segment {
                Segment::Field(key) => keys.push(&**key),
                Segment::Element(_) => return None,
            }
        }
        Some(keys)
    }

    /// Whether it leads to the conditions of an object.
    pub fn is_conditions(&self) -> bool {
        self.keys()
            .is_some_and(|keys| keys == ["status", "conditions"])
    }

    /// Whether it leads into the status of an object.
    pub fn is_of_status(&self) -> bool {
        matches!(self.0.first(), Some(Segment::Field(key)) if **key == *"status")
    }

    /// Its segments.
    pub fn segments(&self) -> &[Segment] {
        &self.0
    }

    /// Whether another path leads to the same place, or below it.
    pub fn covers(&self, other: &Self) -> bool {
        other.0.starts_with(&self.0)
    }

    /// The keys of labels or annotations that it stands for, as the text with which each begins: the path of one that
    /// ends with `*`, which is part of no such key.
    pub fn prefix(&self) -> Option<&str> {
        match self.0.as_slice() {
            [
                Segment::Field(metadata),
                Segment::Field(of),
                Segment::Field(key),
            ] if **metadata == *"metadata" && matches!(&**of, "labels" | "annotations") => {
                key.strip_suffix('*')
            }
            _ => None,
        }
    }

    /// Whether who may write here may write at another path: the same place, one below it, or a key that this one
    /// stands for.
    pub fn grants(&self, other: &Self) -> bool {
        let (Some(prefix), [first, of, Segment::Field(key), ..]) =
            (self.prefix(), other.segments())
        else {
            return self.covers(other);
        };
        self.0.starts_with(&[first.clone(), of.clone()]) && key.starts_with(prefix)
    }

    /// The place itself; for keys of labels or annotations that begin with a text, all of them.
    pub fn place(&self) -> Self {
        let mut segments = self.0.clone();
        if self.prefix().is_some() {
            segments.pop();
        }
        Self(segments)
    }

    /// The path of a key below another one, or at the top, each with the bytes of its text; `None` beyond the bounds of
    /// [`Path::parse`].
    pub fn within(above: Option<&(Self, usize)>, key: &str) -> Option<(Self, usize)> {
        let (above, bytes) = above.map_or((&[][..], 0), |(path, bytes)| (path.segments(), *bytes));
        // The key comes first: one of a guest may be as long as its answer.
        if key.len() > MAX_BYTES || above.len() >= MAX_SEGMENTS {
            return None;
        }
        let bytes = bytes + width(key, above.is_empty());
        let path = || Self([above, &[Segment::Field(key.into())]].concat());
        (bytes <= MAX_BYTES).then(|| (path(), bytes))
    }

    /// The value in a body under it; `None` when it leads through an element of a list.
    pub fn value<'a>(&self, body: &'a Value) -> Option<&'a Value> {
        let mut segments = self.0.iter();
        segments.try_fold(body, |value, segment| match segment {
            Segment::Field(key) => value.get(&**key),
            Segment::Element(_) => None,
        })
    }

    /// The path of a key below it.
    pub fn child(&self, key: &str) -> Self {
        let mut segments = self.0.clone();
        segments.push(Segment::Field(key.into()));
        Self(segments)
    }
}

/// The keys of a path from the top down, as a plan's patch names it: `metadata.labels["a.b/c"]`. None for a text that
/// is no path of plain fields.
pub fn keys(text: &str) -> Vec<String> {
    let path = Path::parse(text).ok();
    let keys = path.as_ref().and_then(Path::keys).unwrap_or_default();
    keys.into_iter().map(str::to_owned).collect()
}

/// The path of keys from the top down, as [`keys`] reads it and a policy writes it: `data["tls.crt"]`.
pub fn of(keys: &[&str]) -> String {
    Path(
        keys.iter()
            .map(|key| Segment::Field((*key).into()))
            .collect(),
    )
    .to_string()
}

/// The key right below a place to which a path leads: `tls.crt` for `data["tls.crt"]` below `data`.
pub fn key_below(place: &[&str], text: &str) -> Option<String> {
    let keys = keys(text);
    let (last, above) = keys.split_last()?;
    (above == place).then(|| last.clone())
}

/// The value in a body under a path of [`keys`].
pub fn at<'a>(body: &'a Value, text: &str) -> Option<&'a Value> {
    let keys = keys(text);
    keys.iter().try_fold(body, |value, key| value.get(key))
}

/// The next segment of a text, and what follows it.
fn next(rest: &str, first: bool) -> Result<(Segment, &str), &'static str> {
    if rest.starts_with("[\"") {
        let quoted = rest.get(1..).unwrap_or_default();
        let mut stream = serde_json::Deserializer::from_str(quoted).into_iter::<String>();
        let Some(Ok(key)) = stream.next() else {
            return Err("a quoted key is not closed");
        };
        let after = quoted.get(stream.byte_offset()..).unwrap_or_default();
        let after = after.strip_prefix(']').ok_or("a bracket is not closed")?;
        return Ok((Segment::Field(key.into()), after));
    }
    if let Some(inner) = rest.strip_prefix('[') {
        let (element, after) = inner.split_once(']').ok_or("a bracket is not closed")?;
        return match element.is_empty() || !element.chars().all(is_element) {
            true => Err(
                "the type of an element is empty or contains characters other than letters, digits, `.`, `/`, `_`, `-`",
            ),
            false => Ok((Segment::Element(element.into()), after)),
        };
    }
    let rest = if first {
        rest
    } else {
        rest.strip_prefix('.')
            .ok_or("a dot or a bracket is missing")?
    };
    let end = rest.find(|letter| !is_plain(letter)).unwrap_or(rest.len());
    match rest.split_at(end) {
        ("", _) => Err("a field has no name"),
        (field, after) => Ok((Segment::Field(field.into()), after)),
    }
}

/// Whether a field may contain this letter without quotes.
fn is_plain(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-' | '$')
}

/// Whether a key is written without quotes.
fn is_plain_key(key: &str) -> bool {
    !key.is_empty() && key.chars().all(is_plain)
}

/// The bytes of a key in the text of a path.
fn width(key: &str, first: bool) -> usize {
    match is_plain_key(key) {
        true => key.len() + usize::from(!first),
        false => Value::from(key).to_string().len() + "[]".len(),
    }
}

/// Whether the type of an element may contain this letter.
fn is_element(letter: char) -> bool {
    is_plain(letter) || matches!(letter, '.' | '/')
}

/// The canonical form, which [`Path::parse`] reads back.
impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, segment) in self.0.iter().enumerate() {
            match segment {
                Segment::Element(element) => write!(f, "[{element}]")?,
                Segment::Field(key) if !is_plain_key(key) => {
                    write!(f, "[{}]", Value::from(&**key))?;
                }
                Segment::Field(key) if index == 0 => f.write_str(key)?,
                Segment::Field(key) => write!(f, ".{key}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_written_as_a_policy_writes_it() {
        for (place, key, text) in [
            (&["data"][..], "kubeconfig", "data.kubeconfig"),
            (&["data"], "tls.crt", r#"data["tls.crt"]"#),
            (
                &["metadata", "labels"],
                "a.b/c",
                r#"metadata.labels["a.b/c"]"#,
            ),
        ] {
            assert_eq!(of(&[place, &[key]].concat()), text);
            assert_eq!(key_below(place, text).as_deref(), Some(key));
            for other in [&["data", "x"][..], &[], &["metadata"]] {
                assert_eq!(key_below(other, text), None, "{text}");
            }
        }
    }

    #[test]
    fn a_path_within_another_counts_the_bytes_of_its_text() {
        for keys in [
            &["spec", "a-b", "c"][..],
            &["a.b", "c", "", "d.e"],
            &["", "a"],
            &["a", "qu\"ote\\\n\u{1}", "\u{e4}"],
        ] {
            let path = keys.iter().fold(None, |above: Option<(Path, usize)>, key| {
                Path::within(above.as_ref(), key)
            });
            let (path, bytes) = path.unwrap();
            assert_eq!(path.keys().as_deref(), Some(keys));
            assert_eq!(bytes, path.to_string().len(), "{path}");
        }
        let at_most = |first: &str, length| {
            let above = Path::within(None, first);
            Path::within(above.as_ref(), &"k".repeat(length)).is_some()
        };
        // `a.k…`, and `["."].k…`.
        assert!(at_most("a", 510) && !at_most("a", 511));
        assert!(at_most(".", 506) && !at_most(".", 507));
    }

    #[test]
    fn paths_read_and_write() {
        for (text, segments) in [
            ("status.version.history", 3),
            ("metadata.annotations[\"a.b/c\"]", 3),
            ("status.conditions[Available]", 3),
            ("status.conditions[Available].status", 4),
            ("metadata.annotations[\"qu\\\"ote\"].x", 4),
            ("[\"a.b\"].c", 2),
            ("spec", 1),
        ] {
            let path = Path::parse(text).unwrap();
            assert_eq!(path.segments().len(), segments, "{text}");
            assert_eq!(path.to_string(), text);
        }
        assert_eq!(Path::parse("a[\"plain\"]").unwrap().to_string(), "a.plain");
    }

    #[test]
    fn a_key_of_labels_that_ends_with_a_star_stands_for_those_that_begin_so() {
        let path = |text: &str| Path::parse(text).unwrap();
        let addons = path(r#"metadata.labels["a.b/addon-*"]"#);
        assert_eq!(addons.prefix(), Some("a.b/addon-"));
        assert_eq!(addons.place(), path("metadata.labels"));
        for (other, granted) in [
            (r#"metadata.labels["a.b/addon-x"]"#, true),
            (r#"metadata.labels["a.b/addon-"]"#, true),
            (r#"metadata.labels["a.b/addon-*"]"#, true),
            (r#"metadata.labels["a.b/addon"]"#, false),
            (r#"metadata.labels["x.a.b/addon-x"]"#, false),
            (r#"metadata.annotations["a.b/addon-x"]"#, false),
            ("metadata.labels", false),
            ("metadata", false),
        ] {
            assert_eq!(addons.grants(&path(other)), granted, "{other}");
        }
        let spec = path(r#"spec.labels["a.b/*"]"#);
        assert!(spec.prefix().is_none() && !spec.grants(&path(r#"spec.labels["a.b/c"]"#)));
        assert!(path("spec").grants(&spec) && spec.place() == spec);
    }

    #[test]
    fn refuses_invalid_paths() {
        let long = "a.".repeat(300);
        let deep = vec!["a"; 17].join(".");
        for text in [
            "", ".a", "a.", "a..b", "a b", "a[", "a[]", "a[\"x]", "a[\"x\"", "a[x y]", "[x].a",
            "a]b", &long, &deep,
        ] {
            assert!(Path::parse(text).is_err(), "{text}");
        }
    }
}
