//! Which names Kubernetes allows.

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
    name.len() <= 253 && name.split('.').all(part)
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

#[cfg(test)]
mod tests {
    use super::*;

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
}
