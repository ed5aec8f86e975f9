//! The macro that makes a component of a guest. It adds no import.

/// Exports a guest from the component. Use it once in a crate, with the name of its world, which is a module of this
/// crate, and the name of the type.
///
/// Outside wasm it only checks that the type has the traits, so that several guests fit into one test binary. In wasm
/// it also registers an allocator that never frees, which suits an instance that lives for one call.
#[macro_export]
macro_rules! register {
    ($world:ident: $guest:ident) => {
        const _: () = {
            const fn has_the_traits<T: $crate::$world::World>() {}
            has_the_traits::<$guest>();
        };
        #[cfg(target_arch = "wasm32")]
        #[global_allocator]
        static TRANSOM_ARENA: $crate::Arena = $crate::Arena::new();
        #[cfg(target_arch = "wasm32")]
        $crate::bindings::guest::export!($guest with_types_in $crate::bindings::guest);
        #[cfg(target_arch = "wasm32")]
        $crate::$world::bindings::export!($guest with_types_in $crate::$world::bindings);
    };
}
