//! Names that flags take.

use transom_core::reference::dns::is_label;

/// Whether a connection may have this name.
pub(super) fn is_connection(name: &str) -> bool {
    !name.is_empty()
        && name
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
}

/// A name that a namespace may have.
pub(super) fn parse_label(text: &str) -> Result<String, String> {
    let fits = is_label(text).then(|| text.to_owned());
    fits.ok_or_else(|| {
        "expected a DNS label: at most 63 lower-case letters, digits and dashes".to_owned()
    })
}

/// The name of a cluster. Whether it is the hub's own does not depend on the case of its letters, as in the existing
/// agent.
pub(super) fn parse_cluster(text: &str) -> Result<String, String> {
    parse_label(&text.to_ascii_lowercase()).map(|_| text.to_owned())
}
