//! Checks what a guest asks for against the grant of its policy, round by round.

use crate::catalogue::guest::Guest;
use crate::contract::Refusal;
use crate::contract::decide::{Form, Need, Requirement};
use crate::failure::{Class, Failure};
use crate::pattern::TemplateData;
use crate::policy::{Policy, ReadRule};
use crate::reference::ObjectRef;
use crate::reference::dns;
use std::collections::BTreeSet;
use transom_api::KnownReason;

/// How often a guest is asked what it needs; its last answer must need nothing new.
pub const MAX_ROUNDS: usize = 3;
/// The most needs of one answer.
pub const MAX_NEEDS: usize = 16;

/// The rounds of one reconcile: pass each answer of `require` in, and follow the result.
///
/// ```text
/// let mut rounds = Rounds::default();
/// loop {
///     let asked = guest.require(context, primary, found)?;
///     match rounds.answer(policy, primary, asked)? { Next::Read(needs) => found = gather(needs), Next::Complete(bound) => break bound }
/// }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Rounds {
    asked: usize,
    known: Vec<Need>,
}

/// The next step after an answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Next {
    /// Read these, and ask again with everything that was found for them, in this order.
    Read(Vec<Need>),
    /// Everything that is needed was read before.
    Complete(Requirement),
}

impl Rounds {
    /// Checks an answer against the grant and returns the next step.
    ///
    /// # Errors
    /// `ReadNotGranted`, `WriteNotGranted`, `InvalidTargetName`, `ContractBroken`, `TooManyRounds`.
    pub fn answer(
        &mut self,
        policy: &Policy,
        data: &TemplateData<'_>,
        answer: Requirement,
    ) -> Result<Next, Failure> {
        self.asked += 1;
        bind(policy, data, &answer)?;
        let unknown = answer.needs.iter().any(|need| !self.known.contains(need));
        if self.asked > 1 && !unknown {
            return Ok(Next::Complete(answer));
        }
        if self.asked >= MAX_ROUNDS {
            return Err(Failure::known(
                KnownReason::TooManyRounds,
                "the guest still asks for more objects after three rounds",
            ));
        }
        self.known.extend(answer.needs.iter().cloned());
        if answer.needs.is_empty() {
            Ok(Next::Complete(answer))
        } else {
            Ok(Next::Read(answer.needs))
        }
    }

    /// Every object that any round asked for: a change of one of them may change an answer.
    pub fn known(&self) -> impl Iterator<Item = &ObjectRef> {
        self.known.iter().map(|need| &need.reference)
    }
}

/// Checks one answer against the grant.
fn bind(policy: &Policy, data: &TemplateData<'_>, answer: &Requirement) -> Result<(), Failure> {
    if answer.needs.len() > MAX_NEEDS {
        let message = format!(
            "the guest asks for {} objects; the limit is {MAX_NEEDS}",
            answer.needs.len()
        );
        return Err(Failure::known(KnownReason::ContractBroken, message));
    }
    target(policy, data, &answer.target)?;
    let mut seen = BTreeSet::new();
    for need in &answer.needs {
        bind_need(policy, data, need)?;
        if !seen.insert((&need.role, &need.reference)) {
            let message = format!(
                "the guest asks for {} as `{}` twice",
                need.reference, need.role
            );
            return Err(Failure::known(KnownReason::ContractBroken, message));
        }
    }
    Ok(())
}

/// Checks that Kubernetes allows the target's names, and that the policy grants to write it.
fn target(policy: &Policy, data: &TemplateData<'_>, target: &ObjectRef) -> Result<(), Failure> {
    possible(target)?;
    policy.whole(target, data).map(drop)
}

/// Checks that Kubernetes allows the names of an object.
fn possible(object: &ObjectRef) -> Result<(), Failure> {
    let namespace = object.namespace.as_deref();
    let name_fits = match object.kind == "Namespace" && object.api_version == "v1" {
        true => dns::is_label(&object.name),
        false => dns::is_subdomain(&object.name),
    };
    if name_fits && namespace.is_none_or(dns::is_label) {
        return Ok(());
    }
    Err(Failure::known(
        KnownReason::InvalidTargetName,
        format!("{object}: Kubernetes does not allow this name"),
    ))
}

fn bind_need(policy: &Policy, data: &TemplateData<'_>, need: &Need) -> Result<(), Failure> {
    possible(&need.reference)?;
    let refused = |why: &str| {
        let message = format!(
            "the policy does not grant reading {} as `{}`{why}",
            need.reference, need.role
        );
        Err(Failure::known(KnownReason::ReadNotGranted, message))
    };
    let Some(rule) = policy.read(&need.role) else {
        let roles: Vec<&str> = policy.reads.iter().map(|rule| rule.role.as_str()).collect();
        return refused(&format!(
            "; its roles are {}",
            if roles.is_empty() {
                "none".to_owned()
            } else {
                roles.join(", ")
            }
        ));
    };
    if !rule.admits(&need.reference, data) {
        return refused(&format!("; granted: {}", rule.shown(data)));
    }
    let secret = rule.kind == "Secret" && rule.api_version == "v1";
    match &need.form {
        Form::Presence => Ok(()),
        Form::Kubeconfig(key) if secret && rule.keys.contains(key) => Ok(()),
        Form::Kubeconfig(_) if secret => refused(&format!("; granted keys: {}", keys(rule))),
        Form::Service if rule.kind == "Service" && rule.api_version == "v1" => Ok(()),
        Form::Object if !secret => Ok(()),
        Form::Object => refused(": guests never see the fields of a Secret"),
        Form::Kubeconfig(_) | Form::Service => refused(": its kind cannot be read in this form"),
    }
}

fn keys(rule: &ReadRule) -> String {
    rule.keys
        .iter()
        .map(String::as_str)
        .collect::<Vec<_>>()
        .join(", ")
}

/// Checks the objects that a guest waits for: the policy must grant to read each under some role.
fn bind_waiting(
    policy: &Policy,
    data: &TemplateData<'_>,
    objects: &[ObjectRef],
) -> Result<(), Failure> {
    if objects.len() > MAX_NEEDS {
        return Err(Failure::known(
            KnownReason::ContractBroken,
            format!("the guest waits for too many objects; the limit is {MAX_NEEDS}"),
        ));
    }
    match objects
        .iter()
        .find(|object| !policy.reads.iter().any(|rule| rule.admits(object, data)))
    {
        Some(object) => {
            let granted: Vec<_> = policy.reads.iter().map(|rule| rule.shown(data)).collect();
            let message = format!(
                "the policy does not grant reading {object}, which the guest waits for; granted: {}",
                granted.join(", ")
            );
            Err(Failure::known(KnownReason::ReadNotGranted, message))
        }
        None => Ok(()),
    }
}

/// Turns a guest's refusal into the end of a reconcile: its reasons must be declared, and the objects that it waits
/// for granted.
pub fn refused(
    policy: &Policy,
    data: &TemplateData<'_>,
    guest: &Guest,
    refusal: Refusal,
) -> Failure {
    match refusal {
        Refusal::Missing(problem) => guest.failure(Class::Missing, &problem),
        Refusal::Invalid(problem) => guest.failure(Class::Invalid, &problem),
        Refusal::Waiting(problem, objects) => match bind_waiting(policy, data, &objects) {
            Ok(()) => guest.failure(Class::Waiting, &problem).about(objects),
            Err(failure) => failure,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::AgentFacts;
    use crate::contract::Problem;
    use crate::contract::decide::Absence;
    use crate::object::Object;
    use crate::sample::{agent, guest, hosted, kubeconfig_manifest, object, policy, target};
    use serde_json::json;
    use transom_api::Reason;

    fn need(role: &str, kind: &str, namespace: Option<&str>, name: &str, form: Form) -> Need {
        let version = if kind == "Klusterlet" {
            "operator.open-cluster-management.io/v1"
        } else {
            "v1"
        };
        let reference = ObjectRef::local(version, kind, namespace, name);
        Need {
            role: role.to_owned(),
            reference,
            form,
            absence: Absence::Fine,
        }
    }

    fn source() -> Need {
        need(
            "source",
            "Secret",
            Some("clusters"),
            "demo-admin-kubeconfig",
            Form::Kubeconfig("kubeconfig".to_owned()),
        )
    }

    fn home() -> Need {
        need("home", "Namespace", None, "klusterlet-demo", Form::Presence)
    }

    fn answer(target: ObjectRef, needs: Vec<Need>) -> Requirement {
        Requirement { target, needs }
    }

    fn about() -> (Object, AgentFacts) {
        (
            object(hosted("demo"), json!({})),
            agent("local-cluster", true),
        )
    }

    fn first(answered: Requirement) -> Result<Next, Failure> {
        let (object, agent) = about();
        Rounds::default().answer(
            &policy(&kubeconfig_manifest()),
            &TemplateData {
                object: &object,
                agent: &agent,
            },
            answered,
        )
    }

    #[test]
    fn asks_a_guest_until_it_needs_nothing_new() {
        let policy = policy(&kubeconfig_manifest());
        let (object, agent) = about();
        let data = TemplateData {
            object: &object,
            agent: &agent,
        };
        let mut rounds = Rounds::default();
        let mut ask =
            |needs: Vec<Need>| rounds.answer(&policy, &data, answer(target("demo"), needs));
        assert_eq!(ask(vec![source()]), Ok(Next::Read(vec![source()])));
        assert_eq!(
            ask(vec![source(), home()]),
            Ok(Next::Read(vec![source(), home()]))
        );
        assert_eq!(
            ask(vec![home()]),
            Ok(Next::Complete(answer(target("demo"), vec![home()])))
        );
        assert_eq!(
            rounds.known().collect::<BTreeSet<_>>().len(),
            2,
            "what was asked for earlier still counts"
        );
    }

    #[test]
    fn another_form_of_an_object_is_a_new_requirement() {
        let policy = policy(&kubeconfig_manifest());
        let (object, agent) = about();
        let data = TemplateData {
            object: &object,
            agent: &agent,
        };
        let mut rounds = Rounds::default();
        let mut ask =
            |needs: Vec<Need>| rounds.answer(&policy, &data, answer(target("demo"), needs));
        let present = Need {
            form: Form::Presence,
            ..source()
        };
        assert_eq!(ask(vec![present.clone()]), Ok(Next::Read(vec![present])));
        assert_eq!(ask(vec![source()]), Ok(Next::Read(vec![source()])));
    }

    #[test]
    fn needing_nothing_is_complete_at_once() {
        assert_eq!(
            first(answer(target("demo"), vec![])),
            Ok(Next::Complete(answer(target("demo"), vec![])))
        );
    }

    #[test]
    fn the_third_answer_must_need_nothing_new() {
        let policy = policy(&kubeconfig_manifest());
        let (object, agent) = about();
        let data = TemplateData {
            object: &object,
            agent: &agent,
        };
        let mut rounds = Rounds::default();
        let ends: Vec<_> = ["a", "b", "c"]
            .map(|name| {
                need(
                    "home",
                    "Namespace",
                    None,
                    &format!("klusterlet-{name}"),
                    Form::Presence,
                )
            })
            .into_iter()
            .map(|need| rounds.answer(&policy, &data, answer(target("demo"), vec![need])))
            .map(|end| end.err().map(|failure| failure.reason))
            .collect();
        assert_eq!(
            ends,
            [None, None, Some(Reason::Known(KnownReason::TooManyRounds))]
        );
    }

    #[test]
    #[expect(clippy::too_many_lines, reason = "a table of cases")]
    fn reads_only_granted_objects_and_forms() {
        let key = |name: &str| Form::Kubeconfig(name.to_owned());
        let elsewhere = Need {
            reference: ObjectRef {
                cluster: "hub".to_owned(),
                ..home().reference
            },
            ..home()
        };
        for (need, word) in [
            (source(), None),
            (home(), None),
            (
                Need {
                    form: Form::Presence,
                    ..source()
                },
                None,
            ),
            (
                need(
                    "service",
                    "Service",
                    Some("clusters-demo"),
                    "kube-apiserver",
                    Form::Service,
                ),
                None,
            ),
            (
                need(
                    "klusterlet",
                    "Klusterlet",
                    None,
                    "klusterlet-demo",
                    Form::Object,
                ),
                None,
            ),
            (
                Need {
                    form: key("password"),
                    ..source()
                },
                Some(KnownReason::ReadNotGranted),
            ),
            (
                Need {
                    form: Form::Object,
                    ..source()
                },
                Some(KnownReason::ReadNotGranted),
            ),
            (
                Need {
                    form: Form::Service,
                    ..home()
                },
                Some(KnownReason::ReadNotGranted),
            ),
            (
                Need {
                    form: key("kubeconfig"),
                    ..home()
                },
                Some(KnownReason::ReadNotGranted),
            ),
            (
                Need {
                    role: "other".to_owned(),
                    ..home()
                },
                Some(KnownReason::ReadNotGranted),
            ),
            (
                Need {
                    role: "source".to_owned(),
                    ..home()
                },
                Some(KnownReason::ReadNotGranted),
            ),
            (
                need("home", "Namespace", None, "kube-system", Form::Presence),
                Some(KnownReason::ReadNotGranted),
            ),
            (
                need(
                    "source",
                    "Secret",
                    Some("other"),
                    "demo-admin-kubeconfig",
                    Form::Presence,
                ),
                Some(KnownReason::ReadNotGranted),
            ),
            (
                need(
                    "source",
                    "Secret",
                    None,
                    "demo-admin-kubeconfig",
                    Form::Presence,
                ),
                Some(KnownReason::ReadNotGranted),
            ),
            (elsewhere, Some(KnownReason::ReadNotGranted)),
            (
                need("home", "Namespace", None, "klusterlet-a.b", Form::Presence),
                Some(KnownReason::InvalidTargetName),
            ),
            (
                need(
                    "service",
                    "Service",
                    Some("clusters-../x"),
                    "kube-apiserver",
                    Form::Service,
                ),
                Some(KnownReason::InvalidTargetName),
            ),
        ] {
            let end = first(answer(target("demo"), vec![need.clone()]));
            assert_eq!(
                end.err().map(|failure| failure.reason),
                word.map(Reason::Known),
                "{need:?}"
            );
        }
    }

    #[test]
    fn writes_only_granted_targets() {
        let secret =
            |namespace: &str, name: &str| ObjectRef::local("v1", "Secret", Some(namespace), name);
        for (target, word) in [
            (
                secret("klusterlet-demo", "other"),
                KnownReason::WriteNotGranted,
            ),
            (
                secret("kube-system", "external-managed-kubeconfig"),
                KnownReason::WriteNotGranted,
            ),
            (
                ObjectRef {
                    kind: "ConfigMap".to_owned(),
                    ..target("demo")
                },
                KnownReason::WriteNotGranted,
            ),
            (
                ObjectRef {
                    cluster: "hub".to_owned(),
                    ..target("demo")
                },
                KnownReason::WriteNotGranted,
            ),
            (
                ObjectRef {
                    namespace: None,
                    ..target("demo")
                },
                KnownReason::WriteNotGranted,
            ),
            (target("Demo"), KnownReason::InvalidTargetName),
            (target("a.b"), KnownReason::InvalidTargetName),
            (target(&"a".repeat(60)), KnownReason::InvalidTargetName),
        ] {
            let end = first(answer(target.clone(), vec![]));
            assert_eq!(
                end.err().map(|failure| failure.reason),
                Some(Reason::Known(word)),
                "{target}"
            );
        }
    }

    #[test]
    fn an_answer_is_bounded_and_duplicates_are_read_once() {
        let many: Vec<_> = (0..17)
            .map(|n| {
                need(
                    "home",
                    "Namespace",
                    None,
                    &format!("klusterlet-{n}"),
                    Form::Presence,
                )
            })
            .collect();
        for needs in [many, vec![home(), home()]] {
            let end = first(answer(target("demo"), needs));
            assert_eq!(
                end.err().map(|failure| failure.reason),
                Some(Reason::Known(KnownReason::ContractBroken))
            );
        }
    }

    #[test]
    fn a_refusal_waits_only_for_readable_objects() {
        let guest = guest(&[], &[]);
        let policy = policy(&kubeconfig_manifest());
        let (object, agent) = about();
        let data = TemplateData {
            object: &object,
            agent: &agent,
        };
        let problem = |word: &str| Problem {
            reason: word.to_owned(),
            message: "m".to_owned(),
            field: None,
        };
        let end = |refusal| refused(&policy, &data, &guest, refusal);
        let granted = vec![home().reference];
        let foreign = vec![ObjectRef::local("v1", "Namespace", None, "kube-system")];
        for (refusal, class, word) in [
            (
                Refusal::Waiting(problem("Told"), granted.clone()),
                Class::Waiting,
                "Told",
            ),
            (
                Refusal::Waiting(problem("Told"), foreign),
                Class::Invalid,
                "ReadNotGranted",
            ),
            (Refusal::Missing(problem("Told")), Class::Missing, "Told"),
            (
                Refusal::Invalid(problem("NoClusters")),
                Class::Invalid,
                "NoClusters",
            ),
            (
                Refusal::Missing(problem("Untold")),
                Class::Invalid,
                "ContractBroken",
            ),
        ] {
            let failure = end(refusal.clone());
            assert_eq!(
                (failure.class, failure.reason.as_str()),
                (class, word),
                "{refusal:?}"
            );
        }
        assert_eq!(
            end(Refusal::Waiting(problem("Told"), granted.clone())).objects,
            granted
        );
    }
}
