//! The settings of the guest `taints`: keys, effects, grace periods.

use serde::Deserialize;
use transom_guest::Problem;
use transom_guest::taints::Effect;

/// The two taints. The default is what Open Cluster Management does.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// For a cluster that is not available.
    pub unavailable: TaintSettings,
    /// For a cluster that does not report.
    pub unreachable: TaintSettings,
}

/// One of the two taints.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct TaintSettings {
    /// The key; `None` for the built-in one.
    pub key: Option<String>,
    /// The effect on placement.
    pub effect: TaintEffect,
    /// How many seconds the condition must hold first.
    pub grace_period_seconds: u32,
}

/// [`Effect`], spelt as in Kubernetes.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub enum TaintEffect {
    /// The cluster is not selected, and removed where it was selected.
    #[default]
    NoSelect,
    /// The cluster is selected only if there is no better one.
    PreferNoSelect,
    /// The cluster is not selected anew.
    NoSelectIfNew,
}

impl From<TaintEffect> for Effect {
    fn from(effect: TaintEffect) -> Self {
        match effect {
            TaintEffect::NoSelect => Self::NoSelect,
            TaintEffect::PreferNoSelect => Self::PreferNoSelect,
            TaintEffect::NoSelectIfNew => Self::NoSelectIfNew,
        }
    }
}

impl TaintSettings {
    /// The key to use, `built_in` when none is set.
    pub(crate) fn key_or<'a>(&'a self, built_in: &'a str) -> &'a str {
        self.key.as_deref().unwrap_or(built_in)
    }
}

impl Settings {
    /// Refuses keys that no taint can have, and the same key for both taints.
    pub(crate) fn check(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        for (field, taint) in [
            ("unavailable.key", &self.unavailable),
            ("unreachable.key", &self.unreachable),
        ] {
            if taint
                .key
                .as_deref()
                .is_some_and(|key| !is_qualified_name(key))
            {
                problems.push(Problem::in_settings(
                    field,
                    "not a qualified name such as example.com/down",
                ));
            }
        }
        let (unavailable, unreachable) = crate::decide::keys(self);
        if unavailable == unreachable {
            problems.push(Problem::in_settings(
                "unreachable.key",
                "both taints have the same key",
            ));
        }
        problems
    }
}

/// Whether a text is `[prefix/]name`: the prefix a DNS subdomain of at most 253 characters, the name at most 63 of
/// `[A-Za-z0-9._-]` with a letter or digit at both ends.
fn is_qualified_name(key: &str) -> bool {
    let (prefix, name) = match key.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, key),
    };
    let lower = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let in_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    is_bounded(name, 63, u8::is_ascii_alphanumeric, in_name)
        && prefix.is_none_or(|prefix| {
            prefix.len() <= 253
                && prefix.split('.').all(|label| {
                    is_bounded(
                        label,
                        63,
                        |byte| lower(*byte),
                        |byte| lower(byte) || byte == b'-',
                    )
                })
        })
}

/// Whether a text is not empty, has at most `longest` bytes, and has the right bytes at both ends and in between.
fn is_bounded(
    text: &str,
    longest: usize,
    at_ends: impl Fn(&u8) -> bool,
    inside: impl Fn(u8) -> bool,
) -> bool {
    let bytes = text.as_bytes();
    bytes.len() <= longest
        && bytes.first().is_some_and(&at_ends)
        && bytes.last().is_some_and(&at_ends)
        && bytes.iter().all(|byte| inside(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_a_qualified_name() {
        for key in [
            "down",
            "example.com/down",
            "a.b-c.d/X_y.z-1",
            &format!("{}/a", "a.".repeat(100) + "b"),
        ] {
            assert!(is_qualified_name(key), "{key}");
        }
        let long = "a".repeat(64);
        for key in [
            "",
            "/",
            "a/",
            "/a",
            "a/b/c",
            "-a",
            "a-",
            "Example.com/a",
            "a..b/c",
            "a b",
            "ä",
            long.as_str(),
        ] {
            assert!(!is_qualified_name(key), "{key}");
        }
    }

    #[test]
    fn refuses_one_key_for_both() {
        let same = |key: &str| Some(key.to_owned());
        let mut settings = Settings::default();
        settings.unavailable.key = same("a/b");
        assert!(settings.check().is_empty());
        settings.unreachable.key = same("a/b");
        assert_eq!(settings.check().len(), 1);
        settings.unreachable.key = None;
        settings.unavailable.key = same(crate::decide::UNREACHABLE);
        assert_eq!(settings.check().len(), 1);
    }
}
