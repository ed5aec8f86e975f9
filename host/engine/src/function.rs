//! A function that a component exports, found by name and called by type.

use crate::call::CallState;
use std::marker::PhantomData;
use wasmtime::component::{
    Component, ComponentExportIndex, ComponentNamedList, Instance, Lift, Lower, TypedFunc,
};
use wasmtime::{Result as WasmResult, Store};

/// Finds functions of a component.
pub(crate) struct Find<'a>(pub(crate) &'a Component);

impl Find<'_> {
    /// Finds a function; the error says what is missing. A component may export a later version of the same `0.1`.
    pub(crate) fn function<P, R>(
        &self,
        interface: &str,
        name: &str,
    ) -> Result<Function<P, R>, String> {
        let instance = self.0.get_export_index(None, interface);
        let instance = instance.ok_or_else(|| format!("it does not export `{interface}`"))?;
        let found = self.0.get_export_index(Some(&instance), name);
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

impl<P: ComponentNamedList + Lower, R: Lift> Function<P, R> {
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
