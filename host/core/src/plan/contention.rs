//! Counts how often someone else changed what we wrote. Never stops a write itself: it says that it is time to.

use crate::carried;
use crate::digest::Digest;
use crate::object::Object;
use crate::stamp::Stamp;
use serde_json::json;

/// Foreign changes within this many seconds count together.
const WINDOW_SECONDS: i64 = 600;
/// This many foreign changes are too many.
const MAX_CHANGES: usize = 3;

/// What we know of one target since the agent's start. In memory only.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contention {
    left: Option<Digest>,
    seen: Option<Digest>,
    changed_at: Vec<i64>,
}

impl Contention {
    /// A target as it is before we would write it: counts when it is not as we left it, once for each other state.
    pub fn observe(&mut self, target: Option<&Object>, now_seconds: i64) {
        let mark = mark(target);
        if self.left.is_some_and(|left| left != mark) && self.seen != Some(mark) {
            self.seen = Some(mark);
            self.changed_at.push(now_seconds);
        }
        // What happened in the future happened before the clock was set back: nobody knows when.
        self.changed_at.retain(|at| (0..WINDOW_SECONDS).contains(&now_seconds.saturating_sub(*at)));
    }

    /// A target as we wrote it; nothing when we removed it. To be told after every successful write.
    pub fn left(&mut self, target: Option<&Object>) {
        self.left = Some(mark(target));
        self.seen = None;
    }

    /// Until when to leave the target alone, in seconds since 1970; nothing when it is not contended.
    pub fn until(&self) -> Option<i64> {
        let oldest = self.changed_at.len().checked_sub(MAX_CHANGES).and_then(|index| self.changed_at.get(index));
        oldest.map(|at| at.saturating_add(WINDOW_SECONDS))
    }
}

/// A mark of what we write of a target: its data, its owner, and what it carries because of the policy. It never leaves the process.
fn mark(target: Option<&Object>) -> Digest {
    let Some(target) = target else { return Digest::of(&json!(null)) };
    let owner = Stamp::read(target).map(|stamp| (stamp.policy, stamp.source));
    Digest::of(&json!([target.body.get("data"), owner, carried::view(target)]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference::ObjectRef;

    fn secret(data: &str) -> Object {
        let reference = ObjectRef::local("v1", "Secret", Some("n"), "s");
        Object { reference, version: String::new(), body: json!({"data": {"kubeconfig": data}}) }
    }

    /// We write `ours`; then someone else does what is given, each at its second.
    fn after(foreign: &[(Option<&str>, i64)]) -> Option<i64> {
        let mut contention = Contention::default();
        contention.left(Some(&secret("ours")));
        for (data, at) in foreign {
            contention.observe(data.map(secret).as_ref(), *at);
            if contention.until().is_none() {
                contention.left(Some(&secret("ours")));
            }
        }
        contention.until()
    }

    #[test]
    fn three_foreign_changes_in_ten_minutes_are_too_many() {
        assert_eq!(after(&[(Some("x"), 0), (Some("x"), 100)]), None);
        assert_eq!(after(&[(Some("x"), 0), (Some("y"), 100), (Some("x"), 599)]), Some(600));
        assert_eq!(after(&[(Some("x"), 0), (Some("x"), 100), (Some("x"), 600)]), None);
        assert_eq!(after(&[(None, 0), (None, 1), (Some("x"), 2)]), Some(600));
        assert_eq!(after(&[(Some("x"), 86_400), (Some("y"), 86_401), (Some("x"), 0)]), None, "the clock was set back");
        assert_eq!(after(&[(Some("ours"), 0), (Some("ours"), 1), (Some("ours"), 2)]), None);
    }

    #[test]
    fn one_change_that_is_seen_twice_counts_once_and_the_window_ends() {
        let mut contention = Contention::default();
        contention.observe(Some(&secret("x")), 0);
        contention.left(Some(&secret("ours")));
        for at in 1..5 {
            contention.observe(Some(&secret("x")), at);
        }
        assert_eq!(contention.until(), None);
        assert_eq!(contention.changed_at, [1]);
        contention.observe(Some(&secret("x")), 601);
        assert!(contention.changed_at.is_empty());
    }
}
