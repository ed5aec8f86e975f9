//! Cuts the objects of a case to the fields that the guest's description declares, as production does. The guest's
//! needs say which kind the object of a role is. Inputs in another form stay whole.

use anyhow::{Context as _, Result};
use std::collections::BTreeMap;
use transom_core::contract::Refusal;
use transom_core::contract::decide::{Input, InputValue, Need, Requirement};
use transom_core::projection::Declared;
use transom_core::reference::ObjectRef;
use transom_engine::{Call, Guest};

/// How many times the agent asks for needs.
const ROUNDS: usize = 3;

/// What the guest declares of the kind of an object; empty when it does not name the kind.
pub(super) fn of(guest: &Guest, object: &ObjectRef) -> Result<Declared> {
    let read = guest.description().read(&object.api_version, &object.kind);
    Ok(read.map(Declared::compile).transpose()?.unwrap_or_default())
}

/// The inputs, their objects cut to the declared fields.
///
/// # Errors
/// When no need names the role of an object, or the guest gives no answer.
pub(super) fn inputs(
    guest: &Guest,
    given: Vec<Input>,
    require: impl Fn(&[Input]) -> Call<Result<Requirement, Refusal>>,
) -> Result<Vec<Input>> {
    if !given
        .iter()
        .any(|input| matches!(input.value, InputValue::Object(_)))
    {
        return Ok(given);
    }
    let mut needs: BTreeMap<String, Need> = BTreeMap::new();
    let mut found = Vec::new();
    for _ in 0..ROUNDS {
        let Ok(required) = require(&found)
            .result
            .context("failed to call `require` of the component")?
        else {
            break;
        };
        needs.extend(
            required
                .needs
                .into_iter()
                .map(|need| (need.role.clone(), need)),
        );
        let asked = given.iter().filter(|input| needs.contains_key(&input.role));
        found = asked
            .map(|input| one(guest, input, &needs))
            .collect::<Result<_>>()?;
    }
    given
        .iter()
        .map(|input| one(guest, input, &needs))
        .collect()
}

fn one(guest: &Guest, input: &Input, needs: &BTreeMap<String, Need>) -> Result<Input> {
    let InputValue::Object(value) = &input.value else {
        return Ok(input.clone());
    };
    let need = needs.get(&input.role);
    let need = need.with_context(|| {
        format!(
            "no requirement of the guest names the role `{}` of an object",
            input.role
        )
    })?;
    let value = InputValue::Object(of(guest, &need.reference)?.fields.project(value));
    Ok(Input {
        role: input.role.clone(),
        value,
    })
}
