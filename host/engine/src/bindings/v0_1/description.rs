//! What a guest says of itself, in the words of the core. Never judges it.

use super::exported::guest;
use super::wit;
use crate::measure::Lift;
use transom_core::contract::Problem;
use transom_core::contract::description::{DeclaredReason, Description, Read};

pub(crate) use guest::{Description as Said, GuestIndices as Indices};

/// What a guest has against its settings.
pub(crate) type Objections = Vec<wit::Problem>;

impl Lift<'_> {
    pub(crate) fn description(&mut self, description: Said) -> Description {
        Description {
            name: self.text(description.name),
            version: self.text(description.version),
            reads: self.list(description.reads, Self::read),
            reasons: self.list(description.reasons, Self::declared_reason),
            settings_schema: self.text(description.settings_schema),
        }
    }

    pub(crate) fn objections(&mut self, problems: Objections) -> Vec<Problem> {
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
            word: self.text(reason.word),
            meaning: self.sentence(reason.meaning),
            remedy: self.sentence(reason.remedy),
        }
    }
}
