//! The generations of the contract that are served side by side, and which of them a component is of. `wit/README.md`
//! says how another one is added.
//!
//! A function is found by name in the version of its generation, and its types are compared when a component is loaded.
//! So an interface that a generation takes over unchanged has the types and conversions of the one before; only what it
//! changes is in the file of the generation.

#[macro_use]
mod forms;
pub(crate) mod v0_1;
mod v0_2;

use crate::call::CallState;
use crate::case::GivenCase;
use crate::guest::{Decided, Find, Guest, Question};
use crate::limits::{CallLimits, printable};
use crate::load::Exports;
use crate::run::Call;
use serde_json::Value;
use std::any::Any;
use std::sync::Arc;
use transom_core::contract::decide::{Input, Requirement};
use transom_core::contract::description::{Read, Role};
use transom_core::contract::{Context, GuestRefusal, Primary, Timed};
use transom_core::failure::Failure;
use transom_core::world::{Answer, World};
use v0_1::{About, log, panic, trigger};
use wasmtime::component::{Component, Instance, Linker, LinkerInstance};
use wasmtime::{Result as WasmResult, Store, StoreContextMut};

/// What every guest has, and the functions of its role.
pub(crate) type Located = (About, Exports);

/// A generation of the contract.
pub(crate) struct Generation {
    /// Its name, such as `0.1`: the versions `0.1.0`, `0.1.1` and so on are of it.
    name: &'static str,
    /// The first version of it. A component may export a later one.
    version: &'static str,
    /// Every world that guests of it can be loaded for.
    worlds: &'static [&'static dyn Binding],
}

/// The generation that new guests are of.
const NEWEST: &Generation = &Generation {
    name: "0.2",
    version: "0.2.0",
    worlds: v0_2::WORLDS,
};

/// Every generation that is served, the newest first.
const GENERATIONS: &[&Generation] = &[
    NEWEST,
    &Generation {
        name: "0.1",
        version: "0.1.0",
        worlds: v0_1::WORLDS,
    },
];

impl Generation {
    /// Whether this version of an interface is of it.
    fn has(&self, version: &str) -> bool {
        let rest = version.strip_prefix(self.name);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    }

    /// Finds the functions of a role by name; the error says what is missing.
    fn locate(&self, component: &Component, role: Role) -> Result<Located, String> {
        let find = Find {
            component,
            version: self.version,
        };
        let about = About::locate(&find)?;
        let exports = match role {
            Role::Trigger => Exports::Trigger(trigger::Functions::locate(&find)?),
            Role::Decide(world) => Exports::Decide(self.binding(world)?.locate(&find)?),
        };
        Ok((about, exports))
    }

    /// The binding of a world; the error says that there is none.
    fn binding(&self, world: &'static dyn World) -> Result<&'static dyn Binding, String> {
        let mut bindings = self.worlds.iter().copied();
        let found = bindings.find(|binding| binding.world() == world);
        found.ok_or_else(|| "this engine does not have the world".to_owned())
    }
}

/// Every role that a component can be loaded for.
pub(crate) fn roles() -> impl Iterator<Item = Role> {
    let deciding = NEWEST.worlds.iter();
    let deciding = deciding.map(|binding| Role::Decide(binding.world()));
    std::iter::once(Role::Trigger).chain(deciding)
}

/// Why a guest of a world cannot read what it declares, if so.
pub(crate) fn fault(world: &'static dyn World, read: &Read) -> Option<String> {
    NEWEST.binding(world).ok()?.fault(read)
}

/// Finds the functions of a role in the generation of a component; the error says what is missing.
pub(crate) fn locate(component: &Component, role: Role) -> Result<Located, String> {
    of(component)?.locate(component, role)
}

/// Whether a name such as `transom:policy/log@0.1.0` is this interface, in a generation that is served.
pub(crate) fn is_ours(name: &str, interface: &str) -> bool {
    version_of(name, interface)
        .is_some_and(|version| GENERATIONS.iter().any(|generation| generation.has(version)))
}

/// The version of an interface of the contract in a name such as `transom:policy/log@0.1.0`.
fn version_of<'a>(name: &'a str, interface: &str) -> Option<&'a str> {
    let named = name.strip_prefix("transom:policy/")?;
    named.strip_prefix(interface)?.strip_prefix('@')
}

/// The generation of a component: that of the interface `guest`, which every guest exports; the newest for one that is
/// no guest, so that it is told what is missing.
///
/// # Errors
/// When its generation is not served.
pub(crate) fn of(component: &Component) -> Result<&'static Generation, String> {
    let ty = component.component_type();
    let exports = ty.exports(component.engine());
    let versions: Vec<&str> = exports
        .filter_map(|(name, _)| version_of(name, "guest"))
        .collect();
    let Some(first) = versions.first() else {
        return Ok(NEWEST);
    };
    let mut all = GENERATIONS.iter().copied();
    let found = all.find(|generation| versions.iter().any(|version| generation.has(version)));
    found.ok_or_else(|| {
        let served: Vec<_> = GENERATIONS.iter().map(|one| one.name).collect();
        let (version, served) = (printable(first), served.join(", "));
        format!(
            "it is built for the generation {version} of the contract; this agent serves {served}"
        )
    })
}

/// Offers what every guest may import, in every generation.
pub(crate) fn offer_panic(linker: &mut Linker<CallState>) -> WasmResult<()> {
    offer(linker, "panic", |instance| {
        let panicked = |mut store: Stored<'_>, (message,): (String,)| {
            panic::Host::panicked(store.data_mut(), message)
        };
        instance.func_wrap("panicked", panicked)
    })
}

/// Offers what a policy may grant its guest to import, in every generation.
pub(crate) fn offer_log(linker: &mut Linker<CallState>) -> WasmResult<()> {
    offer(linker, "log", |instance| {
        let log = |mut store: Stored<'_>, (level, message): (log::Level, String)| {
            log::Host::log(store.data_mut(), level, message)
        };
        instance.func_wrap("log", log)
    })
}

type Stored<'a> = StoreContextMut<'a, CallState>;

fn offer(
    linker: &mut Linker<CallState>,
    interface: &str,
    define: impl Fn(&mut LinkerInstance<'_, CallState>) -> WasmResult<()>,
) -> WasmResult<()> {
    GENERATIONS.iter().try_for_each(|generation| {
        let name = format!("transom:policy/{interface}@{}", generation.version);
        define(&mut linker.instance(&name)?)
    })
}

/// A world as components export it.
pub(crate) trait Binding: Sync {
    /// Which world.
    fn world(&self) -> &'static dyn World;

    /// Finds the functions of the world by name; the error says what is missing.
    fn locate(&self, find: &Find<'_>) -> Result<Arc<dyn Decide>, String>;

    /// Why a guest of this world cannot read what it declares, if so.
    fn fault(&self, _read: &Read) -> Option<String> {
        None
    }
}

/// The located functions of a guest that decides. They are called only on the guest that they were located in.
pub(crate) trait Decide: Any + Send + Sync {
    /// Compares the types of all functions with the contract; a call compares only its own.
    fn check(&self, store: &mut Store<CallState>, instance: &Instance) -> WasmResult<()>;

    /// Asks what the guest needs, in a world that asks.
    fn require(
        &self,
        guest: &Guest,
        _limits: &CallLimits,
        _context: &Context,
        _primary: &Primary,
        _found: &[Input],
    ) -> Call<Result<Requirement, GuestRefusal>> {
        guest.wrong_world()
    }

    /// The function that `decide` calls.
    fn decides_by(&self) -> &'static str;

    /// Asks what the guest decides.
    fn decide(
        &self,
        guest: &Guest,
        limits: &CallLimits,
        question: &Question<'_>,
    ) -> Result<Call<Decided>, Failure>;

    /// Asks the one question of a case of the guest; the error says what is wrong with the case.
    fn ask(&self, guest: &Guest, _given: &mut GivenCase) -> Result<Call<Value>, String> {
        Err(format!(
            "guests of the world `{}` have no cases of their own; give their policy cases",
            guest.role().name()
        ))
    }
}

/// Hides the type of an answer.
fn decided<A: Answer + 'static>(answer: Result<Timed<A>, GuestRefusal>) -> Decided {
    answer.map(|timed| Timed {
        answer: Box::new(timed.answer) as Box<dyn Answer>,
        ask_again_at: timed.ask_again_at,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_of_one_generation() {
        for (version, name) in [
            ("0.1", Some("0.1")),
            ("0.1.7", Some("0.1")),
            ("0.10.0", None),
            ("0.2.0", Some("0.2")),
            ("0.3.0", None),
            ("1.0.1", None),
            ("", None),
        ] {
            let of: Vec<_> = GENERATIONS.iter().filter(|one| one.has(version)).collect();
            assert!(of.len() <= 1);
            assert_eq!(of.first().map(|one| one.name), name, "{version}");
        }
    }
}
