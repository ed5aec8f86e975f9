//! Prints what a read-only run would write, compared with what is there. Credentials are redacted.

use crate::args::run::RunArgs;
use crate::command::render::{Rendered, difference, marks};
use crate::controller::Controller;
use crate::output::Screen;
use serde_json::Value;
use transom_core::object::Object;
use transom_core::plan::{Step, effect};

/// The metadata that a server sets: no policy writes it.
const SET_BY_SERVER: [&str; 6] = [
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "managedFields",
    "selfLink",
];

/// Whether a run prints what it would write.
pub(crate) fn is_asked_for(args: &RunArgs) -> bool {
    args.once && args.server.read_only && args.asked.is_none()
}

/// Prints every write that was refused because the run is read-only, in the form of `transom render --diff`.
pub(crate) async fn print(controller: &Controller, screen: &Screen) {
    let mut all = Vec::new();
    for (key, account) in controller.accounts.all() {
        for step in account.steps {
            let before = match step {
                Step::Create { .. } => Ok(None),
                _ => controller.connections.read(step.target()).await,
            };
            match before {
                Ok(before) => all.push(rendered(&key.policy, &step, before)),
                Err(failure) => screen.note(format_args!("{}: {}", step.target(), failure.message)),
            }
        }
    }
    all.sort_by(|one, other| {
        (&one.reference, &one.policies).cmp(&(&other.reference, &other.policies))
    });
    let marks = marks();
    for one in all {
        screen.text(&difference::text(one, None, &marks));
    }
}

fn rendered(policy: &str, step: &Step, before: Option<Object>) -> Rendered {
    let after = effect::after(step, before.clone());
    Rendered {
        reference: step.target().clone(),
        policies: vec![policy.to_owned()],
        before: before.map(plain),
        after: after.map(plain),
    }
}

fn plain(mut object: Object) -> Object {
    if let Some(metadata) = object
        .body
        .get_mut("metadata")
        .and_then(Value::as_object_mut)
    {
        SET_BY_SERVER
            .iter()
            .for_each(|key| drop(metadata.remove(*key)));
    }
    object
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use transom_core::reference::ObjectRef;

    #[test]
    fn shows_a_step_as_its_effect_on_the_object() {
        let reference = ObjectRef::local("v1", "ManagedCluster", None, "c");
        let object = |body: Value| Object {
            reference: reference.clone(),
            version: "7".to_owned(),
            body,
        };
        let before = object(
            json!({"metadata": {"name": "c", "uid": "u", "generation": 3}, "spec": {"taints": [1], "a": 2}}),
        );
        let patch = |fields: Value| Step::Patch {
            reference: reference.clone(),
            version: "7".to_owned(),
            fields: vec![("spec.taints".to_owned(), fields)],
        };
        let delete = || Step::Delete {
            reference: reference.clone(),
            version: String::new(),
            uid: String::new(),
            why: String::new(),
        };
        for (step, after) in [
            (
                patch(json!([2])),
                Some(json!({"metadata": {"name": "c"}, "spec": {"taints": [2], "a": 2}})),
            ),
            (
                patch(Value::Null),
                Some(json!({"metadata": {"name": "c"}, "spec": {"a": 2}})),
            ),
            (delete(), None),
        ] {
            let shown = rendered("p", &step, Some(before.clone()));
            assert_eq!(shown.after.map(|object| object.body), after);
            assert_eq!(shown.before.unwrap().body["metadata"], json!({"name": "c"}));
        }
        let made = rendered(
            "p",
            &Step::Create {
                desired: before.clone(),
            },
            None,
        );
        assert!(made.before.is_none() && made.after.is_some());
        let bare = rendered("p", &patch(json!([])), Some(object(json!({}))));
        assert_eq!(bare.after.unwrap().body, json!({"spec": {"taints": []}}));
    }
}
