//! Asks a guest what it needs, reads that in the form that each need asks for, and records which changes of it count.

use super::{FirstRound, Named, Reader};
use std::sync::Arc;
use transom_api::KnownReason;
use transom_core::contract::Primary;
use transom_core::contract::decide::{
    Absence, Age, Form, Input, InputValue, LabelTerm, LastOutcome, Member, Need, Query,
    Requirement, Review, Wake, Who,
};
use transom_core::failure::Failure;
use transom_core::inputs::age::Freshness;
use transom_core::inputs::kubeconfigs::Kubeconfigs;
use transom_core::inputs::request;
use transom_core::inputs::secrets::Secrets;
use transom_core::inputs::seen::Seen;
use transom_core::inputs::sets::{Members, SeenSet, SetQuestion};
use transom_core::inputs::sightings::MOST;
use transom_core::inputs::{self, Found};
use transom_core::object::Object;
use transom_core::policy::EveryRule;
use transom_core::reference::ObjectRef;
use transom_core::requirements::{self, Rounds};
use transom_core::watches::Scope;

/// An object as it was read, and how long ago the agent saw a field of it change.
type ObservedObject = (Option<Arc<Object>>, Option<Freshness>);

/// What was read for one round of `require`.
pub(super) struct RoundRead {
    pub(super) found: Vec<Found>,
    /// What the guest gets of it.
    pub(super) inputs: Vec<Input>,
    pub(super) kubeconfigs: Kubeconfigs,
    pub(super) secrets: Secrets,
}

impl Reader<'_> {
    pub(super) fn nothing_read(&self) -> RoundRead {
        RoundRead {
            found: Vec::new(),
            inputs: Vec::new(),
            kubeconfigs: Kubeconfigs::new(self.controller.kubeconfig_limits),
            secrets: Secrets::default(),
        }
    }

    /// Reads what the guest needs in one round.
    pub(super) async fn round(&mut self, needs: Vec<Need>) -> Result<RoundRead, Failure> {
        let mut round = self.nothing_read();
        round.found = self.read(needs).await?;
        let (found, kubeconfigs) = (&mut round.found, &mut round.kubeconfigs);
        let cost = kubeconfigs.cost(found) + Secrets::cost(found);
        self.touched.room.take_up_to(cost)?;
        let described = &self.loaded.revision.decide;
        inputs::check_present(found, described)?;
        let mut read = |found: &_, object: &_, key: &_| kubeconfigs.read(found, object, key);
        let now_seconds = self.controller.clock.now_seconds();
        let secrets = &mut round.secrets;
        round.inputs = inputs::cross(found, described, now_seconds, secrets, &mut read)?;
        Ok(round)
    }

    /// The first round, which shows no inputs.
    pub(super) fn first_round(&mut self, primary: &Arc<Object>) -> Result<FirstRound, Failure> {
        let view = inputs::primary(primary, &self.loaded.revision.decide)?;
        let mut rounds = Rounds::default();
        let named = self.ask(primary, &view, &mut rounds, &[]);
        Ok((view, rounds, named))
    }

    /// Asks the guest what it needs next, and claims the targets that it names: all of them, where each answer names
    /// the one target or no other round follows, or some.
    pub(super) fn ask(
        &mut self,
        primary: &Arc<Object>,
        view: &Primary,
        rounds: &mut Rounds,
        inputs: &[Input],
    ) -> Result<Named, Failure> {
        let (as_of, asked) = self.require(primary, view, inputs)?;
        let certain = asked.target.clone();
        let data = self.controller.template_data(primary);
        let policy = &self.loaded.revision.policy;
        let (targets, others) = policy.targets_of(&asked, &data);
        let next = rounds.answer(policy, &data, asked)?;
        let others_unlocated = self.set_claims(primary, &targets, rounds.named_all(&next));
        Ok(Named {
            as_of,
            certain,
            targets,
            others,
            next,
            others_unlocated,
        })
    }

    /// What the guest asks for, and as of when.
    fn require(
        &self,
        primary: &Object,
        view: &Primary,
        inputs: &[Input],
    ) -> Result<(i64, Requirement), Failure> {
        let (guest, described) = (&self.loaded.decide, &self.loaded.revision.decide);
        let context = self.controller.context(described);
        let as_of = context.now_seconds;
        let call = guest.require(&self.loaded.limits, &context, view, inputs);
        self.controller
            .answer(self.loaded, self.key, "require", call)?
            .map(|requirement| (as_of, requirement))
            .map_err(|refusal| {
                let data = self.controller.template_data(primary);
                requirements::refused(&self.loaded.revision.policy, &data, described, refusal)
            })
    }

    /// What was found for each need, in their order.
    pub(super) async fn read(&mut self, needs: Vec<Need>) -> Result<Vec<Found>, Failure> {
        let is_one = |need: &&Need| match need.form {
            Form::Every(_) | Form::Count(_) | Form::Access(_) => false,
            Form::Outcome | Form::FailedWrite => false,
            Form::Presence | Form::Object | Form::CertificateRequest => true,
            Form::Age(_) | Form::Observed(_) => true,
            Form::Service | Form::Kubeconfig(_) | Form::Secret(_) | Form::Certificate(_) => true,
        };
        let ones: Vec<&Need> = needs.iter().filter(is_one).collect();
        let mut objects = self.look_for(&ones).await?.into_iter();
        let mut found = Vec::with_capacity(needs.len());
        for need in needs {
            let (object, observed) = match is_one(&&need) {
                true => objects.next().unwrap_or_default(),
                false => Default::default(),
            };
            let mut one = Found::one(need, object);
            one.observed = observed;
            match &one.need.form {
                Form::Every(query) => {
                    let members = self.every(&one.need, query).await?;
                    one.value = Some(InputValue::Every(members));
                }
                Form::Count(labels) => {
                    let number = self.count(&one.need, labels).await?;
                    one.value = Some(InputValue::Count(number));
                }
                Form::Outcome => {
                    let outcome = self.outcome().map(InputValue::Outcome);
                    one.value = Some(outcome.unwrap_or_default());
                }
                Form::FailedWrite => {
                    let failed = self.controller.memory.lock().failed_write(self.key);
                    self.touched.shown_failure = Some(failed.clone());
                    one.value = Some(failed.map(InputValue::FailedWrite).unwrap_or_default());
                }
                Form::Access(review) => one.value = Some(self.access(review).await?),
                _ => {
                    let Need {
                        role, reference, ..
                    } = &one.need;
                    let accounts = &self.controller.accounts;
                    accounts.read(self.key, role, reference, one.object.as_deref());
                }
            }
            found.push(one);
        }
        Ok(found)
    }

    /// The objects of needs, and how long ago a field changed where a need asks for that. Each is registered before it
    /// is read, so that no change is missed meanwhile.
    async fn look_for(&mut self, needs: &[&Need]) -> Result<Vec<ObservedObject>, Failure> {
        let wakes =
            |need: &&&Need| need.wake != Wake::Never || matches!(need.absence, Absence::Wait(_));
        let wakes = needs.iter().filter(wakes);
        let wakes: Vec<ObjectRef> = wakes.map(|need| need.reference.clone()).collect();
        self.depend_on(&wakes);
        // Several needs may ask for one object: it is read once, so that all show one state of it.
        let mut references: Vec<ObjectRef> = Vec::with_capacity(needs.len());
        for need in needs.iter().filter(|need| requirements::may_exist(need)) {
            if !references.contains(&need.reference) {
                references.push(need.reference.clone());
            }
        }
        let read = self.read_untracked(&references).await?;
        let objects = needs.iter().map(|need| {
            let at = references.iter().position(|one| *one == need.reference);
            at.and_then(|at| read.get(at).cloned()).flatten()
        });
        let now_seconds = self.controller.clock.now_seconds();
        let mut looked = Vec::with_capacity(needs.len());
        for (need, object) in needs.iter().zip(objects) {
            let observed = match &need.form {
                Form::Observed(age) => {
                    let memory = &mut self.controller.memory.lock();
                    let now = self.touched.objects.get(&need.reference);
                    if !memory.can_observe(&need.reference, &age.field, now) {
                        return Err(too_many(need, age));
                    }
                    let sightings = &mut memory.sightings;
                    Some(sightings.freshness(object.as_deref(), age, now_seconds))
                }
                _ => None,
            };
            let seen = Seen::of(need, object.as_deref(), observed, now_seconds);
            match &object {
                _ if seen.counts() => self.touched.saw_for_need(&need.reference, seen),
                // It is there and wakes nobody.
                Some(_) => self.touched.saw(&need.reference, seen),
                None => {}
            }
            if object.is_none() {
                self.touched.absent.insert(need.reference.clone());
            }
            looked.push((object, observed));
        }
        Ok(looked)
    }

    /// What the API server of the primary says to a question.
    async fn access(&self, review: &Review) -> Result<InputValue, Failure> {
        let primary = self.touched.primary.as_deref();
        let requester = match (review.who, primary) {
            (Who::Requester, Some(primary)) => {
                let read = request::requester(primary);
                let read = read.map_err(|invalid| Failure::invalid_object(primary, &invalid))?;
                Some(read)
            }
            _ => None,
        };
        let cluster = &self.key.primary.cluster;
        let connections = &self.controller.connections;
        let verdict = connections
            .review(cluster, review, requester.as_ref())
            .await?;
        Ok(match verdict.allowed {
            true => InputValue::Allowed,
            false => InputValue::Denied(verdict.why),
        })
    }

    /// How the last reconcile ended; nothing before the first one.
    fn outcome(&self) -> Option<LastOutcome> {
        let memory = self.controller.memory.lock();
        let last = memory.results.get(self.key);
        // That of an object which had the name before is none of this one.
        let uid = self.touched.primary.as_ref().map_or("", |one| one.uid());
        let last = last.filter(|last| !last.is_of_another(uid))?;
        Some(LastOutcome {
            state: last.state.as_str().to_owned(),
            reason: last.reason.as_str().to_owned(),
            since_seconds: last.seen_since_seconds,
            failures: last.failures,
        })
    }

    /// The members of a set, all of them.
    async fn every(&mut self, need: &Need, query: &Query) -> Result<Vec<Member>, Failure> {
        if !requirements::may_exist(need) {
            return Ok(Vec::new());
        }
        let revision = &self.loaded.revision;
        let place = &need.reference;
        let declared = revision.decide.declared(&place.api_version, &place.kind);
        let question = Arc::new(SetQuestion::of(need, query, declared)?);
        // Without a rule the need was refused before.
        let nothing = EveryRule {
            objects: 0,
            bytes: 0,
        };
        let most = revision.policy.read(&need.role).and_then(|rule| rule.every);
        let most = most.unwrap_or(nothing);
        let at = self.pend(&question, need.wake);
        let connections = &self.controller.connections;
        let scope = Scope::of(place);
        let mut there = connections
            .every(&scope, &place.cluster, &question.labels)
            .await?;
        there.retain(|one| question.may_have(one));
        question.within(there.len(), most)?;
        let objects = self.read_untracked(&there).await?;
        let objects: Vec<_> = objects.into_iter().flatten().collect();
        let found = question.members(objects.iter().map(AsRef::as_ref), most)?;
        let version = found.digest().to_string();
        self.controller
            .accounts
            .read_set(self.key, &need.role, place, version);
        self.saw_set(at, question, found.seen);
        Ok(found.members)
    }

    /// How many objects have such labels. None of them is decoded.
    async fn count(&mut self, need: &Need, labels: &[LabelTerm]) -> Result<u32, Failure> {
        if !requirements::may_exist(need) {
            return Ok(0);
        }
        let place = &need.reference;
        let question = Arc::new(SetQuestion::how_many(need, labels)?);
        let at = self.pend(&question, need.wake);
        let connections = &self.controller.connections;
        let scope = Scope::of(place);
        let there = connections
            .selected(&scope, &place.cluster, &question.labels)
            .await?;
        let members = question.counted(&there);
        let number = u32::try_from(members.len()).unwrap_or(u32::MAX);
        self.controller
            .accounts
            .read_set(self.key, &need.role, place, number.to_string());
        self.saw_set(at, question, members);
        Ok(number)
    }

    /// Records what a set has.
    fn saw_set(&mut self, at: Option<usize>, question: Arc<SetQuestion>, members: Arc<Members>) {
        let told = SeenSet::pending(question, Wake::Never).with(Arc::clone(&members));
        self.touched.tells(told);
        if let Some(set) = at.and_then(|at| self.touched.sets.get_mut(at)) {
            *set = set.clone().with(members);
        }
    }

    /// Registers a set before it is read; none when no change of it counts.
    fn pend(&mut self, question: &Arc<SetQuestion>, wake: Wake) -> Option<usize> {
        if wake == Wake::Never {
            return None;
        }
        let set = SeenSet::pending(Arc::clone(question), wake);
        let mut memory = self.controller.memory.lock();
        memory.sets.add(self.key, set.clone());
        let same = |known: &SeenSet| known.is_about(question);
        let known = self.touched.sets.iter().position(same);
        if known.is_none() {
            self.touched.sets.push(set);
        }
        known.or(self.touched.sets.len().checked_sub(1))
    }
}

/// The failure for one field more than are kept of an object.
fn too_many(need: &Need, age: &Age) -> Failure {
    let (object, field) = (&need.reference, &age.field);
    let message = format!(
        "the guest asks when `{field}` of {object} changes; guests ask that of {MOST} fields of it already, and more are not kept"
    );
    Failure::known(KnownReason::TooManyInputs, message)
}
