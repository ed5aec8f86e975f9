//! Authorization of the admin server: health is open to everyone; the other paths are open to peers on this machine,
//! and to peers that the API server authorizes. Stores no token.

use hyper::StatusCode;
use hyper::header::{AUTHORIZATION, HeaderMap};
use std::net::SocketAddr;
use transom_cluster::kubernetes::{Access, Reviews};

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
                "the API server did not answer whether you have permission",
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
