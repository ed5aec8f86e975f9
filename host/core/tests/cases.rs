//! Whole decisions as data: each folder under `cases/<area>/` contains the input and the expected result. A new case is
//! a new folder.

#![expect(clippy::too_many_lines, reason = "a test tells its story in one piece")]
#![cfg(test)]

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use transom_core::contract::AgentFacts;
use transom_core::contract::decide::Requirement;
use transom_core::contract::objects::{self, Apply, ObjectsAnswer};
use transom_core::contract::taints::{Decision, TaintEffect, WantedTaint};
use transom_core::digest::Digest;
use transom_core::failure::Failure;
use transom_core::object::Object;
use transom_core::ownership::{Contender, Ownership, OwnershipIndex, Rivals};
use transom_core::pattern::TemplateData;
use transom_core::plan::contention::{self, Contention, Contentions};
use transom_core::plan::desired::{Desired, HoleContent, KeyContent, Whole};
use transom_core::plan::prune::{self, PruneCandidate, Undesired};
use transom_core::plan::{self, Other, Plan, PlanInput, Step, TargetState, TimeAdded};
use transom_core::policy::{Policy, check, manifest};
use transom_core::reference::ObjectRef;
use transom_core::requirements::Rounds;
use transom_core::stamp::{SourceRef, Stamp};
use transom_core::time;
use transom_core::work::Key;

#[path = "../src/sample/planned.rs"]
mod planned;

use planned::{feasible, planned};

const NOW: i64 = 1_795_248_000;

/// Runs every case of an area twice: both answers must be equal.
fn check_area(area: &str, decide: impl Fn(&Value) -> Value) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/cases")
        .join(area);
    let mut cases: Vec<PathBuf> = std::fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    cases.retain(|case| case.is_dir());
    cases.sort();
    assert!(!cases.is_empty(), "{} has no cases", folder.display());
    let mut wrong = Vec::new();
    for case in cases {
        let given = read(&case.join("given.yaml"));
        let decided = decide(&given);
        assert_eq!(
            decide(&given),
            decided,
            "{} is decided differently the second time",
            case.display()
        );
        if decided != read(&case.join("expected.yaml")) {
            wrong.push(format!(
                "{}:\n{}",
                case.display(),
                serde_yaml::to_string(&decided).unwrap()
            ));
        }
    }
    assert!(
        wrong.is_empty(),
        "these were decided otherwise than expected:\n{}",
        wrong.join("\n")
    );
}

fn read(path: &Path) -> Value {
    let text =
        std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_yaml::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// A plan as a value, or the failure.
fn shown(result: Result<Plan, Failure>) -> Value {
    match result {
        Ok(plan) => json!({"steps": plan.steps.iter().map(step).collect::<Vec<_>>()}),
        Err(failure) => refused(&failure),
    }
}

fn refused(failure: &Failure) -> Value {
    json!({"reason": failure.reason, "class": format!("{:?}", failure.class), "message": failure.message})
}

fn step(step: &Step) -> Value {
    match step {
        Step::Create { desired } => json!({"create": desired.body}),
        Step::Update { desired, changed } => {
            json!({"update": desired.body, "version": desired.version, "changed": changed})
        }
        Step::Patch {
            reference,
            version,
            fields,
        } => {
            let fields: serde_json::Map<_, _> = fields.iter().cloned().collect();
            json!({"patch": reference.to_string(), "version": version, "fields": fields})
        }
        Step::Delete {
            reference,
            version,
            why,
            ..
        } => {
            json!({"delete": reference.to_string(), "version": version, "why": why})
        }
    }
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field]
        .as_str()
        .unwrap_or_else(|| panic!("`{field}` is missing"))
}

/// A manifest as a cluster would give it.
fn object(body: &Value) -> Object {
    let reference = ObjectRef {
        cluster: "local".to_owned(),
        api_version: text(body, "apiVersion").to_owned(),
        kind: text(body, "kind").to_owned(),
        namespace: body["metadata"]["namespace"].as_str().map(str::to_owned),
        name: text(&body["metadata"], "name").to_owned(),
    };
    Object {
        reference,
        version: body["metadata"]["resourceVersion"]
            .as_str()
            .unwrap_or_default()
            .to_owned(),
        body: body.clone(),
    }
}

fn strings(value: &Value) -> Vec<String> {
    value
        .as_array()
        .into_iter()
        .flatten()
        .map(|item| item.as_str().unwrap().to_owned())
        .collect()
}

/// The bundled policy, with `own` and the verbs of its grant from the case.
fn policy(given: &Value) -> Policy {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../policies/external-managed-kubeconfig/policy.yaml");
    let mut whole = read(&path);
    if let Some(own) = given.get("own") {
        whole["spec"]["own"] = own.clone();
    }
    if let Some(verbs) = given.get("verbs") {
        whole["spec"]["grant"]["write"][0]["verbs"] = verbs.clone();
    }
    check::policy(manifest::parse(&whole).unwrap()).unwrap()
}

fn hosted(name: &str) -> ObjectRef {
    ObjectRef::local(
        "hypershift.openshift.io/v1beta1",
        "HostedCluster",
        Some("clusters"),
        name,
    )
}

fn key(name: &str) -> Key {
    Key::new(&"external-managed-kubeconfig".into(), &hosted(name))
}

fn target(cluster: &str) -> ObjectRef {
    ObjectRef::local(
        "v1",
        "Secret",
        Some(&format!("klusterlet-{cluster}")),
        "external-managed-kubeconfig",
    )
}

fn claim(given: &Value) -> Ownership {
    match given.as_str() {
        None | Some("sole") => Ownership::Owner {
            rivals: Rivals::None,
        },
        Some("shared") => Ownership::Owner {
            rivals: Rivals::OfPolicy,
        },
        Some("unlocated") => Ownership::Pending { remaining: 3 },
        Some(other) => Ownership::OwnedBy {
            owner: match other.split_once('/') {
                Some((policy, name)) => Key::new(&policy.into(), &hosted(name)),
                None => key(other),
            },
            stands_in: false,
        },
    }
}

/// The Secret of a kubeconfig. `content` is the desired content, `credential` the form of the source's credential.
#[test]
fn secrets() {
    check_area("secrets", |given| {
        let (content, credential) = (text(given, "content"), text(given, "credential"));
        let existing = given.get("existing").map(object);
        let primary = Object {
            reference: hosted("demo"),
            version: String::new(),
            body: json!({}),
        };
        let agent = AgentFacts::new("local-cluster", None);
        let stamp = Stamp {
            policy: "external-managed-kubeconfig".to_owned(),
            source: SourceRef {
                reference: hosted("demo"),
                uid: "uid-demo".to_owned(),
                cluster_uid: String::new(),
            },
            inputs: "sha256:inputs".to_owned(),
            component: "sha256:component".to_owned(),
        };
        let wanting = PlanInput {
            policy: &policy(given),
            key: &key("demo"),
            data: TemplateData {
                object: &primary,
                agent: &agent,
            },
            primary: &primary,
            targets: &[TargetState {
                object: target("demo"),
                existing: existing.clone().map(Arc::new),
                ownership: claim(&given["claim"]),
                withheld: None,
            }],
            others: &[],
            stamp: &stamp,
            time_added: TimeAdded::SetByCluster,
            now_seconds: NOW,
        };
        let document = KeyContent::Hole(Box::new(Document {
            content: content.to_owned(),
            credential: credential.to_owned(),
        }));
        let desired = Desired::Whole(Whole {
            object: target("demo"),
            fixed: serde_json::Map::from_iter([("type".to_owned(), json!("Opaque"))]),
            content: serde_json::Map::new(),
            data: [("kubeconfig".to_owned(), document)].into(),
            ends_seconds: None,
        });
        let contentions = Contentions::default();
        let (there, nothing) = (
            contention::whole(existing.as_ref()),
            contention::whole(None),
        );
        contentions.of_whole(wanting.key, &target("demo"), |contention| {
            contention
                .permit(&target("demo"), nothing, nothing, NOW)
                .unwrap();
            for ago in given["foreignChanges"].as_array().into_iter().flatten() {
                // Each time the agent had left nothing, and finds the current object instead.
                contention.written();
                let at = NOW - ago.as_i64().unwrap();
                drop(contention.permit(&target("demo"), there, nothing, at));
            }
        });
        let planned = plan::plan(&wanting, &[desired], &contentions);
        readable(shown(planned.and_then(|feasible| {
            let plan = feasible.plan;
            feasible.waits.map_or(Ok(plan), Err)
        })))
    });
}

/// The content to write, and the text by which a credential is known.
#[derive(Debug)]
struct Document {
    content: String,
    credential: String,
}

impl Document {
    fn text(bytes: &[u8]) -> String {
        String::from_utf8_lossy(bytes).trim().to_owned()
    }
}

impl HoleContent for Document {
    fn bytes(&self) -> &[u8] {
        self.content.as_bytes()
    }

    fn equals(&self, bytes: &[u8]) -> bool {
        Self::text(bytes) == self.content
    }

    fn shares_credential(&self, bytes: &[u8]) -> bool {
        Self::text(bytes).contains(&self.credential)
    }
}

/// Base64 as text, so that a case can be read.
fn readable(mut plan: Value) -> Value {
    for step in plan
        .get_mut("steps")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        for write in ["create", "update"] {
            for value in step
                .get_mut(write)
                .and_then(|body| body["data"].as_object_mut())
                .into_iter()
                .flatten()
            {
                let bytes = STANDARD.decode(value.1.as_str().unwrap()).unwrap();
                *value.1 = json!(String::from_utf8(bytes).unwrap());
            }
        }
    }
    plan
}

/// The taints of a ManagedCluster.
#[test]
fn taints() {
    check_area("taints", |given| {
        let wanted: Vec<WantedTaint> = given["wanted"]
            .as_array()
            .unwrap()
            .iter()
            .map(wanted_taint)
            .collect();
        let policy = tainting(&given["owned"]);
        let time_added = time_added(&given["timeAdded"]);
        let primary = object(&json!({
            "apiVersion": "cluster.open-cluster-management.io/v1", "kind": "ManagedCluster",
            "metadata": {"name": "c1", "resourceVersion": "7"}, "spec": given["spec"],
        }));
        let planning = (&Contentions::default(), NOW);
        let answer = Decision::Own(wanted);
        shown(planned(&policy, &primary, &answer, time_added, planning))
    });
}

/// Who sets the times of taints: the agent, if there is a time.
fn time_added(given: &Value) -> TimeAdded {
    match given.as_str() {
        Some(at) => TimeAdded::SetByUs(time::parse_rfc3339(at).unwrap()),
        None => TimeAdded::SetByCluster,
    }
}

/// The bundled policy for taints, owning these keys.
fn tainting(owned: &Value) -> Policy {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../policies/built-in-taints/policy.yaml");
    let mut whole = read(&path);
    whole["spec"]["grant"]["write"][0]["taintKeys"] = owned.clone();
    check::policy(manifest::parse(&whole).unwrap()).unwrap()
}

fn wanted_taint(given: &Value) -> WantedTaint {
    WantedTaint {
        key: text(given, "key").to_owned(),
        value: given["value"].as_str().unwrap_or_default().to_owned(),
        effect: TaintEffect::parse(text(given, "effect")).unwrap(),
    }
}

/// Fields of the ManagedCluster `c1` and of objects that others made, which are `there`. The guest names each of these
/// that it wants as a target, but for the `hidden` ones.
#[test]
fn fields() {
    check_area("fields", |given| {
        let mut whole = read(
            &Path::new(env!("CARGO_MANIFEST_DIR"))
                .join("../../policies/cluster-sets-by-rule/policy.yaml"),
        );
        whole["spec"]["grant"] = json!({"write": given["grant"]});
        let policy = match check::policy(manifest::parse(&whole).unwrap()) {
            Ok(policy) => policy,
            Err(error) => return json!({"field": error.field, "why": error.why}),
        };
        let mut primary = json!({
            "apiVersion": "cluster.open-cluster-management.io/v1", "kind": "ManagedCluster",
            "metadata": {"name": "c1", "resourceVersion": "7"},
        });
        if let Some(spec) = given.get("spec") {
            primary["spec"] = spec.clone();
        }
        let primary = object(&primary);
        let list = |field: &str| given[field].as_array().cloned().unwrap_or_default();
        let there: Vec<Object> = list("there").iter().map(object).collect();
        let mut apply = Vec::new();
        for want in list("want") {
            apply.push(Apply {
                object: object(&want).reference,
                ownership: match want["ownership"].as_str() {
                    Some("whole") => objects::ObjectOwnership::Whole,
                    _ => objects::ObjectOwnership::Fields,
                },
                content: want["content"].to_string(),
                holes: Vec::new(),
            });
        }
        let hidden = strings(&given["hidden"]);
        let named = apply.iter().map(|one| one.object.clone());
        let named = named.filter(|one| *one != primary.reference && !hidden.contains(&one.name));
        let agent = AgentFacts::new("local-cluster", None);
        let data = TemplateData {
            object: &primary,
            agent: &agent,
        };
        let targets: Vec<ObjectRef> = named.collect();
        let asked = Requirement {
            target: None,
            targets: targets.clone(),
            needs: Vec::new(),
        };
        if let Err(failure) = Rounds::default().answer(&policy, &data, asked) {
            return refused(&failure);
        }
        let others = targets.into_iter().map(|object| Other {
            existing: there
                .iter()
                .find(|one| one.reference == object)
                .cloned()
                .map(Arc::new),
            object,
        });
        let others: Vec<Other> = others.collect();
        let answer = ObjectsAnswer {
            apply,
            ..ObjectsAnswer::default()
        };
        let contentions = &Contentions::default();
        let key = Key::new(&policy.name, &primary.reference);
        for name in strings(&given["contended"]) {
            let Some(other) = others.iter().find(|one| one.object.name == name) else {
                panic!("{name} is none of the others");
            };
            contentions.of_fields(&key, &other.object, |contention| {
                contend(contention, &other.object);
            });
        }
        let planning = (contentions, NOW);
        let seen = (&primary, others.as_slice());
        let added = time_added(&given["timeAdded"]);
        match feasible(&policy, seen, &answer, added, planning) {
            Err(failure) => refused(&failure),
            Ok(feasible) => {
                let mut all = shown(Ok(feasible.plan));
                if let Some(waits) = &feasible.waits {
                    all["waits"] = refused(waits);
                }
                all
            }
        }
    });
}

/// Another writer changed the object three times just now.
fn contend(contention: &mut Contention, object: &ObjectRef) {
    for at in NOW - 4..NOW {
        let [theirs, ours] = [json!(at), json!("ours")].map(|one| Digest::of(&one));
        drop(contention.permit(object, theirs, ours, at));
        contention.written();
    }
}

/// What is pruned for the HostedCluster `demo`; `present` lists the names of existing Klusterlets.
#[test]
fn prunes() {
    check_area("prunes", |given| {
        let policy = policy(given);
        let present = strings(&given["present"]);
        let mut ownership = OwnershipIndex::default();
        let of_policy = |policy: &str| Key::new(&policy.into(), &hosted("other"));
        for (claimed, claimant) in [
            ("claimedByOthers", key("other")),
            ("claimedByOtherPolicies", of_policy("another-policy")),
        ] {
            let contender = Contender {
                key: claimant,
                uid: String::new(),
                created_seconds: None,
            };
            let targets: Vec<_> = strings(&given[claimed])
                .iter()
                .map(|one| target(one))
                .collect();
            ownership.set(contender, &targets);
        }
        let candidate = |body: &Value| {
            let object = object(body);
            let mut kept_by = prune::dependents(&policy, &key("demo"), &object.reference);
            kept_by.retain(|keeper| present.contains(&keeper.name));
            PruneCandidate {
                object: object.into(),
                kept_by,
            }
        };
        let candidates: Vec<PruneCandidate> = given["outputs"]
            .as_array()
            .unwrap()
            .iter()
            .map(candidate)
            .collect();
        let source = SourceRef::gone(&hosted("demo"), "");
        let why = if text(given, "why") == "gone" {
            Undesired::SourceDeleted
        } else {
            Undesired::TargetMoved
        };
        let pruned = prune::plan(
            &policy,
            (&key("demo"), &source),
            &candidates,
            &mut ownership,
            why,
        );
        let mut all = shown(Ok(pruned.plan));
        if let Some(kept) = &pruned.kept {
            all["kept"] = refused(kept);
        }
        all
    });
}
