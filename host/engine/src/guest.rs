//! A loaded guest, its functions, and the questions that it can be asked. Answers are not cached.

use crate::bindings::Decide;
use crate::bindings::v0_1::About;
use crate::call::CallState;
use crate::failure::CallFailure;
use crate::limits::{CallLimits, Receipt};
use crate::load::Exports;
use crate::measure::{Lift, Lower};
use crate::run::{Call, Runnable};
use std::any::Any;
use std::collections::BTreeSet;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use transom_core::catalogue::guest::GuestFacts;
use transom_core::contract::decide::{Input, Requirement};
use transom_core::contract::description::{Description, Role};
use transom_core::contract::{Context, GuestRefusal, Primary, Problem, Timed};
use transom_core::failure::Failure;
use transom_core::object::Object;
use transom_core::world::Answer;
use wasmtime::component::{
    self, Component, ComponentExportIndex, ComponentNamedList, Instance, TypedFunc,
};
use wasmtime::{Result as WasmResult, Store};

/// What a guest of any world is asked with; a world takes from it what its function wants.
#[derive(Clone, Copy)]
pub struct Question<'a> {
    /// What a call gets beside its arguments.
    pub context: &'a Context,
    /// The primary as it was read.
    pub object: &'a Object,
    /// The fields of the primary that the guest declared.
    pub primary: &'a Primary,
    /// The guest's description, compiled.
    pub described: &'a GuestFacts,
    /// What was found for its needs.
    pub inputs: &'a [Input],
}

/// What a guest of any world decides.
pub type Decided = Result<Timed<Box<dyn Answer>>, GuestRefusal>;

/// A loaded guest. Cheap to clone; many threads can call it at once.
///
/// Every question runs in a fresh instance under the limits of that call, and blocks the calling thread until the
/// answer is there or a limit fires. A question of another world gives [`CallFailure::WrongWorld`].
#[derive(Clone)]
pub struct Guest {
    loaded: Arc<LoadedGuest>,
}

pub(crate) struct LoadedGuest {
    pub(crate) code: Runnable,
    pub(crate) about: About,
    pub(crate) exports: Exports,
    pub(crate) role: Role,
    pub(crate) description: Description,
    pub(crate) words: BTreeSet<String>,
}

impl From<Arc<LoadedGuest>> for Guest {
    fn from(loaded: Arc<LoadedGuest>) -> Self {
        Self { loaded }
    }
}

impl Guest {
    /// `sha256:<hex>` of the component's bytes.
    pub fn digest(&self) -> &str {
        &self.loaded.code.compiled.digest
    }

    /// Bytes of the component.
    pub fn size(&self) -> u64 {
        self.loaded.code.compiled.size
    }

    /// The role that it was loaded for.
    pub fn role(&self) -> Role {
        self.loaded.role
    }

    /// Its self-description, checked when it was loaded.
    pub fn description(&self) -> &Description {
        &self.loaded.description
    }

    /// Asks it to check settings, one JSON object; no problem means that it accepts them.
    pub fn validate(&self, limits: &CallLimits, settings: &str) -> Call<Vec<Problem>> {
        let settings = |lower: &mut Lower| (lower.text(settings),);
        let About { validate, .. } = &self.loaded.about;
        self.call(limits, validate, settings, Lift::objections)
    }

    /// Asks what the guest needs and which object it wants to write, in a world that asks.
    pub fn require(
        &self,
        limits: &CallLimits,
        context: &Context,
        primary: &Primary,
        found: &[Input],
    ) -> Call<Result<Requirement, GuestRefusal>> {
        match &self.loaded.exports {
            Exports::Trigger(_) => self.wrong_world(),
            Exports::Decide(functions) => functions.require(self, limits, context, primary, found),
        }
    }

    /// Asks what the guest decides.
    ///
    /// # Errors
    /// Before any call, when the primary cannot be shown to a guest of this world.
    pub fn decide(
        &self,
        limits: &CallLimits,
        question: &Question<'_>,
    ) -> Result<Call<Decided>, Failure> {
        match &self.loaded.exports {
            Exports::Trigger(_) => Ok(self.wrong_world()),
            Exports::Decide(functions) => functions.decide(self, limits, question),
        }
    }

    /// The function that [`Guest::decide`] calls, for logs and metrics; `decide` for a trigger guest, which has none.
    pub fn decides_by(&self) -> &'static str {
        match &self.loaded.exports {
            Exports::Trigger(_) => "decide",
            Exports::Decide(functions) => functions.decides_by(),
        }
    }

    pub(crate) fn exports(&self) -> &Exports {
        &self.loaded.exports
    }

    /// The functions of one world; `None` when the guest is of another one.
    pub(crate) fn functions<D: Decide>(&self) -> Option<&D> {
        let Exports::Decide(functions) = &self.loaded.exports else {
            return None;
        };
        let functions: &dyn Any = &**functions;
        functions.downcast_ref()
    }

    /// Calls a function of the guest: makes the arguments, asks, converts the answer.
    pub(crate) fn call<'d, P, R, T>(
        &'d self,
        limits: &CallLimits,
        function: &Function<P, R>,
        lower: impl FnOnce(&mut Lower) -> P,
        lift: impl FnOnce(&mut Lift<'d>, R) -> T,
    ) -> Call<T>
    where
        P: ComponentNamedList + component::Lower,
        R: component::Lift,
    {
        let LoadedGuest { code, words, .. } = &*self.loaded;
        let ask =
            |store: &mut _, instance: &_, arguments| function.call(store, instance, arguments);
        code.call(limits, Some(words), lower, ask, lift)
    }

    pub(crate) fn wrong_world<T>(&self) -> Call<T> {
        Call {
            result: Err(CallFailure::WrongWorld(self.loaded.role)),
            receipt: Receipt::default(),
        }
    }
}

impl fmt::Debug for Guest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Description { name, version, .. } = &self.loaded.description;
        write!(
            f,
            "Guest({} {name} {version}, {})",
            self.loaded.role.name(),
            self.digest()
        )
    }
}

/// Finds functions of a component of one generation.
pub(crate) struct Find<'a> {
    pub(crate) component: &'a Component,
    /// The first version of the generation.
    pub(crate) version: &'static str,
}

impl Find<'_> {
    /// The name of an interface of the contract: `transom:policy/guest@0.1.0`.
    pub(crate) fn interface(&self, name: &str) -> String {
        format!("transom:policy/{name}@{}", self.version)
    }

    /// Finds a function; the error says what is missing. A component may export a later version of the same generation.
    pub(crate) fn function<P, R>(
        &self,
        interface: &str,
        name: &str,
    ) -> Result<Function<P, R>, String> {
        let instance = self.component.get_export_index(None, interface);
        let instance = instance.ok_or_else(|| format!("it does not export `{interface}`"))?;
        let found = self.component.get_export_index(Some(&instance), name);
        Ok(Function {
            export: found.ok_or_else(|| format!("its `{interface}` has no `{name}`"))?,
            types: PhantomData,
        })
    }
}

/// A function with the arguments `P` and the result `R` of the contract.
pub(crate) struct Function<P, R> {
    export: ComponentExportIndex,
    types: PhantomData<fn(P) -> R>,
}

impl<P: ComponentNamedList + component::Lower, R: component::Lift> Function<P, R> {
    /// Compares the function's types with the contract.
    pub(crate) fn check(
        &self,
        store: &mut Store<CallState>,
        instance: &Instance,
    ) -> WasmResult<TypedFunc<P, (R,)>> {
        instance.get_typed_func(store, self.export)
    }

    /// Calls the function, after comparing its types.
    pub(crate) fn call(
        &self,
        store: &mut Store<CallState>,
        instance: &Instance,
        arguments: P,
    ) -> WasmResult<R> {
        Ok(self.check(store, instance)?.call(store, arguments)?.0)
    }
}
