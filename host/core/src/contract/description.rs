//! A guest's self-description, read when it is loaded. It proves nothing.

use crate::world::World;

/// The most kinds that a guest may read, and the most paths of one kind.
pub const MAX_READS: usize = 64;
/// The most reasons that a guest may declare.
pub const MAX_REASONS: usize = 128;
/// The most bytes of a reason, of the name and of the version.
pub const MAX_WORD: usize = 64;

/// What a component is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It decides when: `trigger-guest`.
    Trigger,
    /// It decides what, in this world.
    Decide(&'static dyn World),
}

impl Role {
    /// The name of its world in `wit/`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Trigger => "trigger-guest",
            Self::Decide(world) => world.name(),
        }
    }
}

/// What a guest reads of one kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Read {
    /// Group and version.
    pub api_version: String,
    /// Kind.
    pub kind: String,
    /// Paths whose values cross.
    pub fields: Vec<String>,
    /// Paths whose values stay in the host; only the fact of a change crosses.
    pub changes: Vec<String>,
}

/// A reason that a guest may answer with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeclaredReason {
    /// CamelCase.
    pub name: String,
    /// What it means.
    pub meaning: String,
    /// What to do about it.
    pub remedy: String,
}

/// A guest's self-description.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// What it reads.
    pub reads: Vec<Read>,
    /// Which reasons it may answer with.
    pub reasons: Vec<DeclaredReason>,
    /// JSON Schema of its settings, for people.
    pub settings_schema: String,
}

impl Description {
    /// What it reads of a kind, if anything.
    pub fn read(&self, api_version: &str, kind: &str) -> Option<&Read> {
        self.reads
            .iter()
            .find(|read| read.api_version == api_version && read.kind == kind)
    }
}
