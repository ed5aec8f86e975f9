//! Reads PEM blocks; ignores what stands between them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// One block.
pub(super) struct Block<'b> {
    /// `CERTIFICATE`, `RSA PRIVATE KEY`, ...
    pub(super) label: &'b str,
    /// The decoded bytes.
    pub(super) der: Vec<u8>,
}

/// Reads every block of a text; `None` when a block is broken or the bytes are not UTF-8.
pub(super) fn blocks(bytes: &[u8]) -> Option<Vec<Block<'_>>> {
    let mut rest = std::str::from_utf8(bytes).ok()?;
    let mut found = Vec::new();
    while let Some((_, after)) = rest.split_once("-----BEGIN ") {
        let (label, after) = after.split_once("-----")?;
        let (body, after) = after.split_once("-----END ")?;
        rest = after.strip_prefix(label)?.strip_prefix("-----")?;
        found.push(Block {
            label,
            der: decode(body)?,
        });
    }
    Some(found)
}

/// Decodes base64 over several lines. A body with headers, as of an encrypted key, is not base64.
fn decode(body: &str) -> Option<Vec<u8>> {
    let dense: Vec<u8> = body
        .bytes()
        .filter(|byte| !byte.is_ascii_whitespace())
        .collect();
    STANDARD.decode(dense).ok()
}

/// Reads the base64 of a field as clients do: line ends are ignored.
pub(super) fn field(text: &str) -> Option<Vec<u8>> {
    if !text.contains(['\n', '\r']) {
        return STANDARD.decode(text).ok();
    }
    STANDARD.decode(text.replace(['\n', '\r'], "")).ok()
}

/// Writes the base64 of a field.
pub(super) fn to_field(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}
