//! Cuts the objects among the inputs of a case to their declared fields. Asks the guest for its needs, as the host
//! does, to learn the kind of each role's object. Inputs of other forms stay whole.

use super::declared::Declared;
use crate::kubeconfig::{Input, Need, Requirement, Value};
use crate::{About, Failure};
use std::collections::BTreeMap;

/// How many rounds the host asks for needs.
const ROUNDS: usize = 3;

/// The inputs, with only declared fields in their objects.
///
/// # Errors
/// When no need names the role of an object.
pub(super) fn cut(
    about: &About,
    given: Vec<Input>,
    require: impl Fn(Vec<Input>) -> Result<Requirement, Failure>,
) -> Result<Vec<Input>, String> {
    let is_object = |input: &&Input| matches!(input.value, Value::Object(_));
    if !given.iter().any(|input| is_object(&input)) {
        return Ok(given);
    }
    let mut needs: BTreeMap<String, Need> = BTreeMap::new();
    let mut found = Vec::new();
    for _ in 0..ROUNDS {
        let Ok(required) = require(found) else { break };
        needs.extend(
            required
                .needs
                .into_iter()
                .map(|need| (need.role.clone(), need)),
        );
        let asked = given.iter().filter(|input| needs.contains_key(&input.role));
        found = asked
            .map(|input| cut_one(about, input, &needs))
            .collect::<Result<_, _>>()?;
    }
    given
        .iter()
        .map(|input| cut_one(about, input, &needs))
        .collect()
}

fn cut_one(about: &About, input: &Input, needs: &BTreeMap<String, Need>) -> Result<Input, String> {
    let Value::Object(text) = &input.value else {
        return Ok(input.clone());
    };
    let role = &input.role;
    let need = needs
        .get(role)
        .ok_or_else(|| format!("no need of the guest names the role `{role}` of an object"))?;
    let value = serde_json::from_str(text)
        .map_err(|error| format!("failed to read the object `{role}`: {error}"))?;
    let declared = Declared::of(about, (&need.reference.api_version, &need.reference.kind))?;
    Ok(Input {
        role: role.clone(),
        value: Value::Object(declared.project(&value).to_string()),
    })
}
