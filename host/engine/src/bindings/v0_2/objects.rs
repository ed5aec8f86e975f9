//! The objects world of this generation: the forms `observed` and `failed-write` are new, with their values.

use crate::bindings::Binding;
use crate::bindings::v0_1::objects::{Forms, ObjectsBinding};
use crate::measure::{Lift, Lower};
use generated::exports::transom::policy::objects as wit_objects;
use generated::transom::policy::inputs;
use transom_core::contract::decide::{Form, Input, InputValue, Need, Requirement};

mod generated {
    wasmtime::component::bindgen!({
        path: "../../wit",
        inline: "
            package transom:host;
            world objects {
                export transom:policy/objects@0.2.0;
            }
        ",
        with: {
            "transom:policy/types@0.2.0": crate::bindings::v0_1::generated::transom::policy::types,
            "transom:policy/forms@0.2.0": crate::bindings::v0_1::objects::generated::transom::policy::forms,
            "transom:policy/credentials@0.2.0": crate::bindings::v0_1::kubeconfig::generated::transom::policy::credentials,
            "transom:policy/proposals@0.2.0": crate::bindings::v0_1::kubeconfig::generated::transom::policy::proposals,
            "transom:policy/services@0.2.0": crate::bindings::v0_1::kubeconfig::generated::transom::policy::services,
            "transom:policy/secrets@0.2.0": crate::bindings::v0_1::objects::generated::transom::policy::secrets,
        },
    });
}

/// The binding of this world.
pub(super) const BINDING: &dyn Binding = &ObjectsBinding(V0_2);

forms! {
    /// The forms of 0.2.
    V0_2: wit_objects, inputs;
    |lift| {
        inputs::Form::Observed(age) => Form::Observed(lift.age(age)),
        inputs::Form::FailedWrite => Form::FailedWrite,
    }
    |lower| {
        InputValue::Behind(until) => inputs::Value::Behind(*until),
        InputValue::Unsure(until) => inputs::Value::Unsure(*until),
        InputValue::FailedWrite(failed) => inputs::Value::FailedWrite(inputs::FailedWrite {
            object: lower.reference(&failed.object),
            reason: lower.text(&failed.reason),
        }),
    }
}
