//! Whether a target that was made for one primary may be taken over by another that claims it now.
//! [`crate::ownership`] decides between contenders.

use super::prune;
use crate::failure::Failure;
use crate::object::Object;
use crate::policy::Policy;
use crate::reference::ObjectRef;
use crate::stamp::Stamp;
use crate::work::Key;
use std::sync::Arc;
use transom_api::KnownReason;

/// A target with this policy's stamp for another primary than the one that claims it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Handover {
    /// The target.
    pub target: ObjectRef,
    /// The key that it was made for.
    pub former: Key,
    /// The objects that the target is kept for while they are being deleted; read them before [`Self::permit`].
    pub dependents: Vec<ObjectRef>,
}

impl Handover {
    /// `None` when the target has no stamp of this policy, or the stamp of this primary. A primary with the same name
    /// and another uid is another one; one with the same uid is the same, in whatever version of its kind the policy
    /// reads it.
    pub fn of(policy: &Policy, primary: &Object, key: &Key, existing: &Object) -> Option<Self> {
        let stamp = Stamp::read(existing).filter(|stamp| *stamp.policy == *key.policy)?;
        let (uid, stamped) = (primary.uid(), stamp.source.uid.as_str());
        let same = match uid.is_empty() || stamped.is_empty() {
            true => stamp.names(key),
            false => uid == stamped && stamp.source.reference.cluster == key.primary.cluster,
        };
        if same {
            return None;
        }
        let (target, former) = (existing.reference.clone(), stamp.key());
        let dependents = prune::dependents(policy, &former, &target);
        Some(Self {
            target,
            former,
            dependents,
        })
    }

    /// Whether the primary may have the target. A cluster that is not `connected` may still have the former primary;
    /// and a dependent that is being deleted still uses the old content, so it must not get another cluster's.
    ///
    /// # Errors
    /// `TargetNotOwned`; `StillNeeded` with the dependents that are being deleted.
    pub fn permit(
        &self,
        connected: bool,
        dependents: &[Option<Arc<Object>>],
    ) -> Result<(), Failure> {
        let Self { target, former, .. } = self;
        let primary = &former.primary;
        if !connected {
            let message = format!(
                "{target} was made for {primary}, but there is no connection `{}`",
                primary.cluster
            );
            return Err(
                Failure::known(KnownReason::TargetNotOwned, message).about([target.clone()])
            );
        }
        let leaving: Vec<_> = dependents
            .iter()
            .flatten()
            .filter(|dependent| dependent.deleting())
            .collect();
        let Some(first) = leaving.first() else {
            return Ok(());
        };
        let message = format!(
            "{target} was made for {primary} and is kept until {} is gone",
            first.reference
        );
        let failure = Failure::known(KnownReason::StillNeeded, message);
        Err(failure.about(leaving.iter().map(|dependent| dependent.reference.clone())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{self, hosted, key, kubeconfig_manifest, object, stamp, target};
    use serde_json::{Value, json};
    use transom_api::Reason;

    fn handover(stamped: &Stamp, uid: &str) -> Option<Handover> {
        let mut body = json!({});
        stamped.put(&mut body);
        let primary = object(hosted("a"), json!({"metadata": {"uid": uid}}));
        let policy = sample::policy(&kubeconfig_manifest());
        Handover::of(&policy, &primary, &key("a"), &object(target("demo"), body))
    }

    fn klusterlet(metadata: Value) -> Option<Arc<Object>> {
        let reference = ObjectRef::local(
            "operator.open-cluster-management.io/v1",
            "Klusterlet",
            None,
            "klusterlet-demo",
        );
        Some(Arc::new(object(reference, json!({"metadata": metadata}))))
    }

    #[test]
    fn hands_over_only_between_primaries_of_the_same_policy() {
        assert_eq!(handover(&stamp("a", "uid-a"), "uid-a"), None);
        assert_eq!(
            handover(&stamp("a", ""), "uid-a"),
            None,
            "a directory gives no uid"
        );
        let other_policy = Stamp {
            policy: "other".to_owned(),
            ..stamp("b", "uid-b")
        };
        assert_eq!(handover(&other_policy, "uid-a"), None);
        let mut other_version = stamp("a", "uid-a");
        other_version.source.reference.api_version = "hypershift.openshift.io/v1alpha1".to_owned();
        assert_eq!(handover(&other_version, "uid-a"), None);
        let remade = handover(&stamp("a", "uid-before"), "uid-a").unwrap();
        assert_eq!(remade.former, key("a"));
        let handed = handover(&stamp("b", "uid-b"), "uid-a").unwrap();
        assert_eq!(handed.former, key("b"));
        assert_eq!(
            handed.dependents,
            [klusterlet(json!({})).unwrap().reference.clone()]
        );
    }

    #[test]
    fn waits_for_a_blocker_being_deleted_and_a_disconnected_cluster() {
        let handover = handover(&stamp("b", "uid-b"), "uid-a").unwrap();
        let reason = |connected, dependents: &[_]| {
            handover
                .permit(connected, dependents)
                .map_err(|failure| failure.reason)
        };
        assert_eq!(reason(true, &[None]), Ok(()));
        assert_eq!(
            reason(true, &[klusterlet(json!({}))]),
            Ok(()),
            "a Klusterlet that stays goes to who comes next"
        );
        let leaving = klusterlet(json!({"deletionTimestamp": "2026-03-05T09:00:00Z"}));
        assert_eq!(
            reason(true, std::slice::from_ref(&leaving)),
            Err(Reason::from(KnownReason::StillNeeded))
        );
        assert_eq!(
            reason(false, &[leaving]),
            Err(Reason::from(KnownReason::TargetNotOwned))
        );
    }
}
