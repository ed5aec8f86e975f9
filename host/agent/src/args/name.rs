//! Names that flags take.

use transom_core::reference::dns::is_label;

/// Whether a connection may have this name.
pub(super) fn is_connection(name: &str) -> bool {
    !name.is_empty()
        && name
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
}

/// The name of a cluster. Whether it is the hub's own does not depend on the case of its letters, as in the existing
/// agent.
pub(super) fn parse_label(text: &str) -> Result<String, String> {
    let fits = is_label(&text.to_ascii_lowercase()).then(|| text.to_owned());
    fits.ok_or_else(|| "expected a DNS label: letters, digits and dashes".to_owned())
}
