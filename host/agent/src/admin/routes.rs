//! The paths of the admin server, who may get them, and their answers. Health is open to everyone; the other paths are
//! open to peers on this machine, and to peers that the API server authorizes. Answers show only what the agent already
//! has in memory; no token is stored.

use super::state;
use crate::controller::Controller;
use crate::metrics;
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{
    ALLOW, AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, HeaderMap, HeaderValue, WWW_AUTHENTICATE,
};
use hyper::{Method, Request, Response, StatusCode};
use std::net::SocketAddr;
use tracing::error;
use transom_cluster::kubernetes::{Access, Reviews};

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
    reviews: Option<&Reviews>,
    peer: SocketAddr,
    request: &Request<B>,
    read: impl FnOnce(),
) -> Answer {
    if ![Method::GET, Method::HEAD].contains(request.method()) {
        let mut refused = said(StatusCode::METHOD_NOT_ALLOWED, "only GET is supported");
        let methods = HeaderValue::from_static("GET, HEAD");
        refused.headers_mut().insert(ALLOW, methods);
        return refused;
    }
    match request.uri().path() {
        "/healthz" => said(StatusCode::OK, "ok"),
        "/readyz" => readiness(controller),
        path @ ("/metrics" | "/debug/state") => {
            match authorize(reviews, peer, request.headers(), path).await {
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
        let scheme = HeaderValue::from_static("Bearer");
        answer.headers_mut().insert(WWW_AUTHENTICATE, scheme);
    }
    answer
}

fn said(status: StatusCode, sentence: &str) -> Answer {
    respond(status, TEXT, format!("{sentence}\n"))
}

fn respond(status: StatusCode, kind: HeaderValue, text: String) -> Answer {
    let mut answer = Response::new(Full::new(Bytes::from(text)));
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, kind);
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    answer
}

/// Whether a peer may get a path. Without an API server to ask, only peers on this machine may.
///
/// # Errors
/// With the status and the sentence to answer, when the peer may not.
async fn authorize(
    reviews: Option<&Reviews>,
    peer: SocketAddr,
    headers: &HeaderMap,
    path: &str,
) -> Result<(), (StatusCode, &'static str)> {
    if peer.ip().to_canonical().is_loopback() {
        return Ok(());
    }
    let Some(reviews) = reviews else {
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
    Err(match reviews.may(token, path).await {
        Access::Allowed => return Ok(()),
        Access::Unauthenticated => (
            StatusCode::UNAUTHORIZED,
            "the API server rejected this token",
        ),
        Access::Forbidden => (
            StatusCode::FORBIDDEN,
            "your permissions do not include `get` on this path (nonResourceURLs)",
        ),
        Access::Unknown => (
            StatusCode::SERVICE_UNAVAILABLE,
            "the API server did not answer whether you have permission",
        ),
    })
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
        let status = async |peer: &str| {
            let (peer, headers) = (peer.parse().unwrap(), HeaderMap::new());
            let refused = authorize(None, peer, &headers, "/metrics").await.err();
            refused.map(|(status, _)| status.as_u16())
        };
        assert_eq!(status("127.0.0.1:1").await, None);
        assert_eq!(status("[::1]:1").await, None);
        assert_eq!(status("[::ffff:127.0.0.1]:1").await, None);
        assert_eq!(status("10.0.0.1:1").await, Some(403));
    }
}
