//! A policy that has been checked: patterns parsed, grants sorted by purpose. The catalogue has its components.

pub mod ask;
pub mod bound;
pub mod budget;
pub mod check;
pub mod component;
pub mod manifest;
pub mod rbac;
pub mod selector;
pub mod suggest;
pub mod values;
pub mod verify;
mod writes;

use self::rbac::HandedOn;
use crate::digest::Digest;
use crate::failure::Failure;
use crate::object::Object;
use crate::pattern::{Pattern, TemplateData};
use crate::projection::path::{Path, Segment};
use crate::reference::{LOCAL, ObjectRef};
use crate::world::World;
use ask::AskRule;
use component::Source;
use selector::Selector;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use transom_api::policy::{
    BudgetSpec, GuestSpec, KubeconfigGrant, LimitsSpec, OnFailureSpec, OwnSpec, PolicySpec, Verb,
    VerifySpec,
};
use transom_api::{KnownReason, labels};
use values::ValueRule;

/// A checked policy; made by [`check::policy`].
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    /// Its name: a DNS subdomain of at most 63 bytes, so that it fits a label.
    pub name: Arc<str>,
    /// Whether the policy is suspended: no write and no prune.
    pub suspend: bool,
    /// Which objects are its primaries.
    pub primary: PrimaryRule,
    /// The trigger guest, which decides when to reconcile, if there is one.
    pub trigger: Option<GuestSpec>,
    /// The guest that decides what to write.
    pub decide: GuestSpec,
    /// Which keys have to have signed the components, if any.
    pub verify: Option<VerifySpec>,
    /// The world of that guest; the write grants choose it.
    pub world: &'static dyn World,
    /// What may be read, by role; roles are unique.
    pub reads: Vec<ReadRule>,
    /// What the API server may be asked.
    pub asks: Vec<AskRule>,
    /// What may be written.
    pub writes: Vec<WriteRule>,
    /// The finalizer that the guest may keep on the primary, if any.
    pub finalizer: Option<String>,
    /// How the policy treats the objects that it made.
    pub own: OwnSpec,
    /// How much may change in an interval.
    pub limits: LimitsSpec,
    /// What becomes of what was applied for a primary while its guest fails.
    pub on_failure: OnFailureSpec,
    /// What one call of its guests may use, within what the agent allows.
    pub budget: BudgetSpec,
    /// Seconds between two resyncs, 0 for none.
    pub resync_seconds: u32,
    /// What it was made from.
    pub spec: Arc<PolicySpec>,
    /// Digest of what makes a revision of the policy, without the bytes of its components.
    pub identity: Digest,
}

impl Policy {
    /// Each field that names a connection, with that connection.
    pub fn clusters(&self) -> impl Iterator<Item = (String, &str)> {
        let line = |list, at| format!("spec.grant.{list}[{at}].cluster");
        let reads = self.reads.iter().enumerate();
        let reads = reads.map(move |(at, rule)| (line("read", at), rule.cluster.as_str()));
        let writes = self.beside();
        let writes = writes.map(move |(at, rule)| (line("write", at), rule.cluster.as_str()));
        let primary = (
            "spec.primary.cluster".to_owned(),
            self.primary.cluster.as_str(),
        );
        let sources = self.sources().into_iter();
        let components = sources
            .filter(|(_, source)| !source.objects().is_empty())
            .map(|(field, _)| (field, LOCAL));
        std::iter::once(primary)
            .chain(components)
            .chain(reads)
            .chain(writes)
    }

    /// Whether it names a component by a tag alone.
    pub fn has_tags(&self) -> bool {
        let is_tag =
            |source: &Source| matches!(source, Source::Image(image) if image.digest.is_none());
        self.sources().iter().any(|(_, source)| is_tag(source))
    }

    /// Each field that names a component or a trusted key, with its source.
    pub fn sources(&self) -> Vec<(String, Source)> {
        let fields = [
            "spec.guests.decide.component",
            "spec.guests.trigger.component",
        ];
        let guests = std::iter::once(&self.decide).chain(&self.trigger);
        let parsed = fields.into_iter().zip(guests);
        let components = parsed.filter_map(|(field, guest)| {
            Some((field.to_owned(), Source::parse(&guest.component).ok()?))
        });
        let keys = self.verify.iter().flat_map(|verify| &verify.keys);
        let keys = keys
            .enumerate()
            .filter_map(|(at, key)| Some((verify::field(at), verify::source(key)?)));
        components.chain(keys).collect()
    }
}

/// Which objects are primaries of a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrimaryRule {
    /// Name of the connection.
    pub cluster: String,
    /// Group and version.
    pub api_version: String,
    /// Kind.
    pub kind: String,
    /// Patterns of namespaces; ignored for objects without one.
    pub namespaces: Vec<Pattern>,
    /// Which labels they have.
    pub labels: Selector,
}

/// Objects that may be read under one role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadRule {
    /// The role.
    pub role: String,
    /// Name of the connection.
    pub cluster: String,
    /// Group and version.
    pub api_version: String,
    /// Kind.
    pub kind: String,
    /// Absent for cluster-scoped kinds.
    pub namespace: Option<Pattern>,
    /// Name.
    pub name: Pattern,
    /// Keys of a Secret's data that may be read.
    pub keys: BTreeSet<String>,
    /// How many objects may be read at once as a set, if any.
    pub every: Option<EveryRule>,
}

/// The limits of a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EveryRule {
    /// How many objects it may have.
    pub objects: usize,
    /// How many bytes of names and declared fields they may have together.
    pub bytes: usize,
}

/// Objects that a policy may write, and how.
#[derive(Clone, Debug, PartialEq)]
pub struct WriteRule {
    /// Name of the connection.
    pub cluster: String,
    /// Group and version.
    pub api_version: String,
    /// Kind.
    pub kind: String,
    /// Which objects of that kind.
    pub target: Target,
    /// What may be done.
    pub verbs: BTreeSet<Verb>,
    /// The fields that may be written.
    pub fields: Vec<Path>,
    /// The values that fields may get; a field without a rule may get any.
    pub values: Vec<ValueRule>,
    /// Keys of a Secret's data that the host fills, each with what may go there.
    pub holes: BTreeMap<String, HoleRule>,
    /// The keys of taints that the policy owns.
    pub taint_keys: BTreeSet<String>,
    /// The types of conditions that the policy may set.
    pub conditions: BTreeSet<String>,
    /// The signers of the requests that the policy may approve or deny.
    pub signers: BTreeSet<String>,
    /// Where the credential of a kubeconfig may go.
    pub kubeconfig: Option<KubeconfigGrant>,
    /// The rights that the objects give to others.
    pub hands_on: Vec<HandedOn>,
}

/// What a key of a Secret's data may be filled with.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HoleRule {
    /// Roles of Secrets whose bytes may go there.
    pub bytes: BTreeSet<String>,
    /// Roles of Secrets of whose kubeconfigs one may be made.
    pub kubeconfigs: BTreeSet<String>,
    /// The kinds of the objects of a text, by group and version, each with the values that are listed where it gives rights. If
    /// there are any, only such a text may go there, and the rest into Secrets in it.
    pub manifests: BTreeMap<(String, String), Vec<ValueRule>>,
}

/// Which objects of a kind may be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// The primary itself, which others made.
    Primary,
    /// Objects that the policy makes.
    Named {
        /// Namespace; absent for cluster-scoped kinds.
        namespace: Option<Pattern>,
        /// Name.
        name: Pattern,
    },
    /// Objects that others made.
    Others {
        /// Namespace; absent for cluster-scoped kinds.
        namespace: Option<Pattern>,
        /// Name.
        name: Pattern,
        /// Which labels they have.
        labels: Selector,
        /// The finalizers that `release` takes off.
        finalizers: BTreeSet<String>,
    },
}

impl WriteRule {
    /// Whether objects are only made: from then on they belong to others, and bear no stamp.
    pub fn creates_only(&self) -> bool {
        self.verbs.iter().eq([&Verb::Create])
    }

    /// Whether all primaries have the same one object: nothing in its name and its namespace differs between them.
    pub fn is_shared(&self) -> bool {
        let exact = |pattern: &Pattern| !pattern.is_template() && pattern.stars() == 0;
        let named = self.named();
        named.is_some_and(|(namespace, name)| namespace.is_none_or(exact) && exact(name))
    }
}

impl PrimaryRule {
    /// Whether an object is a primary if its labels are selected.
    pub fn admits(&self, object: &ObjectRef) -> bool {
        let mut patterns = self.namespaces.iter();
        let namespace = object.namespace.as_deref();
        object.is(&self.cluster, &self.api_version, &self.kind)
            && namespace.is_none_or(|name| patterns.any(|pattern| pattern.matches_text(name)))
    }

    /// Whether an object is a primary. One that was one before and is not any more is gone for the policy.
    pub fn selects(&self, object: &Object) -> bool {
        self.admits(&object.reference) && self.labels.matches(object)
    }
}

impl ReadRule {
    /// Whether an object may be read for a primary.
    pub fn admits(&self, object: &ObjectRef, data: &TemplateData<'_>) -> bool {
        let namespace = match (&self.namespace, &object.namespace) {
            (None, None) => true,
            (Some(pattern), Some(name)) => pattern.matches(name, data),
            _ => false,
        };
        object.is(&self.cluster, &self.api_version, &self.kind)
            && namespace
            && self.name.matches(&object.name, data)
    }

    /// Whether a set of objects may be read for a primary: all of the kind, in a namespace if one is named.
    pub fn admits_every(&self, place: &ObjectRef, data: &TemplateData<'_>) -> Option<EveryRule> {
        let namespace = match (&self.namespace, &place.namespace) {
            (None, None) => true,
            (Some(pattern), None) => pattern.to_string() == "*",
            (Some(pattern), Some(name)) => pattern.matches(name, data),
            (None, Some(_)) => false,
        };
        let admitted = place.is(&self.cluster, &self.api_version, &self.kind) && namespace;
        self.every.filter(|_| admitted)
    }

    /// What it admits for a primary, for people: `Secret clusters/demo-admin-kubeconfig`.
    pub fn shown(&self, data: &TemplateData<'_>) -> String {
        let namespace = self.namespace.as_ref();
        let namespace = namespace.map(|pattern| format!("{}/", pattern.shown(data)));
        let (namespace, name) = (namespace.unwrap_or_default(), self.name.shown(data));
        format!("{} {namespace}{name}", self.kind)
    }
}

impl WriteRule {
    /// The patterns of namespace and name of the objects that the policy makes under this rule.
    pub fn named(&self) -> Option<(Option<&Pattern>, &Pattern)> {
        self.place()
            .filter(|_| matches!(self.target, Target::Named { .. }))
    }

    /// The same, also for objects that others made; none for the primary.
    pub fn place(&self) -> Option<(Option<&Pattern>, &Pattern)> {
        match &self.target {
            Target::Named { namespace, name }
            | Target::Others {
                namespace, name, ..
            } => Some((namespace.as_ref(), name)),
            Target::Primary => None,
        }
    }

    /// Whether the rule is for an object of others as it is, and has a verb for it. What a policy made is meant only where
    /// the rule selects by the policy.
    pub fn lets(&self, verb: Verb, object: &Object) -> bool {
        let Target::Others {
            labels: selector, ..
        } = &self.target
        else {
            return false;
        };
        let meant = object.label(labels::POLICY).is_none() || selector.has(labels::POLICY);
        meant && self.verbs.contains(&verb) && selector.matches(object)
    }

    /// The finalizers that may be taken off objects of others.
    pub fn finalizers(&self) -> Option<&BTreeSet<String>> {
        match &self.target {
            Target::Others { finalizers, .. } => Some(finalizers),
            _ => None,
        }
    }

    /// What counts of an object that others made: the fields that the policy may write, and of its conditions those of
    /// the granted types.
    pub fn watched(&self) -> Vec<Path> {
        let places = self
            .fields
            .iter()
            .flat_map(|path| match path.is_conditions() {
                true => {
                    let of_type = |kind| Path::parse(&format!("{path}[{kind}]"));
                    let types: Result<Vec<_>, _> = self.conditions.iter().map(of_type).collect();
                    // A type that no path can name counts with all conditions.
                    types.unwrap_or_else(|_| vec![path.clone()])
                }
                false => vec![path.clone()],
            });
        places.collect()
    }

    /// Whether an object may be written for a primary.
    pub fn admits(&self, object: &ObjectRef, data: &TemplateData<'_>) -> bool {
        self.matches(object, |pattern, text| pattern.matches(text, data))
    }

    /// Whether an object may have been made for a primary, whatever labels and annotations the primary had then.
    pub fn made(&self, object: &ObjectRef, primary: &ObjectRef) -> bool {
        self.matches(object, |pattern, text| {
            pattern.captures(text, primary).is_some()
        })
    }

    fn matches(&self, object: &ObjectRef, fits: impl Fn(&Pattern, &str) -> bool) -> bool {
        let Some((namespace, name)) = self.place() else {
            return false;
        };
        let namespace = match (namespace, object.namespace.as_deref()) {
            (None, None) => true,
            (Some(pattern), Some(there)) => fits(pattern, there),
            _ => false,
        };
        object.is(&self.cluster, &self.api_version, &self.kind)
            && namespace
            && fits(name, &object.name)
    }

    /// The objects that it admits for a primary, for people: `Secret klusterlet-*/external-managed-kubeconfig`.
    pub fn shown(&self, data: &TemplateData<'_>) -> Option<String> {
        let (namespace, name) = self.place()?;
        let namespace = namespace.map(|pattern| format!("{}/", pattern.shown(data)));
        let (namespace, name) = (namespace.unwrap_or_default(), name.shown(data));
        Some(format!("{} {namespace}{name}", self.kind))
    }

    /// The granted keys of an object's data.
    pub fn data_keys(&self) -> impl Iterator<Item = &str> {
        self.fields.iter().filter_map(|path| match path.segments() {
            [Segment::Field(data), Segment::Field(key)] if **data == *"data" => Some(&**key),
            _ => None,
        })
    }
}

impl Policy {
    /// Checks that a primary is not held: for a held one nothing is written and nothing pruned.
    ///
    /// # Errors
    /// `Suspended` or `Paused`.
    pub fn held(&self, primary: &Object) -> Result<(), Failure> {
        if self.suspend {
            let message = "the policy is suspended";
            return Err(Failure::known(KnownReason::Suspended, message));
        }
        if primary.paused() {
            let message = format!(
                "{} has the annotation {}",
                primary.reference,
                labels::PAUSED
            );
            return Err(Failure::known(KnownReason::Paused, message));
        }
        Ok(())
    }

    /// The read grant of a role.
    pub fn read(&self, role: &str) -> Option<&ReadRule> {
        self.reads.iter().find(|rule| rule.role == role)
    }
}
