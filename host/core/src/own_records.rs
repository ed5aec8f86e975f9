//! What belongs to the agent itself on a cluster or in a folder: its Lease, what its policies changed, their revisions,
//! the namespaces with these, and what is installed with it. No policy writes that, whatever it grants: it would
//! approve itself, or end another one's interval.

use crate::failure::Failure;
use crate::policy::Policy;
use crate::policy::manifest::PolicyError;
use crate::reference::ObjectRef;
use crate::rights::{LEASE, LIMITS};
use crate::rollout::history;
use std::collections::BTreeSet;
use transom_api::KnownReason;

/// The kind of policies, as its CRD names it.
const POLICIES: &str = "fleetpolicies.transom.dev";
/// The admission policy, and its binding, that lets only approvers approve.
const APPROVAL: &str = "approval.fleetpolicies.transom.dev";

/// The namespace of the records in a folder.
pub const FOLDER: &str = "transom";

/// The namespaces in which agents keep records. They count on every connection: two connections may lead to one API
/// server, and the agent of another one may have the same namespace there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnRecords(BTreeSet<String>);

/// Those of an agent without a namespace of its own, which keeps records in folders only.
impl Default for OwnRecords {
    fn default() -> Self {
        Self(BTreeSet::from([FOLDER.to_owned()]))
    }
}

impl OwnRecords {
    /// Also those of an agent whose Lease is in this namespace.
    pub fn beside_lease(namespace: Option<&str>) -> Self {
        let mut records = Self::default();
        records.0.extend(namespace.map(str::to_owned));
        records
    }

    /// Whether an object belongs to the agent, in whichever version of its kind.
    pub fn has(&self, object: &ObjectRef) -> bool {
        let is_kept = match (object.group(), object.kind.as_str()) {
            ("coordination.k8s.io", "Lease") => object.name == LEASE,
            ("", "ConfigMap") => object.name == LIMITS,
            ("apps", history::OBJECT_KIND) => true,
            ("", "Namespace") => return self.0.contains(&object.name),
            ("apiextensions.k8s.io", "CustomResourceDefinition") => {
                return object.name == POLICIES;
            }
            (
                "admissionregistration.k8s.io",
                "ValidatingAdmissionPolicy" | "ValidatingAdmissionPolicyBinding",
            ) => return object.name == APPROVAL,
            _ => false,
        };
        let namespace = object.namespace.as_ref();
        is_kept && namespace.is_some_and(|namespace| self.0.contains(namespace))
    }

    /// Checks that an object that a policy would write, in a text as well, is no such record.
    ///
    /// # Errors
    /// `WriteNotGranted`.
    pub fn spare(&self, object: &ObjectRef) -> Result<(), Failure> {
        if !self.has(object) {
            return Ok(());
        }
        Err(Failure::known(KnownReason::WriteNotGranted, why(object)))
    }

    /// Refuses a policy of which a rule grants to write such a record, and names it without a template or `*`.
    ///
    /// # Errors
    /// With the field that names it.
    pub fn check(&self, policy: Policy) -> Result<Policy, PolicyError> {
        let named = policy.beside().find_map(|(index, rule)| {
            let (namespace, name) = rule.place()?;
            let object = ObjectRef {
                cluster: rule.cluster.clone(),
                api_version: rule.api_version.clone(),
                kind: rule.kind.clone(),
                namespace: namespace.map(ToString::to_string),
                name: name.to_string(),
            };
            let field = format!("spec.grant.write[{index}].name");
            self.has(&object)
                .then(|| PolicyError::new(field, why(&object)))
        });
        named.map_or(Ok(policy), Err)
    }
}

fn why(record: &ObjectRef) -> String {
    format!("{record} belongs to the agent itself: no policy writes it")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::AgentFacts;
    use crate::ownership::{Ownership, Rivals};
    use crate::pattern::TemplateData;
    use crate::plan::contention::Contentions;
    use crate::plan::desired::{Desired, Field, Fields, Whole};
    use crate::plan::{self, Other, PlanInput, TargetState, TimeAdded};
    use crate::projection::path::Path;
    use crate::sample::{self, objects_manifest, policy, with};
    use crate::stamp::{SourceRef, Stamp};
    use crate::work::Key;
    use serde_json::{Map, json};
    use std::collections::BTreeMap;
    use std::sync::Arc;

    fn object(api_version: &str, kind: &str, namespace: &str, name: &str) -> ObjectRef {
        ObjectRef::local(api_version, kind, Some(namespace), name)
    }

    const ADMISSION: &str = "admissionregistration.k8s.io/v1";

    #[test]
    fn knows_each_record_in_the_namespaces_of_the_agent_and_nothing_else() {
        let records = OwnRecords::beside_lease(Some("own"));
        for namespace in ["own", "transom"] {
            let limits = object("v1", "ConfigMap", namespace, "transom-limits");
            for record in [
                ObjectRef {
                    cluster: "hub".to_owned(),
                    ..limits.clone()
                },
                limits,
                object("coordination.k8s.io/v1", "Lease", namespace, "transom"),
                object("coordination.k8s.io/v1beta1", "Lease", namespace, "transom"),
                object("apps/v1", "ControllerRevision", namespace, "any"),
                ObjectRef::local("v1", "Namespace", None, namespace),
                ObjectRef::local(
                    "apiextensions.k8s.io/v1",
                    "CustomResourceDefinition",
                    None,
                    POLICIES,
                ),
                ObjectRef::local(ADMISSION, "ValidatingAdmissionPolicy", None, APPROVAL),
                ObjectRef::local(
                    ADMISSION,
                    "ValidatingAdmissionPolicyBinding",
                    None,
                    APPROVAL,
                ),
            ] {
                let failure = records.spare(&record).unwrap_err();
                assert_eq!(failure.reason.to_string(), "WriteNotGranted", "{record}");
            }
        }
        for other in [
            object("v1", "ConfigMap", "other", "transom-limits"),
            object("v1", "ConfigMap", "own", "transom"),
            object("coordination.k8s.io/v1", "Lease", "own", "cluster"),
            object("apps/v1", "Deployment", "own", "transom"),
            object("example.com/v1", "Lease", "own", "transom"),
            ObjectRef::local("v1", "Namespace", None, "other"),
            ObjectRef::local(ADMISSION, "ValidatingAdmissionPolicy", None, "other"),
            ObjectRef::local("v1", "ConfigMap", None, "transom-limits"),
        ] {
            assert_eq!(records.spare(&other), Ok(()), "{other}");
        }
        let limits = object("v1", "ConfigMap", "own", "transom-limits");
        assert_eq!(OwnRecords::default().spare(&limits), Ok(()));
    }

    /// Why a policy may not have this of a primary, by a grant of all that an agent records.
    fn planned(primary: &ObjectRef, desired: Desired<'_>) -> Result<(), String> {
        let grant = |name: &str, verbs: &[&str], fields: &[&str]| json!({"kind": "ConfigMap", "namespace": "*", "name": name, "verbs": verbs, "fields": fields});
        let grants = json!([
            {"target": "primary", "verbs": ["patch"], "fields": ["data"]},
            grant("transom-*", &["create", "update"], &["data"]),
            grant("*", &["patch"], &["data"]),
            grant("*", &["remove"], &[]),
        ]);
        let policy = policy(&with(
            objects_manifest(),
            &[
                (
                    "/spec/primary",
                    json!({"apiVersion": "v1", "kind": "ConfigMap"}),
                ),
                ("/spec/grant/write", grants),
                ("/spec/grant/finalizer", json!("example.com/a")),
            ],
        ));
        let primary = &sample::object(primary.clone(), json!({"metadata": {}}));
        let (key, agent) = (
            Key::new(&policy.name, &primary.reference),
            AgentFacts::new("a", None).keeping(OwnRecords::beside_lease(Some("own"))),
        );
        let object = desired.object(&primary.reference).clone();
        let existing = Some(Arc::new(sample::object(
            object.clone(),
            json!({"metadata": {}}),
        )));
        let wanting = PlanInput {
            policy: &policy,
            key: &key,
            data: TemplateData {
                object: primary,
                agent: &agent,
            },
            primary,
            targets: &[TargetState {
                object: object.clone(),
                existing: None,
                ownership: Ownership::Owner {
                    rivals: Rivals::None,
                },
                withheld: None,
            }],
            others: &[Other { object, existing }],
            stamp: &Stamp::of(&key, SourceRef::of(primary, ""), "", ""),
            time_added: TimeAdded::SetByCluster,
            now_seconds: 0,
        };
        let planned = plan::plan(&wanting, &[desired], &Contentions::default());
        planned.map(drop).map_err(|failure| failure.message)
    }

    #[test]
    fn nothing_that_a_policy_may_want_is_planned_for_a_record() {
        let config = |name: &str| object("v1", "ConfigMap", "own", name);
        let whole = |object: &ObjectRef| {
            Desired::Whole(Whole {
                object: object.clone(),
                fixed: Map::new(),
                content: Map::new(),
                data: BTreeMap::new(),
                ends_seconds: None,
            })
        };
        let fields = |object: &ObjectRef| {
            Desired::Fields(Fields {
                object: object.clone(),
                fields: vec![(Path::key("data"), Field::Value(json!({"a": "b"})))],
            })
        };
        let (limits, other) = (config("transom-limits"), config("other"));
        for (primary, desired) in [
            (&other, whole(&limits)),
            (&other, fields(&limits)),
            (&other, Desired::Gone(limits.clone())),
            (&limits, fields(&limits)),
            (&limits, Desired::Finalizer),
        ] {
            let shown = format!("{desired:?}");
            let why =
                "ConfigMap own/transom-limits belongs to the agent itself: no policy writes it";
            assert_eq!(planned(primary, desired), Err(why.to_owned()), "{shown}");
        }
        assert_eq!(planned(&other, fields(&other)), Ok(()));
        // A primary keeps nobody from other objects.
        assert_eq!(planned(&limits, fields(&other)), Ok(()));
    }

    #[test]
    fn finds_the_rule_that_names_one() {
        let named = |kind: (&str, &str), namespace: &str, name: &str, verbs: &[&str]| {
            let fields = match verbs {
                ["remove"] => json!([]),
                _ => json!(["data"]),
            };
            let grants = json!([{"apiVersion": kind.0, "kind": kind.1, "namespace": namespace, "name": name,
                "verbs": verbs, "fields": fields}]);
            let policy = policy(&with(objects_manifest(), &[("/spec/grant/write", grants)]));
            let refused = OwnRecords::default().check(policy).err();
            refused.map(|error| error.field)
        };
        let (config, revision) = (("v1", "ConfigMap"), ("apps/v1", "ControllerRevision"));
        let found = Some("spec.grant.write[0].name".to_owned());
        for verbs in [&["patch"][..], &["create", "update"], &["remove"]] {
            let limits = named(config, "transom", "transom-limits", verbs);
            assert_eq!(limits, found, "{verbs:?}");
        }
        assert_eq!(named(revision, "transom", "*", &["remove"]), found);
        // What such a name is for a primary is known when its guest answers.
        for (namespace, name) in [("transom", "*"), ("{primary.name}", "transom-limits")] {
            assert_eq!(named(config, namespace, name, &["patch"]), None);
        }
    }
}
