//! Checks what a guest asks for against the grant of its policy, round by round.

mod forms;

use crate::catalogue::guest::GuestFacts;
use crate::contract::decide::{Form, Need, Requirement};
use crate::contract::objects::MAX_OBJECTS;
use crate::contract::{GuestRefusal, Problem};
use crate::failure::{Class, Failure};
use crate::pattern::TemplateData;
use crate::policy::{Policy, ReadRule, rbac};
use crate::reference::{ObjectRef, dns};
use forms::bind_form;
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
///     match rounds.answer(policy, primary, asked)? {
///         NextRound::Read(needs) => found = gather(needs),
///         NextRound::Complete(bound) => break bound,
///     }
/// }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Rounds {
    asked: usize,
    known: Vec<Need>,
    /// The one target that each answer names.
    target: Option<ObjectRef>,
}

/// The next step after an answer.
#[derive(Clone, Debug, PartialEq)]
pub enum NextRound {
    /// Read these, and ask again with everything that was found for them, in this order.
    Read(Vec<Need>),
    /// Everything that is needed was read before.
    Complete(Requirement),
}

impl Rounds {
    /// Checks an answer against the grant and returns the next step.
    ///
    /// # Errors
    /// `ReadNotGranted`, `WriteNotGranted`, `InvalidTargetName`, `ContractBroken` (also for another target than in the
    /// round before, where each answer names one), `TooManyRounds`.
    pub fn answer(
        &mut self,
        policy: &Policy,
        data: &TemplateData<'_>,
        answer: Requirement,
    ) -> Result<NextRound, Failure> {
        self.asked += 1;
        bind(policy, data, &answer)?;
        match (&self.target, &answer.target) {
            // A target that depends on what was found could not be claimed for a primary that is held.
            (Some(before), Some(now)) if before != now => {
                let message = format!("the guest names the target {now}, and before {before}");
                return Err(Failure::known(KnownReason::ContractBroken, message));
            }
            _ => self.target.clone_from(&answer.target),
        }
        let unknown = answer.needs.iter().any(|need| !self.known.contains(need));
        if self.asked > 1 && !unknown {
            return Ok(NextRound::Complete(answer));
        }
        if self.asked >= MAX_ROUNDS {
            return Err(Failure::known(
                KnownReason::TooManyRounds,
                "the guest still asks for more objects after three rounds",
            ));
        }
        self.known.extend(answer.needs.iter().cloned());
        if answer.needs.is_empty() {
            Ok(NextRound::Complete(answer))
        } else {
            Ok(NextRound::Read(answer.needs))
        }
    }

    /// Whether the answer that led to this names all targets: where each names the one target, or no other round
    /// follows.
    pub fn named_all(&self, next: &NextRound) -> bool {
        self.target.is_some() || matches!(next, NextRound::Complete(_))
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
    let count = answer.targets().count();
    if count > MAX_OBJECTS {
        let message = format!("the guest names {count} targets; the limit is {MAX_OBJECTS}");
        return Err(Failure::known(KnownReason::ContractBroken, message));
    }
    let mut named = BTreeSet::new();
    for wanted in answer.targets() {
        target(policy, data, wanted)?;
        if !named.insert(wanted) {
            let message = format!("the guest names the target {wanted} twice");
            return Err(Failure::known(KnownReason::ContractBroken, message));
        }
    }
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
    policy.target(target, data).map(drop)
}

/// Checks that Kubernetes allows the names of an object.
pub(crate) fn possible(object: &ObjectRef) -> Result<(), Failure> {
    let name_fits = match object.kind == "Namespace" && object.api_version == "v1" {
        true => dns::is_label(&object.name),
        // Roles and bindings may have names such as `system:node`.
        false if rbac::gives_rights(&object.api_version) => dns::is_path_segment(&object.name),
        false => dns::is_subdomain(&object.name),
    };
    within_names(object, name_fits)
}

/// Refuses an object whose name does not fit, or is too long, or whose namespace is none.
fn within_names(object: &ObjectRef, name_fits: bool) -> Result<(), Failure> {
    let namespace = object.namespace.as_deref();
    if name_fits && object.name.len() <= dns::MAX_NAME && namespace.is_none_or(dns::is_label) {
        return Ok(());
    }
    Err(Failure::known(
        KnownReason::InvalidTargetName,
        format!("{object}: Kubernetes does not allow this name or namespace"),
    ))
}

/// Whether Kubernetes allows what a need names. Else there is nothing: it counts as absent, and is not asked for,
/// because such a name could lead to another path.
pub fn may_exist(need: &Need) -> bool {
    let place = &need.reference;
    match need.form {
        Form::Every(_) | Form::Count(_) => within_names(place, true).is_ok(),
        _ => possible(place).is_ok(),
    }
}

fn bind_need(policy: &Policy, data: &TemplateData<'_>, need: &Need) -> Result<(), Failure> {
    let place = &need.reference;
    let broken = |message| Err(Failure::known(KnownReason::ContractBroken, message));
    let beyond = |rule: &ReadRule| {
        let granted = format!("; granted: {}", rule.shown(data));
        Err(not_granted(need, &granted))
    };
    match &need.form {
        Form::Outcome | Form::FailedWrite | Form::Access(_) if *place != data.object.reference => {
            broken(format!(
                "the guest asks about {place}, which is not its primary"
            ))
        }
        Form::Outcome | Form::FailedWrite => Ok(()),
        Form::Access(review) => policy.may_ask(review, data),
        Form::Every(_) | Form::Count(_) if !place.name.is_empty() => broken(format!(
            "the guest asks about every object, and names {place}"
        )),
        Form::Every(_) | Form::Count(_) => {
            let rule = rule(policy, need)?;
            match (rule.admits_every(place, data), rule.every) {
                (Some(_), _) => Ok(()),
                (None, Some(_)) => beyond(rule),
                (None, None) => {
                    let why = ": the role does not grant sets; add `every`";
                    Err(not_granted(need, why))
                }
            }
        }
        _ => {
            let rule = rule(policy, need)?;
            match rule.admits(place, data) {
                true => bind_form(rule, need),
                false => beyond(rule),
            }
        }
    }
}

/// The rule of the grant with the role of a need.
fn rule<'a>(policy: &'a Policy, need: &Need) -> Result<&'a ReadRule, Failure> {
    if let Some(rule) = policy.read(&need.role) {
        return Ok(rule);
    }
    let roles: Vec<&str> = policy.reads.iter().map(|rule| rule.role.as_str()).collect();
    let roles = match roles.as_slice() {
        [] => "none".to_owned(),
        roles => roles.join(", "),
    };
    Err(not_granted(need, &format!("; its roles are {roles}")))
}

fn not_granted(need: &Need, why: &str) -> Failure {
    let (place, role) = (&need.reference, &need.role);
    let message = format!("the policy does not grant reading {place} as `{role}`{why}");
    Failure::known(KnownReason::ReadNotGranted, message)
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
    // Their kinds may have other rules for names, as `app:latest`; a longer one is compared with no pattern. The name
    // of the primary is that of an object which is there.
    let mut others = objects
        .iter()
        .filter(|object| **object != data.object.reference);
    others.try_for_each(|object| within_names(object, dns::is_path_segment(&object.name)))?;
    let admitted = |object: &&ObjectRef| policy.reads.iter().any(|rule| rule.admits(object, data));
    let Some(object) = objects.iter().find(|object| !admitted(object)) else {
        return Ok(());
    };
    let granted: Vec<_> = policy.reads.iter().map(|rule| rule.shown(data)).collect();
    let message = format!(
        "the policy does not grant reading {object}, which the guest waits for; granted: {}",
        granted.join(", ")
    );
    Err(Failure::known(KnownReason::ReadNotGranted, message))
}

/// Turns a guest's refusal into the end of a reconcile: its reasons must be declared, and the objects that it waits
/// for granted.
pub fn refused(
    policy: &Policy,
    data: &TemplateData<'_>,
    guest: &GuestFacts,
    refusal: GuestRefusal,
) -> Failure {
    match refusal {
        GuestRefusal::Missing(problem) => guest.failure(Class::Missing, &problem),
        GuestRefusal::Invalid(problem) => guest.failure(Class::Invalid, &problem),
        GuestRefusal::Waiting(problem, objects) => {
            waits(policy, data, guest, &problem, &objects).unwrap_or_else(|failure| failure)
        }
    }
}

/// What a guest waits for, as the end of a reconcile.
///
/// # Errors
/// `ReadNotGranted` for an object that it may not read, `InvalidTargetName` for a name that no object can have,
/// `ContractBroken` for too many.
pub fn waits(
    policy: &Policy,
    data: &TemplateData<'_>,
    guest: &GuestFacts,
    problem: &Problem,
    objects: &[ObjectRef],
) -> Result<Failure, Failure> {
    bind_waiting(policy, data, objects)?;
    let failure = guest.failure(Class::Waiting, problem);
    Ok(failure.about(objects.iter().cloned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::decide::Age;
    use crate::contract::decide::{Absence, Query, Wake};
    use crate::contract::{AgentFacts, Problem};
    use crate::sample::{guest, hosted, kubeconfig_manifest, object, policy, target, with};
    use serde_json::json;
    use transom_api::Reason;

    fn need(role: &str, kind: &str, namespace: Option<&str>, name: &str, form: Form) -> Need {
        let version = match kind {
            "Klusterlet" => "operator.open-cluster-management.io/v1",
            _ => "v1",
        };
        Need {
            role: role.to_owned(),
            reference: ObjectRef::local(version, kind, namespace, name),
            form,
            absence: Absence::Fine,
            wake: Wake::Change,
        }
    }

    fn kubeconfig(key: &str) -> Form {
        Form::Kubeconfig(key.to_owned())
    }

    fn source() -> Need {
        let (name, form) = ("demo-admin-kubeconfig", kubeconfig("kubeconfig"));
        need("source", "Secret", Some("clusters"), name, form)
    }

    fn home() -> Need {
        home_of("demo")
    }

    fn home_of(cluster: &str) -> Need {
        let name = format!("klusterlet-{cluster}");
        need("home", "Namespace", None, &name, Form::Presence)
    }

    fn answer(needs: Vec<Need>) -> Requirement {
        Requirement {
            target: Some(target("demo")),
            targets: Vec::new(),
            needs,
        }
    }

    /// Calls with the policy, and with what the templates of its grant take from the HostedCluster `demo`.
    fn with_data<T>(call: impl FnOnce(&Policy, &TemplateData<'_>) -> T) -> T {
        let object = object(hosted("demo"), json!({}));
        let agent = &AgentFacts::new("local-cluster", None);
        let object = &object;
        call(
            &policy(&kubeconfig_manifest()),
            &TemplateData { object, agent },
        )
    }

    /// What each answer of a guest leads to.
    fn asked<const N: usize>(answers: [Requirement; N]) -> [Result<NextRound, Failure>; N] {
        let mut rounds = Rounds::default();
        with_data(|policy, data| answers.map(|answer| rounds.answer(policy, data, answer)))
    }

    /// Why the first answer is refused, if it is.
    fn refused_with(answer: Requirement) -> Option<Reason> {
        let [end] = asked([answer]);
        end.err().map(|failure| failure.reason)
    }

    #[test]
    fn asks_a_guest_until_it_needs_nothing_new() {
        let answers = [vec![source()], vec![source(), home()], vec![home()]];
        let [first, second, third] = answers.clone();
        let mut rounds = Rounds::default();
        let ends = with_data(|policy, data| {
            answers.map(|needs| rounds.answer(policy, data, answer(needs)).unwrap())
        });
        let expected = [
            NextRound::Read(first),
            NextRound::Read(second),
            NextRound::Complete(answer(third)),
        ];
        assert_eq!(ends, expected);
        let known: BTreeSet<_> = rounds.known().collect();
        assert_eq!(known.len(), 2, "what was asked for earlier still counts");
    }

    #[test]
    fn another_form_of_an_object_is_a_new_requirement() {
        let present = Need {
            form: Form::Presence,
            ..source()
        };
        let ends = asked([answer(vec![present.clone()]), answer(vec![source()])]);
        assert_eq!(
            ends,
            [
                Ok(NextRound::Read(vec![present])),
                Ok(NextRound::Read(vec![source()]))
            ]
        );
    }

    #[test]
    fn needing_nothing_is_complete_at_once() {
        assert_eq!(
            asked([answer(vec![])]),
            [Ok(NextRound::Complete(answer(vec![])))]
        );
    }

    #[test]
    fn the_one_target_does_not_depend_on_what_was_found() {
        let other = Requirement {
            target: Some(target("other")),
            ..answer(vec![source()])
        };
        let [first, second] = asked([answer(vec![source()]), other.clone()]);
        assert_eq!(first, Ok(NextRound::Read(vec![source()])));
        let refused = second.unwrap_err();
        assert_eq!(refused.reason, KnownReason::ContractBroken.into());
        assert!(refused.message.contains("klusterlet-other"), "{refused}");
        assert!(asked([other]).iter().all(Result::is_ok));
    }

    #[test]
    fn the_third_answer_must_need_nothing_new() {
        let ends = asked(["a", "b", "c"].map(|name| answer(vec![home_of(name)])));
        let ends = ends.map(|end| end.err().map(|failure| failure.reason));
        assert_eq!(ends, [None, None, Some(KnownReason::TooManyRounds.into())]);
    }

    #[test]
    fn reads_only_granted_objects_and_forms() {
        let form = |form, need| Need { form, ..need };
        let role = |role: &str| Need {
            role: role.to_owned(),
            ..home()
        };
        let mut elsewhere = home();
        elsewhere.reference.cluster = "hub".to_owned();
        let service = |namespace| {
            let (role, name) = ("service", "kube-apiserver");
            need(role, "Service", Some(namespace), name, Form::Service)
        };
        let secret = |namespace| {
            let (role, name) = ("source", "demo-admin-kubeconfig");
            need(role, "Secret", namespace, name, Form::Presence)
        };
        let granted = [
            source(),
            home(),
            form(Form::Presence, source()),
            service("clusters-demo"),
            need(
                "klusterlet",
                "Klusterlet",
                None,
                "klusterlet-demo",
                Form::Object,
            ),
        ];
        let not_granted = [
            form(kubeconfig("password"), source()),
            form(Form::Object, source()),
            form(Form::Service, home()),
            form(kubeconfig("kubeconfig"), home()),
            role("other"),
            role("source"),
            need("home", "Namespace", None, "kube-system", Form::Presence),
            secret(Some("other")),
            secret(None),
            elsewhere,
        ];
        let impossible = [home_of("a.b"), service("clusters-../x")];
        for (needs, word, exists) in [
            (&granted[..], None, true),
            (&not_granted, Some(KnownReason::ReadNotGranted), true),
            (&impossible, None, false),
        ] {
            for need in needs {
                let reason = refused_with(answer(vec![need.clone()]));
                assert_eq!(reason, word.map(Reason::Known), "{need:?}");
                assert_eq!(may_exist(need), exists, "{need:?}");
            }
        }
    }

    #[test]
    fn writes_only_granted_targets() {
        let secret =
            |namespace: &str, name: &str| ObjectRef::local("v1", "Secret", Some(namespace), name);
        let mut others = [target("demo"), target("demo"), target("demo")];
        others[0].kind = "ConfigMap".to_owned();
        others[1].cluster = "hub".to_owned();
        others[2].namespace = None;
        let named = [
            secret("klusterlet-demo", "other"),
            secret("kube-system", "external-managed-kubeconfig"),
        ];
        let impossible = [target("Demo"), target("a.b"), target(&"a".repeat(60))];
        for (targets, word) in [
            (&others[..], KnownReason::WriteNotGranted),
            (&named, KnownReason::WriteNotGranted),
            (&impossible, KnownReason::InvalidTargetName),
        ] {
            for target in targets {
                let (target, needs) = (target.clone(), vec![]);
                let reason = refused_with(Requirement {
                    target: Some(target),
                    targets: Vec::new(),
                    needs,
                });
                assert_eq!(reason, Some(word.into()));
            }
        }
    }

    #[test]
    fn a_set_needs_a_grant_of_its_own_and_an_age_a_field_and_a_limit() {
        let every = |at: usize| (format!("/spec/grant/read/{at}/every"), json!({}));
        let any = |at: usize| (format!("/spec/grant/read/{at}/name"), json!("*"));
        let changes = [every(2), any(2), every(1), any(1)];
        let changes = changes
            .each_ref()
            .map(|(place, value)| (place.as_str(), value.clone()));
        let policy = policy(&with(kubeconfig_manifest(), &changes));
        let object = object(hosted("demo"), json!({}));
        let agent = &AgentFacts::new("local-cluster", None);
        let object = &object;
        let data = &TemplateData { object, agent };
        let set = || {
            let labels = Vec::new();
            Form::Every(Query {
                labels,
                names_only: true,
                terminating: false,
            })
        };
        let age = |field: &str, seconds| {
            let field = field.to_owned();
            Form::Age(Age { field, seconds })
        };
        let (home, service) = (
            need("home", "Namespace", None, "", set()),
            Some("clusters-demo"),
        );
        let demo = || need("home", "Namespace", None, "demo", set());
        let own = |reference| Need {
            reference,
            form: Form::Outcome,
            ..demo()
        };
        let failed = |reference| Need {
            form: Form::FailedWrite,
            ..own(reference)
        };
        let aged = |field: &str, seconds| Need {
            form: age(field, seconds),
            ..demo()
        };
        let observed = |need: Need, seconds| {
            let field = "spec.x".to_owned();
            let form = Form::Observed(Age { field, seconds });
            Need { form, ..need }
        };
        let count = || Form::Count(Vec::new());
        for (need, reason) in [
            (home.clone(), None),
            (need("service", "Service", service, "", set()), None),
            (
                need("service", "Service", Some("other"), "", set()),
                Some("ReadNotGranted"),
            ),
            (
                need("service", "Service", None, "", set()),
                Some("ReadNotGranted"),
            ),
            (
                need("klusterlet", "Klusterlet", None, "", set()),
                Some("ReadNotGranted"),
            ),
            (
                need("source", "Secret", Some("clusters"), "", set()),
                Some("ReadNotGranted"),
            ),
            (
                need("service", "Service", Some("../x"), "", set()),
                Some("ReadNotGranted"),
            ),
            (demo(), Some("ContractBroken")),
            (need("home", "Namespace", None, "", count()), None),
            (
                need("klusterlet", "Klusterlet", None, "", count()),
                Some("ReadNotGranted"),
            ),
            (
                need("home", "Namespace", None, "demo", count()),
                Some("ContractBroken"),
            ),
            (aged("spec.x", 1), None),
            (aged("spec.x", 0), Some("ContractBroken")),
            (aged("spec..x", 1), Some("ContractBroken")),
            (aged("spec.a[b]", 1), Some("ContractBroken")),
            (observed(demo(), 1), None),
            (observed(demo(), 0), Some("ContractBroken")),
            (observed(source(), 1), Some("ReadNotGranted")),
            (
                Need {
                    form: age("data.x", 1),
                    ..source()
                },
                Some("ReadNotGranted"),
            ),
            (own(hosted("demo")), None),
            (own(hosted("other")), Some("ContractBroken")),
            (failed(hosted("demo")), None),
            (failed(hosted("other")), Some("ContractBroken")),
        ] {
            let told = format!("{need:?}");
            let end = Rounds::default()
                .answer(&policy, data, answer(vec![need]))
                .err();
            let end = end.map(|failure| failure.reason);
            assert_eq!(end.as_ref().map(Reason::as_str), reason, "{told}");
        }
    }

    #[test]
    fn an_answer_is_bounded_and_duplicates_are_read_once() {
        let many = (0..17).map(|number| home_of(&number.to_string())).collect();
        for needs in [many, vec![home(), home()]] {
            let reason = refused_with(answer(needs));
            assert_eq!(reason, Some(KnownReason::ContractBroken.into()));
        }
    }

    #[test]
    fn a_guest_waits_only_for_names_that_an_object_can_have() {
        let long = "a".repeat(1 << 20);
        let names = [
            (Some("clusters"), &*long),
            (Some(&*long), "demo-admin-kubeconfig"),
            (Some("clusters"), "a/b"),
            (Some("clusters"), ".."),
            (None, ""),
        ];
        for (namespace, name) in names {
            let object = ObjectRef::local("v1", "Secret", namespace, name);
            let problem = problem("Told");
            let refusal = GuestRefusal::Waiting(problem, vec![object]);
            let end = with_data(|policy, data| refused(policy, data, &guest(&[], &[]), refusal));
            assert_eq!(end.reason, KnownReason::InvalidTargetName.into());
            assert!(end.objects.is_empty() && end.message.len() < 2048);
        }
    }

    #[test]
    fn a_guest_waits_for_an_object_whatever_the_names_of_its_kind() {
        let group = "networking.k8s.io/v1";
        let address = (
            "/spec/grant/read/2",
            json!({"role": "home", "apiVersion": group, "kind": "IPAddress", "name": "*"}),
        );
        let policy = policy(&with(kubeconfig_manifest(), &[address]));
        let agent = &AgentFacts::new("local-cluster", None);
        let primary = object(
            ObjectRef::local(group, "IPAddress", None, &"a".repeat(300)),
            json!({}),
        );
        let data = &TemplateData {
            object: &primary,
            agent,
        };
        for object in [
            ObjectRef::local(group, "IPAddress", None, "2001:db8::1"),
            primary.reference.clone(),
        ] {
            let refusal = GuestRefusal::Waiting(problem("Told"), vec![object.clone()]);
            let end = refused(&policy, data, &guest(&[], &[]), refusal);
            assert_eq!((end.class, end.objects), (Class::Waiting, vec![object]));
        }
    }

    fn problem(word: &str) -> Problem {
        Problem {
            reason: word.to_owned(),
            message: "m".to_owned(),
            field: None,
        }
    }

    #[test]
    fn a_refusal_waits_only_for_readable_objects() {
        let end =
            |refusal| with_data(|policy, data| refused(policy, data, &guest(&[], &[]), refusal));
        let granted = vec![home().reference];
        let foreign = vec![ObjectRef::local("v1", "Namespace", None, "kube-system")];
        let waiting = |objects| GuestRefusal::Waiting(problem("Told"), objects);
        for (refusal, class, word) in [
            (waiting(granted.clone()), Class::Waiting, "Told"),
            (waiting(foreign), Class::Invalid, "ReadNotGranted"),
            (
                GuestRefusal::Missing(problem("Told")),
                Class::Missing,
                "Told",
            ),
            (
                GuestRefusal::Invalid(problem("NoClusters")),
                Class::Invalid,
                "NoClusters",
            ),
            (
                GuestRefusal::Missing(problem("Untold")),
                Class::Invalid,
                "ContractBroken",
            ),
        ] {
            let failure = end(refusal);
            assert_eq!((failure.class, failure.reason.as_str()), (class, word));
        }
        assert_eq!(end(waiting(granted.clone())).objects, granted);
    }
}
