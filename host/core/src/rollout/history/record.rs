//! One kept revision, and the object that holds it.

use super::{OBJECT_API_VERSION, OBJECT_KIND, id};
use crate::catalogue::Revision;
use crate::digest::Digest;
use crate::object::Object;
use crate::plan::Step;
use crate::plan::fleet::FleetPlan;
use crate::policy::component::ComponentSource;
use crate::policy::manifest::{PolicyError, PolicyManifest};
use crate::policy::{Policy, check};
use crate::reference::ObjectRef;
use crate::rollout::expected::{Expected, Expecting};
use crate::rollout::{Probation, identity, short};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use transom_api::policy::{GuestSpec, PolicySpec};
use transom_api::{API_VERSION, KIND, labels};

/// Maximum size of a plan that is kept with a revision, in bytes of JSON: some twenty revisions of each policy are
/// kept.
const PLAN: usize = 16 << 10;

/// No revision has this number or a larger one: an agent never counts that far, and readers of JSON keep what is less.
const LARGEST: i64 = 1 << 53;

/// The manifests by which the components of a revision were pulled from registries.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifests {
    /// That of the component that decides what to write.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decide: Option<String>,
    /// That of the component that decides when to reconcile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trigger: Option<String>,
}

impl Manifests {
    /// These, and from others what is not known.
    fn or(&self, other: &Self) -> Self {
        let or =
            |one: &Option<String>, other: &Option<String>| one.as_ref().or(other.as_ref()).cloned();
        Self {
            decide: or(&self.decide, &other.decide),
            trigger: or(&self.trigger, &other.trigger),
        }
    }

    /// As they are kept; `None` when nothing is known.
    pub(super) fn text(&self) -> Option<String> {
        (*self != Self::default()).then(|| json!(self).to_string())
    }
}

/// One kept revision.
#[derive(Clone, Debug, PartialEq)]
pub struct RevisionRecord {
    /// Name of its policy.
    pub policy: String,
    /// Digest of the revision.
    pub id: Digest,
    /// The larger, the later it became active; 0 when it never was.
    pub number: i64,
    /// The policy's `spec`, as it was.
    pub spec: Arc<PolicySpec>,
    /// Digest of the component that decides what to write.
    pub decide: String,
    /// Digest of the component that decides when to reconcile.
    pub trigger: Option<String>,
    /// What the tags of its components meant when these were pulled.
    pub manifests: Manifests,
    /// Why it may not become active again.
    pub barred: Option<String>,
    /// When it was first kept.
    pub created: Option<String>,
    /// What is watched since it became active.
    pub probation: Option<Probation>,
    /// The plan with which it became active last, as it is kept.
    pub(super) plan: Option<Arc<str>>,
    /// The same for each primary, while it is watched, as it is kept.
    pub(super) expected: Option<Arc<str>>,
    /// The uid of the policy object that it goes with, if there is one.
    pub(super) owner: Option<String>,
    /// The object's version; empty for one that is not kept yet.
    pub(super) version: String,
}

/// The name of the component of a guest, if it is a builtin one.
pub(super) fn builtin_name(guest: &GuestSpec) -> Option<String> {
    match ComponentSource::parse(&guest.component) {
        Ok(ComponentSource::Builtin(name)) => Some(name),
        _ => None,
    }
}

impl RevisionRecord {
    /// The record of a revision.
    pub fn of(revision: &Revision) -> Self {
        Self {
            policy: revision.policy.name.to_string(),
            id: revision.id(),
            number: 0,
            spec: Arc::clone(&revision.policy.spec),
            decide: revision.decide.digest.to_string(),
            trigger: (revision.trigger.as_ref()).map(|guest| guest.digest.to_string()),
            manifests: Manifests {
                decide: revision.decide.manifest.clone(),
                trigger: (revision.trigger.as_ref()).and_then(|guest| guest.manifest.clone()),
            },
            barred: None,
            created: None,
            probation: None,
            plan: None,
            expected: None,
            owner: None,
            version: String::new(),
        }
    }

    /// What the tags of its components meant first, by this record and a newer one of the same revision; `None` when
    /// this one says so already.
    pub(super) fn learns(&self, newer: &Self) -> Option<Manifests> {
        let all = self.manifests.or(&newer.manifests);
        (all != self.manifests).then_some(all)
    }

    /// The record in an object; `None` if it is not one of ours, or was changed.
    pub fn read(object: &Object) -> Option<Self> {
        if (object.reference.kind.as_str(), object.deleting()) != (OBJECT_KIND, false) {
            return None;
        }
        let text = |pointer: &str| Some(object.body.pointer(pointer)?.as_str()?.to_owned());
        let spec: PolicySpec =
            serde_json::from_value(object.body.pointer("/data/spec")?.clone()).ok()?;
        let decide = text("/data/components/decide")?;
        let trigger = text("/data/components/trigger");
        Some(Self {
            policy: object.label(labels::POLICY)?.to_owned(),
            id: id(&identity(&spec), &decide, trigger.as_deref()),
            number: object.body.get("revision")?.as_i64()?,
            spec: Arc::new(spec),
            decide,
            trigger,
            manifests: (object.annotation(labels::MANIFESTS))
                .and_then(|text| serde_json::from_str(text).ok())
                .unwrap_or_default(),
            barred: object.annotation(labels::BARRED).map(str::to_owned),
            created: object.meta("creationTimestamp").map(str::to_owned),
            probation: (object.annotation(labels::PROBATION))
                .and_then(|text| serde_json::from_str(text).ok()),
            plan: object.annotation(labels::PLAN).map(Arc::from),
            expected: object.annotation(labels::EXPECTED).map(Arc::from),
            owner: text("/metadata/ownerReferences/0/uid"),
            version: object.version.clone(),
        })
        .filter(|record| object.reference.name == record.name())
        .filter(|record| (0..LARGEST).contains(&record.number))
    }

    /// The same, with what it becomes active with: what its trial planned, and for how long it is watched.
    #[must_use]
    pub fn with(mut self, plan: &FleetPlan, expecting: &Expecting) -> Self {
        self.probation = Some(expecting.probation);
        self.plan = Some(plan.clone().shortened(PLAN).into());
        self.expected = expecting.expected.text().map(Arc::from);
        self
    }

    /// The plan with which it became active last.
    pub fn plan(&self) -> Option<FleetPlan> {
        serde_json::from_str(self.plan.as_deref()?).ok()
    }

    /// What is compared while it is watched.
    pub fn expecting(&self) -> Option<Expecting> {
        Some(Expecting {
            expected: Expected::read(self.expected.as_deref()?)?,
            probation: self.probation?,
        })
    }

    /// The policy of the revision.
    ///
    /// # Errors
    /// When this agent no longer takes such a policy.
    pub fn policy(&self) -> Result<Policy, PolicyError> {
        check::policy(PolicyManifest {
            name: self.policy.clone(),
            spec: (*self.spec).clone(),
        })
    }

    /// The `spec`, with the digests that the components had, so that it is this revision whatever lies at their places
    /// now. A builtin component gets none: an agent of another version could not load it any more.
    pub fn pinned(&self) -> Value {
        let mut spec = json!(&*self.spec);
        for (name, guest, digest) in self.guests() {
            let guest_spec = spec.pointer_mut(&format!("/guests/{name}"));
            if let Some(fields) = guest_spec.and_then(Value::as_object_mut) {
                fields.remove("digest");
                if builtin_name(guest).is_none() {
                    fields.insert("digest".to_owned(), json!(digest));
                }
            }
        }
        spec
    }

    /// Whether both are the same revision but for the bytes of builtin components: each version of the agent has its
    /// own, so where this one was active, the other one goes on.
    pub fn continues_as(&self, other: &Self) -> bool {
        let mut guests = self.guests().zip(other.guests());
        let same = guests.all(|((_, then, was), (_, now, is))| {
            was == is || builtin_name(then).is_some() && then.component == now.component
        });
        same && identity(&self.spec) == identity(&other.spec)
    }

    /// [`Self::continues_as`] for a loaded revision.
    pub fn goes_on_in(&self, loaded: &Revision) -> bool {
        self.continues_as(&Self::of(loaded))
    }

    /// This record where it continues another one: watched as long. What is expected of each primary holds for one
    /// version of the agent only.
    #[must_use]
    pub fn continuing(self, other: &Self) -> Self {
        match other.id != self.id && other.continues_as(&self) {
            true => Self {
                probation: other.probation,
                plan: other.plan.clone(),
                ..self
            },
            false => self,
        }
    }

    /// The digest of the revision as which an agent with these builtin components goes on with this one.
    pub(super) fn id_under<'a>(&self, builtin: impl Fn(&str) -> Option<&'a str>) -> Digest {
        let mut digests = self.guests().map(|(_, guest, digest)| {
            let here = builtin_name(guest).and_then(|name| builtin(&name));
            here.unwrap_or(digest).to_owned()
        });
        let decide = digests.next().unwrap_or_default();
        id(&identity(&self.spec), &decide, digests.next().as_deref())
    }

    /// The guests, each with its field in the `spec` and the digest of its component.
    pub(super) fn guests(&self) -> impl Iterator<Item = (&'static str, &GuestSpec, &str)> {
        let guests = &self.spec.guests;
        let decide = ("decide", &guests.decide, &*self.decide);
        let trigger = guests.trigger.as_ref().zip(self.trigger.as_deref());
        let trigger = trigger.map(|(guest, digest)| ("trigger", guest, digest));
        [decide].into_iter().chain(trigger)
    }

    /// The name of the object.
    pub fn name(&self) -> String {
        format!("{}-{}", self.policy, short(&self.id))
    }

    pub(super) fn reference(&self, namespace: &str) -> ObjectRef {
        ObjectRef::local(
            OBJECT_API_VERSION,
            OBJECT_KIND,
            Some(namespace),
            &self.name(),
        )
    }

    pub(super) fn delete(&self, namespace: &str, why: &str) -> Step {
        Step::Delete {
            reference: self.reference(namespace),
            version: self.version.clone(),
            uid: String::new(),
            why: why.to_owned(),
        }
    }

    /// What is known of the revision besides; `None` when there is nothing.
    fn annotations(&self) -> Option<Value> {
        let barred = self.barred.clone().map(|why| (labels::BARRED, why));
        let probation = self.probation.map(|one| (labels::PROBATION, one.text()));
        let manifests = self.manifests.text();
        let manifests = manifests.map(|text| (labels::MANIFESTS, text));
        let texts = [
            (labels::PLAN, &self.plan),
            (labels::EXPECTED, &self.expected),
        ];
        let texts = texts.into_iter();
        let texts = texts.filter_map(|(label, text)| Some((label, text.as_ref()?.to_string())));
        let all = barred.into_iter().chain(probation).chain(manifests);
        let all = all.chain(texts);
        let all: BTreeMap<_, _> = all.collect();
        (!all.is_empty()).then(|| json!(all))
    }

    /// The whole object. It goes with the policy object if there is one.
    pub(super) fn object(&self, namespace: &str, uid: Option<&str>) -> Object {
        let reference = self.reference(namespace);
        let owner = uid.map(|uid| {
            json!([{"apiVersion": API_VERSION, "kind": KIND, "name": self.policy, "uid": uid}])
        });
        let mut body = json!({
            "apiVersion": OBJECT_API_VERSION,
            "kind": OBJECT_KIND,
            "metadata": {
                "name": reference.name,
                "namespace": namespace,
                "labels": {
                    labels::MANAGED_BY: labels::MANAGER,
                    labels::POLICY: self.policy,
                },
            },
            "revision": self.number,
            "data": {
                "spec": &*self.spec,
                "components": {"decide": self.decide},
            },
        });
        let mut set = |at: &str, field: &str, value: Option<Value>| {
            if let (Some(place), Some(value)) = (body.pointer_mut(at), value) {
                place[field] = value;
            }
        };
        set("/metadata", "ownerReferences", owner);
        set("/metadata", "annotations", self.annotations());
        let trigger = self.trigger.as_ref().map(|digest| json!(digest));
        set("/data/components", "trigger", trigger);
        Object {
            reference,
            version: String::new(),
            body,
        }
    }
}
