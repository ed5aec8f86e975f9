//! Claims the targets of a primary: of several primaries that want one, one may have it. A reconcile asks which targets
//! the primary wants (`locate`), claims them (`claim`), puts off reading them while the guest needs more inputs
//! (`defer_targets`), then reads them and decides about each (`read_targets`, `decide`), and says which changes of them
//! matter (`narrow`).

use super::Reader;
use crate::controller::memory::Memory;
use std::sync::Arc;
use std::time::Duration;
use transom_core::failure::Failure;
use transom_core::inputs::seen::Seen;
use transom_core::object::Object;
use transom_core::ownership::{Contender, Ownership, Rivals};
use transom_core::plan::{TargetState, unlocated};
use transom_core::policy::WriteRule;
use transom_core::reference::ObjectRef;
use transom_core::stamp::Stamp;
use transom_core::work::Key;

/// How long after its beginning a policy waits for the primaries of other policies that may want the same targets. Once
/// they are located, the oldest contender is known, whichever policy was loaded first. The limit keeps a guest that
/// takes long for each primary from holding up other policies.
const PATIENCE: Duration = Duration::from_secs(30);

/// Checks that the owner of each target is decided.
///
/// # Errors
/// `OwnershipPending`.
fn located(targets: &[TargetState]) -> Result<(), Failure> {
    let mut targets = targets.iter();
    let pending = targets.find_map(|one| match one.ownership {
        Ownership::Pending { remaining } => Some(unlocated(&one.object, remaining)),
        _ => None,
    });
    pending.map_or(Ok(()), Err)
}

/// Whether a stamp decides who owns a target, as far as is known: it names the key itself, or another one that is known
/// to want it, such as the one of many that keeps a shared object.
fn is_stamped(memory: &Memory, key: &Key, target: &ObjectRef) -> bool {
    let owner = memory.outputs.owner(target);
    owner.is_some_and(|owner| owner == key || memory.ownership.wants(owner, target))
}

impl Reader<'_> {
    /// At a start no target without a stamp is written before every primary of the policy is located. Until then this
    /// only locates a primary that was not reconciled yet and wants a target whose owner is not decided. More calls and
    /// reads would be wasted: the next reconcile repeats them.
    pub(super) fn locate_only(&mut self, primary: &Arc<Object>) -> Option<Failure> {
        {
            let memory = self.controller.memory.lock();
            let new = memory.ownership.expects(self.key) && !memory.results.contains_key(self.key);
            if !new || memory.ownership.remaining(&self.key.policy) < 2 {
                return None;
            }
        }
        let targets = self.locate(primary)?;
        let target = self.undecided(primary, &targets)?.clone();
        let memory = &mut *self.controller.memory.lock();
        let Ownership::Pending { remaining } =
            memory.ownership.decide(self.key, &target, None, false)
        else {
            return None;
        };
        let unlocated = unlocated(&target, remaining);
        self.touched.reconcile.target = Some(target);
        Some(unlocated)
    }

    /// The first target for which another primary has to be located before it is known who owns it, as far as is known.
    fn undecided<'t>(&self, primary: &Object, targets: &'t [ObjectRef]) -> Option<&'t ObjectRef> {
        let unstamped: Vec<&ObjectRef> = {
            let memory = self.controller.memory.lock();
            let targets = targets.iter();
            let unstamped = targets.filter(|target| !is_stamped(&memory, self.key, target));
            unstamped.collect()
        };
        // What is absent weighs nothing.
        let is_there = |target| self.controller.connections.weigh(target) > Some(0);
        let mut unstamped = unstamped.into_iter();
        unstamped.find(|target| !self.is_made_once(primary, target) || !is_there(target))
    }

    /// Whether the policy only creates a target: once it exists, it belongs to others, and nobody owns it.
    fn is_made_once(&self, primary: &Object, target: &ObjectRef) -> bool {
        let data = self.controller.template_data(primary);
        let rule = self.loaded.revision.policy.whole(target, &data);
        rule.is_ok_and(WriteRule::creates_only)
    }

    /// Claims the targets of a primary, so that no other primary takes them meanwhile; returns them. When the guest
    /// cannot name them, earlier claims stay. The guest of a suspended policy is not asked.
    pub(super) fn locate(&mut self, primary: &Arc<Object>) -> Option<Vec<ObjectRef>> {
        let policy = &self.loaded.revision.policy;
        if !policy.has_targets() || policy.suspend {
            return None;
        }
        let first = self.first_round(primary).ok()?;
        let (_, _, named) = self.first_round.insert(first);
        named.as_ref().ok().map(|named| named.targets.clone())
    }

    /// Records the claims of a primary. Until its guest has named all targets, earlier claims stay; if there are none,
    /// it also claims what bears its stamp. True while primaries of the policy are not located yet.
    pub(super) fn set_claims(
        &self,
        primary: &Arc<Object>,
        targets: &[ObjectRef],
        named_all: bool,
    ) -> bool {
        let contender = Contender::of(self.key, Some(primary));
        let mut lock = self.controller.memory.lock();
        let memory = &mut *lock;
        let released = if named_all {
            memory.ownership.set(contender, targets)
        } else {
            let new = memory.ownership.targets(self.key).is_none();
            let made = memory.outputs.of(self.key).filter(|_| new);
            memory
                .ownership
                .widen(contender, targets.iter().chain(made))
        };
        let others_unlocated = memory.ownership.remaining(&self.key.policy) > 0;
        drop(lock);
        self.controller.enqueue_released(released);
        others_unlocated
    }

    /// Defers reading the targets while the guest still needs inputs: they are read once, after the last round. While
    /// primaries are not located, targets whose owner is not decided are read now, because they may end the reconcile.
    pub(super) async fn defer_targets(
        &mut self,
        primary: &Object,
        targets: &[ObjectRef],
        others_unlocated: bool,
    ) -> Result<(), Failure> {
        if others_unlocated && self.undecided(primary, targets).is_some() {
            return located(
                &self
                    .read_targets(primary, targets, others_unlocated)
                    .await?,
            );
        }
        self.depend_on(targets);
        Ok(())
    }

    /// Reads the targets that were claimed; returns for each whether the primary may have it.
    pub(super) async fn read_targets(
        &mut self,
        primary: &Object,
        targets: &[ObjectRef],
        others_unlocated: bool,
    ) -> Result<Vec<TargetState>, Failure> {
        let controller = self.controller;
        let queue = controller.queue(&self.key.policy);
        let patience = queue.and_then(|queue| PATIENCE.checked_sub(controller.worked(&queue)));
        let others = patience.is_some();
        let pending = |one: &TargetState| matches!(one.ownership, Ownership::Pending { .. });
        // While other primaries are not located nothing without a stamp is written, and what has one is kept: so
        // nothing is requested here that the next reconcile requests again.
        let mut claimed = Vec::new();
        self.depend_on(targets);
        if others_unlocated {
            let there = self.read_cached(targets).await?;
            claimed = self.decide(primary, (targets, there), others);
        }
        let unknown = |one: &TargetState| one.existing.is_none() && !pending(one);
        if !others_unlocated || claimed.iter().any(unknown) {
            let there = self.read_untracked(targets).await?;
            claimed = self.decide(primary, (targets, there), others);
        }
        let accounts = &controller.accounts;
        for one in &claimed {
            accounts.read(self.key, "target", &one.object, one.existing.as_deref());
        }
        self.narrow(primary, &claimed);
        if let Some(patience) = patience.filter(|_| claimed.iter().any(pending)) {
            // The last of the other primaries enqueues this one if it is located before.
            let after = i64::try_from(patience.as_secs()).unwrap_or_default() + 1;
            let again = controller.clock.now_seconds().saturating_add(after);
            self.touched.ask_again(Some(again));
        }
        Ok(claimed)
    }

    /// Records which changes of a target trigger a reconcile. For a target that is only created: its existence, and the
    /// fields that the policy may write. For a shared target that another primary owns: everything but the owner. Else
    /// every change does.
    fn narrow(&mut self, primary: &Object, claimed: &[TargetState]) {
        let policy = &self.loaded.revision.policy;
        let data = self.controller.template_data(primary);
        for TargetState {
            object,
            existing,
            ownership,
            withheld: _,
        } in claimed
        {
            let kept = matches!(ownership, Ownership::OwnedBy { owner, .. } if owner.policy == self.key.policy);
            let seen = match policy.whole(object, &data) {
                Ok(rule) if rule.creates_only() => {
                    // It belongs to others then, and fields of it may be granted as of any object of theirs.
                    self.touched.others.extend(existing.clone());
                    let fields = policy.watched(object, &data);
                    match fields.is_empty() {
                        true => Seen::presence(existing.as_deref()),
                        false => Seen::fields(&fields.into(), existing.as_deref()),
                    }
                }
                Ok(rule) if rule.is_shared() && kept => Seen::shared(existing.as_deref()),
                _ => Seen::whole(existing.as_deref()),
            };
            self.touched.narrow(object, seen);
        }
    }

    /// Whether the primary may have each of its targets, as they were read.
    fn decide(
        &self,
        primary: &Object,
        (targets, there): (&[ObjectRef], Vec<Option<Arc<Object>>>),
        others: bool,
    ) -> Vec<TargetState> {
        let source = self.touched.source();
        let shown = self.controller.accounts.shared();
        let ownership = &mut self.controller.memory.lock().ownership;
        let decided = targets.iter().zip(there).map(|(object, existing)| {
            let stamp = existing.as_deref().and_then(Stamp::read);
            // One that names no cluster counts by the uid of its primary.
            let counts = |stamp: &Stamp| {
                stamp.source.cluster_uid.is_empty() || source.is_cluster_of(object, stamp)
            };
            let stamp = stamp.filter(counts);
            let unstamped = existing.is_some() && stamp.is_none();
            let shown = shown.and_then(|shown| shown.stamp(self.key, object));
            let stamp = shown.or(stamp);
            let rivals = Rivals::None;
            TargetState {
                ownership: match unstamped && self.is_made_once(primary, object) {
                    true => Ownership::Owner { rivals },
                    false => ownership.decide(self.key, object, stamp.as_ref(), others),
                },
                object: object.clone(),
                existing,
                withheld: None,
            }
        });
        decided.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_decides_once_its_primary_is_known_to_want_the_target() {
        let key = |name| Key::new(&"p".into(), &ObjectRef::local("v1", "Thing", None, name));
        let [keeper, other] = ["keeper", "other"].map(key);
        let shared = ObjectRef::local("v1", "ConfigMap", Some("n"), "shared");
        let mut memory = Memory::default();
        assert!(!is_stamped(&memory, &other, &shared), "nobody made it");
        memory.outputs.record(&shared, Some(keeper.clone()));
        assert!(is_stamped(&memory, &keeper, &shared));
        assert!(
            !is_stamped(&memory, &other, &shared),
            "the keeper may not want it any more"
        );
        let contender = Contender::of(&keeper, None);
        memory.ownership.set(contender, [&shared]);
        assert!(is_stamped(&memory, &other, &shared));
    }
}
