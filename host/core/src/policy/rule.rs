//! The rules of a policy: which objects are its primaries, which may be read, and which may be written.

use super::rbac::HandedOn;
use super::selector::Selector;
use super::values::ValueRule;
use crate::object::Object;
use crate::pattern::{Pattern, TemplateData};
use crate::projection::path::{Path, Segment};
use crate::reference::{ObjectRef, group};
use crate::stamp::Stamp;
use std::collections::{BTreeMap, BTreeSet};
use transom_api::labels;
use transom_api::policy::{KubeconfigGrant, PauseSpec, WriteVerb};

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
    /// Whether the pause annotation holds one of them.
    pub pause: PauseSpec,
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
    pub verbs: BTreeSet<WriteVerb>,
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
    /// Roles of Secrets from whose kubeconfigs a kubeconfig may be made.
    pub kubeconfigs: BTreeSet<String>,
    /// The kinds of objects in a text, by group and version, each with the listed values if it gives rights. If there
    /// are any, only such a text may go there, and bytes and kubeconfigs into Secrets in that text.
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
        /// The finalizers that they bear until the policy wants them no longer.
        finalizers: BTreeSet<String>,
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
        self.verbs.iter().eq([&WriteVerb::Create])
    }

    /// Whether all primaries have the same one object: nothing in its name and its namespace differs between them.
    pub fn is_shared(&self) -> bool {
        let exact = |pattern: &Pattern| !pattern.is_template() && pattern.stars() == 0;
        let named = self.named();
        named.is_some_and(|(namespace, name)| namespace.is_none_or(exact) && exact(name))
    }

    /// The object that all primaries have, if there is one.
    pub fn shared(&self) -> Option<ObjectRef> {
        let (namespace, name) = self.named().filter(|_| self.is_shared())?;
        Some(ObjectRef {
            cluster: self.cluster.clone(),
            api_version: self.api_version.clone(),
            kind: self.kind.clone(),
            namespace: namespace.map(|pattern| pattern.wildcard("")),
            name: name.wildcard(""),
        })
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

    /// Whether its namespace keeps an object from being a primary.
    pub fn leaves_out(&self, object: &ObjectRef) -> bool {
        object.is(&self.cluster, &self.api_version, &self.kind) && !self.admits(object)
    }

    /// Whether an object may be a primary of both. True where that cannot be decided.
    pub fn overlaps(&self, other: &Self) -> bool {
        let kind = self.cluster == other.cluster
            && self.kind == other.kind
            && group(&self.api_version) == group(&other.api_version);
        let mut namespaces = self.namespaces.iter();
        let mut meet = |one: &Pattern| other.namespaces.iter().any(|other| one.meets(other));
        kind && namespaces.any(&mut meet) && !self.labels.excludes(&other.labels)
    }

    /// Whether an object is a primary. For the policy, a former primary that is no longer selected is gone.
    pub fn selects(&self, object: &Object) -> bool {
        self.admits(&object.reference) && self.labels.matches(object)
    }
}

impl ReadRule {
    /// Whether an object may be read for a primary.
    pub fn admits(&self, object: &ObjectRef, data: &TemplateData<'_>) -> bool {
        let namespace = || match (&self.namespace, &object.namespace) {
            (None, None) => true,
            (Some(pattern), Some(name)) => pattern.matches(name, data),
            _ => false,
        };
        object.is(&self.cluster, &self.api_version, &self.kind)
            && namespace()
            && self.name.matches(&object.name, data)
    }

    /// Whether a set of objects may be read for a primary: all of the kind, in a namespace if one is named.
    pub fn admits_every(&self, place: &ObjectRef, data: &TemplateData<'_>) -> Option<EveryRule> {
        let namespace = match (&self.namespace, &place.namespace) {
            (None, None) => true,
            (Some(pattern), None) => pattern.is_any(),
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
            Target::Named {
                namespace, name, ..
            }
            | Target::Others {
                namespace, name, ..
            } => Some((namespace.as_ref(), name)),
            Target::Primary => None,
        }
    }

    /// Whether the rule selects an object of others as it is now, and grants a verb for it. An object that a policy
    /// made, and so bears a whole stamp, is selected only if the selector names its policy label.
    pub fn lets(&self, verb: WriteVerb, object: &Object) -> bool {
        let Target::Others {
            labels: selector, ..
        } = &self.target
        else {
            return false;
        };
        let meant = Stamp::read(object).is_none() || selector.has(labels::POLICY);
        meant && self.verbs.contains(&verb) && selector.matches(object)
    }

    /// The finalizers that may be taken off objects of others, or that objects of the policy bear.
    pub fn finalizers(&self) -> Option<&BTreeSet<String>> {
        match &self.target {
            Target::Others { finalizers, .. } | Target::Named { finalizers, .. } => {
                Some(finalizers)
            }
            Target::Primary => None,
        }
    }

    /// The fields to compare of an object that others made: those that the policy may write, and only conditions of the
    /// granted types.
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
        let namespace = || match (namespace, object.namespace.as_deref()) {
            (None, None) => true,
            (Some(pattern), Some(there)) => fits(pattern, there),
            _ => false,
        };
        object.is(&self.cluster, &self.api_version, &self.kind)
            && namespace()
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
