//! The bindings that wit-bindgen makes from `wit/`: one module for the exports of every guest, one for each kind of
//! guest.
//! Guests do not use this module: the crate root re-exports the types, and the register macro uses the exports.
//! With the serde attributes, `testing` reads and writes the types as `wit/` spells them.

/// The exports of every guest, the imports, and the types that all kinds share.
pub mod guest {
    wit_bindgen::generate!({
        path: "../../wit",
        inline: "package transom:sdk; world guest { import transom:policy/log@0.1.0; import transom:policy/panic@0.1.0; export transom:policy/guest@0.1.0; }",
        pub_export_macro: true,
        export_macro_name: "export_guest",
        default_bindings_module: "::transom_guest::bindings::guest",
        runtime_path: "::transom_guest::wit_bindgen::rt",
        additional_derives: [PartialEq, Eq, serde::Serialize, serde::Deserialize],
        additional_type_attributes: {
            "transom:policy/types@0.1.0/agent": [#[derive(Default)] #[serde(default, deny_unknown_fields, rename_all = "kebab-case")]],
            "transom:policy/types@0.1.0/object-ref": [#[derive(Default)] #[serde(default, deny_unknown_fields, rename_all = "kebab-case")]],
            "transom:policy/types@0.1.0/primary": [#[derive(Default)] #[serde(default, deny_unknown_fields, rename_all = "kebab-case")]],
            "transom:policy/types@0.1.0/problem": [#[derive(Default)] #[serde(default, deny_unknown_fields, rename_all = "kebab-case")]],
            "transom:policy/types@0.1.0/waiting": [#[derive(Default)] #[serde(default, deny_unknown_fields, rename_all = "kebab-case")]],
            "transom:policy/types@0.1.0/failure": [#[serde(rename_all = "kebab-case")]],
        },
        generate_all,
        generate_unused_types: true,
    });
}

/// The exports of a trigger guest.
pub mod trigger {
    wit_bindgen::generate!({
        path: "../../wit",
        inline: "package transom:sdk; world trigger { export transom:policy/trigger@0.1.0; }",
        pub_export_macro: true,
        export_macro_name: "export_trigger",
        default_bindings_module: "::transom_guest::bindings::trigger",
        runtime_path: "::transom_guest::wit_bindgen::rt",
        additional_derives: [PartialEq, Eq, serde::Serialize, serde::Deserialize],
        additional_type_attributes: {
            "transom:policy/trigger@0.1.0/change": [#[derive(Default)] #[serde(default, deny_unknown_fields, rename_all = "kebab-case")]],
            "transom:policy/trigger@0.1.0/readiness": [#[serde(rename_all = "kebab-case")]],
            "transom:policy/trigger@0.1.0/ready-answer": [#[serde(rename_all = "kebab-case")]],
            "transom:policy/trigger@0.1.0/verdict": [#[serde(rename_all = "kebab-case")]],
        },
        with: { "transom:policy/types@0.1.0": ::transom_guest::bindings::guest::transom::policy::types },
    });
}

/// The exports of a kubeconfig guest.
pub mod kubeconfig {
    wit_bindgen::generate!({
        path: "../../wit",
        inline: "package transom:sdk; world kubeconfig { export transom:policy/kubeconfig@0.1.0; }",
        pub_export_macro: true,
        export_macro_name: "export_kubeconfig",
        default_bindings_module: "::transom_guest::bindings::kubeconfig",
        runtime_path: "::transom_guest::wit_bindgen::rt",
        additional_derives: [PartialEq, Eq, serde::Serialize, serde::Deserialize],
        additional_type_attributes: {
            "transom:policy/credentials@0.1.0/url": [#[derive(Default)] #[serde(default, deny_unknown_fields, rename_all = "kebab-case")]],
            "transom:policy/credentials@0.1.0/authority": [#[derive(Default)] #[serde(default, deny_unknown_fields, rename_all = "kebab-case")]],
            "transom:policy/credentials@0.1.0/proxy": [#[derive(Default)] #[serde(default, deny_unknown_fields, rename_all = "kebab-case")]],
            "transom:policy/credentials@0.1.0/cluster": [#[derive(Default)] #[serde(default, deny_unknown_fields, rename_all = "kebab-case")]],
            "transom:policy/credentials@0.1.0/credential": [#[derive(Default)] #[serde(default, deny_unknown_fields, rename_all = "kebab-case")]],
            "transom:policy/credentials@0.1.0/user": [#[derive(Default)] #[serde(default, deny_unknown_fields, rename_all = "kebab-case")]],
            "transom:policy/credentials@0.1.0/cluster-context": [#[derive(Default)] #[serde(default, deny_unknown_fields, rename_all = "kebab-case")]],
            "transom:policy/credentials@0.1.0/kubeconfig": [#[derive(Default)] #[serde(default, deny_unknown_fields, rename_all = "kebab-case")]],
            "transom:policy/credentials@0.1.0/authority-source": [#[serde(rename_all = "kebab-case")]],
            "transom:policy/proposals@0.1.0/proposed-cluster": [#[derive(Default)] #[serde(default, deny_unknown_fields, rename_all = "kebab-case")]],
            "transom:policy/proposals@0.1.0/proposed-user": [#[derive(Default)] #[serde(default, deny_unknown_fields, rename_all = "kebab-case")]],
            "transom:policy/proposals@0.1.0/proposal": [#[derive(Default)] #[serde(default, deny_unknown_fields, rename_all = "kebab-case")]],
            "transom:policy/kubeconfig@0.1.0/service-port": [#[derive(Default)] #[serde(default, deny_unknown_fields, rename_all = "kebab-case")]],
            "transom:policy/kubeconfig@0.1.0/service": [#[derive(Default)] #[serde(default, deny_unknown_fields, rename_all = "kebab-case")]],
            "transom:policy/kubeconfig@0.1.0/input": [#[derive(Default)] #[serde(default, deny_unknown_fields, rename_all = "kebab-case")]],
            "transom:policy/kubeconfig@0.1.0/form": [#[serde(rename_all = "kebab-case")]],
            "transom:policy/kubeconfig@0.1.0/absence": [#[serde(rename_all = "kebab-case")]],
            "transom:policy/kubeconfig@0.1.0/need": [#[serde(rename_all = "kebab-case")]],
            "transom:policy/kubeconfig@0.1.0/requirement": [#[serde(rename_all = "kebab-case")]],
            "transom:policy/kubeconfig@0.1.0/protocol": [#[serde(rename_all = "kebab-case")]],
            "transom:policy/kubeconfig@0.1.0/value": [#[serde(rename_all = "kebab-case")]],
            "transom:policy/kubeconfig@0.1.0/answer": [#[serde(rename_all = "kebab-case")]],
        },
        generate_all,
        with: { "transom:policy/types@0.1.0": ::transom_guest::bindings::guest::transom::policy::types },
    });
}

/// The exports of a taints guest.
pub mod taints {
    wit_bindgen::generate!({
        path: "../../wit",
        inline: "package transom:sdk; world taints { export transom:policy/taints@0.1.0; }",
        pub_export_macro: true,
        export_macro_name: "export_taints",
        default_bindings_module: "::transom_guest::bindings::taints",
        runtime_path: "::transom_guest::wit_bindgen::rt",
        additional_derives: [PartialEq, Eq, serde::Serialize, serde::Deserialize],
        additional_type_attributes: {
            "transom:policy/taints@0.1.0/taint": [#[derive(Default)] #[serde(default, deny_unknown_fields, rename_all = "kebab-case")]],
            "transom:policy/taints@0.1.0/condition": [#[derive(Default)] #[serde(default, deny_unknown_fields, rename_all = "kebab-case")]],
            "transom:policy/taints@0.1.0/pair": [#[derive(Default)] #[serde(default, deny_unknown_fields, rename_all = "kebab-case")]],
            "transom:policy/taints@0.1.0/managed-cluster": [#[derive(Default)] #[serde(default, deny_unknown_fields, rename_all = "kebab-case")]],
            "transom:policy/taints@0.1.0/wanted": [#[derive(Default)] #[serde(default, deny_unknown_fields, rename_all = "kebab-case")]],
            "transom:policy/taints@0.1.0/effect": [#[serde(rename_all = "kebab-case")]],
            "transom:policy/taints@0.1.0/status": [#[serde(rename_all = "kebab-case")]],
            "transom:policy/taints@0.1.0/decision": [#[serde(rename_all = "kebab-case")]],
            "transom:policy/taints@0.1.0/answer": [#[serde(rename_all = "kebab-case")]],
        },
        with: { "transom:policy/types@0.1.0": ::transom_guest::bindings::guest::transom::policy::types },
    });
}
