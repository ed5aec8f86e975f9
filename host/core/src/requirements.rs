//! Binds what a guest asks for to the grant of its policy, round by round. Never reads anything itself.

use crate::catalogue::guest::Guest;
use crate::contract::Refusal;
use crate::contract::decide::{Form, Need, Requirement};
use crate::dns;
use crate::failure::{Class, Failure};
use crate::policy::Policy;
use crate::reference::ObjectRef;
use std::collections::BTreeSet;
use transom_api::Word;

/// How often a guest is asked what it needs; the last answer must need nothing new.
pub const MAX_ROUNDS: usize = 3;
/// The most needs of one answer.
pub const MAX_NEEDS: usize = 16;

/// The rounds of one evaluation: feed it each answer of `require`, do what it says.
///
/// ```text
/// let mut rounds = Rounds::default();
/// loop {
///     let asked = guest.require(context, subject, found)?;
///     match rounds.answer(policy, subject, asked)? { Next::Read(needs) => found = gather(needs), Next::Complete(bound) => break bound }
/// }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Rounds {
    asked: usize,
    known: BTreeSet<ObjectRef>,
}

/// What to do after an answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Next {
    /// Read these, and ask again with all that was found for them, in this order.
    Read(Vec<Need>),
    /// Everything that is needed was read before.
    Complete(Requirement),
}

impl Rounds {
    /// Binds an answer to the grant and says what to do.
    ///
    /// # Errors
    /// `ReadNotGranted`, `WriteNotGranted`, `InvalidTargetName`, `ContractBroken`, `TooManyRounds`.
    pub fn answer(&mut self, policy: &Policy, subject: &ObjectRef, answer: Requirement) -> Result<Next, Failure> {
        self.asked += 1;
        bind(policy, subject, &answer)?;
        let unknown = answer.needs.iter().any(|need| !self.known.contains(&need.reference));
        if self.asked > 1 && !unknown {
            return Ok(Next::Complete(answer));
        }
        if self.asked >= MAX_ROUNDS {
            return Err(Failure::known(Word::TooManyRounds, "the guest still asks for more after three rounds"));
        }
        self.known.extend(answer.needs.iter().map(|need| need.reference.clone()));
        if answer.needs.is_empty() { Ok(Next::Complete(answer)) } else { Ok(Next::Read(answer.needs)) }
    }

    /// Every object that was asked for in any round: a change of one of them may change an answer.
    pub fn known(&self) -> impl Iterator<Item = &ObjectRef> {
        self.known.iter()
    }
}

/// Binds one answer to the grant.
fn bind(policy: &Policy, subject: &ObjectRef, answer: &Requirement) -> Result<(), Failure> {
    if answer.needs.len() > MAX_NEEDS {
        let message = format!("the guest asks for {} objects; at most {MAX_NEEDS} are possible", answer.needs.len());
        return Err(Failure::known(Word::ContractBroken, message));
    }
    target(policy, subject, &answer.target)?;
    let mut seen = BTreeSet::new();
    for need in &answer.needs {
        bind_need(policy, subject, need)?;
        if !seen.insert((&need.role, &need.reference)) {
            let message = format!("the guest asks twice for {} as `{}`", need.reference, need.role);
            return Err(Failure::known(Word::ContractBroken, message));
        }
    }
    Ok(())
}

/// The target has names that Kubernetes allows, and the policy grants to write it.
fn target(policy: &Policy, subject: &ObjectRef, target: &ObjectRef) -> Result<(), Failure> {
    possible(target)?;
    match policy.secret(target, subject) {
        Some(_) => Ok(()),
        None => Err(Failure::known(Word::WriteNotGranted, format!("the policy does not grant to write {target}"))),
    }
}

/// Whether Kubernetes allows the names of an object.
fn possible(object: &ObjectRef) -> Result<(), Failure> {
    let namespace = object.namespace.as_deref();
    let name_fits = match object.kind == "Namespace" && object.api_version == "v1" {
        true => dns::is_label(&object.name),
        false => dns::is_subdomain(&object.name),
    };
    if name_fits && namespace.is_none_or(dns::is_label) {
        return Ok(());
    }
    Err(Failure::known(Word::InvalidTargetName, format!("{object}: Kubernetes allows no such name")))
}

fn bind_need(policy: &Policy, subject: &ObjectRef, need: &Need) -> Result<(), Failure> {
    possible(&need.reference)?;
    let refused = |why: &str| {
        let message = format!("the policy does not grant to read {} as `{}`{why}", need.reference, need.role);
        Err(Failure::known(Word::ReadNotGranted, message))
    };
    let Some(rule) = policy.read(&need.role) else { return refused(": it has no such role") };
    if !rule.admits(&need.reference, subject) {
        return refused("");
    }
    let secret = rule.kind == "Secret" && rule.api_version == "v1";
    match &need.form {
        Form::Presence => Ok(()),
        Form::Kubeconfig(key) if secret && rule.keys.contains(key) => Ok(()),
        Form::Kubeconfig(_) if secret => refused(": its key is not granted"),
        Form::Service if rule.kind == "Service" && rule.api_version == "v1" => Ok(()),
        Form::Object if !secret => Ok(()),
        Form::Object => refused(": the fields of a Secret never cross"),
        Form::Kubeconfig(_) | Form::Service => refused(": its kind has no such form"),
    }
}

/// Binds the objects that a guest wants to wait for: each must be one that it may read under some role.
fn bind_waiting(policy: &Policy, subject: &ObjectRef, objects: &[ObjectRef]) -> Result<(), Failure> {
    if objects.len() > MAX_NEEDS {
        return Err(Failure::known(Word::ContractBroken, format!("the guest waits for more than {MAX_NEEDS} objects")));
    }
    match objects.iter().find(|object| !policy.reads.iter().any(|rule| rule.admits(object, subject))) {
        Some(object) => Err(Failure::known(
            Word::ReadNotGranted,
            format!("the policy does not grant to read {object}, which the guest waits for"),
        )),
        None => Ok(()),
    }
}

/// A guest's refusal as the end of an evaluation: its words must be declared, and what it waits for granted.
pub fn refused(policy: &Policy, subject: &ObjectRef, guest: &Guest, refusal: Refusal) -> Failure {
    match refusal {
        Refusal::Missing(problem) => guest.failure(Class::Missing, &problem),
        Refusal::Invalid(problem) => guest.failure(Class::Invalid, &problem),
        Refusal::Waiting(problem, objects) => match bind_waiting(policy, subject, &objects) {
            Ok(()) => guest.failure(Class::Waiting, &problem).about(objects),
            Err(failure) => failure,
        },
    }
}
