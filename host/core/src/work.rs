//! The unit of work: a policy and a primary, by name. Holds no object, because decisions read the current state.

use crate::reference::ObjectRef;
use std::cmp::Ordering;
use std::fmt;
use std::ops::Bound;
use std::sync::Arc;

/// One primary under one policy: the unit of reconcile, of ownership and of dependencies. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    /// Name of the policy.
    pub policy: Arc<str>,
    /// The primary.
    pub primary: Arc<ObjectRef>,
}

impl Key {
    /// The key of a primary under a policy.
    pub fn new(policy: &Arc<str>, primary: &ObjectRef) -> Self {
        Self {
            policy: Arc::clone(policy),
            primary: Arc::new(primary.clone()),
        }
    }

    /// Where the keys of a policy begin. Keys are in order of their policy, and a reference without any name is the
    /// first of all.
    pub fn first_of(policy: &str) -> Bound<Key> {
        Bound::Included(Key::new(&policy.into(), &ObjectRef::default()))
    }
}

/// By policy, then by primary. Most compared keys share the `Arc` of the policy, and often of the primary: then no text
/// is read. The primaries of a policy are nearly always of one kind and cluster, so these texts come last.
impl Ord for Key {
    fn cmp(&self, other: &Self) -> Ordering {
        fn by<T: ?Sized>(one: &Arc<T>, two: &Arc<T>, differ: fn(&T, &T) -> Ordering) -> Ordering {
            match Arc::ptr_eq(one, two) {
                true => Ordering::Equal,
                false => differ(one, two),
            }
        }
        fn primaries(one: &ObjectRef, two: &ObjectRef) -> Ordering {
            let names = (&one.namespace, &one.name).cmp(&(&two.namespace, &two.name));
            names.then_with(|| one.cmp(two))
        }
        by(&self.policy, &other.policy, str::cmp)
            .then_with(|| by(&self.primary, &other.primary, primaries))
    }
}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} for {}", self.policy, self.primary)
    }
}

/// A key and why it is reconciled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkItem {
    /// What is reconciled.
    pub key: Key,
    /// Why now.
    pub cause: Cause,
}

/// Why a primary is reconciled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The primary is new to this agent; also when it was created again under the same name.
    Added,
    /// The trigger guest decided so, for these reasons.
    Triggered(Vec<String>),
    /// These paths differ, and no trigger guest is asked about them: the policy has none, or it is a pause.
    Changed(Vec<String>),
    /// It is not known whether the change matters: the trigger guest failed, the object could not be read, or the state
    /// after a write is unknown. The reconcile reports why.
    Undecided,
    /// An object that it reads, waits for or writes appeared, changed or went away.
    Input(ObjectRef),
    /// Another contender released the target, or the last primary of the policy was located.
    Released,
    /// The primary is gone.
    Gone,
    /// A time that a guest asked for has come.
    Timer,
    /// A time in an object that it reads got as old as its limit.
    Expired,
    /// An earlier reconcile failed.
    Retry,
    /// The jittered resync.
    Resync,
    /// The policy or one of its components was swapped.
    Swapped,
}

impl Cause {
    /// One word for logs and metrics.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Added => "Added",
            Self::Triggered(_) => "Triggered",
            Self::Changed(_) => "Changed",
            Self::Undecided => "Undecided",
            Self::Input(_) => "Input",
            Self::Released => "Released",
            Self::Gone => "Gone",
            Self::Timer => "Timer",
            Self::Expired => "Expired",
            Self::Retry => "Retry",
            Self::Resync => "Resync",
            Self::Swapped => "Swapped",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ops::RangeBounds;

    #[test]
    fn keys_are_in_order_of_policy_namespace_and_name_and_only_equal_ones_are_equal() {
        let key = |policy: &str, cluster: &str, kind: &str, namespace: Option<&str>, name: &str| {
            let reference = ObjectRef {
                cluster: cluster.to_owned(),
                ..ObjectRef::local("v1", kind, namespace, name)
            };
            Key::new(&policy.into(), &reference)
        };
        let ordered = [
            key("a", "z", "Z", None, "y"),
            key("a", "b", "Y", Some("n"), "x"),
            key("a", "a", "Z", Some("n"), "y"),
            key("a", "b", "Y", Some("n"), "y"),
            key("a", "b", "Z", Some("n"), "y"),
            key("a", "a", "A", Some("o"), "a"),
            key("b", "a", "A", None, "a"),
        ];
        for (at, one) in ordered.iter().enumerate() {
            for (other_at, other) in ordered.iter().enumerate() {
                assert_eq!(one.cmp(other), at.cmp(&other_at), "{one} and {other}");
                assert_eq!(one == other, at == other_at, "{one} and {other}");
            }
            let copy = Key::new(&(&*one.policy).into(), &one.primary);
            assert_eq!(one.cmp(&copy), Ordering::Equal, "{one}");
            let from = |policy| (Key::first_of(policy), Bound::Unbounded);
            assert_eq!(from("b").contains(one), &*one.policy == "b", "{one}");
            assert!(from("a").contains(one), "{one}");
        }
    }
}
