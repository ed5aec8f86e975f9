//! What is wrong with a text, and where. Holds no text of the document.

use serde_json::{Map, Value};
use std::collections::BTreeSet;
use std::fmt;
use std::sync::LazyLock;

/// What is wrong with a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DocumentFault {
    /// More bytes than the limit.
    TooLarge,
    /// Bytes that are no UTF-8.
    InvalidUtf8,
    /// A NUL character.
    Nul,
    /// Neither YAML nor JSON.
    Syntax,
    /// More than one document where one is expected.
    SeveralDocuments,
    /// More values, or more text through aliases, than the limit.
    TooManyValues,
    /// So many small values that they would take more than eight times the bytes of the text.
    TooCostly,
    /// Deeper than the limit.
    TooDeep,
    /// A key that stands twice in one map.
    DuplicateKey,
    /// A key that is a map or a list.
    KeyNotText,
    /// A number that JSON cannot hold.
    Number,
    /// A custom tag.
    Tag,
    /// An unquoted `<<` as key whose value is neither a map nor a list of maps.
    MergeKey,
}

impl DocumentFault {
    /// In words.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::TooLarge => "larger than the limit",
            Self::InvalidUtf8 => "not UTF-8",
            Self::Nul => "a NUL character",
            Self::Syntax => "neither well-formed YAML nor JSON",
            Self::SeveralDocuments => "more than one document",
            Self::TooManyValues => "more values than the limit",
            Self::TooCostly => {
                "so many small values that it would need more than eight times its size in memory"
            }
            Self::TooDeep => "nested deeper than the limit",
            Self::DuplicateKey => "a duplicate key",
            Self::KeyNotText => "a key that is not a string",
            Self::Number => "a number that JSON cannot represent",
            Self::Tag => "a tag, which is not supported",
            Self::MergeKey => "a merge key whose value is not a mapping",
        }
    }
}

/// What is wrong with a text, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct DocumentError {
    /// What is wrong.
    pub fault: DocumentFault,
    /// Counted from 1, in the whole text.
    pub line: Option<usize>,
    /// Counted from 1.
    pub column: Option<usize>,
    /// Such as `spec.?[3]`: `?` stands for a key that is not a field known from Kubernetes or of a policy. May be
    /// empty.
    pub path: String,
}

impl DocumentError {
    /// An error without a place.
    pub(crate) fn new(fault: DocumentFault) -> Self {
        Self {
            fault,
            line: None,
            column: None,
            path: String::new(),
        }
    }

    /// Sets the line.
    pub(crate) fn on(self, line: usize) -> Self {
        Self {
            line: Some(line),
            ..self
        }
    }
}

impl fmt::Display for DocumentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(line) = self.line {
            write!(f, "line {line}")?;
            if let Some(column) = self.column {
                write!(f, ", column {column}")?;
            }
            f.write_str(": ")?;
        }
        if !self.path.is_empty() {
            write!(f, "`{}`: ", self.path)?;
        }
        f.write_str(self.fault.as_str())
    }
}

/// Keys that an error may show besides those of a policy: fields that programs define, not keys that a document makes
/// up.
const SHOWN: &str = "annotations apiVersion args as as-groups as-uid as-user-extra auth-provider \
    certificate-authority certificate-authority-data client-certificate client-certificate-data \
    client-key client-key-data cluster clusters command conditions config context contexts \
    creationTimestamp current-context data effect env exec extension extensions finalizers grant \
    guests insecure-skip-tls-verify items key kind labels lastTransitionTime metadata name \
    namespace own ownerReferences password ports preferences primary proxy-url reason server \
    settings spec status stringData taints timeAdded tls-server-name token tokenFile type uid user \
    username users value";

/// The fields of a policy, as the CRD has them.
static OF_POLICY: LazyLock<BTreeSet<String>> = LazyLock::new(|| {
    let mut fields = BTreeSet::new();
    collect_fields(&transom_api::crd::policy(), &mut fields);
    fields
});

/// Collects the names of all fields of a schema.
fn collect_fields(schema: &Value, fields: &mut BTreeSet<String>) {
    let named = schema.get("properties").and_then(Value::as_object);
    fields.extend(named.into_iter().flat_map(Map::keys).cloned());
    let below = schema.as_object().into_iter().flat_map(Map::values);
    let items = schema.as_array().into_iter().flatten();
    below
        .chain(items)
        .for_each(|below| collect_fields(below, fields));
}

/// A key as a path shows it: `?` when it is not known.
pub(crate) fn shown(key: &str) -> &'static str {
    let mut known = SHOWN.split(' ');
    let of_policy = || OF_POLICY.get(key).map(String::as_str);
    known
        .find(|known| *known == key)
        .or_else(of_policy)
        .unwrap_or("?")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_only_field_names_known_from_kubernetes_or_of_a_policy() {
        assert_eq!(shown("client-key-data"), "client-key-data");
        assert_eq!(shown("client-key data"), "?");
        assert_eq!(shown("hunter"), "?");
        for field in [
            "suspend",
            "intervalSeconds",
            "matchExpressions",
            "component",
        ] {
            assert_eq!(shown(field), field);
        }
    }
}
