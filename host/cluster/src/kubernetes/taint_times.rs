//! Finds out whether a webhook of the cluster sets the times of taints.
//! A webhook for every kind (Gatekeeper, Kyverno) does not count as one.

use super::counts::{Purpose, RequestVerb};
use super::send::Sender;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, RuleWithOperations,
};
use kube::Resource as _;
use kube::api::ListParams;
use serde_json::Value;
use std::sync::Mutex;
use tokio::time::{Duration, Instant};
use transom_core::share::lock::MutexExt as _;

/// How long a lookup stays valid.
const HOLDS: Duration = Duration::from_secs(60);
const GROUP: &str = "cluster.open-cluster-management.io";
const RESOURCE: &str = "managedclusters";

/// Whether a webhook sets the times of taints, by the last lookup.
pub(super) struct TaintTimes {
    sender: Sender,
    found: Mutex<FoundWebhooks>,
    /// Held while they are looked up, which may take half a minute.
    turn: tokio::sync::Mutex<()>,
}

/// The webhooks that receive every update of a managed cluster.
#[derive(Default)]
struct FoundWebhooks {
    /// When they were last looked up.
    at: Option<Instant>,
    /// Their names; `None` until a lookup has succeeded.
    names: Option<Vec<String>>,
    /// Their names when a taint was left without a time.
    idle: Option<Vec<String>>,
}

impl FoundWebhooks {
    /// Whether times are left to a webhook, by a lookup that is still valid.
    fn recent(&self) -> Option<bool> {
        let is_valid = self.at.is_some_and(|at| at.elapsed() < HOLDS);
        is_valid.then(|| self.by_webhook())
    }

    /// While no lookup has succeeded, times are left to a webhook, unless a taint was already left without one. A
    /// webhook would refuse a time that the agent sets, and with it the taint, while a cluster with or without a
    /// webhook accepts a taint without a time.
    fn by_webhook(&self) -> bool {
        match &self.names {
            None => self.idle.is_none(),
            Some(names) => !names.is_empty() && self.idle.as_ref() != Some(names),
        }
    }
}

impl TaintTimes {
    /// Has looked up nothing yet.
    pub(super) fn new(sender: Sender) -> Self {
        Self {
            sender,
            found: Mutex::default(),
            turn: tokio::sync::Mutex::default(),
        }
    }

    /// Whether times are left to a webhook. Looks the webhooks up at most once a minute. Others wait for that only
    /// while nothing is known.
    pub(super) async fn by_webhook(&self) -> bool {
        if let Some(by_webhook) = self.found.locked().recent() {
            return by_webhook;
        }
        let _turn = match self.turn.try_lock() {
            Ok(turn) => turn,
            Err(_) if self.found.locked().names.is_some() => {
                return self.found.locked().by_webhook();
            }
            Err(_) => self.turn.lock().await,
        };
        // Another one may have looked them up meanwhile.
        if let Some(by_webhook) = self.found.locked().recent() {
            return by_webhook;
        }
        let names = self.look_up().await;
        let mut found = self.found.locked();
        found.names = names.or(found.names.take());
        found.at = Some(Instant::now());
        found.by_webhook()
    }

    /// The names of the webhooks; `None` when they cannot be looked up.
    async fn look_up(&self) -> Option<Vec<String>> {
        let request = kube::core::Request::new(MutatingWebhookConfiguration::url_path(&(), None));
        let request = request.list(&ListParams::default()).ok()?;
        let list = self
            .sender
            .send(RequestVerb::List, Purpose::Work, &request)
            .await;
        let listed = configurations(list.ok()?).ok()?;
        Some(installed(&listed))
    }

    /// A taint was written without a time and still has none: the present webhooks set no times.
    pub(super) fn left_without(&self) {
        let mut found = self.found.locked();
        found.idle = Some(found.names.clone().unwrap_or_default());
    }
}

/// The items of a list.
fn configurations(mut list: Value) -> serde_json::Result<Vec<MutatingWebhookConfiguration>> {
    let items = list.get_mut("items").map(Value::take).unwrap_or_default();
    serde_json::from_value::<Option<_>>(items).map(Option::unwrap_or_default)
}

/// The webhooks that receive every update of a managed cluster and name that kind; sorted.
fn installed(configurations: &[MutatingWebhookConfiguration]) -> Vec<String> {
    let has = |names: &Option<Vec<String>>, wanted: &[&str]| {
        let mut names = names.iter().flatten();
        names.any(|name| wanted.contains(&name.as_str()))
    };
    let sees = |rule: &RuleWithOperations| {
        has(&rule.api_groups, &["*", GROUP])
            && has(&rule.resources, &[RESOURCE])
            && has(&rule.operations, &["*", "UPDATE"])
            && rule.scope.as_deref() != Some("Namespaced")
    };
    let mut names = Vec::new();
    for configuration in configurations {
        let name = configuration.metadata.name.as_deref().unwrap_or_default();
        let webhooks = configuration.webhooks.iter().flatten();
        let seeing = webhooks.filter(|webhook| webhook.rules.iter().flatten().any(sees));
        names.extend(seeing.map(|webhook| format!("{name}/{}", webhook.name)));
    }
    names.sort();
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn list(
        name: &str,
        groups: &[&str],
        resources: &[&str],
        operations: &[&str],
    ) -> Vec<MutatingWebhookConfiguration> {
        let rule = json!({"apiGroups": groups, "apiVersions": ["v1"], "resources": resources, "operations": operations});
        let webhooks = json!([{"name": "none", "rules": []}, {"name": "one", "rules": [{}, rule]}]);
        let items = json!([{"metadata": {}}, {"metadata": {"name": name}, "webhooks": webhooks}]);
        configurations(json!({"items": items})).unwrap()
    }

    #[test]
    fn a_webhook_that_matches_managed_cluster_updates_may_set_times() {
        let seen = |groups: &[&str], resources: &[&str], operations: &[&str]| {
            installed(&list("ocm", groups, resources, operations))
        };
        assert_eq!(
            seen(&[GROUP], &[RESOURCE], &["CREATE", "UPDATE"]),
            ["ocm/one"]
        );
        assert_eq!(seen(&["*"], &["pods", RESOURCE], &["*"]), ["ocm/one"]);
        for (groups, resources, operations) in [
            (&["*"][..], &["*"][..], &["*"][..]),
            (&["*"], &["*/*"], &["*"]),
            (&[GROUP], &["*"], &["UPDATE"]),
            (&["apps"], &[RESOURCE], &["UPDATE"]),
            (&[GROUP], &["managedclustersets"], &["UPDATE"]),
            (&[GROUP], &["managedclusters/status"], &["UPDATE"]),
            (&[GROUP], &[RESOURCE], &["CREATE", "DELETE"]),
        ] {
            assert!(
                seen(groups, resources, operations).is_empty(),
                "{groups:?} {resources:?} {operations:?}"
            );
        }
        for empty in [
            json!({}),
            json!([]),
            json!({"items": []}),
            json!({"items": null}),
        ] {
            assert_eq!(configurations(empty).unwrap(), []);
        }
    }

    #[test]
    fn stops_waiting_for_webhooks_that_left_a_taint_without_a_time() {
        let names = |name: &str| Some(installed(&list(name, &[GROUP], &[RESOURCE], &["UPDATE"])));
        let mut found = FoundWebhooks::default();
        assert!(found.by_webhook(), "nothing is known");
        found.names = names("kyverno");
        assert!(found.by_webhook());
        found.idle = found.names.clone();
        assert!(!found.by_webhook());
        found.names = names("ocm");
        assert!(found.by_webhook());
        found.names = Some(Vec::new());
        assert!(!found.by_webhook());
    }
}
