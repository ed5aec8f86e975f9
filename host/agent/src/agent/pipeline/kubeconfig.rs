//! Stages 3 to 7 of a policy that owns Secrets with a kubeconfig. No message contains a byte of a credential.

mod source;

use super::Seen;
use crate::agent::invoke::answer;
use crate::agent::{Agent, account};
use crate::policies::load::Loaded;
use source::Sources;
use std::sync::Arc;
use std::time::Duration;
use transom_core::contract::credentials::Proposal;
use transom_core::contract::decide::{Input, Need, Requirement};
use transom_core::contract::{Primary, Timed};
use transom_core::failure::Failure;
use transom_core::inputs::{self, Found};
use transom_core::kubeconfig::Terms;
use transom_core::object::Object;
use transom_core::ownership::{Contender, Ownership};
use transom_core::pattern::TemplateData;
use transom_core::plan::Plan;
use transom_core::plan::handover::Handover;
use transom_core::plan::kubeconfig::{self, Document, Wanted};
use transom_core::plan::prune::Undesired;
use transom_core::policy::Writes;
use transom_core::reference::ObjectRef;
use transom_core::report::Success;
use transom_core::requirements::{self, Next, Rounds};
use transom_core::stamp::Stamp;
use transom_core::work::Key;
use transom_engine::Limits;

/// How long after its beginning a policy waits for the primaries of other policies that may want the same targets. Once
/// they are located, the oldest contender is known, whichever policy was loaded first. The limit keeps a guest that
/// takes long for each primary from holding up other policies.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often the claim is checked again meanwhile.
const AGAIN_SECONDS: i64 = 5;

/// One reconcile of a kubeconfig policy.
struct Asking<'a> {
    agent: &'a Agent,
    loaded: &'a Arc<Loaded>,
    key: &'a Key,
    primary: &'a Arc<Object>,
    view: Primary,
}

/// The results of stages 3 and 4.
struct Gathered {
    target: ObjectRef,
    existing: Option<Object>,
    ownership: Ownership,
    inputs: Vec<Input>,
    sources: Sources,
}

impl Agent {
    /// Locates the target, gathers what the guest needs, has it transform, plans, applies, and prunes other outputs.
    pub(super) async fn kubeconfig(
        &self,
        loaded: &Arc<Loaded>,
        key: &Key,
        primary: &Arc<Object>,
        seen: &mut Seen,
    ) -> Result<Success, Failure> {
        let view = inputs::primary(primary, &loaded.revision.decide)?;
        let asking = Asking {
            agent: self,
            loaded,
            key,
            primary,
            view,
        };
        let before = seen.room.used();
        let gathered = asking.gather(seen).await?;
        asking.succeed(&gathered, seen).await?;
        let proposal = asking.transform(&gathered, seen)?;
        let plan = asking.plan(&gathered, &proposal, seen)?;
        seen.ends_seconds = gathered.sources.only()?.kubeconfig.ends_seconds(&proposal);
        // Frees everything but the plan before waiting for a server.
        let target = gathered.target.clone();
        drop(gathered);
        seen.room.back(before + (seen.room.used() - before) / 2);
        let mut outcome = self.apply(key, plan, seen).await;
        let mut kept = None;
        if outcome.is_whole() {
            // What was written is reported even when pruning fails.
            match self
                .prune(loaded, key, Some(&target), Undesired::TargetMoved, seen)
                .await
            {
                Ok((pruned, still)) => {
                    outcome.steps.extend(pruned.steps);
                    outcome.stopped = pruned.stopped;
                    kept = still;
                }
                Err(failure) => kept = Some(failure),
            }
        }
        Ok(Success {
            gone: false,
            outcome,
            kept,
            ask_again_at: seen.ask_again_at,
        })
    }
}

impl Agent {
    /// Claims the target of a primary that is held, so that no other primary takes it meanwhile. When the guest cannot
    /// name the target, an earlier claim stays. The guest of a suspended policy is not asked.
    pub(super) fn locate(&self, loaded: &Arc<Loaded>, key: &Key, primary: &Arc<Object>) {
        let policy = &loaded.revision.policy;
        if !matches!(policy.writes, Writes::Kubeconfig(_)) || policy.suspend {
            return;
        }
        let located = inputs::primary(primary, &loaded.revision.decide).and_then(|view| {
            let asking = Asking {
                agent: self,
                loaded,
                key,
                primary,
                view,
            };
            let asked = asking.require(&[])?;
            let target = asked.target.clone();
            Rounds::default()
                .answer(policy, &asking.template_data(), asked)
                .map(|_| target)
        });
        if let Ok(target) = located {
            let woken = self
                .known
                .lock()
                .ownership
                .set(Contender::of(key, Some(primary)), target);
            self.wake(woken);
        }
    }
}

impl Asking<'_> {
    /// The values for the templates of the grant.
    fn template_data(&self) -> TemplateData<'_> {
        TemplateData {
            object: self.primary,
            agent: &self.agent.facts,
        }
    }

    /// Stages 3 and 4: asks the guest what it needs and reads it, until it needs nothing new.
    async fn gather(&self, seen: &mut Seen) -> Result<Gathered, Failure> {
        let described = &self.loaded.revision.decide;
        let limits = self.agent.kubeconfig_limits;
        let (mut rounds, mut found, mut inputs, mut sources) = (
            Rounds::default(),
            Vec::new(),
            Vec::new(),
            Sources::new(limits),
        );
        let room = seen.room.used();
        let complete = loop {
            let asked = self.require(&inputs)?;
            let target = asked.target.clone();
            let next = rounds.answer(&self.loaded.revision.policy, &self.template_data(), asked)?;
            let (existing, ownership) = self.ownership(&target, seen).await?;
            match next {
                Next::Complete(complete) => break (complete, existing, ownership),
                Next::Read(needs) => {
                    if let Ownership::Pending { remaining } = ownership {
                        return Err(kubeconfig::unlocated(&target, remaining));
                    }
                    // Frees what the last round read before more is read.
                    drop((existing, std::mem::take(&mut found)));
                    sources = Sources::new(limits);
                    seen.room.back(room);
                    found = self.read(needs, seen).await?;
                    seen.room.take_up_to(sources.cost(&found))?;
                    inputs::judge(&found, described)?;
                    inputs = inputs::cross(&found, described, |found, object, key| {
                        sources.read(found, object, key)
                    })?;
                }
            }
        };
        seen.reconcile.inputs = Some(inputs::digest(&self.view, &found, &inputs).to_string());
        let (Requirement { target, .. }, existing, ownership) = complete;
        Ok(Gathered {
            target,
            existing,
            ownership,
            inputs,
            sources,
        })
    }

    fn require(&self, inputs: &[Input]) -> Result<Requirement, Failure> {
        let (guest, described) = (&self.loaded.decide, &self.loaded.revision.decide);
        let context = self.agent.context(described);
        let answered = answer(
            self.key,
            "require",
            guest.require(&Limits::default(), &context, &self.view, inputs),
        )?;
        answered.map_err(|refusal| {
            requirements::refused(
                &self.loaded.revision.policy,
                &self.template_data(),
                described,
                refusal,
            )
        })
    }

    async fn read(&self, needs: Vec<Need>, seen: &mut Seen) -> Result<Vec<Found>, Failure> {
        let references: Vec<ObjectRef> = needs.iter().map(|need| need.reference.clone()).collect();
        let objects = self.look(&references, seen).await?;
        for (need, object) in needs.iter().zip(&objects) {
            self.agent
                .accounts
                .read(self.key, &need.role, &need.reference, object.as_deref());
        }
        Ok(needs
            .into_iter()
            .zip(objects)
            .map(|(need, object)| Found { need, object })
            .collect())
    }

    /// Reads objects, in the order of `references`; `None` for an absent one.
    async fn look(
        &self,
        references: &[ObjectRef],
        seen: &mut Seen,
    ) -> Result<Vec<Option<Arc<Object>>>, Failure> {
        self.agent.known.lock().about_to_read(self.key, references);
        seen.objects
            .extend(references.iter().map(|object| (object.clone(), None)));
        let mut objects = Vec::with_capacity(references.len());
        // Takes room for all of them before the first one is decoded.
        let known: Vec<_> = references
            .iter()
            .map(|reference| self.agent.room_for(reference, seen))
            .collect();
        for (reference, known) in references
            .iter()
            .zip(known.into_iter().collect::<Result<Vec<_>, _>>()?)
        {
            let object = self
                .agent
                .look_within(reference, known, seen)
                .await?
                .map(Arc::new);
            seen.read(reference, object.as_deref());
            objects.push(object);
        }
        Ok(objects)
    }

    /// Claims the target for the primary and reads it; returns whether the primary may have it.
    async fn ownership(
        &self,
        target: &ObjectRef,
        seen: &mut Seen,
    ) -> Result<(Option<Object>, Ownership), Failure> {
        seen.reconcile.target = Some(target.clone());
        self.agent
            .known
            .lock()
            .about_to_read(self.key, std::slice::from_ref(target));
        seen.objects.insert(target.clone(), None);
        let existing = self.agent.look_at(target, seen).await?;
        seen.read(target, existing.as_ref());
        self.agent
            .accounts
            .read(self.key, "target", target, existing.as_ref());
        let stamp = existing.as_ref().and_then(Stamp::read);
        let others = self
            .agent
            .queue(&self.key.policy)
            .is_some_and(|queue| queue.begun.elapsed() < PATIENCE);
        let (woken, ownership) = {
            let mut known = self.agent.known.lock();
            let woken = known
                .ownership
                .set(Contender::of(self.key, Some(self.primary)), target.clone());
            (
                woken,
                known.ownership.decide(self.key, stamp.as_ref(), others),
            )
        };
        self.agent.wake(woken);
        if others && matches!(ownership, Ownership::Pending { .. }) {
            seen.ask_again(Some(
                self.agent.clock.now_seconds().saturating_add(AGAIN_SECONDS),
            ));
        }
        Ok((existing, ownership))
    }

    /// Checks whether a target that was made for another primary may be taken over now.
    async fn succeed(&self, gathered: &Gathered, seen: &mut Seen) -> Result<(), Failure> {
        let Gathered {
            existing: Some(existing),
            ownership: Ownership::Owner { .. },
            ..
        } = gathered
        else {
            return Ok(());
        };
        let policy = &self.loaded.revision.policy;
        let Some(handover) = Handover::of(policy, self.primary, self.key, existing) else {
            return Ok(());
        };
        let connected = self.agent.connections.has(&handover.former.primary.cluster);
        let keepers = self.look(&handover.keepers, seen).await?;
        handover.judge(connected, &keepers)?;
        // A takeover cannot be undone, and a watch may lag behind the API server.
        let mut confirmed = Vec::with_capacity(keepers.len());
        for keeper in &handover.keepers {
            confirmed.push(self.agent.connections.confirm(keeper).await?.map(Arc::new));
        }
        handover.judge(connected, &confirmed)
    }

    /// Stage 5.
    fn transform(&self, gathered: &Gathered, seen: &mut Seen) -> Result<Proposal, Failure> {
        let (guest, described) = (&self.loaded.decide, &self.loaded.revision.decide);
        let context = self.agent.context(described);
        let answered = answer(
            self.key,
            "transform",
            guest.transform(&Limits::default(), &context, &self.view, &gathered.inputs),
        )?;
        let refused = |refusal| {
            requirements::refused(
                &self.loaded.revision.policy,
                &self.template_data(),
                described,
                refusal,
            )
        };
        let Timed {
            answer,
            ask_again_at,
        } = answered.map_err(refused)?;
        seen.ask_again(ask_again_at);
        self.agent.accounts.note(self.key, |account| {
            account.decision = Some(account::of_proposal(&answer))
        });
        Ok(answer)
    }

    /// Stage 6.
    fn plan(&self, gathered: &Gathered, proposal: &Proposal, seen: &Seen) -> Result<Plan, Failure> {
        let policy = &self.loaded.revision.policy;
        let now_seconds = self.agent.clock.now_seconds();
        let inputs = seen.reconcile.inputs.as_deref().unwrap_or_default();
        let source = gathered.sources.only()?;
        let rule = policy.secret(&gathered.target, &self.template_data())?;
        let terms = Terms {
            grant: &rule.kubeconfig,
            source_role: &source.role,
            inputs: &gathered.inputs,
            primary: &self.view.fields,
            now_seconds,
            limits: gathered.sources.limits(),
        };
        let assembled = source
            .kubeconfig
            .assemble(proposal, &terms)
            .map_err(|error| source.failure(&error))?;
        let wanted = Wanted {
            policy,
            key: self.key,
            data: self.template_data(),
            target: &gathered.target,
            existing: gathered.existing.as_ref(),
            ownership: gathered.ownership.clone(),
            stamp: Stamp::of(
                self.key,
                self.primary,
                inputs,
                &self.loaded.revision.decide.digest,
            ),
            document: Document {
                bytes: assembled.to_yaml().as_bytes(),
                equals: &|bytes| assembled.says_the_same(bytes),
                shares_credential: &|bytes| {
                    source.kubeconfig.shares_credential(bytes, &terms.limits)
                },
            },
        };
        let mut known = self.agent.known.lock();
        let written = (Arc::clone(&self.key.policy), gathered.target.clone());
        let contention = known.contention.entry(written).or_default();
        kubeconfig::plan(&wanted, contention, now_seconds)
    }
}
