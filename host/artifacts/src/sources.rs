//! Which sources an agent takes components from: a bound that its operator sets, whatever policies name.

use crate::Location;
use std::fmt;
use std::str::FromStr;
use transom_core::policy::component::is_registry;
use transom_core::reference::ObjectRef;
use transom_core::rights::AnyOf;
use transom_core::watches::matches;

/// The allowed sources of components.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sources(Vec<AllowedSource>);

/// One allowed source.
#[derive(Clone, Debug, PartialEq, Eq)]
enum AllowedSource {
    Builtin,
    File,
    /// A pattern of `NAMESPACE/NAME`.
    ConfigMap(String),
    /// A pattern of `REGISTRY/REPOSITORY`.
    Image(String),
}

impl Sources {
    /// Every source.
    pub fn all() -> Self {
        let any = || "*".to_owned();
        Self(vec![
            AllowedSource::Builtin,
            AllowedSource::File,
            AllowedSource::ConfigMap(any()),
            AllowedSource::Image(any()),
        ])
    }

    /// These sources and one component that the operator names.
    pub fn and(mut self, location: &Location) -> Self {
        let named = match location {
            Location::Builtin(_) => vec![AllowedSource::Builtin],
            Location::File(..) => vec![AllowedSource::File],
            Location::Image(image) => vec![AllowedSource::Image(image.name())],
            Location::ConfigMap(_) => {
                let named = |object: &ObjectRef| {
                    let namespace = object.namespace.as_deref().unwrap_or_default();
                    AllowedSource::ConfigMap(format!("{namespace}/{}", object.name))
                };
                location.objects().into_iter().map(named).collect()
            }
        };
        named.into_iter().for_each(|one| self.add(one));
        self
    }

    /// Adds one that is not there yet.
    fn add(&mut self, one: AllowedSource) {
        if !self.0.contains(&one) {
            self.0.push(one);
        }
    }

    /// The ConfigMaps that may hold components.
    pub fn config_maps(&self) -> Vec<AnyOf> {
        let exact = |text: &str| (!text.contains('*')).then(|| text.to_owned());
        let of = |one: &AllowedSource| {
            let AllowedSource::ConfigMap(pattern) = one else {
                return None;
            };
            let (namespace, name) = pattern.split_once('/').unwrap_or(("*", "*"));
            Some(AnyOf {
                namespace: exact(namespace),
                name: exact(name),
            })
        };
        self.0.iter().filter_map(of).collect()
    }

    /// Whether a component may come from there. All objects that hold parts of it must be allowed.
    pub fn allow(&self, location: &Location) -> bool {
        let any = |test: &dyn Fn(&AllowedSource) -> bool| self.0.iter().any(test);
        match location {
            Location::Builtin(_) => any(&|one| *one == AllowedSource::Builtin),
            Location::File(..) => any(&|one| *one == AllowedSource::File),
            Location::ConfigMap(_) => {
                let mut objects = location.objects().into_iter();
                objects.all(|object| any(&|one| one.is_of(object)))
            }
            Location::Image(image) => any(
                &|one| matches!(one, AllowedSource::Image(pattern) if matches(pattern, &image.name())),
            ),
        }
    }
}

impl AllowedSource {
    fn is_of(&self, object: &ObjectRef) -> bool {
        let Self::ConfigMap(pattern) = self else {
            return false;
        };
        let namespace = object.namespace.as_deref().unwrap_or_default();
        matches(pattern, &format!("{namespace}/{}", object.name))
    }
}

/// Builtin components and files.
impl Default for Sources {
    fn default() -> Self {
        Self(vec![AllowedSource::Builtin, AllowedSource::File])
    }
}

/// `builtin,file,configmap:NAMESPACE/NAME,oci:REGISTRY/REPOSITORY`.
impl FromStr for Sources {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let allowed = |one: &str| match (one, one.split_once(':')) {
            ("builtin", _) => Ok(AllowedSource::Builtin),
            ("file", _) => Ok(AllowedSource::File),
            (_, Some(("configmap", pattern))) if is_pattern(pattern) => {
                Ok(AllowedSource::ConfigMap(pattern.to_owned()))
            }
            (_, Some(("oci", pattern))) if is_image_pattern(pattern) => {
                Ok(AllowedSource::Image(pattern.to_owned()))
            }
            _ => Err(format!(
                "`{one}`: expected `builtin`, `file`, `configmap:NAMESPACE/NAME` or `oci:REGISTRY/REPOSITORY`, where `*` \
                 matches any text"
            )),
        };
        let mut all = Self(Vec::new());
        for one in text.split(',') {
            all.add(allowed(one)?);
        }
        Ok(all)
    }
}

/// Whether a pattern can match a namespace and a name.
fn is_pattern(text: &str) -> bool {
    let allowed = |byte: u8| {
        byte.is_ascii_lowercase()
            || byte.is_ascii_digit()
            || matches!(byte, b'-' | b'.' | b'*' | b'/')
    };
    let slashes = text.matches('/').count();
    let complete = slashes == 1 && !text.starts_with('/') && !text.ends_with('/');
    text.bytes().all(allowed) && (complete || text == "*")
}

/// Whether a pattern can match a registry and a repository. The registry is complete, so that `oci:registry.example*`
/// does not allow `registry.example.org` by mistake.
fn is_image_pattern(text: &str) -> bool {
    let allowed =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_./*".contains(&byte);
    let parts = text.split_once('/');
    let complete =
        parts.is_some_and(|(registry, path)| is_registry(registry) && path.bytes().all(allowed));
    text == "*" || complete && !text.ends_with('/')
}

impl fmt::Display for Sources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, one) in self.0.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            match one {
                AllowedSource::Builtin => write!(f, "{comma}builtin")?,
                AllowedSource::File => write!(f, "{comma}file")?,
                AllowedSource::ConfigMap(pattern) => write!(f, "{comma}configmap:{pattern}")?,
                AllowedSource::Image(pattern) => write!(f, "{comma}oci:{pattern}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Base;

    #[test]
    fn each_source_is_named_once() {
        let sources: Sources = "file,builtin,file,oci:a.b/c".parse().unwrap();
        let builtin = Location::parse("builtin:taints", &Base::Nowhere).unwrap();
        assert_eq!(sources.and(&builtin).to_string(), "file,builtin,oci:a.b/c");
    }

    fn allows(sources: &str, component: &str) -> bool {
        let sources: Sources = sources.parse().unwrap();
        sources.allow(&Location::parse(component, &Base::Nowhere).unwrap())
    }

    #[test]
    fn a_component_that_the_operator_names_is_allowed_and_no_other() {
        let at = |text: &str| Location::parse(text, &Base::Nowhere).unwrap();
        for (named, other) in [
            ("configmap:a/b/k+c/k", "configmap:a/d/k"),
            ("oci:registry.example/a:v1", "oci:registry.example/b:v1"),
            ("taints.wasm", "builtin:taints"),
        ] {
            let none = Sources(Vec::new());
            assert!(!none.allow(&at(named)));
            let sources = none.and(&at(named));
            assert!(
                sources.allow(&at(named)) && !sources.allow(&at(other)),
                "{named}"
            );
        }
    }

    #[test]
    fn a_component_may_come_only_from_a_named_source() {
        for (sources, component, expected) in [
            ("builtin", "builtin:taints", true),
            ("builtin", "taints.wasm", false),
            ("builtin", "configmap:transom/taints/k", false),
            ("file", "taints.wasm", true),
            ("file", "builtin:taints", false),
            ("configmap:transom/*", "configmap:transom/taints/k", true),
            ("configmap:transom/*", "configmap:transom-2/taints/k", false),
            (
                "configmap:transom/*",
                "configmap:kube-system/taints/k",
                false,
            ),
            (
                "configmap:transom/taints",
                "configmap:transom/taints/k",
                true,
            ),
            (
                "configmap:transom/taints",
                "configmap:transom/taints-2/k",
                false,
            ),
            // Every object of a component counts.
            ("configmap:transom/a", "configmap:transom/a/k+b/k", false),
            (
                "configmap:transom/a,configmap:transom/b",
                "configmap:transom/a/k+b/k",
                true,
            ),
            ("configmap:*", "configmap:any/thing/k", true),
            ("configmap:*", "taints.wasm", false),
            ("configmap:*", "oci:registry.example/a:v1", false),
            (
                "oci:registry.example/*",
                "oci:registry.example/a/b:v1",
                true,
            ),
            (
                "oci:registry.example/*",
                "oci:registry.example.org/a:v1",
                false,
            ),
            (
                "oci:registry.example/*",
                "oci:registry.example:5000/a:v1",
                false,
            ),
            ("oci:registry.example/a", "oci:registry.example/a:v1", true),
            (
                "oci:registry.example/a",
                "oci:registry.example/ab:v1",
                false,
            ),
            ("oci:*", "oci:localhost:5000/a:v1", true),
        ] {
            assert_eq!(
                allows(sources, component),
                expected,
                "{sources} {component}"
            );
        }
    }

    #[test]
    fn says_what_a_source_looks_like() {
        let text = "builtin,file,configmap:transom/*,oci:registry.example:5000/team/*";
        assert_eq!(text.parse::<Sources>().unwrap().to_string(), text);
        assert_eq!(Sources::default().to_string(), "builtin,file");
        for wrong in [
            "",
            "builtins",
            "builtin,",
            "configmap",
            "configmap:",
            "configmap:transom",
            "configmap:/x",
            "configmap:transom/",
            "configmap:transom/a/k",
            "configmap:Transom/a",
            "oci:",
            "oci:registry.example",
            "oci:registry.example*",
            "oci:*.example/a",
            "oci:registry.example/",
            "oci:registry.example/A",
            "oci:registry.example/a:v1",
        ] {
            let why = wrong.parse::<Sources>().unwrap_err();
            assert!(why.contains("configmap:NAMESPACE/NAME"), "{wrong}: {why}");
        }
    }
}
