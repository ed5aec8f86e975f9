//! The paths of the admin server and their answers. They show only what the agent already has in memory.

use super::authorizer::Authorizer;
use super::state;
use crate::controller::Controller;
use crate::metrics;
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue, WWW_AUTHENTICATE};
use hyper::{Method, Request, Response, StatusCode};
use std::net::SocketAddr;
use tracing::error;

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
        "/readyz" => readiness(controller),
        path @ ("/metrics" | "/debug/state") => {
            match authorizer.authorize(peer, request.headers(), path).await {
                Ok(()) => {
                    read();
                    shown(controller, path)
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

fn readiness(controller: &Controller) -> Answer {
    match controller.unready() {
        None => said(StatusCode::OK, "ok"),
        Some(why) => said(StatusCode::SERVICE_UNAVAILABLE, why),
    }
}

fn shown(controller: &Controller, path: &str) -> Answer {
    let (kind, text) = match path {
        "/metrics" => (METRICS, metrics::text(controller)),
        _ => (JSON, state::text(controller)),
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
