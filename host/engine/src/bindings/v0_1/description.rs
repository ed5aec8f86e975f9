//! What every guest can be asked about itself: its functions, and the conversion of their answers.

use super::generated::exports::transom::policy::guest;
use super::wit;
use crate::call::CallState;
use crate::function::{Find, Function};
use crate::measure::Lift;
use transom_core::contract::Problem;
use transom_core::contract::description::{DeclaredReason, Description, Read};
use wasmtime::component::Instance;
use wasmtime::{Result as WasmResult, Store};

const INTERFACE: &str = "transom:policy/guest@0.1.0";

/// The functions that every guest has.
pub(crate) struct Functions {
    /// Returns the guest's self-description.
    pub(crate) describe: Function<(), guest::Description>,
    /// Takes settings, returns what is wrong with them.
    pub(crate) validate: Function<(String,), Vec<wit::Problem>>,
}

impl Functions {
    pub(crate) fn locate(find: &Find<'_>) -> Result<Self, String> {
        Ok(Self {
            describe: find.function(INTERFACE, "describe")?,
            validate: find.function(INTERFACE, "validate")?,
        })
    }

    /// Compares the types of both functions with the contract.
    pub(crate) fn check(
        &self,
        store: &mut Store<CallState>,
        instance: &Instance,
    ) -> WasmResult<()> {
        self.describe.check(store, instance)?;
        self.validate.check(store, instance).map(drop)
    }
}

impl Lift<'_> {
    pub(crate) fn description(&mut self, description: guest::Description) -> Description {
        Description {
            name: self.text(description.name),
            version: self.text(description.version),
            reads: self.list(description.reads, Self::read),
            reasons: self.list(description.reasons, Self::declared_reason),
            settings_schema: self.text(description.settings_schema),
        }
    }

    pub(crate) fn objections(&mut self, problems: Vec<wit::Problem>) -> Vec<Problem> {
        self.list(problems, Self::problem)
    }

    fn read(&mut self, read: guest::Read) -> Read {
        Read {
            api_version: self.text(read.api_version),
            kind: self.text(read.kind),
            fields: self.list(read.fields, Self::text),
            changes: self.list(read.changes, Self::text),
        }
    }

    fn declared_reason(&mut self, reason: guest::Reason) -> DeclaredReason {
        DeclaredReason {
            name: self.text(reason.name),
            meaning: self.sentence(reason.meaning),
            remedy: self.sentence(reason.remedy),
        }
    }
}
