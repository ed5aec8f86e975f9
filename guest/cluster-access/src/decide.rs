//! Decides what the agents of a managed cluster may do on the hub. Pure functions.

use crate::ClusterAccess;
use crate::known::{ExistingObject, Known};
use crate::objects::{Made, Objects};
use crate::reasons::{
    ACCEPTED, BINDING_REMAINS, DENIED, ERROR, NAME_IMPOSSIBLE, NAME_RESERVED, WORKS_REMAIN,
};
use crate::settings::Settings;
use transom_guest::kinds::{MANIFEST_WORK, ManagedCluster};
use transom_guest::make::{Namespace, RBAC};
use transom_guest::naming::is_label;
use transom_guest::objects::{
    Answer, Condition, Desired, FailedWrite, Input, Need, Objects as World, Requirement, Value,
    found,
};
use transom_guest::{Context, Failure, ObjectRef, Primary, Problem, Reason, Waiting};

/// Role of the ManifestWorks of the cluster.
pub(crate) const WORKS: &str = "works";
/// Role of its namespace.
pub(crate) const NAMESPACED: &str = "namespace";
/// Role of the binding of its work agent.
pub(crate) const BINDING: &str = "binding";
/// Role of the binding of its registration agent.
pub(crate) const REGISTERED: &str = "registration";
/// Role of the ClusterRole of the cluster.
pub(crate) const ROLE: &str = "role";
/// The condition that tells what was decided about the cluster.
pub(crate) const HUB_ACCEPTED: &str = "HubAcceptedManagedCluster";
/// Role of the write that failed last.
pub(crate) const FAILED: &str = "failed";

/// What was decided about a cluster.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Decided {
    /// Nothing yet.
    Nothing,
    Accepted,
    /// It is accepted, but no namespace can have its name.
    Impossible,
    /// It was accepted before.
    Denied,
    /// It is being deleted, and was accepted or denied before.
    Leaving,
}

/// Whether no condition tells what was decided.
fn is_untold(cluster: &ManagedCluster) -> bool {
    cluster.status.conditions.is_empty()
}

/// What was decided, or why nothing can be for a cluster of this name.
fn decided(cluster: &ManagedCluster, primary: &Primary, known: &Known) -> Result<Decided, Problem> {
    let decided = match (cluster.is_accepted(), primary.deleting) {
        // The agent of an accepted cluster may take the condition off, but not the role.
        (false, _) if is_untold(cluster) && !known.role => Decided::Nothing,
        (_, true) => Decided::Leaving,
        (true, false) if !is_label(&primary.reference.name) => Decided::Impossible,
        (true, false) => Decided::Accepted,
        (false, false) => Decided::Denied,
    };
    let shares = |what: &str| {
        Err(NAME_RESERVED.problem(["The name of the cluster is that of ", what, "."].concat()))
    };
    match &*primary.reference.name {
        // Its own role would be the shared one: nothing of it may go either.
        "registration" | "work" if primary.deleting => Ok(Decided::Nothing),
        "registration" | "work" => shares("a shared role"),
        "managed-clusters" if decided == Decided::Accepted => {
            shares("the group of the agents of all clusters")
        }
        name if decided == Decided::Accepted && is_of_others(name) => {
            shares("a namespace of Kubernetes or of the hub")
        }
        _ => Ok(decided),
    }
}

/// Whether a namespace of this name is that of others: there the agents of a cluster could take over the Leases by
/// which controllers elect their leaders.
fn is_of_others(name: &str) -> bool {
    let begins = ["kube-", "open-cluster-management-", "openshift-"];
    let is = [
        "default",
        "hive",
        "hypershift",
        "multicluster-engine",
        "open-cluster-management",
        "openshift",
        "transom",
    ];
    is.contains(&name) || begins.iter().any(|begins| name.starts_with(begins))
}

impl World for ClusterAccess {
    /// The objects that are made or removed; of a denied cluster first how many works it has.
    fn require(
        _: &Context<Settings>,
        primary: &Primary,
        inputs: &[Input],
    ) -> Result<Requirement, Failure> {
        let cluster: ManagedCluster = primary.read()?;
        let (objects, known) = (Objects { primary }, Known::of(inputs)?);
        let decided = decided(&cluster, primary, &known)?;
        let binding = || Need::object(BINDING, objects.binding("work"));
        let works = || Need::count(WORKS, works(&objects), Vec::new());
        let mut targets = Vec::new();
        let mut needs = match decided {
            Decided::Accepted => {
                targets.push(objects.namespace());
                let namespace = Need::object(NAMESPACED, objects.namespace());
                let mut needs = vec![Need::failed_write(FAILED, primary), namespace, binding()];
                needs.extend(known.leaves_with_namespace().then(works));
                needs
            }
            Decided::Denied => {
                let registration = objects.binding("registration");
                // Not which write failed: what would tell it stands before the role that takes rights away, and the
                // agent that is denied may write the status.
                vec![works(), binding(), Need::object(REGISTERED, registration)]
            }
            Decided::Leaving => vec![works(), binding()],
            Decided::Nothing | Decided::Impossible => Vec::new(),
        };
        let is_open = !cluster.is_accepted() && is_untold(&cluster);
        needs.extend(is_open.then(|| Need::object(ROLE, objects.role())));
        let made = Objects::made(decided, &known).into_iter();
        targets.extend(made.map(|made| objects.reference(made)));
        targets.extend(objects.left_out(decided, known.works));
        Ok(Requirement { targets, needs })
    }

    /// What the agents of the cluster may do, and what was decided.
    fn reconcile(
        context: &Context<Settings>,
        primary: &Primary,
        inputs: Vec<Input>,
    ) -> Result<Answer, Failure> {
        let cluster: ManagedCluster = primary.read()?;
        let (objects, known) = (Objects { primary }, Known::of(&inputs)?);
        let decided = decided(&cluster, primary, &known)?;
        match decided {
            Decided::Nothing => return Ok(Answer::default()),
            Decided::Impossible => return Ok(impossible(&cluster, primary)),
            Decided::Accepted | Decided::Denied | Decided::Leaving => {}
        }
        let mut made = Objects::made(decided, &known);
        let mut remove = objects.left_out(decided, known.works);
        if known.leaves_with_namespace() {
            // Nothing is made in a namespace that ends, and an attempt must not hold up what it waits for.
            made.retain(|made| *made != Made::RegistrationBinding);
        }
        if decided == Decided::Accepted && known.may_go(decided) {
            made.retain(|made| *made != Made::WorkBinding);
            remove.push(objects.binding("work"));
        }
        let (first, last) = namespace(&context.settings, decided, &objects, &known);
        let may_renew = context.settings.denied_may_renew;
        let made = made.into_iter();
        let made = made.map(|made| objects.desired(made, decided, may_renew));
        let mut apply: Vec<_> = first.into_iter().chain(made).collect();
        let stays = decided == Decided::Denied && known.any_stays(&objects);
        let whole = !stays && (decided != Decided::Accepted || !known.binding_leaves());
        match (
            incomplete((&cluster, &objects), &inputs, &apply),
            said(decided),
        ) {
            // Right before the write that may fail again. Written only once: then the decision is told as soon as all
            // writes succeed.
            (Some((at, why)), _) => apply.insert(at, decision(primary, "False", &ERROR, &why)),
            (None, Some((status, reason, message))) if whole && !says(&cluster, status) => {
                apply.push(decision(primary, status, &reason, message));
            }
            (None, _) => {}
        }
        apply.extend(last);
        Ok(Answer {
            apply,
            remove,
            // Without it the binding of the work agent would go with the cluster, before the agent has cleaned up.
            keep_finalizer: decided == Decided::Accepted
                || known.works
                || stays
                || known.binding_ends(&objects),
            wait: waits(&objects, decided, &known),
            ..Answer::default()
        })
    }
}

/// What the condition says of a decision.
fn said(decided: Decided) -> Option<(&'static str, Reason, &'static str)> {
    match decided {
        Decided::Nothing | Decided::Impossible | Decided::Leaving => None,
        Decided::Accepted => Some(("True", ACCEPTED, "Accepted by hub cluster admin")),
        Decided::Denied => Some(("False", DENIED, "Denied by hub cluster admin")),
    }
}

/// An accepted cluster whose name no namespace can have gets nothing, and says so. Like any other it keeps the
/// finalizer, so that roles that others made for it go when it is deleted.
fn impossible(cluster: &ManagedCluster, primary: &Primary) -> Answer {
    let why = "No namespace can have the name of the cluster.";
    let untold = !tells_error(cluster, why);
    let told = untold.then(|| decision(primary, "False", &ERROR, why));
    Answer {
        apply: told.into_iter().collect(),
        keep_finalizer: true,
        wait: Some(NAME_IMPOSSIBLE.problem(why).waiting(Vec::new())),
        ..Answer::default()
    }
}

/// The namespace of an accepted cluster: first, where it is to be made, or last. Whoever takes the name of the cluster
/// or another label off again must not hold up the rest.
fn namespace(
    settings: &Settings,
    decided: Decided,
    objects: &Objects<'_>,
    known: &Known,
) -> (Option<Desired>, Option<Desired>) {
    let namespace = objects.labelled(Namespace::of(&objects.namespace()));
    let namespace = namespace.labels(&settings.namespace_labels);
    let says_all = |there: &ExistingObject| {
        there.names(objects.name()) && settings.namespace_labels.is_empty()
    };
    match &known.namespace {
        _ if decided != Decided::Accepted => (None, None),
        None => (Some(namespace.whole()), None),
        Some(there) if there.leaves() || says_all(there) => (None, None),
        Some(_) => (None, Some(namespace.fields())),
    }
}

/// What is waited for: the works, or the end of a binding that is being deleted.
fn waits(objects: &Objects<'_>, decided: Decided, known: &Known) -> Option<Waiting> {
    let ends = match decided {
        Decided::Accepted => known.binding_leaves(),
        _ if known.works => {
            let problem = WORKS_REMAIN.problem("The cluster still has ManifestWorks.");
            return Some(problem.waiting(Vec::new()));
        }
        Decided::Leaving => known.binding_ends(objects),
        Decided::Denied | Decided::Nothing | Decided::Impossible => false,
    };
    ends.then(|| {
        let problem = BINDING_REMAINS.problem("The binding of the work agent is being deleted.");
        problem.waiting(vec![objects.binding("work")])
    })
}

/// The place of the works.
fn works(objects: &Objects<'_>) -> ObjectRef {
    let works = MANIFEST_WORK.all(objects.primary);
    works.in_namespace(objects.name())
}

/// Whether the decision is told already. What tells that a write failed is no decision.
fn says(cluster: &ManagedCluster, status: &str) -> bool {
    let mut conditions = cluster.status.conditions.iter();
    conditions.any(|one| one.status == status && one.reason != ERROR.name)
}

/// Which of the roles and bindings that an accepted cluster is to have could not be written, and what says so, unless
/// the cluster says it already.
fn incomplete(
    (cluster, objects): (&ManagedCluster, &Objects<'_>),
    inputs: &[Input],
    apply: &[Desired],
) -> Option<(usize, String)> {
    let Value::FailedWrite(FailedWrite { object, reason }) = found(inputs, FAILED) else {
        return None;
    };
    if !object.api_version.starts_with(RBAC) {
        return None;
    }
    // A role of all clusters that somebody else took over gives this one what it gives all others.
    let shared = [Made::RegistrationRole, Made::WorkRole].map(|made| objects.reference(made));
    if shared.contains(object) && reason == "TargetNotOwned" && says(cluster, "True") {
        return None;
    }
    let at = apply.iter().position(|one| one.object == *object)?;
    let place = object
        .namespace
        .iter()
        .map(|namespace| [namespace, "/"].concat());
    let name: String = place.chain([object.name.clone()]).collect();
    let message = format!("{} {name} could not be written: {reason}", object.kind);
    (!tells_error(cluster, &message)).then_some((at, message))
}

/// Whether the cluster says already that it lacks something, in these words.
fn tells_error(cluster: &ManagedCluster, message: &str) -> bool {
    let mut conditions = cluster.status.conditions.iter();
    conditions.any(|one| one.reason == ERROR.name && one.message == message)
}

fn decision(primary: &Primary, status: &str, reason: &Reason, message: &str) -> Desired {
    let condition = Condition::new(HUB_ACCEPTED, status, reason, message);
    Desired::conditions(primary, &[condition])
}
