//! What fields of Secrets are filled with, and the inputs that it is made of.

use super::{
    Desired, Filled, FilledWithin, Hole, HoleWithin, MadeKubeconfig, Manifest, Proposal, Service,
    Source, Value,
};
use serde_json::{Value as Json, json};

/// The path of a key of a Secret's data.
fn path(key: &str) -> String {
    match key.contains('.') {
        true => format!("data[{}]", json!(key)),
        false => ["data.", key].concat(),
    }
}

fn made(source: &str, proposal: Proposal) -> MadeKubeconfig {
    let source = source.to_owned();
    MadeKubeconfig { source, proposal }
}

impl Desired {
    /// With bytes under a key of a Secret's data: [`Value::bytes`] names them. A Secret has no other data than what the
    /// host fills.
    #[must_use]
    pub fn filled(self, key: &str, reference: u32) -> Self {
        self.with(key, Hole::Bytes(reference))
    }

    /// With a kubeconfig under a key of a Secret's data, made of the one of the role `source`.
    #[must_use]
    pub fn with_kubeconfig(self, key: &str, source: &str, proposal: Proposal) -> Self {
        self.with(key, Hole::Kubeconfig(made(source, proposal)))
    }

    /// With a text of objects under a key of a Secret's data. The policy grants their kinds.
    #[must_use]
    pub fn with_manifests(self, key: &str, manifests: Vec<Manifest>) -> Self {
        self.with(key, Hole::Manifests(manifests))
    }

    fn with(mut self, key: &str, hole: Hole) -> Self {
        let path = path(key);
        self.holes.push(Filled { path, hole });
        self
    }
}

impl Manifest {
    /// One object of a text: `json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a"}})`.
    pub fn new(content: &Json) -> Self {
        let content = content.to_string();
        let holes = Vec::new();
        Self { content, holes }
    }

    /// With bytes under a key of a Secret's data.
    #[must_use]
    pub fn filled(self, key: &str, reference: u32) -> Self {
        self.with(key, HoleWithin::Bytes(reference))
    }

    /// With a kubeconfig under a key of a Secret's data, made of the one of the role `source`.
    #[must_use]
    pub fn with_kubeconfig(self, key: &str, source: &str, proposal: Proposal) -> Self {
        self.with(key, HoleWithin::Kubeconfig(made(source, proposal)))
    }

    fn with(mut self, key: &str, hole: HoleWithin) -> Self {
        let path = path(key);
        self.holes.push(FilledWithin { path, hole });
        self
    }
}

impl Value {
    /// The reference of the bytes under a key of a Secret; none if the Secret has no such key.
    pub fn bytes(&self, key: &str) -> Option<u32> {
        let Self::Secret(all) = self else {
            return None;
        };
        let bytes = all.iter().find(|bytes| bytes.key == key);
        bytes.map(|bytes| bytes.reference)
    }

    /// The Service, if it is one.
    pub fn service(&self) -> Option<&Service> {
        match self {
            Self::Service(service) => Some(service),
            _ => None,
        }
    }

    /// The kubeconfig, if it is one.
    pub fn kubeconfig(&self) -> Option<&Source> {
        match self {
            Self::Kubeconfig(source) => Some(source),
            _ => None,
        }
    }
}
