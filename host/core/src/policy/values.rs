//! Which values a granted field may get: `grant.write[].values`, from paths to allowed values. Each text of an allowed
//! value is a pattern.

use super::check::{Checked, pattern, within, wrong};
use crate::contract::objects::MAX_PATHS;
use crate::failure::Failure;
use crate::pattern::template::TemplateNames;
use crate::pattern::{Matcher, Pattern, TemplateData};
use crate::policy::manifest::PolicyError;
use crate::projection::path::Path;
use crate::reference::ObjectRef;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use transom_api::KnownReason;
use transom_api::policy::bounds::MANY;

/// The longest text, in bytes, that is compared with a pattern other than `*`.
const MAX_TEXT: usize = 4096;
/// The most bytes of one allowed value, as JSON.
const MAX_ALLOWED: usize = 16 << 10;

/// The values that one field may get.
#[derive(Clone, Debug, PartialEq)]
pub struct ValueRule {
    /// The field.
    pub path: Path,
    allowed: Vec<AllowedValue>,
}

/// One allowed value, with patterns; a map has exactly these keys, a list exactly these elements.
#[derive(Clone, Debug, PartialEq)]
enum AllowedValue {
    Text(Pattern),
    List(Vec<AllowedValue>),
    Map(BTreeMap<String, AllowedValue>),
    /// Null (the field may be removed), a number, true, false, or the empty text.
    Exactly(Value),
}

/// One allowed value for one primary. Its templates are resolved once for all values of a content: there may be very
/// many of these.
enum ReadyValue<'a> {
    /// `None` where a template has no value, so that no text is allowed.
    Text(Option<Matcher<'a>>),
    List(Vec<ReadyValue<'a>>),
    Map(Vec<(&'a str, ReadyValue<'a>)>),
    Exactly(&'a Value),
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
            let parse = |(at, value): (usize, &Value)| {
                let field = format!("{field}[{at}]");
                match value.to_string().len() > MAX_ALLOWED {
                    true => wrong(field, format!("is larger than {MAX_ALLOWED} bytes")),
                    false => AllowedValue::parse(&field, value, names),
                }
            };
            let allowed = allowed.map(parse).collect::<Checked<_>>()?;
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
        let allowed = self.allowed.iter().map(|allowed| allowed.ready(data));
        let allowed: Vec<ReadyValue<'_>> = allowed.collect();
        let fits = |value: &Value| allowed.iter().any(|allowed| allowed.fits(value));
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

    fn ready<'a>(&'a self, data: &TemplateData<'a>) -> ReadyValue<'a> {
        match self {
            Self::Text(pattern) => ReadyValue::Text(pattern.matcher(data)),
            Self::List(all) => ReadyValue::List(all.iter().map(|one| one.ready(data)).collect()),
            Self::Map(all) => {
                let entries = all.iter();
                let ready = entries.map(|(key, one)| (key.as_str(), one.ready(data)));
                ReadyValue::Map(ready.collect())
            }
            Self::Exactly(exact) => ReadyValue::Exactly(exact),
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

impl ReadyValue<'_> {
    fn fits(&self, value: &Value) -> bool {
        match (self, value) {
            (Self::Text(matcher), Value::String(text)) => {
                let long = text.len() > MAX_TEXT;
                let mut matcher = matcher.iter();
                matcher.any(|matcher| matcher.is_any() || !long && matcher.matches(text))
            }
            (Self::List(allowed), Value::Array(values)) => {
                let mut pairs = allowed.iter().zip(values);
                allowed.len() == values.len() && pairs.all(|(one, value)| one.fits(value))
            }
            (Self::Map(allowed), Value::Object(map)) => {
                let fits =
                    |(key, one): &(&str, Self)| map.get(*key).is_some_and(|value| one.fits(value));
                allowed.len() == map.len() && allowed.iter().all(fits)
            }
            (Self::Exactly(exact), value) => *exact == value,
            _ => false,
        }
    }
}

/// The fields of the content that a guest wants for an object, each with its value, which is no map or an empty one.
///
/// # Errors
/// `ContractBroken` at the first field whose path no grant can have, and for paths that are too long together. A guest
/// chooses both, so nothing is kept of what lies beyond.
pub fn checked<'v>(
    object: &ObjectRef,
    content: &'v Map<String, Value>,
) -> Result<Vec<(Path, &'v Value)>, Failure> {
    let mut fields = Vec::new();
    let collected = collect(None, content, &mut (MAX_PATHS, &mut fields));
    let told = |why| {
        let message = format!("the content for {object} has {why}");
        Failure::known(KnownReason::ContractBroken, message)
    };
    collected.map_err(told).map(|()| fields)
}

/// Whether a field of an object that the policy makes is an empty map that says nothing: it only stands around granted
/// fields, or is the data, which a server leaves out when it is empty.
pub fn says_nothing((path, value): &(Path, &Value), granted: &[Path]) -> bool {
    let is_data = || path.keys().as_deref() == Some(&["data"]);
    let is_granted = || granted.iter().any(|granted| granted.grants(path));
    let is_around = || granted.iter().any(|granted| path.covers(granted));
    is_empty_map(value) && (is_data() || !is_granted() && is_around())
}

/// Whether a value is a map without fields.
pub fn is_empty_map(value: &Value) -> bool {
    value.as_object().is_some_and(Map::is_empty)
}

/// The same of a content that was checked before, or of a part of it.
pub fn fields<'v>(
    content: impl IntoIterator<Item = (&'v String, &'v Value)>,
) -> Vec<(Path, &'v Value)> {
    let mut fields = Vec::new();
    collect(None, content, &mut (usize::MAX, &mut fields)).ok();
    fields
}

/// Adds the fields of a map, with how many bytes of paths there may still be.
fn collect<'v>(
    above: Option<&(Path, usize)>,
    map: impl IntoIterator<Item = (&'v String, &'v Value)>,
    fields: &mut (usize, &mut Vec<(Path, &'v Value)>),
) -> Result<(), String> {
    let below = || {
        let cut = |path: &Path| path.to_string().chars().take(80).collect::<String>();
        let below = above.map(|(path, _)| format!(" below `{}`", cut(path)));
        below.unwrap_or_default()
    };
    for (key, value) in map {
        let path = Path::within(above, key);
        let path = path.ok_or_else(|| {
            let below = below();
            format!("a field{below} that is nested too deep, or whose path is too long")
        })?;
        let left = fields.0.checked_sub(path.1);
        fields.0 = left.ok_or_else(|| {
            let below = below();
            format!("too many fields{below}: the paths of all have more than {MAX_PATHS} bytes")
        })?;
        match value {
            Value::Object(map) if !map.is_empty() => collect(Some(&path), map, fields)?,
            value => fields.1.push((path.0, value)),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pattern::template::Template;
    use crate::sample::{agent, hosted, object};
    use serde_json::json;
    use std::sync::Arc;

    /// The paths of a content, or the message of its refusal.
    fn paths(content: &Value) -> Result<Vec<String>, String> {
        let content = content.as_object().unwrap();
        let checked = checked(&hosted("demo"), content).map_err(|failure| {
            assert_eq!(failure.reason, KnownReason::ContractBroken.into());
            failure.message
        })?;
        assert_eq!(checked, fields(content));
        Ok(checked.iter().map(|(path, _)| path.to_string()).collect())
    }

    fn keys(count: usize, value: &Value) -> Value {
        let keys = (0..count).map(|number| (format!("k{number}"), value.clone()));
        Value::Object(keys.collect())
    }

    /// A content at a place below these keys.
    fn below(keys: &[&str], content: Value) -> Value {
        let keys = keys.iter().rev();
        keys.fold(content, |content, key| json!({(*key): content}))
    }

    #[test]
    fn every_field_has_a_path_that_a_policy_can_name() {
        let content = json!({"a": {"b.c": 1, "d": [{"e": 1}], "": {}}, "f": null});
        let expected = [r#"a[""]"#, r#"a["b.c"]"#, "a.d", "f"].map(str::to_owned);
        assert_eq!(paths(&content), Ok(expected.to_vec()));
        let deep = vec!["a"; 16];
        assert_eq!(paths(&below(&deep, json!(1))), Ok(vec![deep.join(".")]));
        let all = paths(&json!({"data": keys(8_000, &json!("short"))}));
        assert_eq!(all.unwrap().len(), 8_000);
    }

    #[test]
    fn a_content_cannot_take_more_memory_than_its_fields() {
        // One copy of this key for each leaf would be 30 GiB.
        let long = "k".repeat(512 << 10);
        let deep = vec!["a"; 17];
        let quoted = ["\"".repeat(300)];
        let wide = "w".repeat(480);
        for (content, why) in [
            (
                below(&["spec", &long], keys(60_000, &json!(1))),
                "a field below `spec` that",
            ),
            (
                below(&[&long], json!({})),
                "a field that is nested too deep",
            ),
            (
                below(&deep, keys(60_000, &json!(1))),
                "a.a.a` that is nested too deep",
            ),
            (below(&[&quoted[0]], json!(1)), "path is too long"),
            (
                below(&deep[..14], keys(60_000, &json!(1))),
                "too many fields below `a.a",
            ),
            // 600 bytes for each of these in the memory of each primary.
            (
                below(&["x", &wide], keys(4_000, &json!(1))),
                "too many fields below `x.www",
            ),
            (
                keys(60_000, &json!({})),
                "too many fields: the paths of all have more than 262144",
            ),
        ] {
            let message = paths(&content).unwrap_err();
            assert!(message.contains(why) && message.len() < 240, "{message}");
        }
    }

    fn rule(allowed: &Value, names: &TemplateNames) -> Checked<ValueRule> {
        let allowed = allowed.as_array().cloned().unwrap_or_default();
        let values = BTreeMap::from([("spec.a".to_owned(), allowed)]);
        let granted = [Path::parse("spec.a").unwrap()];
        let rules = ValueRule::parse("g", &values, &granted, names)?;
        Ok(rules.into_iter().next().unwrap())
    }

    #[test]
    fn many_texts_take_no_more_than_their_length() {
        // Of the last alternative of each template alone every term has a value.
        let absent = format!(
            "{}primary.labels[\"x\"]",
            "primary.labels[\"l\"] ".repeat(7)
        );
        let template = [vec![&*absent; 7], vec!["primary.name"]]
            .concat()
            .join(" | ");
        let template = Arc::new(Template::parse(&template).unwrap());
        let names = TemplateNames::from([("t".to_owned(), template)]);
        let metadata = json!({"labels": {"l": "a".repeat(253)}});
        let object = object(hosted("demo"), json!({"metadata": metadata}));
        let agent = agent("local", true);
        let data = TemplateData {
            object: &object,
            agent: &agent,
        };
        let admits = |allowed: &Value, values: Vec<Value>| {
            let content = json!({"spec": {"a": values}});
            let rule = rule(allowed, &names).unwrap();
            rule.admits(content.as_object().unwrap(), &data)
        };
        let long = json!("a".repeat(MAX_TEXT));
        assert!(!admits(&json!(["a*b*c"]), vec![long.clone(); 250]));
        assert!(admits(&json!(["a*a*a"]), vec![long; 250]));
        let many = Value::Array(vec![json!("{t}-{t}-{t}"); MANY]);
        assert!(!admits(&many, vec![json!("x")]));
        let ours = json!("demo-demo-demo");
        assert!(admits(&many, vec![ours; 200_000]));
    }

    #[test]
    fn one_allowed_value_is_bounded() {
        let list = |count: usize| json!([vec!["example"; count]]);
        assert!(rule(&list(1_000), &TemplateNames::new()).is_ok());
        for value in [
            list(2_000),
            json!([keys(2_000, &json!(0))]),
            json!([0, {"k".repeat(17_000): 0}]),
        ] {
            let error = rule(&value, &TemplateNames::new()).unwrap_err();
            assert!(error.field.starts_with("g.values[\"spec.a\"]["), "{error}");
            assert_eq!(error.why, "is larger than 16384 bytes");
        }
    }
}
