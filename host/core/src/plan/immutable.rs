//! What nobody can change on an object that is there: the object is made anew, if the policy may remove it.

use super::{PlanInput, Step, finalizer};
use crate::failure::Failure;
use crate::object::Object;
use crate::policy::WriteRule;
use crate::projection::path;
use crate::reference::ObjectRef;
use serde_json::Value;
use transom_api::KnownReason;
use transom_api::policy::{PruneSpec, WriteVerb};

/// The top-level fields that an API server lets nobody change, by group and kind.
const IMMUTABLE: [(&str, &str, &str); 2] = [
    ("rbac.authorization.k8s.io", "ClusterRoleBinding", "roleRef"),
    ("rbac.authorization.k8s.io", "RoleBinding", "roleRef"),
];

/// What becomes of an update: if it changes what nobody can change, the object goes, and `anew` follows. An object with
/// finalizers is deleted first: its own are taken off when it is known to go, and it is made anew when it is gone.
///
/// # Errors
/// `TargetImmutable` where the policy may not make the object anew, and where somebody has frozen its data; that is for
/// them to take back. `InputTerminating` while finalizers of others hold it.
pub(super) fn replaced(
    wanting: &PlanInput<'_>,
    (existing, rule): (&Object, &WriteRule),
    update: Step,
    anew: impl FnOnce() -> Step,
) -> Result<Vec<Step>, Failure> {
    let Step::Update { changed, .. } = &update else {
        return Ok(vec![update]);
    };
    let target = &existing.reference;
    let refused = |message| {
        let failure = Failure::known(KnownReason::TargetImmutable, message);
        Err(failure.about([target.clone()]))
    };
    if is_frozen(existing, changed) {
        let differs = changed.join(", ");
        return refused(format!("{target} is immutable and differs in {differs}"));
    }
    let Some(field) = fixed(target, changed) else {
        return Ok(vec![update]);
    };
    if existing.deleting() {
        let release = finalizer::take_all(rule, existing).map(|release| vec![release]);
        return release.ok_or_else(|| terminating(target));
    }
    let verbs = [WriteVerb::Create, WriteVerb::Update, WriteVerb::Delete];
    let is_granted = verbs.iter().all(|verb| rule.verbs.contains(verb));
    if !is_granted || wanting.policy.own.prune == PruneSpec::Never {
        let why = "and the policy may not remove it to make it anew";
        let message = format!("{target} differs in {field}, which nobody can change, {why}");
        return refused(message);
    }
    let why = format!("it is made anew, because nobody can change its {field}");
    let anew = (!finalizer::bears_any(existing)).then(anew);
    let delete = Step::delete(existing, &why);
    Ok([delete].into_iter().chain(anew).collect())
}

/// Whether somebody has frozen the data of an object, and it differs.
fn is_frozen(existing: &Object, changed: &[String]) -> bool {
    let immutable = existing.body.get("immutable") == Some(&Value::Bool(true));
    let is_data = |path: &String| path::key_below(&["data"], path).is_some();
    immutable && changed.iter().any(is_data)
}

/// The field of a kind that nobody can change, if it is among those that differ.
fn fixed(target: &ObjectRef, changed: &[String]) -> Option<&'static str> {
    let kind = (target.group(), &*target.kind);
    let mut fields = IMMUTABLE.iter();
    let (.., field) = fields.find(|(group, of, _)| (*group, *of) == kind)?;
    let differs = |path: &String| path::keys(path).first().is_some_and(|first| first == field);
    changed.iter().any(differs).then_some(*field)
}

/// The failure while an object that is wanted is being deleted.
pub(super) fn terminating(target: &ObjectRef) -> Failure {
    let message = format!("the target {target} is being deleted");
    let failure = Failure::known(KnownReason::InputTerminating, message);
    failure.about([target.clone()])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_has_the_fields_that_its_api_server_lets_nobody_change() {
        let rbac = "rbac.authorization.k8s.io/v1";
        for (api_version, kind, changed, field) in [
            (rbac, "RoleBinding", "roleRef.name", Some("roleRef")),
            (rbac, "ClusterRoleBinding", "roleRef", Some("roleRef")),
            (rbac, "RoleBinding", "subjects", None),
            (rbac, "ClusterRole", "roleRef", None),
            ("example.com/v1", "RoleBinding", "roleRef", None),
            ("v1", "Secret", "type", None),
        ] {
            let target = ObjectRef::local(api_version, kind, Some("n"), "x");
            let changed = ["metadata".to_owned(), changed.to_owned()];
            assert_eq!(fixed(&target, &changed), field, "{kind} {changed:?}");
        }
    }
}
