//! Reads the values of the contract in a case: context, primary, change, managed cluster. `inputs` reads the inputs by
//! role.

use super::words::Words;
use serde_json::{Map, Value};
use transom_core::contract::taints::{Condition, Effect, ManagedCluster, Status, Taint};
use transom_core::contract::{AgentFacts, Change, Context, Primary};
use transom_core::managed_cluster::DEFAULT_LEASE_SECONDS;
use transom_core::reference::ObjectRef;

/// The context. When it is left out, the time is 1970, there are no settings, and the agent works for the hub's own
/// cluster.
pub(super) fn context(given: &mut Words) -> anyhow::Result<Context> {
    given.map("context", |words| {
        let own = || AgentFacts {
            cluster_name: "local-cluster".to_owned(),
            self_managed: true,
        };
        let settings = words
            .take("settings")
            .filter(|settings| !settings.is_null());
        let settings = settings.unwrap_or_else(|| Value::Object(Map::new()));
        Ok(Context {
            now_seconds: words.plain("now-seconds")?,
            settings: settings.to_string().into(),
            agent: if words.has("agent") {
                words.map("agent", agent)?
            } else {
                own()
            },
        })
    })
}

fn agent(words: &mut Words) -> anyhow::Result<AgentFacts> {
    Ok(AgentFacts {
        cluster_name: words.plain("cluster-name")?,
        self_managed: words.plain("self-managed")?,
    })
}

pub(super) fn reference(words: &mut Words) -> anyhow::Result<ObjectRef> {
    Ok(ObjectRef {
        cluster: words.plain("cluster")?,
        api_version: words.plain("api-version")?,
        kind: words.plain("kind")?,
        namespace: words.plain("namespace")?,
        name: words.plain("name")?,
    })
}

pub(super) fn primary(words: &mut Words) -> anyhow::Result<Primary> {
    Ok(Primary {
        reference: words.map("reference", reference)?,
        uid: words.plain("uid")?,
        created_seconds: words.plain("created-seconds")?,
        deleting: words.plain("deleting")?,
        fields: words
            .take("fields")
            .unwrap_or_else(|| Value::Object(Map::new())),
    })
}

pub(super) fn change(words: &mut Words) -> anyhow::Result<Change> {
    Ok(Change {
        before: words.map("before", primary)?,
        after: words.map("after", primary)?,
        changed: words.plain("changed")?,
    })
}

pub(super) fn cluster(words: &mut Words) -> anyhow::Result<ManagedCluster> {
    Ok(ManagedCluster {
        reference: words.map("reference", reference)?,
        uid: words.plain("uid")?,
        created_seconds: words.plain("created-seconds")?,
        deleting: words.plain("deleting")?,
        accepted: words.plain("accepted")?,
        lease_duration_seconds: match words.has("lease-duration-seconds") {
            true => words.plain("lease-duration-seconds")?,
            false => DEFAULT_LEASE_SECONDS,
        },
        kubernetes_version: words.plain("kubernetes-version")?,
        labels: words.each("labels", pair)?,
        annotations: words.each("annotations", pair)?,
        claims: words.each("claims", pair)?,
        conditions: words.each("conditions", condition)?,
        taints: words.each("taints", taint)?,
    })
}

fn pair(words: &mut Words) -> anyhow::Result<(String, String)> {
    Ok((words.plain("key")?, words.plain("value")?))
}

fn condition(words: &mut Words) -> anyhow::Result<Condition> {
    let all = [
        ("yes", Status::Yes),
        ("no", Status::No),
        ("unknown", Status::Unknown),
    ];
    Ok(Condition {
        kind: words.plain("kind")?,
        status: words.one_of("status", &all, Status::Unknown)?,
        reason: words.plain("reason")?,
        changed_seconds: words.plain("changed-seconds")?,
    })
}

fn taint(words: &mut Words) -> anyhow::Result<Taint> {
    let all = [
        ("no-select", Effect::NoSelect),
        ("prefer-no-select", Effect::PreferNoSelect),
        ("no-select-if-new", Effect::NoSelectIfNew),
    ];
    Ok(Taint {
        key: words.plain("key")?,
        value: words.plain("value")?,
        effect: words.one_of("effect", &all, Effect::NoSelect)?,
        added_seconds: words.plain("added-seconds")?,
    })
}
