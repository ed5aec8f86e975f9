//! The generations of the contract that are served side by side, each in a file of its own, and which of them a component is
//! of. `wit/README.md` says how another one is added.

pub(crate) mod v0_1;

use crate::limits::printable;
use crate::load::Exports;
use transom_core::contract::description::Role;
use v0_1::About;
use wasmtime::component::Component;

/// The interface that every guest exports; its version says of which generation the guest is.
const GUEST: &str = "transom:policy/guest";

/// What every guest has, and the functions of its role.
pub(crate) type Located = (About, Exports);

/// A generation of the contract.
pub(crate) struct Generation {
    /// Its name, such as `0.1`: the versions `0.1.0`, `0.1.1` and so on are of it.
    name: &'static str,
    /// Finds the functions of a role; the error says what is missing.
    pub(crate) locate: fn(&Component, Role) -> Result<Located, String>,
}

/// Every generation that is served, the newest first.
const GENERATIONS: &[Generation] = &[Generation {
    name: "0.1",
    locate: v0_1::locate,
}];

impl Generation {
    /// Whether this version of an interface is of it.
    fn has(&self, version: &str) -> bool {
        let rest = version.strip_prefix(self.name);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    }
}

/// Whether a name such as `transom:policy/log@0.1.0` is this interface, in a generation that is served.
pub(crate) fn is_ours(name: &str, interface: &str) -> bool {
    let ours = |(named, version)| {
        named == interface && GENERATIONS.iter().any(|generation| generation.has(version))
    };
    name.split_once('@').is_some_and(ours)
}

/// The generation of a component; the newest for one that is no guest, so that it is told what is missing.
///
/// # Errors
/// When its generation is not served.
pub(crate) fn of(component: &Component) -> Result<&'static Generation, String> {
    let ty = component.component_type();
    let mut exports = ty.exports(component.engine());
    let version = exports.find_map(|(name, _)| {
        let (named, version) = name.split_once('@')?;
        (named == GUEST).then(|| version.to_owned())
    });
    let mut all = GENERATIONS.iter();
    let found = match &version {
        Some(version) => all.find(|generation| generation.has(version)),
        None => all.next(),
    };
    found.ok_or_else(|| {
        let served: Vec<_> = GENERATIONS.iter().map(|one| one.name).collect();
        let version = printable(&version.unwrap_or_default());
        let served = served.join(", ");
        format!(
            "it is built for the generation {version} of the contract; this agent serves {served}"
        )
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
            ("0.2.0", None),
            ("1.0.1", None),
            ("", None),
        ] {
            let of: Vec<_> = GENERATIONS.iter().filter(|one| one.has(version)).collect();
            assert!(of.len() <= 1);
            assert_eq!(of.first().map(|one| one.name), name, "{version}");
        }
    }
}
