//! From bytes to a guest that can be called: compares imports with the grant and exports with the role, then asks
//! for the description. A component runs only after its imports were checked. Also describes one without a grant.
//! The generation comes first: the imports of one that is not served cannot be granted, but that is not its fault.

use crate::bindings::v0_1::{About, trigger};
use crate::bindings::{self, Decide, locate, roles};
use crate::call::CallState;
use crate::engine::Engine;
use crate::failure::{CallFailure, LoadError};
use crate::guest::{Guest, LoadedGuest};
use crate::imports::{Capabilities, Capability, denied, imports, needs};
use crate::limits::{CallLimits, printable};
use crate::measure::Lift;
use crate::run::Runnable;
use crate::travelling::travelling_cases;
use std::sync::Arc;
use transom_core::contract::description::{Description, Role};
use wasmtime::component::{Component, Instance};
use wasmtime::{Result as WasmResult, Store};

/// The functions of a role.
pub(crate) enum Exports {
    Trigger(trigger::Functions),
    Decide(Arc<dyn Decide>),
}

/// Compares the types of all functions with the contract; a call compares only its own.
fn check(
    about: &About,
    exports: &Exports,
    store: &mut Store<CallState>,
    instance: &Instance,
) -> WasmResult<()> {
    about.check(store, instance)?;
    match exports {
        Exports::Trigger(functions) => functions.check(store, instance),
        Exports::Decide(functions) => functions.check(store, instance),
    }
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
        role: Role,
        granted: &Capabilities,
    ) -> Result<Guest, LoadError> {
        let code = self.link(bytes, role, granted)?;
        let located = locate(&code.compiled.component, role);
        let (about, exports) = located.map_err(|missing| mismatch(&code, role, &missing))?;
        let description = describe(&code, &about, &exports, role)?;
        let words = crate::description::check(&description, role)?;
        Ok(Guest::from(Arc::new(LoadedGuest {
            code,
            about,
            exports,
            role,
            description,
            words,
        })))
    }

    /// Linked code, after checking that its generation is served and its imports are granted.
    fn link(
        &self,
        bytes: &[u8],
        role: Role,
        granted: &Capabilities,
    ) -> Result<Runnable, LoadError> {
        let compiled = self.inner.compiled(bytes, self.hasty)?;
        bindings::of(&compiled.component).map_err(LoadError::GenerationNotServed)?;
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
                expected: role,
                found: None,
                detail: printable(&format!("{error:#}")),
            })?;
        Ok(Runnable {
            engine: self.inner.clone(),
            compiled,
            pre,
        })
    }

    /// Reads what a component is from its bytes, without a policy's grant; runs it only to ask for its
    /// self-description.
    ///
    /// # Errors
    /// When the bytes are too many, or not a component that can be compiled.
    pub fn inspect(&self, bytes: &[u8]) -> Result<Inspection, LoadError> {
        let compiled = self.inner.compiled(bytes, false)?;
        let component = &compiled.component;
        let imports = imports(component);
        let (needs, ungrantable) = needs(&imports);
        let ty = component.component_type();
        let exports: Vec<_> = ty
            .exports(component.engine())
            .map(|(name, _)| name.to_owned())
            .collect();
        let world = fitting(component);
        let description = match world {
            Some(world) => self
                .load(bytes, world, &needs)
                .map(|guest| guest.description().clone()),
            None => Err(match bindings::of(component) {
                Err(why) => LoadError::GenerationNotServed(why),
                Ok(_) => LoadError::Invalid("it does not have the exports of any world".to_owned()),
            }),
        };
        let (digest, size) = (compiled.digest.clone(), compiled.size);
        let cases = travelling_cases(bytes).map(|cases| cases.len());
        Ok(Inspection {
            digest,
            size,
            imports,
            exports,
            world,
            needs,
            ungrantable,
            description,
            cases,
        })
    }
}

/// What a component is.
#[derive(Clone, Debug, PartialEq)]
pub struct Inspection {
    /// `sha256:<hex>` of its bytes.
    pub digest: String,
    /// Bytes of the component.
    pub size: u64,
    /// What it imports, apart from types.
    pub imports: Vec<String>,
    /// What it exports.
    pub exports: Vec<String>,
    /// The role whose exports it has, by name.
    pub world: Option<Role>,
    /// The capabilities that it would need.
    pub needs: Capabilities,
    /// The imports that no policy can grant; with any of these it cannot be loaded.
    pub ungrantable: Vec<String>,
    /// Its self-description, or why it could not be loaded even with what it needs.
    pub description: Result<Description, LoadError>,
    /// How many cases travel with it, or why they cannot be read.
    pub cases: Result<usize, LoadError>,
}

/// Asks the component for its description, after comparing the types of its exports.
fn describe(
    code: &Runnable,
    about: &About,
    exports: &Exports,
    role: Role,
) -> Result<Description, LoadError> {
    let mut mismatched = None;
    let ask = |store: &mut Store<CallState>, instance: &Instance, ()| {
        check(about, exports, store, instance)
            .inspect_err(|error| mismatched = Some(mismatch(code, role, &format!("{error:#}"))))?;
        about.describe.call(store, instance, ())
    };
    let described = code
        .call(&CallLimits::default(), None, |_| (), ask, Lift::description)
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

fn mismatch(code: &Runnable, expected: Role, detail: &str) -> LoadError {
    let found = fitting(&code.compiled.component).filter(|found| *found != expected);
    LoadError::WorldMismatch {
        expected,
        found,
        detail: printable(detail),
    }
}

/// The role whose functions a component has, by name.
fn fitting(component: &Component) -> Option<Role> {
    roles().find(|role| locate(component, *role).is_ok())
}
