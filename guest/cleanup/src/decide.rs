//! Decides what of a cluster goes next. Pure functions.

use crate::Cleanup;
use crate::gone;
use crate::reasons::{NOTHING, REMAINING};
use crate::settings::{Kind, Settings};
use serde::Deserialize;
use transom_guest::kinds::Metadata;
use transom_guest::objects::{
    Answer, Condition, Desired, Input, Member, Need, Requirement, Value, found,
};
use transom_guest::{Context, Failure, ObjectRef, Objects, Primary, Problem, Reason, Waiting};

/// The condition that tells what is left.
pub(crate) const DELETING: &str = "Deleting";
/// The annotation with the priority of an object: 0 to 100, the lowest first.
const PRIORITY: &str = "open-cluster-management.io/cleanup-priority";
/// The most objects that are removed at once, and the most with the marks of a policy beside them; the host allows 64.
/// The rest follows when these are gone.
const AT_ONCE: usize = 50;
const STAMPED_AT_ONCE: usize = 14;
/// The most objects that a message names.
const NAMED: usize = 3;
/// The most objects that a wait names.
const AWAITED: usize = 16;

/// What is read of an object, also of a namespace.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct Fields {
    pub(crate) metadata: Metadata,
}

/// An object that is left.
struct Left {
    object: ObjectRef,
    priority: u32,
    /// Whether it is being deleted already.
    goes: bool,
    /// Whether it has a finalizer.
    held: bool,
    /// Whether it bears the marks of a policy: then it may have to stay, and must hold up no other one. The work agent
    /// of a cluster can put them on its works.
    stamped: bool,
}

impl Left {
    fn of(place: &ObjectRef, member: &Member) -> Result<Self, Problem> {
        let fields: Fields = member.read()?;
        let priority = fields.metadata.annotations.get(PRIORITY);
        let priority = priority.and_then(|text| text.parse().ok());
        Ok(Self {
            object: ObjectRef {
                name: member.name.clone(),
                ..place.clone()
            },
            priority: priority.filter(|one| *one <= 100).unwrap_or(0),
            goes: fields.metadata.deletion_timestamp.is_some(),
            held: !fields.metadata.finalizers.is_empty(),
            stamped: fields.metadata.is_stamped(),
        })
    }
}

/// The first kind of which something is left, and what. One of which only stamped objects are left comes last.
pub(crate) struct Remaining<'a> {
    kind: &'a Kind,
    all: Vec<Left>,
    /// What goes next.
    next: Vec<ObjectRef>,
}

impl<'a> Remaining<'a> {
    /// None when nothing is left, or not known yet.
    pub(crate) fn of(
        settings: &'a Settings,
        primary: &Primary,
        inputs: &[Input],
    ) -> Result<Option<Self>, Problem> {
        let mut kinds = Vec::new();
        for kind in &settings.kinds {
            let Value::Every(members) = found(inputs, &kind.resource) else {
                continue;
            };
            if !members.is_empty() {
                let place = place(kind, primary);
                let all = members.iter().map(|member| Left::of(&place, member));
                kinds.push((kind, all.collect::<Result<Vec<_>, _>>()?));
            }
        }
        let first = |stamped: bool| {
            let has = |(_, all): &(_, Vec<Left>)| all.iter().any(|one| one.stamped == stamped);
            kinds.iter().position(has)
        };
        let (free, stamped) = (first(false), first(true));
        let of = |kind: Option<usize>| kind.map_or(&[][..], |kind| &kinds[kind].1);
        let next = lowest(of(free), false).take(AT_ONCE);
        let next = next.chain(lowest(of(stamped), true).take(STAMPED_AT_ONCE));
        let next = next.map(|one| one.object.clone()).collect();
        Ok(free.or(stamped).map(|told| {
            let (kind, all) = kinds.swap_remove(told);
            Self { kind, all, next }
        }))
    }

    /// What goes next.
    pub(crate) fn next(&self) -> Vec<ObjectRef> {
        self.next.clone()
    }

    /// As Open Cluster Management says it, misspelling included: tools compare the text.
    fn message(&self) -> String {
        let held = self.all.iter().filter(|one| one.held).count();
        format!(
            "The resource {} is remaning, the remaining count is {}, the finalizer pending count is {held}",
            self.kind.resource,
            self.all.len()
        )
    }

    /// What is waited for. Those that are being deleted come first: their finalizers hold everything up.
    pub(crate) fn wait(&self, why: &Reason) -> Waiting {
        let (going, others): (Vec<&Left>, Vec<_>) = self.all.iter().partition(|one| one.goes);
        let all: Vec<_> = going.into_iter().chain(others).collect();
        let names: Vec<&str> = all.iter().map(|one| one.object.name.as_str()).collect();
        let (named, more) = names.split_at(names.len().min(NAMED));
        let more = match more.len() {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let (kind, named) = (&self.kind.kind, named.join(", "));
        let objects = all.iter().take(AWAITED);
        Waiting {
            problem: why.problem(format!("waits until {kind} {named}{more} is gone")),
            objects: objects.map(|one| one.object.clone()).collect(),
        }
    }
}

/// Those of the lowest priority that are not being deleted yet, among the stamped or the others.
fn lowest(all: &[Left], stamped: bool) -> impl Iterator<Item = &Left> {
    let of = move |one: &&Left| one.stamped == stamped;
    let lowest = all.iter().filter(of).map(|one| one.priority).min();
    let goes_next = move |one: &&Left| Some(one.priority) == lowest && !one.goes;
    all.iter().filter(of).filter(goes_next)
}

impl Settings {
    /// The needs for everything that is left in the namespace of a cluster.
    pub(crate) fn all_of(&self, primary: &Primary) -> impl Iterator<Item = Need> {
        self.kinds.iter().map(|kind| {
            Need::every_with_terminating(&kind.resource, place(kind, primary), Vec::new())
        })
    }
}

/// The objects of a kind in the namespace of the cluster.
fn place(kind: &Kind, primary: &Primary) -> ObjectRef {
    let cluster = &primary.reference;
    ObjectRef::new(&cluster.cluster, &kind.api_version, &kind.kind, "")
        .in_namespace(cluster.name.clone())
}

impl Objects for Cleanup {
    /// Of a cluster that is being deleted, or is gone: everything that is left, and as targets what goes next.
    fn require(
        context: &Context<Settings>,
        primary: &Primary,
        inputs: &[Input],
    ) -> Result<Requirement, Failure> {
        if gone::is_about(primary) {
            return gone::require(&context.settings, primary, inputs);
        }
        if !primary.deleting {
            return Ok(Requirement::default());
        }
        let remaining = Remaining::of(&context.settings, primary, inputs)?;
        Ok(Requirement {
            targets: remaining.map(|left| left.next()).unwrap_or_default(),
            needs: context.settings.all_of(primary).collect(),
        })
    }

    /// Removes what goes next, and releases the cluster when nothing is left.
    fn reconcile(
        context: &Context<Settings>,
        primary: &Primary,
        inputs: Vec<Input>,
    ) -> Result<Answer, Failure> {
        if gone::is_about(primary) {
            return gone::reconcile(context, primary, &inputs);
        }
        if !primary.deleting {
            return Ok(Answer {
                keep_finalizer: true,
                ..Answer::default()
            });
        }
        let remaining = Remaining::of(&context.settings, primary, &inputs)?;
        let Some(remaining) = remaining else {
            let message = "No cleaned resource in cluster ns.";
            let deleting = Condition::true_(DELETING, &NOTHING, message);
            return Ok(Desired::conditions(primary, &[deleting]).into());
        };
        let message = remaining.message();
        let deleting = Condition::false_(DELETING, &REMAINING, &message);
        Ok(Answer {
            apply: vec![Desired::conditions(primary, &[deleting])],
            remove: remaining.next(),
            keep_finalizer: true,
            wait: Some(remaining.wait(&REMAINING)),
            ..Answer::default()
        })
    }
}
