//! Guests of the world of tests: they publish two facts about a primary. Only with the feature `facts`.

use crate::bindings::guest::transom::policy::types::Context as RawContext;
use crate::{Context, Failure, Guest, ObjectRef, Primary};
use bindings::exports::transom::facts::facts as wit;

pub use wit::Answer;

#[doc(hidden)]
pub use Facts as World;

/// What wit-bindgen makes of this world.
#[doc(hidden)]
pub mod bindings {
    wit_bindgen::generate!({
        path: ["../../wit", "../../tests/fixtures/facts/wit"],
        inline: "package transom:sdk; world facts { export transom:facts/facts@0.1.0; }",
        pub_export_macro: true,
        export_macro_name: "export",
        default_bindings_module: "::transom_guest::facts::bindings",
        runtime_path: "::transom_guest::wit_bindgen::rt",
        additional_derives: [PartialEq, Eq, serde::Serialize, serde::Deserialize],
        additional_type_attributes: {
            "transom:facts/facts@0.1.0/answer": [#[serde(rename_all = "kebab-case")]],
        },
        with: { "transom:policy/types@0.2.0": ::transom_guest::bindings::guest::transom::policy::types },
    });
}

/// A guest that publishes two facts.
pub trait Facts: Guest {
    /// The ConfigMap that holds the facts.
    ///
    /// # Errors
    /// Why there is no answer; the kind of failure says how the host should react.
    fn require(context: &Context<Self::Settings>, primary: &Primary) -> Result<ObjectRef, Failure>;

    /// The facts.
    ///
    /// # Errors
    /// Why there is no answer; the kind of failure says how the host should react.
    fn state(context: &Context<Self::Settings>, primary: &Primary) -> Result<Answer, Failure>;
}

impl<T: Facts> wit::Guest for T {
    fn require(context: RawContext, primary: Primary) -> Result<ObjectRef, Failure> {
        let context = Context::read(context).map_err(Failure::Invalid)?;
        T::require(&context, &primary)
    }

    fn state(context: RawContext, primary: Primary) -> Result<Answer, Failure> {
        let context = Context::read(context).map_err(Failure::Invalid)?;
        T::state(&context, &primary)
    }
}
