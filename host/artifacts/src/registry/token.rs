//! Asks the service that a registry names for a token. A credential goes nowhere without TLS, and a failure says what
//! failed: the library would go on without a token, and the registry would refuse that.

use super::access::{ArtifactPlace, RegistryAccess, is_loopback};
use super::failure::{REGISTRY, RegistryFailure, forbidden, of_itself, unanswered, unavailable};
use http::HeaderMap;
use http::header::WWW_AUTHENTICATE;
use http_auth::parser::ChallengeParser;
use oci_client::secrets::RegistryAuth;
use reqwest::redirect::{Attempt, Policy};
use reqwest::{Certificate, Client, Response, Url};
use serde_json::Value;
use transom_api::KnownReason;

/// The most redirects that are followed.
const REDIRECTS: usize = 10;
/// The most bytes of an answer with a token.
const TOKEN_BYTES: usize = 64 << 10;
/// What messages call the service.
const SERVICE: &str = "the token service of the registry";

/// What a registry demands: a token of this service.
#[derive(Debug, PartialEq, Eq)]
struct Challenge {
    realm: String,
    service: Option<String>,
}

/// The credential that requests about a place need: a token where the registry names a service for that, else the one
/// that is known. `actions` are those of the token, such as `pull`.
///
/// # Errors
/// When the registry or its service does not answer, or refuses.
pub(super) async fn login(
    access: &RegistryAccess,
    place: &ArtifactPlace,
    actions: &str,
) -> Result<RegistryAuth, RegistryFailure> {
    if matches!(place.login, RegistryAuth::Bearer(_)) {
        return Ok(place.login.clone());
    }
    let registry = place.reference.resolve_registry();
    let is_plain = access.plain().iter().any(|plain| plain == registry);
    let client = client(access, is_plain).map_err(|error| unanswered(REGISTRY, &error))?;
    let scheme = if is_plain { "http" } else { "https" };
    let asked = client.get(format!("{scheme}://{registry}/v2/")).send();
    let answer = asked.await.map_err(|error| unanswered(REGISTRY, &error))?;
    if let Some(failed) = of_itself(answer.status().as_u16()) {
        return Err(failed);
    }
    let Some(challenge) = challenge(answer.headers()) else {
        return Ok(place.login.clone());
    };
    if !Url::parse(&challenge.realm).is_ok_and(|realm| may_ask(&realm, is_plain)) {
        return Err(unavailable(
            "the registry names a token service without TLS, which is not asked: the credential could be read on the way"
                .to_owned(),
        ));
    }
    let scope = format!("repository:{}:{actions}", place.reference.repository());
    token(&client, &challenge, &scope, &place.login).await
}

/// A client that follows no redirect to where a credential or a token may not go.
fn client(access: &RegistryAccess, is_plain: bool) -> reqwest::Result<Client> {
    let follow = move |attempt: Attempt<'_>| match may_ask(attempt.url(), is_plain) {
        true if attempt.previous().len() <= REDIRECTS => attempt.follow(),
        _ => attempt.error("a redirect without TLS or without end"),
    };
    let authorities = access.authorities().iter();
    let authorities = authorities.map(|one| Certificate::from_pem(&one.data));
    let authorities = authorities.collect::<Result<Vec<_>, _>>()?;
    Client::builder()
        .tls_certs_merge(authorities)
        .connect_timeout(super::CONNECT)
        .read_timeout(super::READ)
        .user_agent(super::USER_AGENT)
        .redirect(Policy::custom(follow))
        .build()
}

/// Whether a credential may go there: with TLS, or on this machine if the registry is on it and needs no TLS, either.
fn may_ask(url: &Url, is_plain: bool) -> bool {
    match url.scheme() {
        "https" => true,
        "http" => is_plain && url.host_str().is_some_and(is_loopback),
        _ => false,
    }
}

/// What a registry demands in its answer, if that is a token.
fn challenge(headers: &HeaderMap) -> Option<Challenge> {
    let texts = headers.get_all(WWW_AUTHENTICATE).iter();
    let texts = texts.filter_map(|value| value.to_str().ok());
    let mut all = texts.flat_map(|text| ChallengeParser::new(text).map_while(Result::ok));
    let bearer = all.find(|one| one.scheme.eq_ignore_ascii_case("Bearer"))?;
    let value = |name: &str| {
        let mut named = bearer.params.iter();
        let (_, value) = named.find(|(key, _)| key.eq_ignore_ascii_case(name))?;
        Some(value.to_unescaped())
    };
    Some(Challenge {
        realm: value("realm")?,
        service: value("service"),
    })
}

/// A token of a service.
async fn token(
    client: &Client,
    challenge: &Challenge,
    scope: &str,
    login: &RegistryAuth,
) -> Result<RegistryAuth, RegistryFailure> {
    let service = challenge.service.as_deref();
    let service = service.map(|service| ("service", service));
    let query: Vec<_> = service.into_iter().chain([("scope", scope)]).collect();
    let request = client.get(&challenge.realm).query(&query);
    let request = match login {
        RegistryAuth::Basic(user, password) => request.basic_auth(user, Some(password)),
        RegistryAuth::Anonymous | RegistryAuth::Bearer(_) => request,
    };
    let answer = request.send().await;
    let mut answer = answer.map_err(|error| unanswered(SERVICE, &error))?;
    match answer.status().as_u16() {
        200 => {}
        // It answers, and others may get a token: only this repository is refused.
        400 | 401 | 403 => return Err(forbidden(SERVICE)),
        404 => {
            let why = format!("{SERVICE} does not know the repository");
            return Err(RegistryFailure::new(KnownReason::ComponentNotFound, why));
        }
        status => {
            return Err(unavailable(format!(
                "{SERVICE} answered with status {status}"
            )));
        }
    }
    let text = text(&mut answer).await?;
    let token: Option<Value> = serde_json::from_slice(&text).ok();
    // Only what a header can hold.
    let is_token =
        |token: &&str| !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic());
    let field = |name: &str| {
        let text = token.as_ref()?.get(name)?.as_str();
        text.filter(is_token).map(str::to_owned)
    };
    field("token")
        .or_else(|| field("access_token"))
        .map(RegistryAuth::Bearer)
        .ok_or_else(|| unavailable(format!("{SERVICE} answered without a token")))
}

/// The body of a small answer.
async fn text(answer: &mut Response) -> Result<Vec<u8>, RegistryFailure> {
    let mut text = Vec::new();
    while let Some(more) = (answer.chunk().await).map_err(|error| unanswered(SERVICE, &error))? {
        if text.len() + more.len() > TOKEN_BYTES {
            let why = format!("{SERVICE} answered with more than {TOKEN_BYTES} bytes");
            return Err(unavailable(why));
        }
        text.extend_from_slice(&more);
    }
    Ok(text)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use serde_json::json;
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;
    use std::sync::{Arc, Mutex};
    use tokio::runtime::Runtime;
    use transom_core::policy::component::Image;

    /// What no message shows.
    const CANARY: &str = "canary";

    /// A server on this machine that answers as the script says, and the heads of the requests that it got.
    pub(in crate::registry) struct Server {
        pub(in crate::registry) address: String,
        heads: Arc<Mutex<Vec<String>>>,
    }

    impl Server {
        /// The script gets the address and the path of each request, and gives status, headers and body.
        pub(in crate::registry) fn start(
            script: impl Fn(&str, &str) -> (u16, String, &'static str) + Send + 'static,
        ) -> Self {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let address = listener.local_addr().unwrap().to_string();
            let (heads, here) = (Arc::<Mutex<Vec<String>>>::default(), address.clone());
            let seen = Arc::clone(&heads);
            std::thread::spawn(move || {
                for stream in listener.incoming() {
                    let (mut stream, mut head) = (stream.unwrap(), Vec::new());
                    let mut byte = [0];
                    while !head.ends_with(b"\r\n\r\n") && stream.read_exact(&mut byte).is_ok() {
                        head.push(byte[0]);
                    }
                    let head = String::from_utf8(head).unwrap();
                    let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
                    seen.lock().unwrap().push(head);
                    let (status, headers, body) = script(&here, &path);
                    let length = body.len();
                    let text = format!(
                        "HTTP/1.1 {status} x\r\nconnection: close\r\ncontent-length: {length}\r\n{headers}\r\n{body}"
                    );
                    // Fails when nobody reads it.
                    drop(stream.write_all(text.as_bytes()));
                }
            });
            Self { address, heads }
        }

        /// Registries with a login for this one, which uses no TLS.
        fn access(&self) -> RegistryAccess {
            access(&self.address, &[])
        }

        fn asked(&self, path: &str) -> Vec<String> {
            let heads = self.heads.lock().unwrap();
            let asked = heads.iter().filter(|head| head.contains(path));
            asked.cloned().collect()
        }
    }

    /// A login for a registry that uses no TLS.
    pub(in crate::registry) fn access(
        registry: &str,
        mirrors: &[crate::registry::Mirror],
    ) -> RegistryAccess {
        // Fails when there is one already.
        drop(tokio_rustls::rustls::crypto::ring::default_provider().install_default());
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("config.json");
        let login = json!({"auths": {registry: {"username": "u", "password": CANARY}}});
        std::fs::write(&config, login.to_string()).unwrap();
        let plain = [registry.to_owned(), "127.0.0.1:1".to_owned()];
        RegistryAccess::read(Some(&config), None, mirrors, &plain).unwrap()
    }

    /// The credential that the registry at this server needs.
    fn ask(server: &Server) -> Result<RegistryAuth, RegistryFailure> {
        let image = Image::parse(&format!("{}/team/a:v1", server.address)).unwrap();
        let access = server.access();
        let place = access.place(&image);
        let asked = login(&access, &place, "pull");
        Runtime::new().unwrap().block_on(asked)
    }

    /// A registry that names this token service; `HERE` is its own address.
    fn naming(realm: &'static str, answer: (u16, &'static str, &'static str)) -> Server {
        Server::start(move |here, path| match path {
            "/v2/" => {
                let realm = realm.replace("HERE", here);
                let header =
                    format!("www-authenticate: Bearer realm=\"{realm}\",service=\"s\"\r\n");
                (401, header, "")
            }
            _ => (answer.0, answer.1.to_owned(), answer.2),
        })
    }

    #[test]
    fn a_token_is_asked_for_with_the_credential_and_used_instead_of_it() {
        for body in [
            r#"{"token": "t"}"#,
            r#"{"access_token": "t"}"#,
            r#"{"token": "", "access_token": "t"}"#,
        ] {
            let server = naming("http://HERE/token", (200, "", body));
            assert_eq!(ask(&server), Ok(RegistryAuth::Bearer("t".to_owned())));
            let asked = server.asked("/token?");
            let [head] = asked.as_slice() else {
                panic!("{asked:?}");
            };
            let query = "/token?service=s&scope=repository%3Ateam%2Fa%3Apull";
            assert!(head.contains(query) && head.contains("Basic "), "{head}");
            assert!(!server.asked("/v2/")[0].contains("Basic "));
        }
        // Without a demand for a token the credential itself is used.
        for header in ["", "www-authenticate: Basic realm=\"x\"\r\n"] {
            let server = Server::start(move |_, _| (401, header.to_owned(), ""));
            assert!(
                matches!(ask(&server), Ok(RegistryAuth::Basic(..))),
                "{header}"
            );
        }
    }

    #[test]
    fn a_credential_goes_to_no_token_service_without_tls() {
        for realm in [
            "http://registry.example/token",
            "http://192.0.2.1/token",
            "http://localhost.example/token",
            "ftp://HERE/token",
            "/token",
        ] {
            let server = naming(realm, (200, "", r#"{"token": "t"}"#));
            let RegistryFailure {
                reason,
                why,
                silent,
            } = ask(&server).unwrap_err();
            assert_eq!(reason, KnownReason::RegistryUnavailable, "{realm}");
            assert!(!silent, "{realm}: other repositories may be given");
            assert!(
                why.contains("without TLS") && !why.contains(CANARY),
                "{realm}: {why}"
            );
            assert!(server.asked("token").is_empty());
        }
        // Nor does it, or the token, follow a redirect there.
        let elsewhere = "location: http://192.0.2.1/token\r\n";
        let server = naming("http://HERE/token", (307, elsewhere, ""));
        let why = ask(&server).unwrap_err().why;
        assert!(why.contains("redirects") && why.contains("TLS"), "{why}");
        // A registry with TLS names no service without it, not even on this machine.
        let may = |url: &str, is_plain| may_ask(&Url::parse(url).unwrap(), is_plain);
        assert!(may("http://127.0.0.1:5000/t", true) && !may("http://127.0.0.1:5000/t", false));
        assert!(may("https://registry.example/t", false));
    }

    #[test]
    fn a_failure_of_the_token_service_is_told_as_its_own() {
        let unavailable = KnownReason::RegistryUnavailable;
        let forbidden = KnownReason::RegistryForbidden;
        let realm = "http://HERE/token";
        for (realm, answer, reason, text) in [
            (realm, (503, CANARY), unavailable, "status 503"),
            (realm, (429, CANARY), unavailable, "status 429"),
            (realm, (400, CANARY), forbidden, "refuses access"),
            (
                realm,
                (404, CANARY),
                KnownReason::ComponentNotFound,
                "does not know",
            ),
            (realm, (200, CANARY), unavailable, "without a token"),
            (
                realm,
                (200, r#"{"token": ""}"#),
                unavailable,
                "without a token",
            ),
            (
                realm,
                (200, r#"{"token": "a\nb"}"#),
                unavailable,
                "without a token",
            ),
            (realm, (401, CANARY), forbidden, "refuses access"),
            (realm, (403, CANARY), forbidden, "refuses access"),
            (
                "http://127.0.0.1:1/",
                (200, ""),
                unavailable,
                "failed to connect",
            ),
        ] {
            let server = naming(realm, (answer.0, "", answer.1));
            let RegistryFailure {
                reason: found,
                why,
                silent,
            } = ask(&server).unwrap_err();
            assert_eq!(found, reason, "{why}");
            // Only a service that cannot be reached has nothing for any repository.
            assert_eq!(silent, text == "failed to connect", "{why}");
            assert!(why.contains(text) && why.contains(SERVICE), "{why}");
            assert!(!why.contains(CANARY), "{why}");
        }
    }

    #[test]
    fn a_registry_that_says_of_itself_that_it_does_not_work_has_nothing_for_any_repository() {
        for (status, is_silent) in [
            (500, true),
            (503, true),
            (429, true),
            (200, false),
            (404, false),
        ] {
            let server = Server::start(move |_, _| (status, String::new(), CANARY));
            let asked = ask(&server);
            assert_eq!(
                asked.as_ref().is_err_and(|failed| failed.silent),
                is_silent,
                "{status}"
            );
            let why = asked.err().map(|failed| failed.why);
            assert!(why.is_none_or(|why| !why.contains(CANARY)), "{status}");
        }
    }
}
