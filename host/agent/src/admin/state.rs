//! The state of the agent as JSON, for debugging. It holds no content of objects: states, reasons and messages are
//! those of status and log.

use crate::controller::Controller;
use anyhow::Context as _;
use serde_json::{Value, json};
use transom_api::State;
use transom_cluster::kubernetes::{Kubernetes, WatchHealth};
use transom_core::watches::Scope;

/// Maximum number of listed primaries. `Applied` ones are only counted.
const LISTED: usize = 1_000;

/// The state, as one document.
///
/// # Errors
/// When it cannot be serialized, which is a bug in the agent.
pub(super) fn text(controller: &Controller) -> anyhow::Result<String> {
    serde_json::to_string_pretty(&of(controller)).context("failed to write the state")
}

fn of(controller: &Controller) -> Value {
    let policies = controller.queues().into_iter().map(|queue| {
        let revision = &queue.loaded().revision;
        json!({
            "policy": &*queue.policy,
            "suspend": revision.policy.suspend,
            "decide": &*revision.decide.digest,
            "trigger": revision.trigger.as_ref().map(|guest| &*guest.digest),
            "queue": { "primaries": queue.left(), "oldestSeconds": queue.oldest().as_secs_f64() },
        })
    });
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "unready": controller.unready(),
        "watches": watches(controller),
        "policies": policies.collect::<Vec<_>>(),
        "primaries": primaries(controller),
    })
}

/// Every watch of every API server, with its health.
fn watches(controller: &Controller) -> Vec<Value> {
    let of = |server: &Kubernetes| {
        let watches = server.health().watches.into_iter();
        let name = server.name().to_owned();
        let told = move |watch: WatchHealth| {
            let Scope {
                api_version,
                kind,
                namespace,
                ..
            } = watch.scope;
            json!({
                "connection": name,
                "apiVersion": api_version,
                "kind": kind,
                "namespace": namespace,
                "synced": watch.synced,
                "objects": watch.objects,
                "restarts": watch.restarts,
                "silentSeconds": watch.silent_seconds,
            })
        };
        watches.map(told).collect::<Vec<_>>()
    };
    controller.connections.servers().flat_map(of).collect()
}

/// The primaries that are not `Applied`, at most [`LISTED`] of them, with the number of those left out and of `Applied`
/// ones.
fn primaries(controller: &Controller) -> Value {
    let memory = controller.memory.lock();
    let mut others = memory
        .results
        .iter()
        .filter(|(_, told)| told.state != State::Applied);
    let listed: Vec<Value> = others
        .by_ref()
        .take(LISTED)
        .map(|(key, told)| {
            json!({
                "policy": &*key.policy,
                "primary": key.primary.to_string(),
                "state": told.state.as_str(),
                "reason": told.reason.as_str(),
                "message": told.message,
                "failures": told.failures,
            })
        })
        .collect();
    let left_out = others.count();
    let applied = memory
        .results
        .values()
        .filter(|told| told.state == State::Applied)
        .count();
    json!({ "applied": applied, "others": listed, "leftOut": left_out })
}
