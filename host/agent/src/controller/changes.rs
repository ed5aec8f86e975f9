//! Takes the changes of all policies, and puts revisions to work when what they need is watched.

use super::Controller;
use super::workqueue::Workqueue;
use crate::policies::active::{Active, PolicyChanges};
use crate::policies::load::LoadedPolicy;
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tokio::sync::mpsc;
use transom_core::catalogue::PolicyChange::{self, Bounded, Loaded, Swapped};
use transom_core::policy::{Policy, bound};
use transom_core::share::lock::MutexExt as _;

/// A change of the policy with this name.
type NamedChange = (Arc<str>, PolicyChange);
/// Changes, each with its policy as it was when it began to be watched.
type WatchedChanges = Vec<(NamedChange, Option<Arc<LoadedPolicy>>)>;

impl Controller {
    /// Puts changes to work as they come, until their sender is gone. A revision that was loaded or swapped waits, in a
    /// task of its own, until what it needs is watched. So does one whose bound widens again what another manifest
    /// narrowed; what narrows counts at once, and so do all other changes.
    pub(crate) async fn follow_policies(
        self: Arc<Self>,
        active: Active,
        mut changes: mpsc::UnboundedReceiver<PolicyChanges>,
    ) {
        let waits = |(policy, change): &NamedChange| match change {
            Loaded | Swapped => true,
            Bounded => !self.narrows(policy, active.loaded_of(policy)),
            _ => false,
        };
        while let Some(changes) = changes.recv().await {
            let (later, now): (PolicyChanges, PolicyChanges) =
                changes.into_iter().partition(&waits);
            self.activate(&active, &now);
            if !later.is_empty() {
                drop(tokio::spawn(
                    Arc::clone(&self).begin_policies(active.clone(), later),
                ));
            }
        }
    }

    /// Whether a bound allows no more than what works now. Otherwise what was kept until now may lack what it reads,
    /// and other policies go on reading that. Until the bound counts, a policy that it narrows as well is suspended.
    pub(super) fn narrows(
        self: &Arc<Self>,
        policy: &str,
        bounded: Option<Arc<LoadedPolicy>>,
    ) -> bool {
        let _one = self.activating.locked();
        let Some((queue, next)) = self.queue(policy).zip(bounded) else {
            return true;
        };
        let working = queue.loaded();
        let (before, after) = (&working.revision.policy, &next.revision.policy);
        let both = bound::bounded(before, after);
        let narrows = working.revision.is(&next.revision) && both == *after;
        if !narrows && both != *before {
            let suspended = working.under(Policy {
                suspend: true,
                ..before.clone()
            });
            self.resume(policy, Arc::new(suspended), None);
        }
        narrows
    }

    /// Watches what the active policies need, and puts changes to work: each policy as soon as the connections that it
    /// names are ready, so that one that is slow or does not answer holds up no other policy.
    pub(crate) async fn begin_policies(self: Arc<Self>, active: Active, changes: PolicyChanges) {
        let mut needs = by_need(&active, changes);
        // Changes that need no connection, such as a refusal. They are published even when there are none.
        needs.entry(BTreeSet::new()).or_default();
        let mut waiting = FuturesUnordered::new();
        loop {
            if !needs.is_empty() {
                self.watch(&active);
            }
            let each = needs.into_iter();
            waiting.extend(
                each.map(|(clusters, changes)| self.begin_when_ready(&active, clusters, changes)),
            );
            // A bound that changed meanwhile may name other connections.
            needs = match waiting.next().await {
                Some(later) => by_need(&active, later),
                None => return,
            };
        }
    }

    /// The same for policies that need these connections. Returns the changes that have to wait again.
    async fn begin_when_ready(
        self: &Arc<Self>,
        active: &Active,
        clusters: BTreeSet<String>,
        changes: WatchedChanges,
    ) -> PolicyChanges {
        self.connections.ready(&clusters).await;
        let (mut now, mut later) = (PolicyChanges::new(), PolicyChanges::new());
        for (change, before) in changes {
            let Some((before, loaded)) = before.zip(active.loaded_of(&change.0)) else {
                now.push(change);
                continue;
            };
            // Not equal alone: what a bound in between did not need may have been listed anew since.
            let is_as_watched = Arc::ptr_eq(&before, &loaded);
            let queue = self.queue(&change.0);
            let is_it = |queue: &Arc<Workqueue>| queue.loaded().revision.is(&loaded.revision);
            let has_begun = queue.as_ref().is_some_and(is_it);
            let is_put = queue.is_some_and(|queue| queue.works_on(&loaded));
            match change.1 {
                // Another bound comes with a change of its own, and so does a revision that takes over.
                Bounded if is_as_watched && has_begun && !is_put => now.push(change),
                Bounded => {}
                Loaded | Swapped if is_as_watched => now.push(change),
                // Its bound is another one meanwhile, and may need what is not watched yet.
                Loaded | Swapped if before.revision.is(&loaded.revision) && !has_begun => {
                    later.push(change);
                }
                // Another revision comes with a change of its own.
                Loaded | Swapped => {}
                _ => now.push(change),
            }
        }
        self.activate(active, &now);
        later
    }
}

/// Changes by the connections that their policies need now, each with its policy as it is now.
fn by_need(active: &Active, changes: PolicyChanges) -> BTreeMap<BTreeSet<String>, WatchedChanges> {
    let mut by_need = BTreeMap::<_, WatchedChanges>::new();
    for change in changes {
        let loaded = active.loaded_of(&change.0);
        let policy = loaded.as_ref().map(|loaded| &loaded.revision.policy);
        let clusters = policy.into_iter().flat_map(Policy::clusters);
        let clusters = clusters.map(|(_, cluster)| cluster.to_owned()).collect();
        by_need.entry(clusters).or_default().push((change, loaded));
    }
    by_need
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;
    use crate::command::session::{Session, of_case};
    use std::pin::pin;
    use std::task::Poll;
    use transom_core::digest::Digest;
    use transom_core::reference::LOCAL;

    const POLICY: &str = "external-managed-kubeconfig";

    /// An agent that works on a policy without reads, the whole policy, and one that reads another connection as well.
    async fn narrowed() -> (tempfile::TempDir, Session, [Arc<LoadedPolicy>; 3]) {
        let (folder, session, _primary) = of_case(POLICY, Clock::new(None)).await;
        let queue = session.controller.queue(POLICY).unwrap();
        let whole = queue.loaded();
        let under = |change: fn(&mut Policy)| {
            let mut policy = whole.revision.policy.clone();
            change(&mut policy);
            Arc::new(whole.under(policy))
        };
        let unread = under(|policy| policy.reads.clear());
        let elsewhere = under(|policy| policy.reads[0].cluster = "hub".to_owned());
        queue.swap(Arc::clone(&unread));
        (folder, session, [unread, whole, elsewhere])
    }

    fn begins(session: &Session, change: PolicyChange) -> impl Future<Output = ()> + use<> {
        let controller = Arc::clone(&session.controller);
        controller.begin_policies(session.active.clone(), vec![(POLICY.into(), change)])
    }

    /// Swaps the policy to another revision, and returns its workqueue.
    fn on_another(session: &Session, loaded: &LoadedPolicy) -> Arc<Workqueue> {
        let queue = session.controller.queue(POLICY).unwrap();
        let mut other = loaded.revision.policy.clone();
        other.identity = Digest::of(&"another".into());
        queue.swap(Arc::new(loaded.under(other)));
        queue
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_bound_that_another_one_replaced_while_it_waited_is_left_to_that_one() {
        for returns in [false, true] {
            let (_folder, session, [unread, whole, elsewhere]) = narrowed().await;
            let queue = session.controller.queue(POLICY).unwrap();
            let connections = &session.controller.connections;
            session.active.works_on(&elsewhere);
            let mut first = pin!(begins(&session, Bounded));
            assert_eq!(futures::poll!(&mut first), Poll::Pending);
            // What comes back may be listed anew.
            let again = Arc::new((*elsewhere).clone());
            let replaced = if returns { again } else { whole };
            session.active.works_on(&replaced);
            connections.opened("hub");
            connections.opened(LOCAL);
            first.await;
            assert!(queue.works_on(&unread));
            begins(&session, Bounded).await;
            assert!(queue.works_on(&replaced));
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_bound_puts_no_revision_to_work_whose_swap_waits() {
        let (_folder, session, [unread, whole, _]) = narrowed().await;
        let queue = on_another(&session, &unread);
        session.active.works_on(&whole);
        session.controller.connections.opened(LOCAL);
        begins(&session, Bounded).await;
        assert!(!queue.works_on(&whole));
        begins(&session, Swapped).await;
        assert!(queue.works_on(&whole));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_revision_waits_for_the_connections_that_its_bound_names_by_then() {
        let (_folder, session, [unread, whole, elsewhere]) = narrowed().await;
        let queue = on_another(&session, &unread);
        let connections = &session.controller.connections;
        session.active.works_on(&whole);
        let mut begun = pin!(begins(&session, Swapped));
        assert_eq!(futures::poll!(&mut begun), Poll::Pending);
        session.active.works_on(&elsewhere);
        connections.opened(LOCAL);
        assert_eq!(futures::poll!(&mut begun), Poll::Pending);
        assert!(!queue.works_on(&elsewhere));
        connections.opened("hub");
        begun.await;
        assert!(queue.works_on(&elsewhere));
    }
}
