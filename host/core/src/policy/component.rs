//! Where a policy says that a component comes from: the text of `component`, parsed.

use crate::reference::dns::{is_label, is_subdomain};
use crate::reference::{LOCAL, ObjectRef};
use std::collections::BTreeSet;
use transom_api::policy::bounds::{DATA_KEY, FEW};

/// How the text of each kind of source begins; a file has no prefix.
const BUILTIN: &str = "builtin:";
const CONFIG_MAP: &str = "configmap:";

/// The source of a component, as a policy names it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// `builtin:<name>`: in the binary.
    Builtin(String),
    /// `configmap:<namespace>/<name>/<key>`, with further keys after `+`: in ConfigMaps of one namespace on the
    /// connection `local`. The component is the bytes of all keys in order.
    ConfigMap(Vec<Part>),
    /// Any other text: the path of a file.
    File(String),
}

/// A key of a ConfigMap.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Part {
    /// The ConfigMap.
    pub object: ObjectRef,
    /// Its key.
    pub key: String,
}

impl Source {
    /// Parses the text of `component`.
    ///
    /// # Errors
    /// With what is wrong, as the end of a sentence that begins with the field.
    pub fn parse(text: &str) -> Result<Self, String> {
        if let Some(name) = text.strip_prefix(BUILTIN) {
            return Ok(Self::Builtin(name.to_owned()));
        }
        let Some(keys) = text.strip_prefix(CONFIG_MAP) else {
            return match is_mistaken(text) {
                false => Ok(Self::File(text.to_owned())),
                true => Err(format!(
                    "is not a source: expected `{BUILTIN}NAME`, `{CONFIG_MAP}NAMESPACE/NAME/KEY` or the path of a file \
                     (for a file with a colon or blank, `./FILE`)"
                )),
            };
        };
        let shape = || {
            format!(
                "is not `{CONFIG_MAP}NAMESPACE/NAME/KEY`, with at most {} more `NAME/KEY` of the namespace, each after a \
                 `+`",
                FEW - 1
            )
        };
        let (namespace, keys) = keys.split_once('/').ok_or_else(shape)?;
        let parts: Option<Vec<_>> = keys.split('+').map(|key| part(namespace, key)).collect();
        let fits = |parts: &Vec<_>| is_label(namespace) && parts.len() <= FEW;
        parts.filter(fits).map(Self::ConfigMap).ok_or_else(shape)
    }

    /// The objects that hold the component; none for a file or a builtin component.
    pub fn objects(&self) -> BTreeSet<&ObjectRef> {
        match self {
            Self::Builtin(_) | Self::File(_) => BTreeSet::new(),
            Self::ConfigMap(parts) => parts.iter().map(|part| &part.object).collect(),
        }
    }
}

/// Whether a text without a known prefix is hardly meant as a path: it begins with another one, or with or ends in a blank.
fn is_mistaken(text: &str) -> bool {
    let first = text.split('/').next().unwrap_or_default();
    first.contains(':') || text.trim() != text
}

/// `NAME/KEY`.
fn part(namespace: &str, text: &str) -> Option<Part> {
    let (name, key) = text.split_once('/')?;
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let is_key = (1..=DATA_KEY).contains(&key.len()) && key.bytes().all(allowed);
    (is_subdomain(name) && is_key).then(|| Part {
        object: ObjectRef {
            cluster: LOCAL.to_owned(),
            api_version: "v1".to_owned(),
            kind: "ConfigMap".to_owned(),
            namespace: Some(namespace.to_owned()),
            name: name.to_owned(),
        },
        key: key.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(text: &str) -> Vec<String> {
        match Source::parse(text).unwrap() {
            Source::ConfigMap(parts) => {
                let shown = |part: &Part| format!("{} {}", part.object, part.key);
                parts.iter().map(shown).collect()
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn names_every_key_of_a_component() {
        assert_eq!(
            parts("configmap:transom/taints/taints.wasm"),
            ["ConfigMap transom/taints taints.wasm"]
        );
        let two = parts("configmap:transom/taints.v2/a_1+taints/b-2");
        assert_eq!(
            two,
            [
                "ConfigMap transom/taints.v2 a_1",
                "ConfigMap transom/taints b-2"
            ]
        );
        let objects = Source::parse("configmap:a/b/1+b/2+c/1").unwrap();
        assert_eq!(objects.objects().len(), 2);
    }

    #[test]
    fn takes_any_text_without_a_prefix_for_a_path() {
        assert_eq!(
            Source::parse("builtin:taints"),
            Ok(Source::Builtin("taints".to_owned()))
        );
        for path in ["taints.wasm", "../a/b.wasm", "./a:b.wasm", "/x y/z", ""] {
            assert_eq!(Source::parse(path), Ok(Source::File(path.to_owned())));
        }
    }

    #[test]
    fn takes_no_misspelt_prefix_for_a_path() {
        for text in [
            "ConfigMap:a/b/c",
            "config:a/b/c",
            " configmap:a/b/c",
            "taints.wasm ",
            "C:/x",
        ] {
            let why = Source::parse(text).unwrap_err();
            assert!(
                why.contains("configmap:NAMESPACE/NAME/KEY"),
                "{text}: {why}"
            );
        }
    }

    #[test]
    fn refuses_names_that_no_config_map_has() {
        let many = format!("configmap:a/{}", vec!["b/c"; FEW + 1].join("+"));
        for text in [
            "configmap:",
            "configmap:a",
            "configmap:a/b",
            "configmap:a/b/",
            "configmap://b/c",
            "configmap:a//c",
            "configmap:a.b/c/d",
            "configmap:a/B/c",
            "configmap:a/b/c/d",
            "configmap:a/b/c+",
            "configmap:a/b/c+d",
            "configmap:a/../c",
            "configmap:a/b/c d",
            &many,
        ] {
            let why = Source::parse(text).unwrap_err();
            assert!(
                why.contains("configmap:NAMESPACE/NAME/KEY"),
                "{text}: {why}"
            );
        }
    }
}
