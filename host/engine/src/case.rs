//! Puts the one question of a guest's case to the guest, in the names of `wit/`. Its arguments are cut to the fields
//! that the guest declares, as production does; inputs in another form than `object` stay whole.

use crate::guest::Guest;
use crate::limits::CallLimits;
use crate::load::Exports;
use crate::run::Call;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use transom_core::contract::decide::{Input, InputValue, Need};
use transom_core::contract::{Context, GuestRefusal, Primary, Timed};
use transom_core::projection::Declared;
use transom_core::reference::ObjectRef;
use transom_core::requirements::MAX_ROUNDS;

/// What a case gives, word by word.
pub(crate) struct GivenCase(Map<String, Value>);

impl Guest {
    /// Asks the one question of a case; the answer leaves out no field.
    ///
    /// # Errors
    /// What is wrong with the case. A word that is left over is an error, so that a misspelt word does not pass for a
    /// default.
    pub fn ask(&self, given: Value) -> Result<Call<Value>, String> {
        let Value::Object(given) = given else {
            return Err("failed to read `given.yaml`: not a map".to_owned());
        };
        let mut given = GivenCase(given);
        let call = match (given.0.remove("validate"), self.exports()) {
            (Some(settings), _) => self
                .validate(&CallLimits::default(), &settings.to_string())
                .map(|problems| json!(problems)),
            (None, Exports::Trigger(functions)) => functions.ask(self, &mut given)?,
            (None, Exports::Decide(functions)) => functions.ask(self, &mut given)?,
        };
        match given.0.keys().next() {
            Some(word) => Err(format!("failed to read `{word}`: {UNKNOWN}")),
            None => Ok(call),
        }
    }
}

const UNKNOWN: &str = "unknown field for this call";

impl GivenCase {
    /// Takes a word; `None` when it is left out.
    pub(crate) fn take<T: DeserializeOwned>(&mut self, word: &str) -> Result<Option<T>, String> {
        let value = self.0.remove(word).filter(|value| !value.is_null());
        value.map(|value| read(word, value)).transpose()
    }

    /// The context, with its defaults when it is left out.
    pub(crate) fn context(&mut self) -> Result<Context, String> {
        Ok(self.take("context")?.unwrap_or_default())
    }

    /// The primary, cut to the declared fields.
    pub(crate) fn primary(&mut self, guest: &Guest) -> Result<Option<Primary>, String> {
        let cut = |primary: Primary| Ok(declared(guest, &primary.reference)?.cut(primary));
        self.take("primary")?.map(cut).transpose()
    }
}

/// Reads a word of a case, and refuses a list in the place of a map: serde would read it as the values of the fields,
/// in their order. Only in such a place, a map instead of the list has an unknown field.
fn read<T: DeserializeOwned>(word: &str, value: Value) -> Result<T, String> {
    for number in 0.. {
        let mut probe = value.clone();
        let Some(list) = list(&mut probe, &mut { number }) else {
            break;
        };
        *list = json!({ "?": 0 });
        let error = parse::<T>(word, probe).err().unwrap_or_default();
        if let Some(place) = error.strip_suffix(&format!(".?`: {UNKNOWN}")) {
            return Err(format!("{place}`: not a map"));
        }
    }
    parse(word, value)
}

/// The list in a value that comes after so many others.
fn list<'a>(value: &'a mut Value, others: &mut usize) -> Option<&'a mut Value> {
    if value.is_array() {
        if *others == 0 {
            return Some(value);
        }
        *others -= 1;
    }
    match value {
        Value::Array(items) => items.iter_mut().find_map(|item| list(item, others)),
        Value::Object(map) => map.values_mut().find_map(|value| list(value, others)),
        _ => None,
    }
}

/// Reads a word of a case. An error names the field, and leaves out the parser's text, which may quote the value.
fn parse<T: DeserializeOwned>(word: &str, value: Value) -> Result<T, String> {
    serde_path_to_error::deserialize(value).map_err(|error| {
        let (path, message) = (error.path().to_string(), error.inner().to_string());
        let dot = match path.as_str() {
            "." => return format!("failed to read `{word}`: {}", why(&message)),
            path if path.starts_with('[') => "",
            _ => ".",
        };
        format!("failed to read `{word}{dot}{path}`: {}", why(&message))
    })
}

/// What is wrong with a field, from a parser's message.
fn why(message: &str) -> String {
    if message.starts_with("unknown field") {
        return UNKNOWN.to_owned();
    }
    // The value itself may hold what looks like the end of it.
    match message
        .strip_prefix("unknown variant `")
        .and_then(|rest| rest.rsplit_once("`, expected "))
    {
        Some((_, expected)) => format!("expected {expected}"),
        None => "its type differs from the type in `wit/`".to_owned(),
    }
}

/// What the guest declares of the kind of an object; empty when it does not name the kind.
pub(crate) fn declared(guest: &Guest, object: &ObjectRef) -> Result<Declared, String> {
    let read = guest.description().read(&object.api_version, &object.kind);
    let compiled = read.map(Declared::compile).transpose();
    Ok(compiled
        .map_err(|error| error.to_string())?
        .unwrap_or_default())
}

/// The inputs, their objects cut to the declared fields. The guest's needs say which kind the object of a role is.
pub(crate) fn inputs(
    guest: &Guest,
    context: &Context,
    primary: &Primary,
    given: Vec<Input>,
) -> Result<Vec<Input>, String> {
    let is_object =
        |input: &Input| matches!(input.value, InputValue::Object(_) | InputValue::Every(_));
    if !given.iter().any(is_object) {
        return Ok(given);
    }
    let mut needs: BTreeMap<String, Need> = BTreeMap::new();
    let mut found = Vec::new();
    for _ in 0..MAX_ROUNDS {
        let call = guest.require(&CallLimits::default(), context, primary, &found);
        let required = call
            .result
            .map_err(|failure| format!("failed to call `require` of the component: {failure}"))?;
        let Ok(required) = required else { break };
        let named = required
            .needs
            .into_iter()
            .map(|need| (need.role.clone(), need));
        needs.extend(named);
        let asked = given.iter().filter(|input| needs.contains_key(&input.role));
        found = asked
            .map(|input| cut(guest, input, &needs))
            .collect::<Result<_, _>>()?;
    }
    given
        .iter()
        .map(|input| cut(guest, input, &needs))
        .collect()
}

fn cut(guest: &Guest, input: &Input, needs: &BTreeMap<String, Need>) -> Result<Input, String> {
    if !matches!(input.value, InputValue::Object(_) | InputValue::Every(_)) {
        return Ok(input.clone());
    }
    let role = &input.role;
    let need = needs.get(role).ok_or_else(|| {
        format!("no requirement of the guest names the role `{role}` of an object")
    })?;
    let declared = declared(guest, &need.reference)?;
    let mut input = input.clone();
    match &mut input.value {
        InputValue::Object(value) => *value = declared.fields.project(value),
        InputValue::Every(members) => {
            let fields = members.iter_mut().map(|member| &mut member.fields);
            fields.for_each(|fields| *fields = declared.fields.project_member(fields));
        }
        _ => {}
    }
    Ok(input)
}

/// `ok` or `err`.
pub(crate) fn outcome<T>(answer: &Result<T, GuestRefusal>, say: impl FnOnce(&T) -> Value) -> Value {
    match answer {
        Ok(answer) => json!({ "ok": say(answer) }),
        Err(refusal) => json!({ "err": refusal }),
    }
}

/// An answer under its name, and when to ask again.
pub(crate) fn timed<T: Serialize>(name: &str, timed: &Timed<T>) -> Value {
    json!({ (name): timed.answer, "ask-again-at": timed.ask_again_at })
}

#[cfg(test)]
mod tests {
    use super::*;
    use transom_core::contract::Change;

    fn refused<T: DeserializeOwned>(value: Value) -> String {
        read::<T>("word", value).map(drop).unwrap_err()
    }

    #[test]
    fn omitted_fields_have_defaults() {
        let context: Context = read("context", json!({})).unwrap();
        assert_eq!(context, Context::default());
        let primary: Primary =
            read("primary", json!({"reference": {"api-version": "v1"}})).unwrap();
        assert_eq!(primary.reference.api_version, "v1");
        assert_eq!(primary.fields, json!({}));
        let input: Input = read("input", json!({"role": "a"})).unwrap();
        assert_eq!(input.value, InputValue::Absent);
    }

    #[test]
    fn names_unknown_fields_and_wrong_types_without_the_value() {
        for (error, place) in [
            (
                refused::<Context>(json!({"now": 1})),
                "`word.now`: unknown field",
            ),
            (refused::<Context>(json!("canary")), "`word`: its type"),
            (refused::<Context>(json!([1])), "`word`: not a map"),
            (
                refused::<Vec<Input>>(json!([{"value": {"service": {"ports": [["canary"]]}}}])),
                "`word[0].value.service.ports[0]`: not a map",
            ),
            (
                refused::<Change>(json!({"before": {"reference": {"kind": ["canary"]}}})),
                "`word.before.reference.kind`: its type",
            ),
            (
                refused::<Vec<Input>>(json!([{}, {"value": {"canary": 1}}])),
                "`word[1].value`: expected one of `absent`",
            ),
        ] {
            assert!(
                error.contains(place) && !error.contains("canary"),
                "{error}"
            );
        }
    }
}
