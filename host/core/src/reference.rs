//! Names one object on one connection; and which names Kubernetes allows.

use crate::redact::visible::visible;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::hash::{Hash, Hasher};

/// The connection of a reference that names none.
pub const LOCAL: &str = "local";

/// Names one object. Ordered by cluster, kind, namespace and name, so that lists of them are stable.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectRef {
    /// Name of the connection.
    pub cluster: String,
    /// Group and version, `v1` for the core group.
    pub api_version: String,
    /// Kind.
    pub kind: String,
    /// Absent for cluster-scoped kinds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Name.
    pub name: String,
}

impl ObjectRef {
    /// A reference on the local cluster.
    pub fn local(api_version: &str, kind: &str, namespace: Option<&str>, name: &str) -> Self {
        Self {
            cluster: LOCAL.to_owned(),
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
            namespace: namespace.map(str::to_owned),
            name: name.to_owned(),
        }
    }

    /// Whether it is of this kind on this cluster.
    pub(crate) fn is(&self, cluster: &str, api_version: &str, kind: &str) -> bool {
        self.cluster == cluster && self.api_version == api_version && self.kind == kind
    }

    /// The group without the version, empty for the core group.
    pub fn group(&self) -> &str {
        group(&self.api_version)
    }
}

/// The group of an `apiVersion`, empty for the core group.
pub fn group(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}

/// Hashes kind, namespace and name: references rarely differ in the rest only, and hashing is most of a lookup.
impl Hash for ObjectRef {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.kind.hash(state);
        self.namespace.hash(state);
        self.name.hash(state);
    }
}

/// `Secret klusterlet-demo/external-managed-kubeconfig`, with the cluster in front unless it is `local`. For people:
/// invisible letters are escaped.
impl fmt::Display for ObjectRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.cluster != LOCAL {
            write!(f, "{}: ", visible(&self.cluster))?;
        }
        write!(f, "{} ", visible(&self.kind))?;
        if let Some(namespace) = &self.namespace {
            write!(f, "{}/", visible(namespace))?;
        }
        f.write_str(&visible(&self.name))
    }
}

/// Which names Kubernetes allows.
pub mod dns {
    /// The most bytes of a name.
    pub const MAX_NAME: usize = 253;

    /// Whether it is a DNS label: 1 to 63 of `a-z`, `0-9` and `-`, with a letter or digit at both ends.
    pub fn is_label(name: &str) -> bool {
        let alphanumeric = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        name.len() <= 63
            && name.bytes().all(|byte| alphanumeric(&byte) || byte == b'-')
            && name.as_bytes().first().is_some_and(alphanumeric)
            && name.as_bytes().last().is_some_and(alphanumeric)
    }

    /// Whether it is a DNS subdomain: parts joined by dots, at most 253 bytes. A part may be longer than a label here,
    /// as it may for Kubernetes.
    pub fn is_subdomain(name: &str) -> bool {
        let alphanumeric = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        let part = |part: &str| {
            part.bytes().all(|byte| alphanumeric(&byte) || byte == b'-')
                && part.as_bytes().first().is_some_and(alphanumeric)
                && part.as_bytes().last().is_some_and(alphanumeric)
        };
        name.len() <= MAX_NAME && name.split('.').all(part)
    }

    /// Whether a text can be the name of an object of any kind, such as a role: it is exactly one segment of a path. A
    /// guest may have made it up, and other text could lead to another path.
    pub fn is_path_segment(name: &str) -> bool {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:".contains(&byte);
        !matches!(name, "" | "." | "..") && name.bytes().all(plain)
    }

    /// Whether it is the key of a label or an annotation: a name, or a DNS subdomain, a slash and a name.
    pub fn is_qualified_name(key: &str) -> bool {
        let (prefix, name) = key
            .split_once('/')
            .map_or((None, key), |(prefix, name)| (Some(prefix), name));
        is_label_value(name) && prefix.is_none_or(is_subdomain)
    }

    /// 1 to 63 of letters, digits, `-`, `_` and `.`, with a letter or digit at both ends.
    pub fn is_label_value(text: &str) -> bool {
        let bytes = text.as_bytes();
        text.len() <= 63
            && bytes
                .iter()
                .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte))
            && [bytes.first(), bytes.last()]
                .iter()
                .all(|end| end.is_some_and(u8::is_ascii_alphanumeric))
    }
}

/// Whether a kind is that of Secrets.
pub(crate) fn is_secret(api_version: &str, kind: &str) -> bool {
    (api_version, kind) == ("v1", "Secret")
}

#[cfg(test)]
mod tests {
    use super::dns::*;

    #[test]
    fn validates_labels_and_subdomains() {
        let long = "a".repeat(63);
        for (name, label, subdomain) in [
            ("a", true, true),
            ("a-1", true, true),
            (&*long, true, true),
            (&*format!("{long}a"), false, true),
            (&*format!("{long}-"), false, false),
            (&*format!("{long}_"), false, false),
            (&*format!("{}-a", "a".repeat(62)), false, true),
            ("a.b", false, true),
            ("", false, false),
            ("-a", false, false),
            ("a-", false, false),
            ("A", false, false),
            ("a_b", false, false),
            ("a..b", false, false),
            ("../a", false, false),
            ("ä", false, false),
            (&*format!("{}ä", "a".repeat(62)), false, false),
            (&*format!("{long}.{long}.{long}.{long}"), false, false),
        ] {
            assert_eq!(
                (is_label(name), is_subdomain(name)),
                (label, subdomain),
                "{name}"
            );
        }
    }

    #[test]
    fn a_name_is_one_path_segment() {
        for name in ["a", "a.b-c", "system:node", "1_2"] {
            assert!(is_path_segment(name), "{name}");
        }
        for name in [
            "", ".", "..", "a/b", "a?x=1", "a%2fb", "a#b", "a b", "ä", "a\n",
        ] {
            assert!(!is_path_segment(name), "{name}");
        }
    }
}
