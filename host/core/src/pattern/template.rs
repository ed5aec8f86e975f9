//! Templates: names made of the primary's fields, with fallbacks. A value must be a DNS name. The errors, also those of
//! patterns, do not repeat the text.
//!
//! ```text
//! template = choice *( "|" choice )        the first choice of which every field is there
//! choice   = *( field / "text" / dashed(field) )
//! field    = primary.namespace / primary.name / primary.labels["key"] / primary.annotations["key"]
//!          / agent.remoteCluster
//! ```

use super::TemplateData;
use crate::reference::dns;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// The most choices of a template, and the most parts of one choice.
const MAX: usize = 8;

/// Templates by the names under which patterns of a policy use them.
pub type TemplateNames = BTreeMap<String, Arc<Template>>;

/// A parsed template.
#[derive(Clone, Debug)]
pub struct Template {
    text: Box<str>,
    choices: Vec<Vec<Term>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Term {
    Text(Box<str>),
    Value { field: Field, dashed: bool },
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Field {
    Namespace,
    Name,
    Label(Box<str>),
    Annotation(Box<str>),
    RemoteCluster,
}

/// Templates with the same choices are equal, however they are written.
impl PartialEq for Template {
    fn eq(&self, other: &Self) -> bool {
        self.choices == other.choices
    }
}

impl Eq for Template {}

impl fmt::Display for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Template {
    /// Reads the text between braces, or of an entry in `grant.names`.
    ///
    /// # Errors
    /// The first place that is not part of a template.
    pub fn parse(text: &str) -> Result<Self, PatternError> {
        let mut reader = Reader { text, at: 0 };
        let mut choices = vec![Vec::new()];
        loop {
            reader.skip();
            let at = reader.at;
            let Some(choice) = choices.last_mut() else {
                break;
            };
            let (ends, bar) = (reader.ends(), reader.eat("|"));
            if (ends || bar) && choice.is_empty() {
                return Err(Wrong::EmptyChoice.at(at));
            }
            match (ends, bar) {
                (true, _) => break,
                (_, true) => choices.push(Vec::new()),
                _ => choice.push(reader.term()?),
            }
            if choices.len() > MAX || choices.iter().any(|choice| choice.len() > MAX) {
                return Err(Wrong::TooMany.at(at));
            }
        }
        Ok(Self {
            text: text.trim().into(),
            choices,
        })
    }

    /// The name that the template gives. `None` when no choice has all of its fields, or a value is not a DNS name:
    /// then no later choice is tried.
    pub fn resolve(&self, data: &TemplateData<'_>) -> Option<String> {
        for choice in &self.choices {
            let mut name = String::new();
            let mut there = true;
            for term in choice {
                match term {
                    Term::Text(text) => name.push_str(text),
                    Term::Value { field, dashed } => match field.read(data) {
                        Ok(value) if *dashed => name.push_str(&value.replace('.', "-")),
                        Ok(value) => name.push_str(value),
                        Err(Missing::Absent) => there = false,
                        Err(Missing::NoName) => return None,
                    },
                }
            }
            if there {
                return dns::is_subdomain(&name).then_some(name);
            }
        }
        None
    }
}

/// Why a field gives no value.
enum Missing {
    /// It is not there, or empty.
    Absent,
    /// It is not a DNS name.
    NoName,
}

impl Field {
    fn read<'a>(&self, data: &TemplateData<'a>) -> Result<&'a str, Missing> {
        let value = match self {
            Self::Namespace => data.object.reference.namespace.as_deref(),
            Self::Name => Some(data.object.reference.name.as_str()),
            Self::RemoteCluster => {
                Some(data.agent.cluster_name.as_str()).filter(|_| !data.agent.self_managed)
            }
            Self::Label(key) => of_metadata(data, "labels", key)?,
            Self::Annotation(key) => of_metadata(data, "annotations", key)?,
        };
        match value {
            None | Some("") => Err(Missing::Absent),
            Some(text) if dns::is_subdomain(text) => Ok(text),
            Some(_) => Err(Missing::NoName),
        }
    }
}

fn of_metadata<'a>(
    data: &TemplateData<'a>,
    map: &str,
    key: &str,
) -> Result<Option<&'a str>, Missing> {
    match data
        .object
        .body
        .get("metadata")
        .and_then(|metadata| metadata.get(map)?.get(key))
    {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(Missing::NoName),
    }
}

/// Why a text is not a pattern, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("at byte {at}: {wrong}")]
pub struct PatternError {
    /// The byte at fault, counted from 0; in a template from the template's beginning.
    pub at: usize,
    /// What is wrong there.
    pub wrong: Wrong,
}

/// What is wrong with a pattern or a template.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Wrong {
    /// The pattern is empty.
    #[error("a pattern is empty")]
    Empty,
    /// Too many stars and templates to understand.
    #[error(
        "a pattern has more than two `*`, more than three `*` and templates together, or two of them in a row"
    )]
    Stars,
    /// A brace or a quotation mark without its other end.
    #[error("a brace or quotation mark is not closed")]
    Unclosed,
    /// Neither a template nor the name of one.
    #[error("`grant.names` does not define this name")]
    Name,
    /// A field that a template may not take.
    #[error(
        "a template may use primary.namespace, primary.name, primary.labels[\"key\"], primary.annotations[\"key\"], \
         agent.remoteCluster, dashed(one of them), or \"text\""
    )]
    Field,
    /// Not the key of a label or an annotation.
    #[error("this is not a valid key of a label or an annotation")]
    Key,
    /// Text that no name can hold.
    #[error("a quoted text may contain only lower-case letters, digits, dashes and dots")]
    Text,
    /// Nothing before or after a bar.
    #[error("an alternative is empty")]
    EmptyChoice,
    /// Too many choices, or parts of one, to understand.
    #[error(
        "a template has more than eight alternatives, or an alternative has more than eight parts"
    )]
    TooMany,
}

impl Wrong {
    pub(super) const fn at(self, at: usize) -> PatternError {
        PatternError { at, wrong: self }
    }
}

/// A position in a text.
struct Reader<'t> {
    text: &'t str,
    at: usize,
}

impl<'t> Reader<'t> {
    fn rest(&self) -> &'t str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn ends(&self) -> bool {
        self.rest().is_empty()
    }

    fn skip(&mut self) {
        self.at += self.rest().len() - self.rest().trim_start_matches(' ').len();
    }

    fn eat(&mut self, token: &str) -> bool {
        let there = self.rest().starts_with(token);
        self.at += if there { token.len() } else { 0 };
        there
    }

    fn term(&mut self) -> Result<Term, PatternError> {
        let at = self.at;
        if self.eat("\"") {
            let text = self.until('"')?;
            let plain = |byte: u8| {
                byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte)
            };
            return match !text.is_empty() && text.bytes().all(plain) {
                true => Ok(Term::Text(text.into())),
                false => Err(Wrong::Text.at(at)),
            };
        }
        let dashed = self.eat("dashed(");
        let field = self.field()?;
        let closed = !dashed || self.eat(")");
        match closed && matches!(self.rest().chars().next(), None | Some(' ' | '|' | '"')) {
            true => Ok(Term::Value { field, dashed }),
            false => Err(Wrong::Field.at(at)),
        }
    }

    fn field(&mut self) -> Result<Field, PatternError> {
        for (word, field) in [
            ("primary.namespace", Field::Namespace),
            ("primary.name", Field::Name),
            ("agent.remoteCluster", Field::RemoteCluster),
        ] {
            if self.eat(word) {
                return Ok(field);
            }
        }
        let at = self.at;
        let label = self.eat("primary.labels[\"");
        if !label && !self.eat("primary.annotations[\"") {
            return Err(Wrong::Field.at(at));
        }
        let key = self.until('"')?;
        match (dns::is_qualified_name(key) && self.eat("]"), label) {
            (true, true) => Ok(Field::Label(key.into())),
            (true, false) => Ok(Field::Annotation(key.into())),
            (false, _) => Err(Wrong::Key.at(at)),
        }
    }

    fn until(&mut self, end: char) -> Result<&'t str, PatternError> {
        let (inside, _) = self
            .rest()
            .split_once(end)
            .ok_or(Wrong::Unclosed.at(self.at))?;
        self.at += inside.len() + end.len_utf8();
        Ok(inside)
    }
}
