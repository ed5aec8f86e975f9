//! Finds out who sets the time of a taint: a webhook of the cluster, where one is installed. Never sets one itself.

use super::counts::{Purpose, Verb};
use super::send::Sender;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use kube::Resource as _;
use kube::api::ListParams;
use serde_json::Value;
use tokio::sync::Mutex;
use tokio::time::{Duration, Instant};

/// How long an answer holds.
const HOLDS: Duration = Duration::from_secs(60);
const GROUP: &str = "cluster.open-cluster-management.io";
const RESOURCE: &str = "managedclusters";

/// Whether a webhook sets the times, as it was found out last.
pub(super) struct TaintTimes {
    sender: Sender,
    found: Mutex<Option<(Instant, bool)>>,
}

impl TaintTimes {
    /// Nothing is known yet.
    pub(super) fn new(sender: Sender) -> Self {
        Self { sender, found: Mutex::default() }
    }

    /// Whether times are left to a webhook; asked of the server at most once a minute.
    ///
    /// When it cannot be found out and never was, they are: a webhook refuses a time of ours, and with it the taint,
    /// while a taint without a time is one that both kinds of cluster accept.
    pub(super) async fn by_webhook(&self) -> bool {
        let mut found = self.found.lock().await;
        if let Some((at, found)) = *found
            && at.elapsed() < HOLDS
        {
            return found;
        }
        let request = kube::core::Request::new(MutatingWebhookConfiguration::url_path(&(), None));
        let listed = match request.list(&ListParams::default()) {
            Ok(request) => self.sender.send(Verb::List, Purpose::Work, &request).await.ok(),
            Err(_) => None,
        };
        let before = found.is_none_or(|(_, before)| before);
        let now = listed.map_or(before, |list| is_installed(&list));
        *found = Some((Instant::now(), now));
        now
    }
}

/// Whether some webhook is shown every update of a managed cluster.
fn is_installed(list: &Value) -> bool {
    let items = |value: &Value, field: &str| value.get(field).and_then(Value::as_array).cloned().unwrap_or_default();
    let rules = items(list, "items")
        .into_iter()
        .flat_map(|configuration| items(&configuration, "webhooks"))
        .flat_map(|webhook| items(&webhook, "rules"));
    let names = |rule: &Value, field: &str, wanted: &[&str]| {
        items(rule, field).iter().filter_map(Value::as_str).any(|name| wanted.contains(&name))
    };
    rules.into_iter().any(|rule| {
        names(&rule, "apiGroups", &["*", GROUP])
            && names(&rule, "resources", &["*", "*/*", RESOURCE])
            && names(&rule, "operations", &["*", "UPDATE"])
            && rule.get("scope").and_then(Value::as_str) != Some("Namespaced")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn installed(groups: &[&str], resources: &[&str], operations: &[&str]) -> bool {
        let rule =
            json!({"apiGroups": groups, "apiVersions": ["v1"], "resources": resources, "operations": operations});
        is_installed(&json!({"items": [{"metadata": {}}, {"webhooks": [{"rules": []}, {"rules": [rule]}]}]}))
    }

    #[test]
    fn a_webhook_that_sees_updates_of_managed_clusters_sets_times() {
        assert!(installed(&[GROUP], &[RESOURCE], &["CREATE", "UPDATE"]));
        assert!(installed(&["*"], &["*"], &["*"]));
        assert!(installed(&["*"], &["*/*"], &["*"]));
        for (groups, resources, operations) in [
            (&["apps"][..], &[RESOURCE][..], &["UPDATE"][..]),
            (&[GROUP], &["managedclustersets"], &["UPDATE"]),
            (&[GROUP], &["managedclusters/status"], &["UPDATE"]),
            (&[GROUP], &[RESOURCE], &["CREATE", "DELETE"]),
        ] {
            assert!(!installed(groups, resources, operations), "{groups:?} {resources:?} {operations:?}");
        }
        assert!(!is_installed(&json!({"items": []})));
        assert!(!is_installed(&json!({})));
    }
}
