//! Converts a guest's self-description to the types of the core.

use super::exported::guest;
use super::wit;
use crate::measure::Lift;
use transom_core::contract::Problem;
use transom_core::contract::description::{DeclaredReason, Description, Read};
use wasmtime::component::TypedFunc;

/// Returns the guest's self-description.
pub(crate) type Describe = TypedFunc<(), (guest::Description,)>;
/// Takes settings, returns what is wrong with them.
pub(crate) type Validate<'a> = TypedFunc<(&'a str,), (Vec<wit::Problem>,)>;

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
