//! A loaded guest and the questions that it can be asked. Answers are not cached.

use crate::bindings::v0_1::{description, kubeconfig, taints, trigger};
use crate::failure::CallFailure;
use crate::limits::Limits;
use crate::load::{About, Exports};
use crate::measure::Lift;
use crate::receipt::Receipt;
use crate::run::{Call, Runnable};
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use transom_core::contract::decide::{Input, KubeconfigAnswer, Requirement};
use transom_core::contract::description::{Description, World};
use transom_core::contract::taints::{Decision, ManagedCluster};
use transom_core::contract::{
    Change, Context, Primary, Problem, Readiness, Refusal, Timed, Verdict,
};

/// A guest of one world. Cheap to clone; many threads can call it at once.
///
/// Every question runs in a fresh instance under the limits of that call, and blocks the calling thread until the
/// answer is there or a limit fires. A question of another world gives [`CallFailure::WrongWorld`].
#[derive(Clone)]
pub struct Guest {
    loaded: Arc<Loaded>,
}

pub(crate) struct Loaded {
    pub(crate) code: Runnable,
    pub(crate) about: About,
    pub(crate) exports: Exports,
    pub(crate) world: World,
    pub(crate) description: Description,
    pub(crate) words: BTreeSet<String>,
}

impl From<Arc<Loaded>> for Guest {
    fn from(loaded: Arc<Loaded>) -> Self {
        Self { loaded }
    }
}

impl Guest {
    /// `sha256:<hex>` of the component's bytes.
    pub fn digest(&self) -> &str {
        &self.loaded.code.compiled.digest
    }

    /// Bytes of the component.
    pub fn size(&self) -> u64 {
        self.loaded.code.compiled.size
    }

    /// The world that it was loaded for.
    pub fn world(&self) -> World {
        self.loaded.world
    }

    /// Its self-description, checked when it was loaded.
    pub fn description(&self) -> &Description {
        &self.loaded.description
    }

    /// Asks it to check settings, one JSON object; no problem means that it accepts them.
    pub fn validate(&self, limits: &Limits, settings: &str) -> Call<Vec<Problem>> {
        let About { validate, .. } = &self.loaded.about;
        self.loaded.code.call(
            limits,
            Some(&self.loaded.words),
            |lower| lower.text(settings),
            |store, instance, settings| {
                let asked: description::Validate<'_> =
                    instance.get_typed_func(&mut *store, validate)?;
                Ok(asked.call(store, (&settings,))?.0)
            },
            Lift::objections,
        )
    }

    /// Asks a trigger guest whether a primary may be reconciled.
    pub fn ready(
        &self,
        limits: &Limits,
        context: &Context,
        primary: &Primary,
    ) -> Call<Timed<Readiness>> {
        let Exports::Trigger { ready, .. } = &self.loaded.exports else {
            return self.wrong_world();
        };
        self.loaded.code.call(
            limits,
            Some(&self.loaded.words),
            |lower| lower.for_ready(context, primary),
            |store, instance, (context, primary)| {
                let asked: trigger::Ready<'_> = instance.get_typed_func(&mut *store, ready)?;
                Ok(asked.call(store, (&context, &primary))?.0)
            },
            Lift::readiness,
        )
    }

    /// Asks a trigger guest for a verdict on a change.
    pub fn evaluate(&self, limits: &Limits, context: &Context, change: &Change) -> Call<Verdict> {
        let Exports::Trigger { evaluate, .. } = &self.loaded.exports else {
            return self.wrong_world();
        };
        self.loaded.code.call(
            limits,
            Some(&self.loaded.words),
            |lower| lower.for_evaluate(context, change),
            |store, instance, (context, change)| {
                let asked: trigger::Evaluate<'_> =
                    instance.get_typed_func(&mut *store, evaluate)?;
                Ok(asked.call(store, (&context, &change))?.0)
            },
            Lift::verdict,
        )
    }

    /// Asks a kubeconfig guest what it needs and where the result goes.
    pub fn require(
        &self,
        limits: &Limits,
        context: &Context,
        primary: &Primary,
        found: &[Input],
    ) -> Call<Result<Requirement, Refusal>> {
        let Exports::Kubeconfig { require, .. } = &self.loaded.exports else {
            return self.wrong_world();
        };
        self.loaded.code.call(
            limits,
            Some(&self.loaded.words),
            |lower| lower.for_kubeconfig(context, primary, found),
            |store, instance, (context, primary, found)| {
                let asked: kubeconfig::Require<'_> =
                    instance.get_typed_func(&mut *store, require)?;
                Ok(asked.call(store, (&context, &primary, &found))?.0)
            },
            Lift::requirement,
        )
    }

    /// Asks a kubeconfig guest for the kubeconfig.
    pub fn transform(
        &self,
        limits: &Limits,
        context: &Context,
        primary: &Primary,
        inputs: &[Input],
    ) -> Call<Result<KubeconfigAnswer, Refusal>> {
        let Exports::Kubeconfig { transform, .. } = &self.loaded.exports else {
            return self.wrong_world();
        };
        self.loaded.code.call(
            limits,
            Some(&self.loaded.words),
            |lower| lower.for_kubeconfig(context, primary, inputs),
            |store, instance, (context, primary, inputs)| {
                let asked: kubeconfig::Transform<'_> =
                    instance.get_typed_func(&mut *store, transform)?;
                Ok(asked.call(store, (&context, &primary, &inputs))?.0)
            },
            Lift::kubeconfig,
        )
    }

    /// Asks a taints guest which taints a managed cluster should have.
    pub fn compute(
        &self,
        limits: &Limits,
        context: &Context,
        cluster: &ManagedCluster,
    ) -> Call<Result<Timed<Decision>, Refusal>> {
        let Exports::Taints { compute } = &self.loaded.exports else {
            return self.wrong_world();
        };
        self.loaded.code.call(
            limits,
            Some(&self.loaded.words),
            |lower| lower.for_compute(context, cluster),
            |store, instance, (context, cluster)| {
                let asked: taints::Compute<'_> = instance.get_typed_func(&mut *store, compute)?;
                Ok(asked.call(store, (&context, &cluster))?.0)
            },
            Lift::taints,
        )
    }

    fn wrong_world<T>(&self) -> Call<T> {
        Call {
            result: Err(CallFailure::WrongWorld(self.loaded.world)),
            receipt: Receipt::default(),
        }
    }
}

impl fmt::Debug for Guest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Description { name, version, .. } = &self.loaded.description;
        write!(
            f,
            "Guest({} {name} {version}, {})",
            self.loaded.world.name(),
            self.digest()
        )
    }
}
