//! From bytes to a guest that can be asked: imports compared with the grant, exports with the world, description asked.
//! Never lets a component run before its imports are known.

use crate::bindings::v0_1::{description, kubeconfig, taints, trigger};
use crate::call::CallState;
use crate::engine::Engine;
use crate::failure::{CallFailure, LoadError};
use crate::guest::{Guest, Loaded};
use crate::imports::{Capabilities, Capability, denied, imports};
use crate::limits::Limits;
use crate::measure::Lift;
use crate::receipt::printable;
use crate::run::Runnable;
use std::sync::Arc;
use transom_core::contract::description::{Description, World};
use wasmtime::component::{Component, Instance, InstancePre};
use wasmtime::{Result as WasmResult, Store};

/// Where the functions of a world are in a component.
pub(crate) enum Exports {
    Trigger(trigger::Indices),
    Kubeconfig(kubeconfig::Indices),
    Taints(taints::Indices),
}

impl Exports {
    /// Finds them by name.
    fn locate(pre: &InstancePre<CallState>, world: World) -> WasmResult<Self> {
        Ok(match world {
            World::Trigger => Self::Trigger(trigger::Indices::new(pre)?),
            World::Kubeconfig => Self::Kubeconfig(kubeconfig::Indices::new(pre)?),
            World::Taints => Self::Taints(taints::Indices::new(pre)?),
        })
    }

    /// Compares their types with the contract.
    fn check(&self, store: &mut Store<CallState>, instance: &Instance) -> WasmResult<()> {
        match self {
            Self::Trigger(indices) => indices.load(store, instance).map(drop),
            Self::Kubeconfig(indices) => indices.load(store, instance).map(drop),
            Self::Taints(indices) => indices.load(store, instance).map(drop),
        }
    }
}

impl Engine {
    /// Loads a guest: compiles it unless some guest runs the same bytes already, checks it, asks it once what it is.
    /// Takes tens of milliseconds for new bytes; call it where nothing waits. Calls in other threads are not held up.
    ///
    /// # Errors
    /// With the first thing that is wrong with the component.
    pub fn load(&self, bytes: &[u8], world: World, granted: &Capabilities) -> Result<Guest, LoadError> {
        let code = self.link(bytes, world, granted)?;
        let about = description::Indices::new(&code.pre).map_err(|error| mismatch(&code, world, &error))?;
        let exports = Exports::locate(&code.pre, world).map_err(|error| mismatch(&code, world, &error))?;
        let description = describe(&code, &about, &exports, world)?;
        let words = crate::description::check(&description)?;
        Ok(Guest::from(Arc::new(Loaded { code, about, exports, world, description, words })))
    }

    /// Code that may import what it imports.
    pub(crate) fn link(&self, bytes: &[u8], world: World, granted: &Capabilities) -> Result<Runnable, LoadError> {
        let compiled = self.inner.compiled(bytes)?;
        let denied = denied(&imports(&compiled.component), granted);
        if !denied.is_empty() {
            return Err(LoadError::ImportNotGranted(denied));
        }
        let linker = if granted.has(Capability::Log) { &self.inner.with_log } else { &self.inner.without_log };
        // The names are granted, so what is left to differ are the types of the imports.
        let pre = linker.instantiate_pre(&compiled.component).map_err(|error| LoadError::WorldMismatch {
            expected: world,
            found: None,
            detail: printable(&format!("{error:#}")),
        })?;
        Ok(Runnable { engine: self.inner.clone(), compiled, pre })
    }
}

/// Asks the component what it is, and compares the types of its exports on the way.
fn describe(
    code: &Runnable,
    about: &description::Indices,
    exports: &Exports,
    world: World,
) -> Result<Description, LoadError> {
    let mut mismatched = None;
    let ask = |store: &mut Store<CallState>, instance: &Instance, ()| {
        let typed = about.load(&mut *store, instance).and_then(|about| exports.check(store, instance).map(|()| about));
        let about = typed.inspect_err(|error| mismatched = Some(mismatch(code, world, error)))?;
        about.call_describe(store)
    };
    let described = code.call(&Limits::default(), None, |_| (), ask, Lift::description).result;
    match mismatched {
        Some(mismatch) => Err(mismatch),
        None => described.map_err(|failure| match failure {
            CallFailure::ContractBroken(how) => LoadError::DescriptionInvalid(how),
            CallFailure::Unstartable(why) => LoadError::Invalid(why),
            failure => LoadError::Describe(failure),
        }),
    }
}

fn mismatch(code: &Runnable, expected: World, error: &wasmtime::Error) -> LoadError {
    let found = fitting(&code.compiled.component).filter(|found| *found != expected);
    LoadError::WorldMismatch { expected, found, detail: printable(&format!("{error:#}")) }
}

/// The world whose exports a component has, by name.
pub(crate) fn fitting(component: &Component) -> Option<World> {
    let has = |interface: &str| component.get_export_index(None, format!("transom:policy/{interface}@0.1.0")).is_some();
    let worlds = [("trigger", World::Trigger), ("kubeconfig", World::Kubeconfig), ("taints", World::Taints)];
    worlds.into_iter().find(|(interface, _)| has("guest") && has(interface)).map(|(_, world)| world)
}
