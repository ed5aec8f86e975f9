//! What an agent before this one told of moved tags: no Event tells it anew after each start.

use super::Statuses;
use crate::controller::Controller;
use transom_api::KnownReason;
use transom_api::status::{ConditionType, PolicyStatus};

impl Statuses {
    /// Whether an earlier agent told this of moved tags, and this one nothing yet.
    fn was_told(&self, policy: &str, moved: &str) -> bool {
        let told = self.lock().moved.remove(policy);
        told.as_deref() == Some(moved)
    }
}

impl Controller {
    /// Makes an Event of moved tags, unless the status said the same when this agent began.
    pub(in crate::controller) fn warn_of_tags(&self, policy: &str, moved: &str) {
        if !self.statuses.was_told(policy, moved) {
            self.connections
                .warn_of_policy(policy, KnownReason::TagMoved, moved);
        }
    }
}

/// What a published status says of moved tags.
pub(super) fn moved(policy: &str, status: &PolicyStatus) -> Option<(String, String)> {
    let mut conditions = status.conditions.iter();
    let moved = conditions.find(|one| one.kind == ConditionType::TagMoved)?;
    Some((policy.to_owned(), moved.message.clone()))
}

#[cfg(test)]
mod tests {
    use crate::clock::Clock;
    use crate::command::session::of_case;
    use serde_json::json;
    use transom_api::{API_VERSION, KIND};
    use transom_core::object::Object;
    use transom_core::reference::ObjectRef;

    const POLICY: &str = "external-managed-kubeconfig";

    #[tokio::test(flavor = "multi_thread")]
    async fn what_an_earlier_agent_told_of_tags_is_told_once() {
        let (_folder, session, _primary) = of_case(POLICY, Clock::new(None)).await;
        let controller = &session.controller;
        let condition = json!({"type": "TagMoved", "status": "True", "reason": "TagMoved",
            "message": "it moved", "lastTransitionTime": "2026-11-21T08:15:30Z"});
        let object = Object {
            reference: ObjectRef::local(API_VERSION, KIND, None, POLICY),
            version: "1".to_owned(),
            body: json!({"status": {"conditions": [condition]}}),
        };
        for (now, was_told) in [("it moved", true), ("it moved further", false)] {
            controller.found_statuses(std::slice::from_ref(&object));
            // The status of this agent has no such condition until it has looked at the tags.
            controller.publish_policies();
            assert_eq!(controller.statuses.was_told(POLICY, now), was_told);
            assert!(!controller.statuses.was_told(POLICY, "it moved"));
        }
    }
}
