//! Stages 3 and 4, gather: reads the primary, asks whether it is ready and what the guest needs, and reads that.
//! Failures name an object and a path, never the content of a Secret.

mod claim;
mod needs;
mod primary;
mod read;
mod shown;

use crate::controller::{Admitted, Controller, Ended, Touched};
use crate::policies::load::LoadedPolicy;
use shown::{as_shown, gone_since, shown};
use std::sync::Arc;
use transom_core::contract::decide::Input;
use transom_core::contract::{Primary, Readiness, Timed};
use transom_core::digest::Digest;
use transom_core::failure::{Class, Failure};
use transom_core::inputs::kubeconfigs::Kubeconfigs;
use transom_core::inputs::secrets::Secrets;
use transom_core::inputs::{self, Found};
use transom_core::object::Object;
use transom_core::pattern::TemplateData;
use transom_core::plan::prune::{PruneCandidate, Undesired};
use transom_core::plan::{Other, Step, TargetState, TimeAdded};
use transom_core::reference::ObjectRef;
use transom_core::requirements::{NextRound, Rounds};
use transom_core::rollout::expected;
use transom_core::work::Key;

/// Everything that a decision rests on.
pub(super) struct Gathered {
    /// The reconcile.
    pub(super) admitted: Arc<Admitted>,
    /// The primary and what the guest gets to see; `None` when the primary is gone.
    pub(super) observed: Option<ObservedState>,
    /// What was made for the primary and is no longer desired.
    pub(super) undesired: Leftovers,
    /// What was read.
    pub(super) touched: Touched,
}

/// A primary that may be reconciled, and what was read for it.
pub(super) struct ObservedState {
    /// The time of the last call of `require`, in seconds since 1970. The guest decides as of the same time: if an age
    /// limit passed between the two calls, it could want an object that it did not name.
    pub(super) as_of: i64,
    pub(super) primary: Arc<Object>,
    pub(super) view: Primary,
    /// The objects that the policy may make, each as it is.
    pub(super) targets: Vec<TargetState>,
    /// The one of these that every answer makes, if there is one.
    pub(super) certain: Option<ObjectRef>,
    /// The objects that others made and that the policy may write, each as it is.
    pub(super) others: Vec<Other>,
    pub(super) inputs: Vec<Input>,
    /// Digest of them exactly as they were read, where plans are compared.
    pub(super) read: Option<Digest>,
    /// Whether an object that may be written changed since it was read as an input: versions say nothing about it then.
    pub(super) moved: bool,
    pub(super) kubeconfigs: Kubeconfigs,
    pub(super) secrets: Secrets,
    pub(super) time_added: TimeAdded,
    /// The room in use before the inputs were read.
    pub(super) room_before: u32,
}

impl ObservedState {
    /// The object that the answer is about first: a target, else the primary.
    pub(super) fn target(&self) -> &ObjectRef {
        let others = self.others.iter().map(|one| &one.object);
        let mut targets = self.targets.iter().map(|one| &one.object).chain(others);
        targets.next().unwrap_or(&self.primary.reference)
    }

    /// The primary and the objects that may be written for it, as they are.
    pub(super) fn present(&self) -> impl Iterator<Item = &Object> {
        let targets = self.targets.iter();
        let targets = targets.filter_map(|one| one.existing.as_deref());
        let others = self.others.iter();
        let others = others.filter_map(|one| one.existing.as_deref());
        [&*self.primary].into_iter().chain(targets).chain(others)
    }
}

/// Objects that were made for a primary and are no longer desired, or that its answer may leave out.
pub(super) struct Leftovers {
    pub(super) why: Undesired,
    pub(super) candidates: Vec<PruneCandidate>,
    /// Why they could not all be read.
    pub(super) unread: Option<Failure>,
    /// Takes the policy's finalizer off an object that is no primary any more.
    pub(super) release: Option<Step>,
}

impl Controller {
    /// Reads everything that the decision rests on. Starts again when there was no room for it; nothing was written
    /// then.
    pub(super) async fn gather(&self, admitted: Arc<Admitted>) -> Result<Gathered, Box<Ended>> {
        let work = &admitted.work;
        let mut room = self.documents.room(&work.key.policy);
        loop {
            self.accounts.begin(&work.key);
            let mut reader = Reader {
                controller: self,
                loaded: &admitted.loaded,
                key: &work.key,
                touched: Touched::new(&admitted, room),
                first_round: None,
            };
            let read = reader.all().await;
            let touched = reader.touched;
            if touched.room.lacks() {
                room = touched.room.again().await;
                continue;
            }
            return match read {
                Err(failure) => Err(touched.end(failure)),
                Ok((observed, undesired)) => Ok(Gathered {
                    admitted: Arc::clone(&admitted),
                    observed,
                    undesired,
                    touched,
                }),
            };
        }
    }

    /// The values for the templates of a grant.
    pub(super) fn template_data<'a>(&'a self, primary: &'a Object) -> TemplateData<'a> {
        TemplateData {
            object: primary,
            agent: &self.facts,
        }
    }
}

/// Reads for one reconcile.
struct Reader<'a> {
    controller: &'a Controller,
    loaded: &'a LoadedPolicy,
    key: &'a Key,
    touched: Touched,
    /// The first round of `require`, which shows no inputs, if the primary was located before.
    first_round: Option<FirstRound>,
}

/// The first round: what the guest was shown of the primary, its rounds so far, and what it named.
type FirstRound = (Primary, Rounds, Result<Named, Failure>);

/// What a guest named in one round.
struct Named {
    /// The time of the call, in seconds since 1970.
    as_of: i64,
    /// The object that every answer makes, if there is one.
    certain: Option<ObjectRef>,
    targets: Vec<ObjectRef>,
    others: Vec<ObjectRef>,
    next: NextRound,
    /// Whether primaries of the policy are not located yet.
    others_unlocated: bool,
}

impl Reader<'_> {
    async fn all(&mut self) -> Result<(Option<ObservedState>, Leftovers), Failure> {
        let (controller, policy) = (self.controller, &self.loaded.revision.policy);
        let primary = self.primary().await?;
        let Some(primary) = primary.filter(|there| policy.is_about(there)) else {
            self.touched.cluster_uid = self.cluster_uid().await?;
            return Ok((None, self.of_gone().await?));
        };
        controller.meet(self.key, primary.uid());
        let accounts = &controller.accounts;
        accounts.read(self.key, "primary", &self.key.primary, Some(&primary));
        let generation = primary.body.pointer("/metadata/generation");
        self.touched.reconcile.observed_generation = generation.and_then(serde_json::Value::as_i64);
        let primary = Arc::new(primary);
        self.touched.primary = Some(Arc::clone(&primary));
        self.touched.last_seen = Some(Arc::clone(&primary));
        if let Some(unlocated) = self.locate_only(&primary) {
            return Err(unlocated);
        }
        if policy.marks_elsewhere().next().is_some() {
            let uid = primary.uid().into();
            controller.memory.lock().uids.insert(self.key.clone(), uid);
        }
        let ready = match policy.held(&primary) {
            Ok(()) => {
                self.touched.cluster_uid = self.cluster_uid().await?;
                self.ready(&primary)
            }
            held => held,
        };
        if let Err(held) = ready {
            if self.first_round.is_none() {
                self.locate(&primary);
            }
            return Err(held);
        }
        let observed = match policy.world.requires() {
            true => self.required(primary).await?,
            false => self.of_primary_alone(primary).await,
        };
        let undesired = self.moved_from(&observed).await;
        Ok((Some(observed), undesired))
    }

    /// Whether the primary may be reconciled at all.
    fn ready(&mut self, primary: &Object) -> Result<(), Failure> {
        let (trigger, described) = (&self.loaded.trigger, &self.loaded.revision.trigger);
        let Some((guest, described)) = trigger.as_ref().zip(described.as_ref()) else {
            return Ok(());
        };
        let view = inputs::primary(primary, described)?;
        let context = self.controller.context(described);
        let call = guest.ready(&self.loaded.limits, &context, &view);
        let Timed {
            answer: readiness,
            ask_again_at,
        } = self
            .controller
            .answer(self.loaded, self.key, "ready", call)?;
        self.touched.ask_again(ask_again_at);
        match readiness {
            Readiness::Ready => Ok(()),
            Readiness::NotReady(problem) => {
                Err(described.failure(Class::Held, &problem).until(ask_again_at))
            }
        }
    }

    /// The state for a world without `require`: its guest sees only the primary, and writes only fields of it.
    async fn of_primary_alone(&mut self, primary: Arc<Object>) -> ObservedState {
        let described = &self.loaded.revision.decide;
        let ObjectRef {
            api_version, kind, ..
        } = &primary.reference;
        self.touched.reconcile.target = Some(primary.reference.clone());
        let declared = described.declared(api_version, kind);
        ObservedState {
            as_of: self.controller.clock.now_seconds(),
            view: declared.primary(&primary),
            time_added: self.time_added(&primary).await,
            primary,
            targets: Vec::new(),
            certain: None,
            others: Vec::new(),
            inputs: Vec::new(),
            read: None,
            moved: false,
            kubeconfigs: Kubeconfigs::new(self.controller.kubeconfig_limits),
            secrets: Secrets::default(),
            room_before: self.touched.room.used(),
        }
    }

    /// Who sets the times of new taints of the primary. Asks the cluster only when the policy owns taints: only then
    /// it has the right to.
    async fn time_added(&self, primary: &Object) -> TimeAdded {
        if self.loaded.revision.policy.taint_keys().next().is_none() {
            return TimeAdded::SetByCluster;
        }
        let now_seconds = self.controller.clock.now_seconds();
        let connections = &self.controller.connections;
        connections
            .time_added(&primary.reference, now_seconds)
            .await
    }

    /// Asks the guest what it needs and reads it, until it needs nothing new.
    async fn required(&mut self, primary: Arc<Object>) -> Result<ObservedState, Failure> {
        let controller = self.controller;
        let (view, mut rounds, mut named) = match self.first_round.take() {
            Some(first) => first,
            None => self.first_round(&primary)?,
        };
        let mut round = self.nothing_read();
        let room_before = self.touched.room.used();
        let (as_of, certain, targets, others) = loop {
            let now = named?;
            let first = now.targets.first().unwrap_or(&primary.reference);
            self.touched.reconcile.target = Some(first.clone());
            let (targets, waits) = (&now.targets, now.others_unlocated);
            let NextRound::Read(needs) = now.next else {
                let targets = self.read_targets(&primary, targets, waits).await?;
                break (now.as_of, now.certain, targets, now.others);
            };
            self.defer_targets(&primary, targets, waits).await?;
            // Frees what the last round read before more is read.
            drop(round);
            self.touched.room.back(room_before);
            round = self.round(needs).await?;
            named = self.ask(&primary, &view, &mut rounds, &round.inputs);
        };
        self.touched.reconcile.inputs =
            Some(inputs::digest(&view, &round.found, &round.inputs).to_string());
        let compares = controller.compares(self.loaded);
        let read = compares.then(|| expected::inputs(&round.found, &round.inputs));
        let written = self
            .written(&primary, &round.found, targets, &others)
            .await?;
        let (targets, others, moved) = written;
        Ok(ObservedState {
            as_of,
            time_added: self.time_added(&primary).await,
            primary,
            view,
            targets,
            certain,
            others,
            inputs: round.inputs,
            read,
            moved,
            kubeconfigs: round.kubeconfigs,
            secrets: round.secrets,
            room_before,
        })
    }

    /// What may be written, as it is: targets, of which some are taken over, and objects that others made; and whether
    /// any of it changed since it was found.
    async fn written(
        &mut self,
        primary: &Object,
        found: &[Found],
        mut targets: Vec<TargetState>,
        others: &[ObjectRef],
    ) -> Result<(Vec<TargetState>, Vec<Other>, bool), Failure> {
        for one in &mut targets {
            if one.existing.is_none() && shown(found, &one.object).is_some() {
                return Err(gone_since(&one.object));
            }
            one.withheld = self.take_over(one).await?;
        }
        let mut others = self.of_others(primary, others).await?;
        let made = targets.iter_mut().map(|one| &mut one.existing);
        let mut moved = false;
        for existing in made.chain(others.iter_mut().map(|one| &mut one.existing)) {
            moved |= as_shown(found, existing);
        }
        Ok((targets, others, moved))
    }
}
