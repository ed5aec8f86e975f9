//! Typed access to a JSON value, with the path for errors. Errors hold no value.

use crate::failure::InvalidField;
use serde_json::{Map, Value};

/// A place in a value, with its path; null counts as absent.
#[derive(Clone, Debug)]
pub(crate) struct FieldPlace<'a> {
    path: String,
    value: Option<&'a Value>,
}

impl<'a> FieldPlace<'a> {
    /// The whole value.
    pub(crate) fn top(value: &'a Value) -> Self {
        Self {
            path: String::new(),
            value: Some(value),
        }
    }

    /// The place under a key; absent when this is not a map.
    pub(crate) fn get(&self, key: &str) -> Self {
        let path = if self.path.is_empty() {
            key.to_owned()
        } else {
            format!("{}.{key}", self.path)
        };
        let value = self.value.and_then(|value| value.get(key));
        Self {
            path,
            value: value.filter(|value| !value.is_null()),
        }
    }

    /// The map under a key; it may be absent, but must not be anything else.
    pub(crate) fn map(&self, key: &str) -> Result<Self, InvalidField> {
        self.get(key).as_map()
    }

    /// This place, if it is a map or absent.
    pub(crate) fn as_map(&self) -> Result<Self, InvalidField> {
        match self.value {
            None | Some(Value::Object(_)) => Ok(self.clone()),
            Some(_) => Err(self.not("a mapping")),
        }
    }

    /// The value, if there is one.
    pub(crate) fn value(&self) -> Option<&'a Value> {
        self.value
    }

    /// The elements of a list; none when it is absent. A condition is named by its type, as in declared paths: where
    /// only some are declared, its index is another one in the object. No other text of an object is shown.
    pub(crate) fn list(&self) -> Result<Vec<Self>, InvalidField> {
        match self.value {
            None => Ok(Vec::new()),
            Some(Value::Array(items)) => {
                let are_conditions = self.path.ends_with("conditions");
                let named = |item: &'a Value| {
                    let kind = item.get("type").filter(|_| are_conditions)?.as_str()?;
                    let is_type =
                        |byte: u8| byte.is_ascii_alphanumeric() || b"-._/".contains(&byte);
                    (kind.len() <= 63 && kind.bytes().all(is_type)).then_some(kind)
                };
                let item = |(index, item): (usize, &'a Value)| Self {
                    path: match named(item) {
                        Some(kind) => format!("{}[{kind}]", self.path),
                        None => format!("{}[{index}]", self.path),
                    },
                    value: Some(item),
                };
                Ok(items.iter().enumerate().map(item).collect())
            }
            Some(_) => Err(self.not("a list")),
        }
    }

    /// What is read of each element of a list.
    pub(crate) fn each<T>(
        &self,
        read: impl Fn(&Self) -> Result<T, InvalidField>,
    ) -> Result<Vec<T>, InvalidField> {
        self.list()?.iter().map(read).collect()
    }

    /// The entries of a map, if it is there.
    pub(crate) fn entries(&self) -> Result<Option<&'a Map<String, Value>>, InvalidField> {
        match self.value {
            None => Ok(None),
            Some(Value::Object(map)) => Ok(Some(map)),
            Some(_) => Err(self.not("a mapping")),
        }
    }

    /// The text, if there is one.
    pub(crate) fn text(&self) -> Result<Option<String>, InvalidField> {
        match self.value {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone())),
            Some(_) => Err(self.not("a string")),
        }
    }

    /// The text, which is required.
    pub(crate) fn required_text(&self) -> Result<String, InvalidField> {
        self.text()?.ok_or_else(|| self.not("a string"))
    }

    /// Whether it is true; absent counts as false.
    pub(crate) fn truth(&self) -> Result<bool, InvalidField> {
        match self.value {
            None => Ok(false),
            Some(Value::Bool(truth)) => Ok(*truth),
            Some(_) => Err(self.not("true or false")),
        }
    }

    /// The time in seconds since 1970, if there is one.
    pub(crate) fn time(&self) -> Result<Option<i64>, InvalidField> {
        let Some(text) = self.text()? else {
            return Ok(None);
        };
        crate::time::parse_rfc3339(&text)
            .map(Some)
            .ok_or_else(|| self.not("a time like 2026-11-21T08:15:30Z"))
    }

    /// The error for this place.
    pub(crate) fn not(&self, expected: &'static str) -> InvalidField {
        InvalidField {
            path: self.path.clone(),
            expected,
        }
    }
}

/// A port; 0 and absent count as none.
pub(crate) fn port(place: &FieldPlace<'_>) -> Result<Option<u16>, InvalidField> {
    let Some(value) = place.value() else {
        return Ok(None);
    };
    let number = value.as_u64().and_then(|number| u16::try_from(number).ok());
    number
        .map(|port| (port > 0).then_some(port))
        .ok_or_else(|| place.not("a port"))
}
