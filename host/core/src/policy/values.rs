//! Which values a granted field may get: `grant.write[].values`, from paths to allowed values. Each text of an allowed
//! value is a pattern.

use super::check::{Checked, pattern, within, wrong};
use crate::pattern::template::TemplateNames;
use crate::pattern::{Pattern, TemplateData};
use crate::policy::manifest::PolicyError;
use crate::projection::path::Path;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use transom_api::policy::bounds::MANY;

/// The longest text, in bytes, that is compared with a pattern other than `*`: comparing takes the square of it.
const MAX_TEXT: usize = 4096;

/// The values that one field may get.
#[derive(Clone, Debug, PartialEq)]
pub struct ValueRule {
    /// The field.
    pub path: Path,
    allowed: Vec<AllowedValue>,
}

/// One allowed value; a map has exactly these keys, a list exactly these elements.
#[derive(Clone, Debug, PartialEq)]
enum AllowedValue {
    Text(Pattern),
    List(Vec<AllowedValue>),
    Map(BTreeMap<String, AllowedValue>),
    /// Null (the field may be removed), a number, true, false, or the empty text.
    Exactly(Value),
}

impl ValueRule {
    /// Reads the rules of one grant; each must be about one of the granted fields, or a part of it.
    pub(crate) fn parse(
        field: &str,
        values: &BTreeMap<String, Vec<Value>>,
        granted: &[Path],
        names: &TemplateNames,
    ) -> Checked<Vec<Self>> {
        let field = format!("{field}.values");
        within(&field, values.len(), MANY)?;
        let mut rules = Vec::new();
        for (text, allowed) in values {
            let path =
                Path::parse(text).map_err(|error| PolicyError::new(&field, error.to_string()))?;
            let field = format!("{field}[\"{text}\"]");
            if path.keys().is_none() || !granted.iter().any(|granted| granted.grants(&path)) {
                return wrong(field, "is not a field, or a part of a field, of `fields`");
            }
            within(&field, allowed.len(), MANY)?;
            let allowed = allowed.iter().enumerate();
            let allowed = allowed
                .map(|(at, value)| AllowedValue::parse(&format!("{field}[{at}]"), value, names))
                .collect::<Checked<_>>()?;
            rules.push(Self { path, allowed });
        }
        Ok(rules)
    }

    /// Whether the content that a guest proposes follows this rule. Each element of a list must be allowed. If the
    /// content replaces or removes a parent of the field, it removes the field.
    pub fn admits(&self, content: &Map<String, Value>, data: &TemplateData<'_>) -> bool {
        let place = self.path.place();
        let (mut map, mut value) = (Some(content), &Value::Null);
        for key in place.keys().unwrap_or_default() {
            value = match map.map(|map| map.get(key)) {
                Some(Some(value)) => value,
                Some(None) => return true,
                None => &Value::Null,
            };
            map = value.as_object();
        }
        let fits = |value: &Value| self.allowed.iter().any(|allowed| allowed.fits(value, data));
        match (value, self.path.prefix()) {
            (Value::Object(map), Some(prefix)) => {
                let mut keys = map.iter().filter(|(key, _)| key.starts_with(prefix));
                keys.all(|(_, value)| fits(value))
            }
            (Value::Array(elements), _) => elements.iter().all(fits),
            (value, _) => fits(value),
        }
    }

    /// Whether a part of an allowed value may be any text: that bounds nothing.
    pub(crate) fn is_free(&self, data: &TemplateData<'_>) -> bool {
        self.allowed.iter().any(|allowed| allowed.is_free(data))
    }

    /// The allowed values for a primary, for people.
    pub fn shown(&self, data: &TemplateData<'_>) -> String {
        let shown = self.allowed.iter().map(|allowed| allowed.shown(data));
        Value::Array(shown.collect()).to_string()
    }
}

impl AllowedValue {
    fn parse(field: &str, value: &Value, names: &TemplateNames) -> Checked<Self> {
        let each = |value| Self::parse(field, value, names);
        Ok(match value {
            Value::String(text) if !text.is_empty() => Self::Text(pattern(field, text, names)?),
            Value::Array(values) => Self::List(values.iter().map(each).collect::<Checked<_>>()?),
            Value::Object(map) => {
                let entries = map
                    .iter()
                    .map(|(key, value)| Ok((key.clone(), each(value)?)));
                Self::Map(entries.collect::<Checked<_>>()?)
            }
            exact => Self::Exactly(exact.clone()),
        })
    }

    fn fits(&self, value: &Value, data: &TemplateData<'_>) -> bool {
        match (self, value) {
            (Self::Text(pattern), Value::String(text)) => {
                pattern.is_any() || text.len() <= MAX_TEXT && pattern.matches(text, data)
            }
            (Self::List(allowed), Value::Array(values)) => {
                let mut pairs = allowed.iter().zip(values);
                allowed.len() == values.len() && pairs.all(|(one, value)| one.fits(value, data))
            }
            (Self::Map(allowed), Value::Object(map)) => {
                let fits = |(key, one): (&String, &Self)| {
                    map.get(key).is_some_and(|value| one.fits(value, data))
                };
                allowed.len() == map.len() && allowed.iter().all(fits)
            }
            (Self::Exactly(exact), value) => exact == value,
            _ => false,
        }
    }

    fn is_free(&self, data: &TemplateData<'_>) -> bool {
        match self {
            Self::Text(pattern) => pattern.shown(data) == "*",
            Self::List(allowed) => allowed.iter().any(|one| one.is_free(data)),
            Self::Map(allowed) => allowed.values().any(|one| one.is_free(data)),
            Self::Exactly(_) => false,
        }
    }

    fn shown(&self, data: &TemplateData<'_>) -> Value {
        match self {
            Self::Text(pattern) => pattern.shown(data).into(),
            Self::List(allowed) => allowed.iter().map(|one| one.shown(data)).collect(),
            Self::Map(allowed) => {
                let entries = allowed.iter();
                entries
                    .map(|(key, one)| (key.clone(), one.shown(data)))
                    .collect()
            }
            Self::Exactly(value) => value.clone(),
        }
    }
}

/// The fields of a content, each with its value, which is no map. An empty map says nothing.
pub fn fields<'v>(
    content: impl IntoIterator<Item = (&'v String, &'v Value)>,
) -> Vec<(Path, &'v Value)> {
    let mut fields = Vec::new();
    for (key, value) in content {
        collect(Path::key(key), value, &mut fields);
    }
    fields
}

fn collect<'v>(path: Path, value: &'v Value, fields: &mut Vec<(Path, &'v Value)>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                collect(path.child(key), value, fields);
            }
        }
        value => fields.push((path, value)),
    }
}
