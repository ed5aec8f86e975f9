//! The rollout of a policy: what makes a revision, the gates that a candidate passes in their order, and the decision
//! about it. Asks no guest and reads no clock.

pub mod expected;
mod gate;
pub mod history;
mod probation;
pub mod rehearsal;
pub mod rest;

use crate::catalogue::Revision;
use crate::digest::Digest;
use crate::failure::one_line;
use crate::plan::fleet::{FleetPlan, Listed};
use crate::reference::ObjectRef;
use expected::Expected;
pub use gate::Gate;
pub use probation::{Faults, Probation, rolls_back};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use transom_api::KnownReason;
use transom_api::policy::{Limited, ModeSpec, PolicySpec};
use transom_api::status::{CandidateStatus, EffectStatus, MAX_LISTED};

/// The fields of a policy's `spec` that count at once, and those for which the bytes of the components stand.
pub const NOT_IDENTIFYING: [&str; 6] = [
    "suspend",
    "rollout",
    "limits",
    "onFailure",
    "verify",
    "resyncSeconds",
];
/// The fields of a guest for which the digest of its component stands.
const OF_COMPONENT: [&str; 2] = ["component", "digest"];
/// How many hexadecimal digits tell the revisions of one policy apart.
const SHORT: usize = 10;
/// How many primaries a message names.
const NAMED: usize = 3;

/// Digest of what makes a revision, without the bytes of its components: guests' settings and capabilities, primaries,
/// grants, ownership and budget.
pub fn identity(spec: &PolicySpec) -> Digest {
    let mut spec = serde_json::to_value(spec).unwrap_or_default();
    let remove = |value: Option<&mut Value>, fields: &[&str]| {
        if let Some(map) = value.and_then(Value::as_object_mut) {
            fields.iter().for_each(|field| drop(map.remove(*field)));
        }
    };
    remove(Some(&mut spec), &NOT_IDENTIFYING);
    for guest in ["/guests/decide", "/guests/trigger"] {
        remove(spec.pointer_mut(guest), &OF_COMPONENT);
    }
    Digest::of(&spec)
}

impl Revision {
    /// Digest of the revision: the identity of its policy, and the bytes of its components.
    pub fn id(&self) -> Digest {
        let trigger = self.trigger.as_ref().map(|guest| &*guest.digest);
        history::id(&self.policy.identity, &self.decide.digest, trigger)
    }
}

/// The short form of a revision's digest, for people and for names.
pub fn short(id: &Digest) -> String {
    id.hex().chars().take(SHORT).collect()
}

/// A revision that is not active yet.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// The revision.
    pub revision: Arc<Revision>,
    /// The gate that it has not passed.
    pub gate: Gate,
    /// Why it waits there, or was refused.
    pub reason: KnownReason,
    /// For people.
    pub message: String,
    /// What it would change, once that is known.
    pub trial: Option<Arc<Trial>>,
}

/// What a candidate would do on the live primaries. Nothing of it was written.
#[derive(Clone, Debug, PartialEq)]
pub struct Trial {
    /// What it would change.
    pub plan: FleetPlan,
    /// The same for each primary, as digests, to compare what is written later.
    pub expected: Expected,
    /// For how many primaries it makes a kind of change that has a limit.
    pub limited: BTreeMap<Limited, u32>,
    /// The primaries for which it breaks a limit, the contract or the grant, and the active revision does not.
    pub faults: Vec<(ObjectRef, KnownReason, String)>,
    /// The primaries for which it gives two answers to the same question, and how they differ.
    pub unstable: Vec<(ObjectRef, String)>,
    /// The primaries for which it would write again after it wrote.
    pub unsettled: Vec<ObjectRef>,
    /// How many primaries fail under the active revision by a fault of its guest.
    pub active_faults: usize,
    /// Why the trial says nothing, as when a primary could not be read.
    pub incomplete: Option<(KnownReason, String)>,
    /// Whether it took longer than a trial may.
    pub late: bool,
}

impl Trial {
    /// A trial that ended before it began.
    pub fn failed(policy: &str, reason: KnownReason, why: &str) -> Self {
        Self {
            plan: FleetPlan::of(policy, [], Listed::default()),
            expected: Expected::default(),
            limited: BTreeMap::new(),
            faults: Vec::new(),
            unstable: Vec::new(),
            unsettled: Vec::new(),
            active_faults: 0,
            incomplete: Some((reason, why.to_owned())),
            late: false,
        }
    }
}

/// What becomes of a candidate after a trial.
#[derive(Clone, Debug, PartialEq)]
pub enum CandidateVerdict {
    /// It becomes active.
    Activate,
    /// It waits at a gate, and is tried again.
    Wait(Gate, KnownReason, String),
    /// It is refused until the policy or a component changes, or an object that it failed for.
    Refuse(Gate, KnownReason, String),
}

/// What is known of the approval of a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Approved {
    /// Nothing is approved.
    Nothing,
    /// This digest.
    Digest(String),
    /// A digest, by a user who may not. For people.
    Forbidden(String),
    /// A digest, and it cannot be read whether the user may. For people.
    Unknown(KnownReason, String),
}

/// What the approval of a candidate lets pass, by what it counts for the limits of its policy; nothing when its plan
/// was not approved.
pub fn approved(revision: &Revision, trial: &Trial, approved: &Approved) -> BTreeMap<Limited, u32> {
    match *approved == Approved::Digest(approval(&revision.id(), trial)) {
        true => trial.limited.clone(),
        false => BTreeMap::new(),
    }
}

/// Decides about a candidate.
pub fn verdict(revision: &Revision, trial: &Trial, approved: &Approved) -> CandidateVerdict {
    let mode = revision.policy.spec.rollout.mode;
    failed(trial).unwrap_or_else(|| passed(revision, mode, trial, approved))
}

/// Where the active revision stands that only compares, in the mode `Shadow`: it is tried again, whatever its own mode.
pub fn comparison(revision: &Revision, trial: &Trial) -> CandidateVerdict {
    match failed(trial) {
        Some(CandidateVerdict::Refuse(gate, reason, message)) => {
            CandidateVerdict::Wait(gate, reason, message)
        }
        Some(verdict) => verdict,
        None => passed(revision, ModeSpec::Shadow, trial, &Approved::Nothing),
    }
}

/// What becomes of a candidate whose answers are good.
fn passed(
    revision: &Revision,
    mode: ModeSpec,
    trial: &Trial,
    approved: &Approved,
) -> CandidateVerdict {
    let of = trial.plan.primaries;
    let (changed, all) = (of.would_change, of.total);
    let plan = format!("the candidate would change something for {changed} of {all} primaries");
    let limits = &revision.policy.limits;
    let all = u32::try_from(all).unwrap_or(u32::MAX);
    let beyond = limits.beyond(&trial.limited, all).next();
    let digest = approval(&revision.id(), trial);
    match (mode, beyond) {
        (ModeSpec::Automatic, None) => CandidateVerdict::Activate,
        (ModeSpec::Automatic, Some(_)) if *approved == Approved::Digest(digest.clone()) => {
            CandidateVerdict::Activate
        }
        (ModeSpec::Automatic, Some((kind, count, most))) => {
            let kind = kind.as_str();
            let message = format!(
                "{plan}; {kind} for {count} of them, and spec.limits allows {most}; approve {digest}"
            );
            CandidateVerdict::Wait(Gate::Limits, KnownReason::LimitReached, message)
        }
        (ModeSpec::Shadow, _) => {
            CandidateVerdict::Wait(Gate::Approval, KnownReason::Shadowing, plan)
        }
        (ModeSpec::Preview, _) => {
            let (reason, why) = match approved {
                Approved::Digest(approved) if *approved == digest => {
                    return CandidateVerdict::Activate;
                }
                Approved::Forbidden(why) => (KnownReason::ApprovalForbidden, format!("; {why}")),
                Approved::Unknown(reason, why) => (*reason, format!("; {why}")),
                Approved::Digest(_) => {
                    let why = "; another plan was approved".to_owned();
                    (KnownReason::PlanChanged, why)
                }
                Approved::Nothing => (KnownReason::ApprovalRequired, String::new()),
            };
            let message = format!("{plan}{why}; approve {digest}");
            CandidateVerdict::Wait(Gate::Approval, reason, message)
        }
    }
}

/// What becomes of a candidate whose answers are not good, or not known.
fn failed(trial: &Trial) -> Option<CandidateVerdict> {
    if let Some((reason, why)) = &trial.incomplete {
        return Some(CandidateVerdict::Wait(Gate::Answers, *reason, why.clone()));
    }
    if let Some((_, reason, why)) = trial.faults.first() {
        let (count, all) = (trial.faults.len(), trial.plan.primaries.total);
        let named = names(trial.faults.iter().map(|(primary, _, _)| primary));
        let message = format!(
            "the candidate fails for {count} of {all} primaries and the active revision does not ({named}): {why}"
        );
        return Some(CandidateVerdict::Refuse(Gate::Answers, *reason, message));
    }
    let unstable = trial.unstable.iter().map(|(primary, _)| primary).collect();
    let unsettled = trial.unsettled.iter().collect();
    let how = trial.unstable.first().map(|(_, how)| how.as_str());
    let refused: [(Vec<_>, _, _); 2] = [
        (unstable, "gives two answers to the same question", how),
        (unsettled, "would change again what it has changed", None),
    ];
    for (primaries, what, how) in refused {
        if !primaries.is_empty() {
            let (count, all) = (primaries.len(), trial.plan.primaries.total);
            let named = names(primaries.into_iter());
            let how = how
                .map(|how| format!(": {}", one_line(how)))
                .unwrap_or_default();
            let message =
                format!("the candidate {what} for {count} of {all} primaries ({named}){how}");
            return Some(CandidateVerdict::Refuse(
                Gate::Answers,
                KnownReason::AnswerUnstable,
                message,
            ));
        }
    }
    None
}

/// What an approval names: this revision with this plan, and no other.
pub fn approval(id: &Digest, trial: &Trial) -> String {
    Digest::of(&json!(["approval", id.to_string(), trial.plan.digest])).to_string()
}

fn names<'a>(primaries: impl Iterator<Item = &'a ObjectRef>) -> String {
    let mut named: Vec<_> = primaries.take(NAMED + 1).map(ToString::to_string).collect();
    if named.len() > NAMED {
        named[NAMED] = "…".to_owned();
    }
    named.join(", ")
}

impl Candidate {
    /// How a policy's status shows it.
    pub fn status(&self) -> CandidateStatus {
        let trial = self.trial.as_deref();
        let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let effects = trial.into_iter().flat_map(|trial| &trial.plan.effects);
        let effects = effects.map(|counted| EffectStatus {
            effect: counted.effect.to_string(),
            count: count(counted.primaries),
        });
        let id = self.revision.id();
        CandidateStatus {
            id: short(&id),
            decide: self.revision.decide.digest.to_string(),
            trigger: (self.revision.trigger.as_ref()).map(|guest| guest.digest.to_string()),
            gate: self.gate.as_str().to_owned(),
            reason: self.reason.as_str().to_owned(),
            primaries: trial.map(|trial| count(trial.plan.primaries.total)),
            changed: trial.map(|trial| count(trial.plan.primaries.would_change)),
            effects: effects.take(MAX_LISTED).collect(),
            approve: trial
                .filter(|_| self.awaits_approval())
                .map(|trial| approval(&id, trial)),
        }
    }

    /// Whether it waits for a person who approves its plan.
    pub fn awaits_approval(&self) -> bool {
        use KnownReason::{ApprovalForbidden, ApprovalRequired, LimitReached, PlanChanged};
        matches!(
            self.reason,
            ApprovalRequired | PlanChanged | LimitReached | ApprovalForbidden
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Step;
    use crate::plan::fleet::{PlannedPrimary, Writes};
    use crate::policy::{check, manifest};
    use crate::sample::{guest, hosted, kubeconfig_manifest, policy};
    use crate::work::Key;
    use transom_api::State;

    fn revision(changes: &[(&str, Value)]) -> Revision {
        let mut manifest = kubeconfig_manifest();
        for (pointer, value) in changes {
            let (parent, field) = pointer.rsplit_once('/').unwrap();
            manifest.pointer_mut(parent).unwrap()[field] = value.clone();
        }
        Revision {
            policy: policy(&manifest),
            trigger: None,
            decide: guest(&[], &[]),
        }
    }

    #[test]
    fn a_revision_is_its_guests_settings_and_grants() {
        let id = |changes: &[(&str, Value)]| revision(changes).id();
        let same = id(&[]);
        for (field, value) in [
            ("/spec/suspend", json!(true)),
            ("/spec/resyncSeconds", json!(7)),
            ("/spec/onFailure", json!({"mode": "Withdraw"})),
            ("/spec/rollout", json!({"mode": "Preview", "history": 3})),
            ("/spec/guests/decide/component", json!("builtin:other")),
            ("/spec/own", json!({})),
        ] {
            if field == "/spec/own" {
                // Defaults may be written or not.
                let mut written = kubeconfig_manifest();
                written["spec"]["own"] = serde_json::to_value(
                    check::policy(manifest::parse(&written).unwrap())
                        .unwrap()
                        .own,
                )
                .unwrap();
                assert_eq!(
                    policy(&written).identity,
                    policy(&kubeconfig_manifest()).identity
                );
                continue;
            }
            assert_eq!(id(&[(field, value)]), same, "{field}");
        }
        for (field, value) in [
            ("/spec/guests/decide/settings", json!({"a": 1})),
            ("/spec/guests/decide/capabilities", json!(["log"])),
            ("/spec/primary/namespaces", json!(["clusters"])),
            ("/spec/own", json!({"prune": "Never"})),
        ] {
            assert_ne!(id(&[(field, value)]), same, "{field}");
        }
        let mut other = revision(&[]);
        other.decide.digest = "sha256:2".into();
        assert_ne!(other.id(), same);
        other.trigger = Some(other.decide.clone());
        assert_ne!(
            other.id(),
            Revision {
                trigger: None,
                ..other.clone()
            }
            .id()
        );
        assert_eq!(short(&same).len(), SHORT);
    }

    #[test]
    fn a_candidate_passes_or_stops_at_a_gate() {
        let of = |mode: &str| revision(&[("/spec/rollout", json!({"mode": mode}))]);
        let good = trial(&["a"]);
        let faulty = Trial {
            faults: vec![(hosted("a"), KnownReason::GuestTrapped, "why".to_owned())],
            ..good.clone()
        };
        let wide = Trial {
            limited: [(Limited::ElementsAdded, 1_000)].into(),
            ..good.clone()
        };
        let unstable = Trial {
            unstable: vec![(hosted("a"), "how".to_owned()); 5],
            ..good.clone()
        };
        let unsettled = Trial {
            unsettled: vec![hosted("a")],
            ..good.clone()
        };
        let incomplete = Trial {
            incomplete: Some((KnownReason::ReadFailed, "why".to_owned())),
            ..faulty.clone()
        };
        let token = approval(&of("Preview").id(), &good);
        let other = approval(&of("Preview").id(), &trial(&["b"]));
        let digest = |token: &String| Approved::Digest(token.clone());
        for (mode, trial, approved, expected) in [
            ("Automatic", &good, Approved::Nothing, "active"),
            (
                "Automatic",
                &faulty,
                digest(&token),
                "Answers GuestTrapped refused",
            ),
            (
                "Automatic",
                &unstable,
                Approved::Nothing,
                "Answers AnswerUnstable refused",
            ),
            (
                "Preview",
                &unsettled,
                digest(&token),
                "Answers AnswerUnstable refused",
            ),
            (
                "Automatic",
                &incomplete,
                Approved::Nothing,
                "Answers ReadFailed",
            ),
            (
                "Preview",
                &good,
                Approved::Nothing,
                "Approval ApprovalRequired",
            ),
            ("Preview", &good, digest(&other), "Approval PlanChanged"),
            ("Preview", &good, digest(&token), "active"),
            (
                "Preview",
                &faulty,
                digest(&token),
                "Answers GuestTrapped refused",
            ),
            (
                "Preview",
                &good,
                Approved::Forbidden("no".to_owned()),
                "Approval ApprovalForbidden",
            ),
            (
                "Preview",
                &good,
                Approved::Unknown(KnownReason::ServerUnavailable, "slow".to_owned()),
                "Approval ServerUnavailable",
            ),
            ("Automatic", &wide, Approved::Nothing, "Limits LimitReached"),
            ("Automatic", &wide, digest(&token), "active"),
            ("Shadow", &good, digest(&token), "Approval Shadowing"),
        ] {
            let text = match verdict(&of(mode), trial, &approved) {
                CandidateVerdict::Activate => "active".to_owned(),
                CandidateVerdict::Wait(gate, reason, _) => {
                    format!("{} {}", gate.as_str(), reason.as_str())
                }
                CandidateVerdict::Refuse(gate, reason, message) => {
                    assert!(
                        message.contains("hosted") || message.contains("/a"),
                        "{message}"
                    );
                    assert_eq!(trial == &unstable, message.ends_with(": how"), "{message}");
                    format!("{} {} refused", gate.as_str(), reason.as_str())
                }
            };
            assert_eq!(text, expected, "{mode} {trial:?}");
        }
        // A plan that was approved is approved for its revision only.
        let revised = revision(&[
            ("/spec/rollout", json!({"mode": "Preview"})),
            ("/spec/guests/decide/settings", json!({"a": 1})),
        ]);
        assert_ne!(approval(&revised.id(), &good), token);
    }

    #[test]
    fn the_status_shows_gate_counts_and_what_to_approve() {
        let keys: Vec<String> = (0..100).map(|n| format!("key-{n:03}")).collect();
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        let candidate = Candidate {
            revision: Arc::new(revision(&[])),
            gate: Gate::Approval,
            reason: KnownReason::ApprovalRequired,
            message: String::new(),
            trial: Some(Arc::new(trial(&keys))),
        };
        let status = candidate.status();
        assert_eq!(
            (status.gate.as_str(), status.primaries, status.changed),
            ("Approval", Some(1), Some(1))
        );
        assert!(!status.effects.is_empty() && status.effects.len() <= MAX_LISTED);
        assert_eq!(
            (status.effects[0].effect.as_str(), status.effects[0].count),
            ("ManagedCluster spec.taints key-000 added", 1)
        );
        assert!(
            status
                .approve
                .is_some_and(|digest| digest.starts_with("sha256:"))
        );
        let trying = Candidate {
            reason: KnownReason::Trying,
            gate: Gate::Answers,
            ..candidate
        };
        assert_eq!(trying.status().approve, None);
    }

    /// One primary that gets taints with these keys.
    fn trial(keys: &[&str]) -> Trial {
        let reference = ObjectRef::local("v1", "ManagedCluster", None, "c");
        let taint = |key: &&str| json!({"key": key, "effect": "NoSelect"});
        let step = Step::Patch {
            reference: reference.clone(),
            version: String::new(),
            fields: vec![(
                "spec.taints".to_owned(),
                keys.iter().map(taint).collect::<Vec<_>>().into(),
            )],
        };
        let mut writes = Writes::default();
        writes.add([(&step, None)], &crate::plan::desired::Open::default());
        let key = Key::new(&"p".into(), &reference);
        let planned = PlannedPrimary {
            key: &key,
            state: State::Applied,
            reason: "InSync",
            message: "",
            writes: &writes,
        };
        Trial {
            plan: FleetPlan::of("p", [planned], Listed::default()),
            expected: Expected::default(),
            limited: BTreeMap::new(),
            faults: Vec::new(),
            unstable: Vec::new(),
            unsettled: Vec::new(),
            active_faults: 0,
            incomplete: None,
            late: false,
        }
    }
}
