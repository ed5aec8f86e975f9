//! What each reconcile read, decided and would write, for an agent that is only asked (`transom status`): it writes
//! nothing. Never holds a value of a document: of what was read, names and versions.

use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use transom_core::contract::credentials::Proposal;
use transom_core::contract::taints::{Effect, Wanted};
use transom_core::object::Object;
use transom_core::outcome::{Outcome, StepOutcome};
use transom_core::plan::Step;
use transom_core::reference::ObjectRef;
use transom_core::work::Key;

/// What one reconcile rested on, and what it would do.
#[derive(Clone, Debug, Default)]
pub(crate) struct Account {
    /// The objects that it read, with the role of each.
    pub(crate) inputs: Vec<Read>,
    /// What the guest answered, without what may hide a credential.
    pub(crate) decision: Option<Value>,
    /// What would be written.
    pub(crate) steps: Vec<Step>,
}

/// One object that was read.
#[derive(Clone, Debug)]
pub(crate) struct Read {
    /// The role of the need, or `primary` or `target`.
    pub(crate) role: String,
    /// Which object.
    pub(crate) object: ObjectRef,
    /// Its version; nothing when it is not there.
    pub(crate) version: Option<String>,
    /// Whether it is being deleted.
    pub(crate) deleting: bool,
}

/// The accounts of an agent that is only asked, or that runs once and read-only; one that works keeps none.
#[derive(Default)]
pub(crate) struct Accounts {
    kept: Option<Mutex<BTreeMap<Key, Account>>>,
    only_asked: bool,
}

impl Accounts {
    /// Those of an agent that is only asked.
    pub(crate) fn only_asked() -> Self {
        Self { kept: Some(Mutex::default()), only_asked: true }
    }

    /// Those of an agent whose clusters refuse what it writes.
    pub(crate) fn of_read_only() -> Self {
        Self { kept: Some(Mutex::default()), only_asked: false }
    }

    /// Whether the agent is only asked, and does not even try to write.
    pub(crate) fn are_only_asked(&self) -> bool {
        self.only_asked
    }

    /// A reconcile begins: what the one before it read counts no more.
    pub(crate) fn begin(&self, key: &Key) {
        self.note(key, |account| *account = Account::default());
    }

    /// Takes note of something, where accounts are kept.
    pub(crate) fn note(&self, key: &Key, take: impl FnOnce(&mut Account)) {
        if let Some(all) = &self.kept {
            take(all.lock().unwrap_or_else(PoisonError::into_inner).entry(key.clone()).or_default());
        }
    }

    /// Takes note of an object that was read, or looked for.
    pub(crate) fn read(&self, key: &Key, role: &str, reference: &ObjectRef, object: Option<&Object>) {
        self.note(key, |account| {
            let read = Read {
                role: role.to_owned(),
                object: reference.clone(),
                version: object.map(|object| object.version.clone()),
                deleting: object.is_some_and(Object::deleting),
            };
            account.inputs.retain(|known| (&known.role, &known.object) != (&read.role, &read.object));
            account.inputs.push(read);
        });
    }

    /// All of them.
    pub(crate) fn all(&self) -> BTreeMap<Key, Account> {
        self.kept.as_ref().map(|all| all.lock().unwrap_or_else(PoisonError::into_inner).clone()).unwrap_or_default()
    }
}

/// A proposed kubeconfig as it may be shown: where its credentials would go, and how many entries it has.
pub(crate) fn of_proposal(proposal: &Proposal) -> Value {
    let server = |cluster: &transom_core::contract::credentials::ProposedCluster| {
        let url = &cluster.server;
        url.port.map_or_else(
            || format!("{}://{}", url.scheme, url.host),
            |port| format!("{}://{}:{port}", url.scheme, url.host),
        )
    };
    let servers: Vec<String> = proposal.clusters.iter().map(server).collect();
    json!({"servers": servers, "users": proposal.users.len(), "contexts": proposal.contexts.len()})
}

/// Wanted taints as a cluster has them.
pub(crate) fn of_taints(wanted: &[Wanted]) -> Value {
    let taint = |Wanted { key, value, effect }: &Wanted| {
        let effect = match effect {
            Effect::NoSelect => "NoSelect",
            Effect::PreferNoSelect => "PreferNoSelect",
            Effect::NoSelectIfNew => "NoSelectIfNew",
        };
        json!({"key": key, "value": value, "effect": effect})
    };
    json!({"taints": wanted.iter().map(taint).collect::<Vec<_>>()})
}

/// What a plan comes to that nobody carries out: every step as if it had been done, so that what follows it is planned, too.
pub(crate) fn as_if_done(steps: &[Step]) -> Outcome {
    let done =
        |step: &Step| StepOutcome { target: step.target().clone(), kind: step.kind(), result: Ok(()), left: None };
    Outcome { steps: steps.iter().map(done).collect(), stopped: None }
}
