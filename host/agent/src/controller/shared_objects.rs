//! What the end of a reconcile means to others that want the same: whoever cannot write an object that all primaries
//! share lets the next one try, and whoever takes nothing over leaves it to its former owner to remove.

use super::memory::Memory;
use super::queue::Queued;
use super::{Controller, Touched};
use std::collections::BTreeSet;
use transom_core::failure::Class;
use transom_core::inputs::seen::Observed;
use transom_core::plan::{Outcome, Step};
use transom_core::policy::Policy;
use transom_core::reference::ObjectRef;
use transom_core::report::End;
use transom_core::work::{Cause, Key};

impl Controller {
    /// Notes which of the shared objects this one had its turn with: what fails for the object itself, or is withheld,
    /// would be so for the next one, too.
    pub(super) fn wrote_shared(outcome: &Outcome, touched: &mut Touched) {
        if let Some(lacking) = &mut touched.lacking {
            lacking.retain(|target| {
                let mut steps = outcome.steps.iter();
                outcome.stopped.is_none() && !steps.any(|step| step.target == *target)
            });
        }
    }

    /// A reconcile of a primary ended, with the shared objects that are not as it wants them and the targets that its
    /// answer leaves out, as far as these are known. Returns those that try next, and those that have to remove what
    /// they left to others.
    pub(super) fn end_wanting(
        &self,
        memory: &mut Memory,
        (key, policy): (&Key, &Policy),
        (lacking, left_out): (Option<&BTreeSet<ObjectRef>>, Option<&BTreeSet<ObjectRef>>),
        end: End,
    ) -> Vec<Key> {
        let unasked = [Class::Unlocated, Class::Standby].map(End::Ended);
        let mut woken = match unasked.contains(&end) {
            true => Vec::new(),
            false => self.end_turn(memory, key, lacking),
        };
        // While the policy is suspended, its primaries want what they wanted before.
        let passes = policy.suspend || matches!(end, End::Ended(class) if class.passes());
        if left_out.is_some() || !passes {
            woken.extend(memory.ownership.answered(key, left_out));
        }
        woken
    }

    /// A reconcile ended, and these shared objects are not as it wants them; `None` if it is not known what it wants.
    /// Returns those that try next.
    pub(super) fn end_turn(
        &self,
        memory: &mut Memory,
        key: &Key,
        lacking: Option<&BTreeSet<ObjectRef>>,
    ) -> Vec<Key> {
        if let Some(shared) = self.accounts.shared() {
            shared.hide(key, |target| lacking.is_none_or(|all| all.contains(target)));
        }
        memory.ownership.ended(key, lacking)
    }

    /// In an agent that keeps accounts: shows what would be written to shared objects to the other primaries. A trial
    /// keeps all of it.
    pub(super) fn show_planned(&self, key: &Key, steps: &[Step]) {
        if let Some(overlay) = &self.trial {
            overlay.keep(steps);
        }
        let Some(shared) = self.accounts.shared() else {
            return;
        };
        shared.hide(key, |target| {
            !steps.iter().any(|step| step.target() == target)
        });
        for step in steps {
            let (Step::Create { desired } | Step::Update { desired, .. }) = step else {
                continue;
            };
            let target = &desired.reference;
            let is_shared = || self.memory.lock().ownership.is_shared(&key.policy, target);
            if !is_shared() || !shared.show(key, step) {
                continue;
            }
            let now_seconds = self.clock.now_seconds();
            let observed = Observed::Present(desired);
            let concerned = self.memory.lock().concerned(target, observed, now_seconds);
            for other in concerned.keys.iter().filter(|other| *other != key) {
                let cause = Cause::Input(target.clone());
                self.queues.push(other, Queued::Reconcile(cause));
            }
        }
    }
}
