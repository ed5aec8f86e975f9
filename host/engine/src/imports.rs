//! What a component imports, read from its binary, and what of it may be granted. Names ungranted imports before
//! anything is linked, instead of relying on the linker.

use crate::bindings;
use std::collections::BTreeSet;
use wasmtime::component::Component;
use wasmtime::component::types::{ComponentInstance, ComponentItem};

/// What a policy lets its guest import. Nothing by default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    granted: BTreeSet<Capability>,
}

/// One thing that may be granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Capability {
    /// To write lines that the host counts and cuts.
    Log,
}

impl Capability {
    /// Everything that can be granted.
    pub const ALL: &'static [Self] = &[Self::Log];

    /// The word for it in policies.
    pub fn name(self) -> &'static str {
        match self {
            Self::Log => "log",
        }
    }

    /// The capability that an imported interface needs; `None` when it cannot be granted.
    fn of(import: &str) -> Option<Self> {
        bindings::is_ours(import, "log").then_some(Self::Log)
    }
}

/// Whether every guest may import it: the panic message, which only goes into the message of the failure.
fn is_free(import: &str) -> bool {
    bindings::is_ours(import, "panic")
}

impl Capabilities {
    /// These and no others.
    pub fn of(granted: impl IntoIterator<Item = Capability>) -> Self {
        Self {
            granted: granted.into_iter().collect(),
        }
    }

    /// Whether this one is granted.
    pub fn has(&self, capability: Capability) -> bool {
        self.granted.contains(&capability)
    }
}

/// The imports of a component that give it something to call or use; those that only name types are left out.
pub(crate) fn imports(component: &Component) -> Vec<String> {
    let engine = component.engine();
    let ty = component.component_type();
    let names = ty
        .imports(engine)
        .filter(|(_, import)| gives_something(engine, &import.ty));
    names.map(|(name, _)| name.to_owned()).collect()
}

/// The imports that are not granted.
pub(crate) fn denied(imports: &[String], granted: &Capabilities) -> Vec<String> {
    let denied = |import: &&String| {
        !is_free(import) && !Capability::of(import).is_some_and(|needed| granted.has(needed))
    };
    imports.iter().filter(denied).cloned().collect()
}

/// The capabilities that these imports need, and the imports for which there is none.
pub(crate) fn needs(imports: &[String]) -> (Capabilities, Vec<String>) {
    let needed = Capabilities::of(imports.iter().filter_map(|import| Capability::of(import)));
    let beyond = denied(imports, &needed);
    (needed, beyond)
}

fn gives_something(engine: &wasmtime::Engine, item: &ComponentItem) -> bool {
    match item {
        ComponentItem::ComponentInstance(instance) => instance_gives_something(engine, instance),
        ComponentItem::Type(_) => false,
        ComponentItem::ComponentFunc(_)
        | ComponentItem::CoreFunc(_)
        | ComponentItem::Module(_)
        | ComponentItem::Component(_)
        | ComponentItem::Resource(_) => true,
    }
}

fn instance_gives_something(engine: &wasmtime::Engine, instance: &ComponentInstance) -> bool {
    instance
        .exports(engine)
        .any(|(_, export)| gives_something(engine, &export.ty))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_log_of_a_generation_that_is_served_can_be_granted() {
        for (import, needed) in [
            ("transom:policy/log@0.1.0", Some(Capability::Log)),
            ("transom:policy/log@0.1.7", Some(Capability::Log)),
            ("transom:policy/log@0.10.0", None),
            ("transom:policy/log@0.2.0", Some(Capability::Log)),
            ("transom:policy/log@0.3.0", None),
            ("transom:policy/log", None),
            ("other:policy/log@0.1.0", None),
            ("wasi:clocks/monotonic-clock@0.2.0", None),
            ("log", None),
        ] {
            assert_eq!(Capability::of(import), needed, "{import}");
        }
    }

    #[test]
    fn last_words_of_a_generation_that_is_served_need_no_grant() {
        let none = Capabilities::default();
        for (import, free) in [
            ("transom:policy/panic@0.1.0", true),
            ("transom:policy/panic@0.1.9", true),
            ("transom:policy/panic@0.2.3", true),
            ("transom:policy/panic@0.3.0", false),
            ("transom:policy/panic", false),
            ("other:policy/panic@0.1.0", false),
        ] {
            assert_eq!(
                denied(&[import.to_owned()], &none).is_empty(),
                free,
                "{import}"
            );
        }
    }

    #[test]
    fn names_imports_that_are_not_granted() {
        let imports = [
            "transom:policy/log@0.1.0".to_owned(),
            "wasi:random/random@0.2.0".to_owned(),
        ];
        assert_eq!(denied(&imports, &Capabilities::default()), imports);
        assert_eq!(
            denied(&imports, &Capabilities::of([Capability::Log])),
            imports[1..]
        );
        assert_eq!(
            needs(&imports),
            (Capabilities::of([Capability::Log]), imports[1..].to_vec())
        );
    }
}
