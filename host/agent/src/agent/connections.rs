//! The clusters by name of connection: the one file that knows which adapters there are.
//! Never decides anything; a connection that fails fails only for the objects on it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use transom_api::Word;
use transom_cluster::directory::{Directory, PolicyStatus};
use transom_core::failure::Failure;
use transom_core::object::Object;
use transom_core::outcome::{Outcome, StepOutcome, WriteFailure, WriteKind};
use transom_core::plan::{Plan, Step};
use transom_core::policy::SubjectRule;
use transom_core::reference::ObjectRef;
use transom_core::report::Report;

/// The connections of an agent.
pub(crate) struct Connections {
    by_name: BTreeMap<String, Arc<Directory>>,
}

#[expect(clippy::unused_async, reason = "the outside world begins here: the next adapter, the Kubernetes API, waits")]
impl Connections {
    /// These connections by name.
    pub(crate) fn new(by_name: BTreeMap<String, Arc<Directory>>) -> Self {
        Self { by_name }
    }

    /// Every connection.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<Directory>> {
        self.by_name.values()
    }

    /// Reads one object; nothing when there is none.
    ///
    /// # Errors
    /// When it cannot be read, with the reason.
    pub(crate) async fn read(&self, reference: &ObjectRef) -> Result<Option<Object>, Failure> {
        let cluster = self.cluster(reference)?;
        let mut found = cluster.read(std::slice::from_ref(reference)).into_iter();
        match found.next() {
            Some(Ok(object)) => Ok(object),
            Some(Err(failure)) => Err(Failure::known(failure.reason, failure.message).about([reference.clone()])),
            None => Ok(None),
        }
    }

    /// The objects that a policy is about, on every connection; what the agent made itself is never a subject.
    pub(crate) fn subjects(&self, rule: &SubjectRule) -> Vec<ObjectRef> {
        let Some(cluster) = self.by_name.get(&rule.cluster) else { return Vec::new() };
        let mut subjects = cluster.list(&rule.api_version, &rule.kind, None);
        subjects.retain(|subject| rule.admits(subject) && !cluster.made(subject));
        subjects
    }

    /// Every object that the agent made.
    pub(crate) fn made(&self) -> Vec<Object> {
        let of = |cluster: &Arc<Directory>| {
            let mut secrets = cluster.list("v1", "Secret", None);
            secrets.retain(|secret| cluster.made(secret));
            cluster.read(&secrets)
        };
        self.all().flat_map(of).filter_map(|read| read.ok().flatten()).collect()
    }

    /// Performs the steps of a plan in order, each on the cluster of its object; stops at the first failure.
    pub(crate) async fn apply(&self, plan: Plan) -> Outcome {
        let Plan { policy, subject, steps } = plan;
        let mut outcome = Outcome::default();
        for step in steps {
            let done = match self.cluster(step.target()) {
                Ok(cluster) => {
                    let single = Plan { policy: policy.clone(), subject: subject.clone(), steps: vec![step] };
                    cluster.apply(single).steps
                }
                Err(failure) => vec![refused(&step, &failure)],
            };
            let failed = done.iter().any(|step| step.result.is_err());
            outcome.steps.extend(done);
            if failed {
                break;
            }
        }
        outcome
    }

    /// Tells the subject's cluster what its evaluation came to.
    pub(crate) async fn publish(&self, report: &Report) -> std::io::Result<()> {
        self.by_name.get(&report.subject.cluster).map_or(Ok(()), |cluster| cluster.publish(report))
    }

    /// Removes what was told of a subject that is gone.
    pub(crate) async fn forget(&self, policy: &str, subject: &ObjectRef) -> std::io::Result<()> {
        self.by_name.get(&subject.cluster).map_or(Ok(()), |cluster| cluster.forget(policy, subject))
    }

    /// Removes every status but these, on every cluster; gives what went wrong.
    pub(crate) fn retain_status(
        &self,
        policies: &BTreeSet<String>,
        subjects: &BTreeSet<(String, ObjectRef)>,
    ) -> Vec<std::io::Error> {
        self.all().filter_map(|cluster| cluster.retain_status(policies, subjects).err()).collect()
    }

    /// Tells every cluster about a policy.
    pub(crate) fn publish_policy(&self, status: &PolicyStatus) -> std::io::Result<()> {
        self.all().try_for_each(|cluster| cluster.publish_policy(status))
    }

    fn cluster(&self, reference: &ObjectRef) -> Result<&Arc<Directory>, Failure> {
        let known = self.by_name.get(&reference.cluster);
        known.ok_or_else(|| Failure::known(Word::ReadFailed, format!("there is no connection `{}`", reference.cluster)))
    }
}

/// A step on a cluster that is not connected.
fn refused(step: &Step, failure: &Failure) -> StepOutcome {
    let kind = match step {
        Step::Create { .. } => WriteKind::Create,
        Step::Update { .. } => WriteKind::Update,
        Step::Patch { .. } => WriteKind::Patch,
        Step::Delete { .. } => WriteKind::Delete,
    };
    let failure = WriteFailure { reason: Word::WriteFailed, message: failure.message.clone() };
    StepOutcome { target: step.target().clone(), kind, result: Err(failure) }
}
