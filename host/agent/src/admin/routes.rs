//! The paths of the admin server, who may get them, and the answers. They show only what the agent already has in
//! memory, and no content of objects. Health is open to everyone; the other paths are open to peers on this machine,
//! and to peers that the API server authorizes. Stores no token.

use super::metrics;
use crate::controller::Controller;
use crate::controller::snapshot::Snapshot;
use crate::controller::workqueue::Swapped;
use anyhow::Context as _;
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{
    ALLOW, AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, HeaderMap, HeaderValue, WWW_AUTHENTICATE,
};
use hyper::{Method, Request, Response, StatusCode};
use serde_json::{Value, json};
use std::net::SocketAddr;
use tracing::error;
use transom_api::State;
use transom_cluster::kubernetes::{Access, Reviews, WatchHealth};

/// Text for people.
const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");
/// [`prometheus::TEXT_FORMAT`] names no charset; the format is UTF-8 by definition.
const METRICS: HeaderValue = HeaderValue::from_static(prometheus::TEXT_FORMAT);
const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// An answer with its whole body in memory.
type Answer = Response<Full<Bytes>>;

/// Answers one request, whose body is ignored. Calls `read` before an answer that may be large, and only then.
pub(super) async fn answer<B>(
    controller: &Controller,
    authorizer: &Authorizer,
    peer: SocketAddr,
    request: &Request<B>,
    read: impl FnOnce(),
) -> Answer {
    if ![Method::GET, Method::HEAD].contains(request.method()) {
        let mut refused = said(StatusCode::METHOD_NOT_ALLOWED, "only GET is supported");
        refused
            .headers_mut()
            .insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return refused;
    }
    match request.uri().path() {
        "/healthz" => said(StatusCode::OK, "ok"),
        "/readyz" => match controller.unready() {
            None => said(StatusCode::OK, "ok"),
            Some(why) => said(StatusCode::SERVICE_UNAVAILABLE, why),
        },
        path @ ("/metrics" | "/debug/state") => {
            match authorizer.authorize(peer, request.headers(), path).await {
                Ok(()) => {
                    read();
                    shown(&controller.snapshot(), path)
                }
                Err((status, why)) => refused(status, why),
            }
        }
        _ => said(
            StatusCode::NOT_FOUND,
            "not found; the paths are /metrics, /healthz, /readyz and /debug/state",
        ),
    }
}

fn shown(snapshot: &Snapshot, path: &str) -> Answer {
    let (kind, text) = match path {
        "/metrics" => (METRICS, metrics::text(snapshot)),
        _ => {
            let text = serde_json::to_string_pretty(&state(snapshot));
            (JSON, text.context("failed to write the state"))
        }
    };
    match text {
        Ok(text) => respond(StatusCode::OK, kind, text),
        Err(error) => {
            error!(
                path,
                error = format!("{error:#}"),
                "failed to answer; this is a bug in the agent"
            );
            said(
                StatusCode::INTERNAL_SERVER_ERROR,
                "the answer could not be written; see the log",
            )
        }
    }
}

fn refused(status: StatusCode, why: &'static str) -> Answer {
    let mut answer = said(status, why);
    if status == StatusCode::UNAUTHORIZED {
        answer
            .headers_mut()
            .insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    answer
}

fn said(status: StatusCode, sentence: &str) -> Answer {
    respond(status, TEXT, format!("{sentence}\n"))
}

fn respond(status: StatusCode, kind: HeaderValue, text: String) -> Answer {
    let mut answer = Response::new(Full::new(Bytes::from(text)));
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, kind);
    answer
        .headers_mut()
        .insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    answer
}

/// The swaps of a policy, and for how long at a time no reconcile could start during the last one.
fn swaps(Swapped { swaps, pause }: Swapped) -> Value {
    let [p999, longest] = [pause.p999, pause.longest].map(|pause| pause.as_secs_f64());
    json!({ "done": swaps, "lastPause": { "p999Seconds": p999, "longestSeconds": longest } })
}

/// One watch. The reason and the message of its failure are those of the log.
fn watch(connection: &str, one: &WatchHealth) -> Value {
    let failure = one.failure.as_ref();
    json!({
        "connection": connection,
        "apiVersion": one.scope.api_version,
        "kind": one.scope.kind,
        "namespace": one.scope.namespace,
        "synced": one.synced,
        "reason": failure.map(|(reason, _)| reason.as_str()),
        "message": failure.map(|(_, message)| message),
        "objects": one.objects,
        "restarts": one.restarts,
        "silentSeconds": one.silent_seconds,
    })
}

/// The state of the agent as one document, for debugging.
fn state(snapshot: &Snapshot) -> Value {
    let policies = snapshot.policies.iter().map(|one| {
        json!({
            "policy": &*one.policy,
            "suspend": one.suspend,
            "decide": &*one.decide,
            "trigger": one.trigger.as_deref(),
            "queue": { "primaries": one.left, "oldestSeconds": one.oldest.as_secs_f64() },
            "swaps": swaps(one.swapped),
        })
    });
    let watches = snapshot.servers.iter().flat_map(|server| {
        let watches = server.watches.iter();
        watches.map(|one| watch(&server.name, one))
    });
    let others = snapshot.listed.iter().map(|(key, last)| {
        json!({
            "policy": &*key.policy,
            "primary": key.primary.to_string(),
            "state": last.state.as_str(),
            "reason": last.reason.as_str(),
            "message": last.message,
            "failures": last.failures,
        })
    });
    let count = |applied: bool| {
        let counts = snapshot.primaries.iter();
        let counts = counts.filter(|one| (one.state == State::Applied) == applied);
        counts.map(|one| one.primaries).sum::<usize>()
    };
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "unready": snapshot.unready,
        "watches": watches.collect::<Vec<_>>(),
        "policies": policies.collect::<Vec<_>>(),
        "primaries": {
            "applied": count(true),
            "others": others.collect::<Vec<_>>(),
            "leftOut": count(false).saturating_sub(snapshot.listed.len()),
        },
    })
}

/// Decides who may get a path; asks the API server, if one is connected.
pub(super) struct Authorizer {
    reviews: Option<Reviews>,
}

impl Authorizer {
    /// An authorizer that asks this API server; with `None` it lets only peers on this machine in.
    pub(super) fn new(reviews: Option<Reviews>) -> Self {
        Self { reviews }
    }

    /// Whether a peer may get a path.
    ///
    /// # Errors
    /// With the status and the sentence to answer, when the peer may not.
    pub(super) async fn authorize(
        &self,
        peer: SocketAddr,
        headers: &HeaderMap,
        path: &str,
    ) -> Result<(), (StatusCode, &'static str)> {
        if peer.ip().to_canonical().is_loopback() {
            return Ok(());
        }
        let Some(reviews) = &self.reviews else {
            return Err((
                StatusCode::FORBIDDEN,
                "no API server is connected that could authenticate you; send the request from the same machine",
            ));
        };
        let Some(token) = bearer(headers) else {
            return Err((
                StatusCode::UNAUTHORIZED,
                "authenticate with a token of the API server: `Authorization: Bearer <token>`",
            ));
        };
        match reviews.may(token, path).await {
            Access::Allowed => Ok(()),
            Access::Unauthenticated => Err((
                StatusCode::UNAUTHORIZED,
                "the API server rejected this token",
            )),
            Access::Forbidden => Err((
                StatusCode::FORBIDDEN,
                "your permissions do not include `get` on this path (nonResourceURLs)",
            )),
            Access::Unknown => Err((
                StatusCode::SERVICE_UNAVAILABLE,
                "the API server did not say whether you have permission: it does not answer, or refuses the agent its reviews",
            )),
        }
    }
}

/// The token of a request.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::tests::controller;
    use crate::controller::snapshot::tests::sample;

    #[test]
    fn the_state_lists_what_is_not_applied_and_counts_the_rest() {
        let state = state(&sample());
        let others = json!([{
            "policy": "p", "primary": state["primaries"]["others"][0]["primary"], "state": "Failed",
            "reason": "ReadFailed", "message": "m", "failures": 0,
        }]);
        let primaries = json!({ "applied": 5, "others": others, "leftOut": 4 });
        assert_eq!(state["primaries"], primaries);
        let policy = json!({
            "policy": "p", "suspend": false, "decide": "d", "trigger": null,
            "queue": { "primaries": 3, "oldestSeconds": 1.5 },
            "swaps": { "done": 2, "lastPause": { "p999Seconds": 2e-6, "longestSeconds": 3e-6 } },
        });
        assert_eq!(state["policies"], json!([policy]));
        let watch = json!({
            "connection": "hub", "apiVersion": "v1", "kind": "Secret", "namespace": "a",
            "synced": true, "reason": null, "message": null, "objects": 2, "restarts": 1, "silentSeconds": 0,
        });
        assert_eq!(state["watches"][0], watch);
        let failing = &state["watches"][1];
        assert_eq!(failing["reason"], "ReadForbidden");
        assert_eq!(failing["message"], "not allowed");
        assert_eq!(state["unready"], Value::Null);
    }

    #[tokio::test]
    async fn only_a_ready_agent_is_reported_as_ready() {
        let local = "127.0.0.1:1".parse().unwrap();
        let controller = controller();
        let status = async |path: &str| {
            let request = Request::get(path).body(()).unwrap();
            let authorizer = Authorizer::new(None);
            let answer = answer(&controller, &authorizer, local, &request, || {});
            answer.await.status().as_u16()
        };
        assert_eq!(status("/readyz").await, 503);
        assert_eq!(status("/healthz").await, 200);
        controller.queues.complete();
        assert_eq!(status("/readyz").await, 200);
    }

    #[test]
    fn reads_a_token_only_from_its_header() {
        for (header, token) in [
            ("Bearer abc", Some("abc")),
            ("bearer  abc ", Some("abc")),
            ("Bearer ", None),
            ("Basic abc", None),
            ("abc", None),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(AUTHORIZATION, header.parse().unwrap());
            assert_eq!(bearer(&headers), token, "{header}");
        }
        assert_eq!(bearer(&HeaderMap::new()), None);
    }

    #[tokio::test]
    async fn without_an_api_server_only_local_clients_are_allowed() {
        let authorizer = Authorizer::new(None);
        let status = async |peer: &str| {
            let passed = authorizer
                .authorize(peer.parse().unwrap(), &HeaderMap::new(), "/metrics")
                .await;
            passed.err().map(|(status, _)| status.as_u16())
        };
        assert_eq!(status("127.0.0.1:1").await, None);
        assert_eq!(status("[::1]:1").await, None);
        assert_eq!(status("[::ffff:127.0.0.1]:1").await, None);
        assert_eq!(status("10.0.0.1:1").await, Some(403));
    }
}
