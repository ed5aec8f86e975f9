//! Guests that decide what fields of objects say. Objects cross as JSON; the policy grants fields and values.

use crate::bindings::guest::transom::policy::types::Context as RawContext;
use crate::{Context, Failure, Guest, ObjectRef, Primary};
use bindings::exports::transom::policy::objects as wit;
use serde_json::Value as Json;

pub use wit::{Absence, Answer, Desired, Form, Input, Need, Value};

#[doc(hidden)]
pub use Objects as World;

/// What wit-bindgen makes of this world.
#[doc(hidden)]
pub mod bindings {
    wit_bindgen::generate!({
        path: "../../wit",
        inline: "package transom:sdk; world objects { export transom:policy/objects@0.1.0; }",
        pub_export_macro: true,
        export_macro_name: "export",
        default_bindings_module: "::transom_guest::objects::bindings",
        runtime_path: "::transom_guest::wit_bindgen::rt",
        additional_derives: [PartialEq, Eq, serde::Serialize, serde::Deserialize],
        additional_type_attributes: {
            "transom:policy/objects@0.1.0/form": [#[serde(rename_all = "kebab-case")]],
            "transom:policy/objects@0.1.0/absence": [#[serde(rename_all = "kebab-case")]],
            "transom:policy/objects@0.1.0/need": [#[serde(rename_all = "kebab-case")]],
            "transom:policy/objects@0.1.0/value": [#[serde(rename_all = "kebab-case")]],
            "transom:policy/objects@0.1.0/input": [#[derive(Default)] #[serde(default, deny_unknown_fields, rename_all = "kebab-case")]],
            "transom:policy/objects@0.1.0/desired": [#[serde(rename_all = "kebab-case")]],
            "transom:policy/objects@0.1.0/answer": [#[derive(Default)] #[serde(rename_all = "kebab-case")]],
        },
        with: { "transom:policy/types@0.1.0": ::transom_guest::bindings::guest::transom::policy::types },
    });
}

/// A guest that decides what fields of objects say.
pub trait Objects: Guest {
    /// The objects to read. The host calls this again with what it found until there are no new needs: at most three
    /// rounds. A guest that needs only the primary does not write this function.
    ///
    /// # Errors
    /// Why there is no answer; the kind of failure says how the host should react.
    fn require(
        _context: &Context<Self::Settings>,
        _primary: &Primary,
        _found: &[Input],
    ) -> Result<Vec<Need>, Failure> {
        Ok(Vec::new())
    }

    /// What objects are to say, made of the primary and the inputs by role.
    ///
    /// # Errors
    /// Why there is no answer; the kind of failure says how the host should react.
    fn reconcile(
        context: &Context<Self::Settings>,
        primary: &Primary,
        inputs: Vec<Input>,
    ) -> Result<Answer, Failure>;
}

impl<T: Objects> wit::Guest for T {
    fn require(
        context: RawContext,
        primary: Primary,
        found: Vec<Input>,
    ) -> Result<Vec<Need>, Failure> {
        let context = Context::read(context).map_err(Failure::Invalid)?;
        T::require(&context, &primary, &found)
    }

    fn reconcile(
        context: RawContext,
        primary: Primary,
        inputs: Vec<Input>,
    ) -> Result<Answer, Failure> {
        let context = Context::read(context).map_err(Failure::Invalid)?;
        T::reconcile(&context, &primary, inputs)
    }
}

impl Desired {
    /// Fields of an object that others made: `json!({"metadata": {"labels": {"a": "b"}}})`. Null removes a field; one
    /// that is left out keeps its value.
    pub fn fields(object: &ObjectRef, content: &Json) -> Self {
        Self {
            object: object.clone(),
            content: content.to_string(),
        }
    }
}

impl Default for Value {
    fn default() -> Self {
        Self::Absent
    }
}
