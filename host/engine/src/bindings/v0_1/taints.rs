//! Converts the arguments and answers of a taints guest.

use super::exported::taints as wit_taints;
use super::wit;
use crate::measure::{Lift, Lower};
use transom_core::contract::taints::{
    Condition, Decision, Effect, ManagedCluster, Status, Taint, Wanted,
};
use transom_core::contract::{Context, Refusal, Timed};
use wasmtime::component::TypedFunc;

/// Returns the taints that a managed cluster should have.
pub(crate) type Compute<'a> = TypedFunc<
    (&'a wit::Context, &'a wit_taints::ManagedCluster),
    (Result<wit_taints::Answer, wit::Failure>,),
>;

impl Lower {
    pub(crate) fn for_compute(
        &mut self,
        context: &Context,
        cluster: &ManagedCluster,
    ) -> (wit::Context, wit_taints::ManagedCluster) {
        (self.context(context), self.managed_cluster(cluster))
    }

    fn managed_cluster(&mut self, cluster: &ManagedCluster) -> wit_taints::ManagedCluster {
        wit_taints::ManagedCluster {
            reference: self.reference(&cluster.reference),
            uid: self.text(&cluster.uid),
            created_seconds: cluster.created_seconds,
            deleting: cluster.deleting,
            accepted: cluster.accepted,
            lease_duration_seconds: cluster.lease_duration_seconds,
            kubernetes_version: self.maybe(cluster.kubernetes_version.as_deref()),
            labels: self.list(&cluster.labels, Self::pair),
            annotations: self.list(&cluster.annotations, Self::pair),
            claims: self.list(&cluster.claims, Self::pair),
            conditions: self.list(&cluster.conditions, Self::condition),
            taints: self.list(&cluster.taints, Self::taint),
        }
    }

    fn pair(&mut self, (key, value): &(String, String)) -> wit_taints::Pair {
        wit_taints::Pair {
            key: self.text(key),
            value: self.text(value),
        }
    }

    fn condition(&mut self, condition: &Condition) -> wit_taints::Condition {
        wit_taints::Condition {
            kind: self.text(&condition.kind),
            status: match condition.status {
                Status::Yes => wit_taints::Status::Yes,
                Status::No => wit_taints::Status::No,
                Status::Unknown => wit_taints::Status::Unknown,
            },
            reason: self.text(&condition.reason),
            changed_seconds: condition.changed_seconds,
        }
    }

    fn taint(&mut self, taint: &Taint) -> wit_taints::Taint {
        wit_taints::Taint {
            key: self.text(&taint.key),
            value: self.text(&taint.value),
            effect: match taint.effect {
                Effect::NoSelect => wit_taints::Effect::NoSelect,
                Effect::PreferNoSelect => wit_taints::Effect::PreferNoSelect,
                Effect::NoSelectIfNew => wit_taints::Effect::NoSelectIfNew,
            },
            added_seconds: taint.added_seconds,
        }
    }
}

impl Lift<'_> {
    pub(crate) fn taints(
        &mut self,
        answer: Result<wit_taints::Answer, wit::Failure>,
    ) -> Result<Timed<Decision>, Refusal> {
        let answer = match answer {
            Ok(answer) => answer,
            Err(failure) => return Err(self.refusal(failure)),
        };
        let decision = match answer.decision {
            wit_taints::Decision::Own(wanted) => Decision::Own(self.list(wanted, Self::wanted)),
            wit_taints::Decision::Hold(problem) => Decision::Hold(self.problem(problem)),
        };
        Ok(Timed {
            answer: decision,
            ask_again_at: answer.ask_again_at,
        })
    }

    fn wanted(&mut self, wanted: wit_taints::Wanted) -> Wanted {
        Wanted {
            key: self.text(wanted.key),
            value: self.text(wanted.value),
            effect: match wanted.effect {
                wit_taints::Effect::NoSelect => Effect::NoSelect,
                wit_taints::Effect::PreferNoSelect => Effect::PreferNoSelect,
                wit_taints::Effect::NoSelectIfNew => Effect::NoSelectIfNew,
            },
        }
    }
}
