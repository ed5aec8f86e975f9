//! The paths of declared fields.

/// One step of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Segment {
    /// The value under this key of a map.
    Field(String),
    /// The elements of a list whose `type` is this.
    Element(String),
}

/// Parses a path by the grammar of the host: `status.version.history`, `metadata.labels["a.b/c"]`,
/// `status.conditions[Available]`. The error says why a text is none.
pub(super) fn parse(text: &str) -> Result<Vec<Segment>, String> {
    let mut segments = Vec::new();
    let mut rest = text;
    while !rest.is_empty() || segments.is_empty() {
        let (segment, after) =
            next(rest, segments.is_empty()).map_err(|why| format!("parse path `{text}`: {why}"))?;
        segments.push(segment);
        rest = after;
    }
    match segments.first() {
        _ if text.len() > 512 || segments.len() > 16 => {
            Err(format!("parse path `{text}`: it is too long"))
        }
        Some(Segment::Element(_)) => Err(format!(
            "parse path `{text}`: it starts with an element of a list"
        )),
        _ => Ok(segments),
    }
}

/// The next segment of a text, and what follows it.
fn next(rest: &str, first: bool) -> Result<(Segment, &str), &'static str> {
    if let Some(quoted) = rest
        .strip_prefix('[')
        .filter(|quoted| quoted.starts_with('"'))
    {
        let mut stream = serde_json::Deserializer::from_str(quoted).into_iter::<String>();
        let Some(Ok(key)) = stream.next() else {
            return Err("a quoted key is not closed");
        };
        let after = quoted.get(stream.byte_offset()..).unwrap_or_default();
        return Ok((
            Segment::Field(key),
            after.strip_prefix(']').ok_or("a bracket is not closed")?,
        ));
    }
    if let Some(inner) = rest.strip_prefix('[') {
        let (element, after) = inner.split_once(']').ok_or("a bracket is not closed")?;
        let plain = |letter: char| is_plain(letter) || matches!(letter, '.' | '/');
        return match !element.is_empty() && element.chars().all(plain) {
            true => Ok((Segment::Element(element.into()), after)),
            false => Err("the type of an element is empty or has a letter that none may have"),
        };
    }
    let rest = if first {
        rest
    } else {
        rest.strip_prefix('.')
            .ok_or("a dot or a bracket is missing")?
    };
    match rest.split_at(rest.find(|letter| !is_plain(letter)).unwrap_or(rest.len())) {
        ("", _) => Err("a field has no name"),
        (field, after) => Ok((Segment::Field(field.into()), after)),
    }
}

/// The characters of a field without quotes.
fn is_plain(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-' | '$')
}
