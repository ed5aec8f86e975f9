//! The taints world: its function, and the conversion of its arguments and answers.

use super::{Binding, Decide, decided, wit};
use crate::call::CallState;
use crate::case::{self, GivenCase, outcome, timed};
use crate::guest::{Decided, Find, Function, Guest, Question};
use crate::limits::CallLimits;
use crate::measure::{Lift, Lower};
use crate::run::Call;
use generated::exports::transom::policy::taints as wit_taints;
use serde_json::Value;
use std::sync::Arc;
use transom_core::contract::description::Read;
use transom_core::contract::taints::{
    ClusterCondition, Decision, ManagedCluster, Status, Taint, TaintEffect, WantedTaint,
};
use transom_core::contract::{Context, GuestRefusal, Timed};
use transom_core::failure::Failure;
use transom_core::managed_cluster::{self, declared};
use transom_core::world::{TAINTS, World};
use wasmtime::component::Instance;
use wasmtime::{Result as WasmResult, Store};

mod generated {
    wasmtime::component::bindgen!({
        path: "../../wit/released/0.1.0",
        inline: "
            package transom:host;
            world taints {
                export transom:policy/taints@0.1.0;
            }
        ",
        with: { "transom:policy/types@0.1.0": crate::bindings::v0_1::generated::transom::policy::types },
    });
}

/// The binding of this world.
pub(in crate::bindings) const BINDING: &dyn Binding = &Taints;

struct Taints;

impl Binding for Taints {
    fn world(&self) -> &'static dyn World {
        TAINTS
    }

    fn locate(&self, find: &Find<'_>) -> Result<Arc<dyn Decide>, String> {
        let compute = find.function(&find.interface("taints"), "compute")?;
        Ok(Arc::new(Functions { compute }))
    }

    /// A taints guest gets a record: it must declare what fills a field of it.
    fn fault(&self, read: &Read) -> Option<String> {
        declared::fault(read)
    }
}

struct Functions {
    /// Returns the taints that a managed cluster should have.
    compute: Function<(wit::Context, wit_taints::ManagedCluster), Answered>,
}

impl Decide for Functions {
    fn check(&self, store: &mut Store<CallState>, instance: &Instance) -> WasmResult<()> {
        self.compute.check(store, instance).map(drop)
    }

    fn decides_by(&self) -> &'static str {
        "compute"
    }

    fn decide(
        &self,
        guest: &Guest,
        limits: &CallLimits,
        question: &Question<'_>,
    ) -> Result<Call<Decided>, Failure> {
        let object = question.object;
        let (api_version, kind) = (&object.reference.api_version, &object.reference.kind);
        let declared = question.described.declared(api_version, kind);
        let cluster = managed_cluster::view(object, declared)
            .map_err(|invalid| Failure::invalid_object(object, &invalid))?;
        let call = guest.compute(limits, question.context, &cluster);
        Ok(call.map(decided))
    }

    fn ask(&self, guest: &Guest, given: &mut GivenCase) -> Result<Call<Value>, String> {
        let context = given.context()?;
        let cluster = given.take::<ManagedCluster>("cluster")?;
        let cluster = cluster.ok_or("`cluster` is missing")?;
        let declared = case::declared(guest, &cluster.reference)?;
        let cluster = declared::cut(&cluster, &declared).map_err(|error| error.to_string())?;
        let call = guest.compute(&CallLimits::default(), &context, &cluster);
        Ok(call.map(|answer| outcome(&answer, |answer| timed("decision", answer))))
    }
}

impl Guest {
    /// Asks a taints guest which taints a managed cluster should have.
    pub fn compute(
        &self,
        limits: &CallLimits,
        context: &Context,
        cluster: &ManagedCluster,
    ) -> Call<Result<Timed<Decision>, GuestRefusal>> {
        let Some(Functions { compute }) = self.functions() else {
            return self.wrong_world();
        };
        self.call(
            limits,
            compute,
            |lower| (lower.context(context), lower.managed_cluster(cluster)),
            Lift::taints,
        )
    }
}

type Answered = Result<wit_taints::Answer, wit::Failure>;

impl Lower {
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

    fn condition(&mut self, condition: &ClusterCondition) -> wit_taints::Condition {
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
                TaintEffect::NoSelect => wit_taints::Effect::NoSelect,
                TaintEffect::PreferNoSelect => wit_taints::Effect::PreferNoSelect,
                TaintEffect::NoSelectIfNew => wit_taints::Effect::NoSelectIfNew,
            },
            added_seconds: taint.added_seconds,
        }
    }
}

impl Lift<'_> {
    fn taints(&mut self, answer: Answered) -> Result<Timed<Decision>, GuestRefusal> {
        self.answer(answer, |lift, answer| Timed {
            answer: match answer.decision {
                wit_taints::Decision::Own(wanted) => Decision::Own(lift.list(wanted, Self::wanted)),
                wit_taints::Decision::Hold(problem) => Decision::Hold(lift.problem(problem)),
            },
            ask_again_at: answer.ask_again_at,
        })
    }

    fn wanted(&mut self, wanted: wit_taints::Wanted) -> WantedTaint {
        WantedTaint {
            key: self.text(wanted.key),
            value: self.text(wanted.value),
            effect: match wanted.effect {
                wit_taints::Effect::NoSelect => TaintEffect::NoSelect,
                wit_taints::Effect::PreferNoSelect => TaintEffect::PreferNoSelect,
                wit_taints::Effect::NoSelectIfNew => TaintEffect::NoSelectIfNew,
            },
        }
    }
}
