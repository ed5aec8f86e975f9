//! A guest's self-description, read when it is loaded. It proves nothing.

/// Which world a component is built for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum World {
    /// `trigger-guest`.
    Trigger,
    /// `kubeconfig-guest`.
    Kubeconfig,
    /// `taints-guest`.
    Taints,
}

impl World {
    /// The name of the world in `wit/`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Trigger => "trigger-guest",
            Self::Kubeconfig => "kubeconfig-guest",
            Self::Taints => "taints-guest",
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
    /// JSON Schema of its settings.
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
