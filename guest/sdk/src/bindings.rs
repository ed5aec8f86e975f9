//! The bindings that wit-bindgen makes from `wit/` for the exports of every guest, and the macro that exports them;
//! each world has its own in its file. Guests do not use this module: the crate root re-exports the types, and the
//! register macro uses the exports. With the serde attributes, `testing` reads and writes the types as `wit/` spells
//! them.

/// The exports of every guest, the imports, and the types that all kinds share.
pub mod guest {
    wit_bindgen::generate!({
        path: "../../wit",
        inline: "package transom:sdk; world guest { import transom:policy/log@0.2.0; import transom:policy/panic@0.2.0; export transom:policy/guest@0.2.0; }",
        pub_export_macro: true,
        export_macro_name: "export",
        default_bindings_module: "::transom_guest::bindings::guest",
        runtime_path: "::transom_guest::wit_bindgen::rt",
        additional_derives: [PartialEq, Eq, serde::Serialize, serde::Deserialize],
        additional_type_attributes: {
            "transom:policy/types@0.2.0/agent": [#[derive(Default)] #[serde(default, deny_unknown_fields, rename_all = "kebab-case")]],
            "transom:policy/types@0.2.0/object-ref": [#[derive(Default)] #[serde(default, deny_unknown_fields, rename_all = "kebab-case")]],
            "transom:policy/types@0.2.0/primary": [#[derive(Default)] #[serde(default, deny_unknown_fields, rename_all = "kebab-case")]],
            "transom:policy/types@0.2.0/problem": [#[derive(Default)] #[serde(default, deny_unknown_fields, rename_all = "kebab-case")]],
            "transom:policy/types@0.2.0/waiting": [#[derive(Default)] #[serde(default, deny_unknown_fields, rename_all = "kebab-case")]],
            "transom:policy/types@0.2.0/failure": [#[serde(rename_all = "kebab-case")]],
            "transom:policy/types@0.2.0/ownership": [#[serde(rename_all = "kebab-case")]],
            "transom:policy/types@0.2.0/label-term": [#[serde(rename_all = "kebab-case")]],
            "transom:policy/types@0.2.0/operator": [#[serde(rename_all = "kebab-case")]],
            "transom:policy/types@0.2.0/review": [#[serde(rename_all = "kebab-case")]],
            "transom:policy/types@0.2.0/who": [#[serde(rename_all = "kebab-case")]],
        },
        generate_all,
        generate_unused_types: true,
    });
}

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

/// Makes the test `cases`, which runs a guest natively on the folder `cases` of its crate; `transom test` runs its
/// component on them. Needs the feature `testing` in `[dev-dependencies]`.
#[macro_export]
macro_rules! test_cases {
    ($world:ident: $guest:ident) => {
        #[cfg(test)]
        #[test]
        fn cases() -> ::core::result::Result<(), $crate::testing::Failed> {
            $crate::testing::$world::<$guest>("cases")
        }
    };
}
