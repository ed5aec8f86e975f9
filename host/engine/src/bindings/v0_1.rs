//! The generation `transom:policy@0.1` of the contract: generated types, and their conversion to and from the types of
//! the core, which all other code uses. Apart from the functions that a linker needs, generated code stays in this module. A world is one file in this
//! folder, its `mod` line, and one line in [`BINDINGS`].

#[cfg(feature = "facts")]
mod facts;
mod grant;
mod kubeconfig;
mod objects;
mod shared;
mod taints;
pub(crate) mod trigger;

use crate::bindings::Located;
use crate::call::CallState;
use crate::case::Given;
use crate::guest::{Decided, Find, Guest, Question};
use crate::limits::Limits;
use crate::load::Exports;
use crate::run::Call;
use serde_json::Value;
use std::any::Any;
use std::sync::Arc;
use transom_core::contract::decide::{Input, Requirement};
use transom_core::contract::description::{Read, Role};
use transom_core::contract::{Context, Primary, Refusal, Timed};
use transom_core::failure::Failure;
use transom_core::world::{Answer, World};
use wasmtime::component::{Component, Instance};
use wasmtime::{Result as WasmResult, Store};

mod generated {
    // What every guest has. Each world generates its own interface, with the types from here.
    wasmtime::component::bindgen!({
        path: "../../wit",
        inline: "
            package transom:host;
            world every-guest {
                import transom:policy/log@0.1.0;
                import transom:policy/panic@0.1.0;
                export transom:policy/guest@0.1.0;
            }
        ",
        imports: { default: trappable },
    });
}

use generated::transom::policy::types as wit;
pub(crate) use generated::transom::policy::{log, panic};
pub(crate) use shared::About;

/// Every world that guests can be loaded for.
const BINDINGS: &[&dyn Binding] = &[
    kubeconfig::BINDING,
    #[cfg(feature = "facts")]
    facts::BINDING,
    taints::BINDING,
    objects::BINDING,
];

/// Every role that a component can be loaded for.
pub(crate) fn roles() -> impl Iterator<Item = Role> {
    let deciding = BINDINGS.iter().map(|binding| Role::Decide(binding.world()));
    std::iter::once(Role::Trigger).chain(deciding)
}

/// Finds the functions of a role by name; the error says what is missing.
pub(super) fn locate(component: &Component, role: Role) -> Result<Located, String> {
    let find = Find(component);
    let about = About::locate(&find)?;
    let exports = match role {
        Role::Trigger => Exports::Trigger(trigger::Functions::locate(&find)?),
        Role::Decide(world) => Exports::Decide(binding(world)?.locate(&find)?),
    };
    Ok((about, exports))
}

/// The binding of a world; the error says that there is none.
pub(crate) fn binding(world: &'static dyn World) -> Result<&'static dyn Binding, String> {
    let mut bindings = BINDINGS.iter().copied();
    let found = bindings.find(|binding| binding.world() == world);
    found.ok_or_else(|| "this engine does not have the world".to_owned())
}

/// A world as components export it.
pub(crate) trait Binding: Sync {
    /// Which world.
    fn world(&self) -> &'static dyn World;

    /// Finds the functions of the world by name; the error says what is missing.
    fn locate(&self, find: &Find<'_>) -> Result<Arc<dyn Decide>, String>;

    /// Why a guest of this world cannot read what it declares, if so.
    fn fault(&self, _read: &Read) -> Option<String> {
        None
    }
}

/// The located functions of a guest that decides. They are called only on the guest that they were located in.
pub(crate) trait Decide: Any + Send + Sync {
    /// Compares the types of all functions with the contract; a call compares only its own.
    fn check(&self, store: &mut Store<CallState>, instance: &Instance) -> WasmResult<()>;

    /// Asks what the guest needs, in a world that asks.
    fn require(
        &self,
        guest: &Guest,
        _limits: &Limits,
        _context: &Context,
        _primary: &Primary,
        _found: &[Input],
    ) -> Call<Result<Requirement, Refusal>> {
        guest.wrong_world()
    }

    /// The function that `decide` calls.
    fn decides_by(&self) -> &'static str;

    /// Asks what the guest decides.
    fn decide(
        &self,
        guest: &Guest,
        limits: &Limits,
        question: &Question<'_>,
    ) -> Result<Call<Decided>, Failure>;

    /// Asks the one question of a case of the guest; the error says what is wrong with the case.
    fn ask(&self, guest: &Guest, _given: &mut Given) -> Result<Call<Value>, String> {
        Err(format!(
            "guests of the world `{}` have no cases of their own; give their policy cases",
            guest.role().name()
        ))
    }
}

/// Hides the type of an answer.
fn decided<A: Answer + 'static>(answer: Result<Timed<A>, Refusal>) -> Decided {
    answer.map(|timed| Timed {
        answer: Box::new(timed.answer) as Box<dyn Answer>,
        ask_again_at: timed.ask_again_at,
    })
}
