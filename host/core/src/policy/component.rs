//! Where a policy says that a component comes from: the text of `component`, parsed.

use crate::digest::is_digest;
use crate::reference::dns::{is_label, is_subdomain};
use crate::reference::{LOCAL, ObjectRef};
use std::collections::BTreeSet;
use std::fmt;
use transom_api::policy::bounds::{DATA_KEY, FEW};

/// How the text of each kind of source begins; a file has no prefix.
const BUILTIN: &str = "builtin:";
const CONFIG_MAP: &str = "configmap:";
const OCI: &str = "oci:";

/// The most bytes of a registry and repository, and of a tag; as the distribution specification has them.
const REPOSITORY: usize = 255;
const TAG: usize = 128;

/// The source of a component, as a policy names it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ComponentSource {
    /// `builtin:<name>`: in the binary.
    Builtin(String),
    /// `configmap:<namespace>/<name>/<key>`, with further keys after `+`: in ConfigMaps of one namespace on the
    /// connection `local`. The component is the bytes of all keys in order.
    ConfigMap(Vec<ComponentPart>),
    /// `oci:<registry>/<repository>:<tag>`, `…@sha256:<hex>` or both: an artifact in a registry.
    Image(Image),
    /// Any other text: the path of a file.
    File(String),
}

/// A key of a ConfigMap.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ComponentPart {
    /// The ConfigMap.
    pub object: ObjectRef,
    /// Its key.
    pub key: String,
}

/// An artifact in a registry that speaks the protocol of the Open Container Initiative. It has a tag, a digest or both;
/// where it has both, the digest counts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Image {
    /// Host name or address of the registry, with its port if there is one.
    pub registry: String,
    /// Path of the repository.
    pub repository: String,
    /// The tag, which may point to another manifest later.
    pub tag: Option<String>,
    /// `sha256:<hex>` of the manifest.
    pub digest: Option<String>,
}

impl Image {
    /// Parses `REGISTRY/REPOSITORY:TAG`, `REGISTRY/REPOSITORY@sha256:HEX` or both together. No registry and no tag is a
    /// default.
    pub fn parse(text: &str) -> Option<Self> {
        let (text, digest) = match text.split_once('@') {
            Some((text, digest)) => (text, Some(digest)),
            None => (text, None),
        };
        let (registry, path) = text.split_once('/')?;
        let (repository, tag) = match path.split_once(':') {
            Some((repository, tag)) => (repository, Some(tag)),
            None => (path, None),
        };
        let is_complete = tag.is_some() || digest.is_some();
        let fits = registry.len() + repository.len() < REPOSITORY;
        let is_valid = is_registry(registry)
            && repository.split('/').all(is_path_component)
            && tag.is_none_or(is_tag)
            && digest.is_none_or(is_digest);
        (is_complete && fits && is_valid).then(|| Self {
            registry: registry.to_owned(),
            repository: repository.to_owned(),
            tag: tag.map(str::to_owned),
            digest: digest.map(str::to_owned),
        })
    }

    /// `REGISTRY/REPOSITORY`.
    pub fn name(&self) -> String {
        format!("{}/{}", self.registry, self.repository)
    }
}

/// As it is written, without `oci:`.
impl fmt::Display for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.registry, self.repository)?;
        let tag = self.tag.iter().try_for_each(|tag| write!(f, ":{tag}"));
        tag.and_then(|()| {
            self.digest
                .iter()
                .try_for_each(|digest| write!(f, "@{digest}"))
        })
    }
}

/// Whether a text can be the host of a registry: one without a dot or a port would be taken for a part of a path.
pub fn is_registry(text: &str) -> bool {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) => (host, Some(port)),
        None => (text, None),
    };
    let is_port = |port: &str| port.parse::<u16>().is_ok_and(|port| port > 0);
    let is_address = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'))
        .is_some_and(|host| host.parse::<std::net::Ipv6Addr>().is_ok());
    let is_far = host.contains('.') || host == "localhost" || port.is_some();
    port.is_none_or(is_port) && (is_address || is_far && is_subdomain(host))
}

/// Words of lower-case letters and digits, between them one `.`, one or two `_`, or any number of `-`.
fn is_path_component(text: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let separators = text.split(|one: char| one.is_ascii_lowercase() || one.is_ascii_digit());
    let is_separator =
        |text: &str| matches!(text, "" | "." | "_" | "__") || text.bytes().all(|byte| byte == b'-');
    let ends = [text.bytes().next(), text.bytes().next_back()];
    ends.iter().all(|end| end.is_some_and(is_word)) && separators.into_iter().all(is_separator)
}

fn is_tag(text: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let mut bytes = text.bytes();
    bytes.next().is_some_and(is_word)
        && bytes.all(|byte| is_word(byte) || matches!(byte, b'.' | b'-'))
        && text.len() <= TAG
}

impl ComponentSource {
    /// Whether a text begins like any source but a file.
    pub fn is_prefixed(text: &str) -> bool {
        [BUILTIN, CONFIG_MAP, OCI]
            .iter()
            .any(|prefix| text.starts_with(prefix))
    }

    /// Parses the text of `component`.
    ///
    /// # Errors
    /// With what is wrong, as the end of a sentence that begins with the field.
    pub fn parse(text: &str) -> Result<Self, String> {
        if let Some(name) = text.strip_prefix(BUILTIN) {
            return Ok(Self::Builtin(name.to_owned()));
        }
        if let Some(image) = text.strip_prefix(OCI) {
            let image = Image::parse(image);
            return image.map(Self::Image).ok_or_else(|| {
                format!("is not `{OCI}REGISTRY/REPOSITORY:TAG`, `{OCI}REGISTRY/REPOSITORY@sha256:HEX` or both together")
            });
        }
        match text.strip_prefix(CONFIG_MAP) {
            Some(keys) => Self::config_map(keys),
            None if is_mistaken(text) => Err(format!(
                "is not a source: expected `{BUILTIN}NAME`, `{CONFIG_MAP}NAMESPACE/NAME/KEY`, \
                 `{OCI}REGISTRY/REPOSITORY:TAG` or the path of a file (for a file with a colon or blank, `./FILE`)"
            )),
            None => Ok(Self::File(text.to_owned())),
        }
    }

    /// Parses `NAMESPACE/NAME/KEY`, with more `NAME/KEY` after `+`.
    ///
    /// # Errors
    /// As for [`ComponentSource::parse`].
    pub fn config_map(keys: &str) -> Result<Self, String> {
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

    /// The objects that hold the component; none for any other source.
    pub fn objects(&self) -> BTreeSet<&ObjectRef> {
        match self {
            Self::Builtin(_) | Self::Image(_) | Self::File(_) => BTreeSet::new(),
            Self::ConfigMap(parts) => parts.iter().map(|part| &part.object).collect(),
        }
    }
}

/// Whether a text without a known prefix is hardly meant as a path: it begins with another one, or with or ends in a
/// blank.
fn is_mistaken(text: &str) -> bool {
    let first = text.split('/').next().unwrap_or_default();
    first.contains(':') || text.trim() != text
}

/// `NAME/KEY`.
fn part(namespace: &str, text: &str) -> Option<ComponentPart> {
    let (name, key) = text.split_once('/')?;
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let is_key = (1..=DATA_KEY).contains(&key.len()) && key.bytes().all(allowed);
    (is_subdomain(name) && is_key).then(|| ComponentPart {
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
        match ComponentSource::parse(text).unwrap() {
            ComponentSource::ConfigMap(parts) => {
                let shown = |part: &ComponentPart| format!("{} {}", part.object, part.key);
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
        let objects = ComponentSource::parse("configmap:a/b/1+b/2+c/1").unwrap();
        assert_eq!(objects.objects().len(), 2);
    }

    #[test]
    fn takes_any_text_without_a_prefix_for_a_path() {
        assert_eq!(
            ComponentSource::parse("builtin:taints"),
            Ok(ComponentSource::Builtin("taints".to_owned()))
        );
        for path in ["taints.wasm", "../a/b.wasm", "./a:b.wasm", "/x y/z", ""] {
            assert_eq!(
                ComponentSource::parse(path),
                Ok(ComponentSource::File(path.to_owned()))
            );
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
            let why = ComponentSource::parse(text).unwrap_err();
            assert!(
                why.contains("configmap:NAMESPACE/NAME/KEY"),
                "{text}: {why}"
            );
        }
    }

    #[test]
    fn names_an_artifact_by_its_tag_its_digest_or_both() {
        let digest = format!("sha256:{}", "0a".repeat(32));
        for (text, name, tag) in [
            (
                "registry.example/taints:v1",
                "registry.example/taints",
                true,
            ),
            (
                "registry.example:5000/a/b-c.d__e:1.0-rc_1",
                "registry.example:5000/a/b-c.d__e",
                true,
            ),
            ("localhost/taints:_", "localhost/taints", true),
            ("127.0.0.1:5000/taints", "127.0.0.1:5000/taints", false),
            ("[::1]:5000/taints", "[::1]:5000/taints", false),
        ] {
            for pinned in [false, true] {
                let text = match pinned {
                    true => format!("oci:{text}@{digest}"),
                    false => format!("oci:{text}"),
                };
                let parsed = ComponentSource::parse(&text);
                if !tag && !pinned {
                    assert!(parsed.is_err(), "{text}");
                    continue;
                }
                let Ok(ComponentSource::Image(image)) = parsed else {
                    panic!("{text}: {parsed:?}");
                };
                assert_eq!((image.name().as_str(), image.tag.is_some()), (name, tag));
                assert_eq!(image.digest.is_some(), pinned);
                assert_eq!(format!("oci:{image}"), text);
            }
        }
    }

    #[test]
    fn refuses_names_that_no_artifact_has() {
        let (long_tag, long_path) = ("t".repeat(129), "p".repeat(255));
        for text in [
            "",
            "taints",
            "taints:v1",
            "library/taints:v1",
            "registry.example/taints",
            "registry.example/:v1",
            "registry.example/Taints:v1",
            "registry.example//taints:v1",
            "registry.example/../taints:v1",
            "registry.example/a..b:v1",
            "registry.example/a___b:v1",
            "registry.example/-a:v1",
            "registry.example/taints:",
            "registry.example/taints:.v1",
            "registry.example/taints:v1/x",
            "registry.example/taints:v1@sha256:00",
            "registry.example/taints@sha512:00",
            "registry.example:0/taints:v1",
            "registry.example:65536/taints:v1",
            "Registry.example/taints:v1",
            "user@registry.example/taints:v1",
            "https://registry.example/taints:v1",
            "registry.example/taints:v1?x=y",
            "[::1/taints:v1",
            &format!("registry.example/taints:{long_tag}"),
            &format!("registry.example/{long_path}:v1"),
        ] {
            let why = ComponentSource::parse(&format!("oci:{text}")).unwrap_err();
            assert!(why.contains("REGISTRY/REPOSITORY:TAG"), "{text}: {why}");
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
            let why = ComponentSource::parse(text).unwrap_err();
            assert!(
                why.contains("configmap:NAMESPACE/NAME/KEY"),
                "{text}: {why}"
            );
        }
    }
}
