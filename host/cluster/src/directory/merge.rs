//! The three-way merge of a list: what the user had, what the agent made of it, and what the user has now.
//! What the user removes or edits goes, also as the agent changed it; what the agent added stays.

use serde_json::Value;
use transom_core::plan::desired::holds;
use transom_core::plan::effect;

/// Fields that tell elements with the same key apart, as the effects of a taint.
const BESIDE: [&str; 3] = ["effect", "kind", "namespace"];

/// An element that the user had, and what the agent made of it; `None` if it removed it.
type Made<'a> = (&'a Value, Option<&'a Value>);

/// The effective list, in the user's order; elements that the agent added come last.
pub(super) fn merge(base: &[Value], value: &[Value], now: &[Value]) -> Vec<Value> {
    let key = effect::key_of(base.iter().chain(value).chain(now));
    let (mut made, added) = made_of(base, value, key);
    let (mut merged, mut users) = (Vec::new(), Vec::new());
    for element in now {
        match made.iter().position(|(base, _)| *base == element) {
            Some(at) => merged.extend(made.remove(at).1.cloned()),
            None => {
                merged.push(element.clone());
                users.push(element);
            }
        }
    }
    // Of an element that both added, the user's counts: no API server takes a condition twice.
    let is_new = |one: &&Value| !users.iter().any(|users| is_same(users, one, key));
    merged.extend(added.into_iter().filter(is_new).cloned());
    merged
}

/// What the agent made of each element of `base`, and the elements that it added. An element is found again by its
/// content, then by the fields that the agent left as they were, then by its key. Of maps without a key, the first one
/// that changed became the first new one.
fn made_of<'a>(
    base: &'a [Value],
    value: &'a [Value],
    key: Option<&str>,
) -> (Vec<Made<'a>>, Vec<&'a Value>) {
    let mut made: Vec<Made<'a>> = base.iter().map(|base| (base, None)).collect();
    let mut added: Vec<_> = value.iter().collect();
    pair(&mut made, &mut added, |base, value| value == base);
    pair(&mut made, &mut added, |base, value| {
        value.is_object() && holds(value, base)
    });
    pair(&mut made, &mut added, |base, value| match key {
        Some(key) => value.get(key) == base.get(key),
        None => value.is_object() && base.is_object(),
    });
    (made, added)
}

/// Gives each element that was not found yet the first of the others that fits.
fn pair<'a>(
    made: &mut [Made<'a>],
    others: &mut Vec<&'a Value>,
    fits: impl Fn(&Value, &Value) -> bool,
) {
    for (base, made) in made.iter_mut().filter(|(_, made)| made.is_none()) {
        let found = others.iter().position(|value| fits(base, value));
        *made = found.map(|at| others.remove(at));
    }
}

/// Whether two elements are the same one, whatever else they say. Without a key only equal ones are.
fn is_same(one: &Value, other: &Value, key: Option<&str>) -> bool {
    let Some(key) = key else {
        return one == other;
    };
    let mut fields = BESIDE.into_iter().chain([key]);
    fields.all(|field| one.get(field) == other.get(field))
}
