//! From bytes to a guest that can be called: compares imports with the grant and exports with the world, then asks
//! for the description. A component runs only after its imports were checked.

use crate::bindings::v0_1::{self, description, kubeconfig, taints, trigger};
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
use wasmtime::component::{Component, ComponentExportIndex, Instance};
use wasmtime::{Result as WasmResult, Store};

/// A function of a component, found by name.
pub(crate) type Function = ComponentExportIndex;

/// The functions that every guest has.
pub(crate) struct About {
    pub(crate) describe: Function,
    pub(crate) validate: Function,
}

/// The functions of a world.
pub(crate) enum Exports {
    Trigger {
        ready: Function,
        evaluate: Function,
    },
    Kubeconfig {
        require: Function,
        transform: Function,
    },
    Taints {
        compute: Function,
    },
}

/// Finds the functions by name; the error says what is missing.
fn locate(component: &Component, world: World) -> Result<(About, Exports), String> {
    let find = |name: &str, function: &str| {
        let interface = v0_1::interface(name);
        let instance = component.get_export_index(None, &interface);
        let instance = instance.ok_or_else(|| format!("it does not export `{interface}`"))?;
        let found = component.get_export_index(Some(&instance), function);
        found.ok_or_else(|| format!("its `{interface}` has no `{function}`"))
    };
    let about = About {
        describe: find("guest", "describe")?,
        validate: find("guest", "validate")?,
    };
    let exports = match world {
        World::Trigger => Exports::Trigger {
            ready: find("trigger", "ready")?,
            evaluate: find("trigger", "evaluate")?,
        },
        World::Kubeconfig => Exports::Kubeconfig {
            require: find("kubeconfig", "require")?,
            transform: find("kubeconfig", "transform")?,
        },
        World::Taints => Exports::Taints {
            compute: find("taints", "compute")?,
        },
    };
    Ok((about, exports))
}

/// Compares the types of all functions with the contract; a call compares only its own.
fn check(
    about: &About,
    exports: &Exports,
    store: &mut Store<CallState>,
    instance: &Instance,
) -> WasmResult<()> {
    let _: description::Describe = instance.get_typed_func(&mut *store, about.describe)?;
    let _: description::Validate<'_> = instance.get_typed_func(&mut *store, about.validate)?;
    match exports {
        Exports::Trigger { ready, evaluate } => {
            let _: trigger::Ready<'_> = instance.get_typed_func(&mut *store, ready)?;
            let _: trigger::Evaluate<'_> = instance.get_typed_func(&mut *store, evaluate)?;
        }
        Exports::Kubeconfig { require, transform } => {
            let _: kubeconfig::Require<'_> = instance.get_typed_func(&mut *store, require)?;
            let _: kubeconfig::Transform<'_> = instance.get_typed_func(&mut *store, transform)?;
        }
        Exports::Taints { compute } => {
            let _: taints::Compute<'_> = instance.get_typed_func(&mut *store, compute)?;
        }
    }
    Ok(())
}

impl Engine {
    /// Loads a guest: compiles it unless a guest already runs the same bytes, checks it, and asks once for its
    /// description. Takes tens of milliseconds for new bytes; call it where nothing waits. Does not block calls in
    /// other threads.
    ///
    /// # Errors
    /// The first thing that is wrong with the component.
    pub fn load(
        &self,
        bytes: &[u8],
        world: World,
        granted: &Capabilities,
    ) -> Result<Guest, LoadError> {
        let code = self.link(bytes, world, granted)?;
        let located = locate(&code.compiled.component, world);
        let (about, exports) = located.map_err(|missing| mismatch(&code, world, &missing))?;
        let description = describe(&code, &about, &exports, world)?;
        let words = crate::description::check(&description, world)?;
        Ok(Guest::from(Arc::new(Loaded {
            code,
            about,
            exports,
            world,
            description,
            words,
        })))
    }

    /// Linked code, after checking that its imports are granted.
    pub(crate) fn link(
        &self,
        bytes: &[u8],
        world: World,
        granted: &Capabilities,
    ) -> Result<Runnable, LoadError> {
        let compiled = self.inner.compiled(bytes, self.hasty)?;
        let denied = denied(&imports(&compiled.component), granted);
        if !denied.is_empty() {
            return Err(LoadError::ImportNotGranted(denied));
        }
        let linker = if granted.has(Capability::Log) {
            &self.inner.with_log
        } else {
            &self.inner.without_log
        };
        // The names are granted, so only the types of the imports can differ.
        let pre = linker
            .instantiate_pre(&compiled.component)
            .map_err(|error| LoadError::WorldMismatch {
                expected: world,
                found: None,
                detail: printable(&format!("{error:#}")),
            })?;
        Ok(Runnable {
            engine: self.inner.clone(),
            compiled,
            pre,
        })
    }
}

/// Asks the component for its description, after comparing the types of its exports.
fn describe(
    code: &Runnable,
    about: &About,
    exports: &Exports,
    world: World,
) -> Result<Description, LoadError> {
    let mut mismatched = None;
    let ask = |store: &mut Store<CallState>, instance: &Instance, ()| {
        check(about, exports, store, instance)
            .inspect_err(|error| mismatched = Some(mismatch(code, world, &format!("{error:#}"))))?;
        let describe: description::Describe =
            instance.get_typed_func(&mut *store, about.describe)?;
        Ok(describe.call(store, ())?.0)
    };
    let described = code
        .call(&Limits::default(), None, |_| (), ask, Lift::description)
        .result;
    match mismatched {
        Some(mismatch) => Err(mismatch),
        None => described.map_err(|failure| match failure {
            CallFailure::ContractBroken(how) => LoadError::DescriptionInvalid(how),
            CallFailure::Unstartable(why) => LoadError::Invalid(why),
            failure => LoadError::Describe(failure),
        }),
    }
}

fn mismatch(code: &Runnable, expected: World, detail: &str) -> LoadError {
    let found = fitting(&code.compiled.component).filter(|found| *found != expected);
    LoadError::WorldMismatch {
        expected,
        found,
        detail: printable(detail),
    }
}

/// The world whose functions a component has, by name.
pub(crate) fn fitting(component: &Component) -> Option<World> {
    [World::Trigger, World::Kubeconfig, World::Taints]
        .into_iter()
        .find(|world| locate(component, *world).is_ok())
}
