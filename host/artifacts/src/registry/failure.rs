//! Why a registry did not give a component, in one word and without any text of the registry; and whether the registry
//! failed as a whole.

use crate::gathered::Unread;
use oci_client::errors::{OciDistributionError, OciErrorCode};
use transom_api::KnownReason;
use transom_core::policy::component::Image;

/// What messages call a registry.
pub(super) const REGISTRY: &str = "the registry";

/// That an artifact holds no component.
pub(super) fn broken(image: &Image, why: &str) -> Unread {
    let message = format!("`oci:{image}` is not a component: {why}");
    Unread::new(KnownReason::ComponentInvalid, message)
}

/// What was attempted on which artifact, and why it failed.
pub(super) fn failed(attempt: &str, image: &Image, error: &OciDistributionError) -> Unread {
    unread(attempt, image, why(error))
}

/// What was attempted on which artifact, and why it failed, in one word and for people.
pub(super) fn unread(attempt: &str, image: &Image, failed: RegistryFailure) -> Unread {
    let RegistryFailure {
        reason,
        why,
        silent,
    } = failed;
    Unread {
        reason,
        message: format!("failed to {attempt} `oci:{image}`: {why}"),
        silent,
    }
}

/// Why a request failed, in one word and for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RegistryFailure {
    pub(super) reason: KnownReason,
    pub(super) why: String,
    /// Whether the registry failed as a whole: it cannot be reached, does not answer in time, or says that it does not
    /// work. An answer about one repository says nothing about the others.
    pub(super) silent: bool,
}

impl RegistryFailure {
    pub(super) fn new(reason: KnownReason, why: String) -> Self {
        Self {
            reason,
            why,
            silent: false,
        }
    }
}

/// Why a request failed, in one word and for people.
pub(super) fn why(error: &OciDistributionError) -> RegistryFailure {
    use OciDistributionError as E;
    match error {
        E::UnauthorizedError { .. } | E::AuthenticationFailure(_) => forbidden(REGISTRY),
        E::ServerError {
            code: 401 | 403, ..
        } => forbidden(REGISTRY),
        E::ServerError { code: 404, .. } | E::ImageManifestNotFoundError(_) => not_found(),
        E::ServerError { code, .. } => {
            unavailable(format!("the registry answered with status {code}"))
        }
        E::RegistryError { envelope, .. } => {
            let codes: Vec<_> = envelope.errors.iter().map(|one| &one.code).collect();
            refused(&codes)
        }
        E::DigestError(_) => {
            let why = "the registry sent other bytes than the digest says";
            RegistryFailure::new(KnownReason::DigestMismatch, why.to_owned())
        }
        E::RequestError(error) => unanswered(REGISTRY, error),
        E::RegistryTokenDecodeError(_) => unavailable("its token cannot be read".to_owned()),
        _ => unavailable("the registry does not answer as the protocol says".to_owned()),
    }
}

/// Why there is no answer of a registry, or of its token service.
pub(super) fn unanswered(who: &str, error: &reqwest::Error) -> RegistryFailure {
    match error {
        error if error.is_timeout() => silent(format!("{who} does not answer in time")),
        error if error.is_redirect() => unavailable(format!(
            "{who} redirects without end, or to where TLS is not used"
        )),
        // No more is shown: a cause may hold the address with a token, or the names in a certificate.
        error if error.is_connect() => silent(format!(
            "failed to connect to {who}: its name, its port, the network or its certificate"
        )),
        _ => unavailable(format!("the connection to {who} broke")),
    }
}

/// What a registry says of itself, apart from any repository: that it does not work, or takes no more requests of this
/// client.
pub(super) fn of_itself(status: u16) -> Option<RegistryFailure> {
    match status {
        429 => Some(silent(format!("{REGISTRY} takes no more requests for now"))),
        500.. => Some(silent(format!("{REGISTRY} answered with status {status}"))),
        _ => None,
    }
}

/// Why a registry refused a request, by the codes of its answer.
fn refused(codes: &[&OciErrorCode]) -> RegistryFailure {
    use OciErrorCode as C;
    let has = |named: &[C]| codes.iter().any(|code| named.contains(code));
    if has(&[C::Unauthorized, C::Denied]) {
        forbidden(REGISTRY)
    } else if has(&[
        C::ManifestUnknown,
        C::NameUnknown,
        C::BlobUnknown,
        C::NotFound,
    ]) {
        not_found()
    } else if has(&[C::Toomanyrequests]) {
        unavailable("the registry takes no more requests for now".to_owned())
    } else {
        unavailable("the registry refused the request".to_owned())
    }
}

fn not_found() -> RegistryFailure {
    let why = "the registry does not have it";
    RegistryFailure::new(KnownReason::ComponentNotFound, why.to_owned())
}

/// That a registry or its token service does not take the credential, or demands one.
pub(super) fn forbidden(who: &str) -> RegistryFailure {
    let why = format!("{who} refuses access; check the credentials of --registry-config");
    RegistryFailure::new(KnownReason::RegistryForbidden, why)
}

/// That one repository is not given now.
pub(super) fn unavailable(why: String) -> RegistryFailure {
    RegistryFailure::new(KnownReason::RegistryUnavailable, why)
}

/// That nothing can be had from the whole registry.
fn silent(why: String) -> RegistryFailure {
    RegistryFailure {
        silent: true,
        ..unavailable(why)
    }
}
