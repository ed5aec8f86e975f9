//! The macro that makes a component of a guest. It adds no import.

/// Exports a guest from the component. Use it once in a crate, with the kind and the name of the type.
///
/// Outside wasm it only checks that the type has the traits, so that several guests fit into one test binary. In wasm
/// it also registers an allocator that never frees, which suits an instance that lives for one call.
#[macro_export]
macro_rules! register {
    (trigger: $guest:ident) => {
        $crate::register!(@export $guest, Trigger, trigger, export_trigger);
    };
    (kubeconfig: $guest:ident) => {
        $crate::register!(@export $guest, Kubeconfig, kubeconfig, export_kubeconfig);
    };
    (taints: $guest:ident) => {
        $crate::register!(@export $guest, Taints, taints, export_taints);
    };
    (@export $guest:ident, $kind:ident, $module:ident, $export:ident) => {
        const _: () = {
            const fn has_the_traits<T: $crate::$kind>() {}
            has_the_traits::<$guest>();
        };
        #[cfg(target_arch = "wasm32")]
        #[global_allocator]
        static TRANSOM_ARENA: $crate::Arena = $crate::Arena::new();
        #[cfg(target_arch = "wasm32")]
        $crate::bindings::guest::export_guest!($guest with_types_in $crate::bindings::guest);
        #[cfg(target_arch = "wasm32")]
        $crate::bindings::$module::$export!($guest with_types_in $crate::bindings::$module);
    };
}
