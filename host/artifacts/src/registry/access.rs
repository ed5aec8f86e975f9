//! How registries are reached: credentials, certificates, mirrors, and where no TLS is used.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use oci_client::Reference;
use oci_client::client::{Certificate, CertificateEncoding};
use oci_client::secrets::RegistryAuth;
use serde_json::Value;
use std::fmt;
use std::fs::File;
use std::io::{self, Read as _};
use std::net::IpAddr;
use std::path::Path;
use std::str::FromStr;
use transom_core::policy::component::{Image, is_registry};

/// Largest configuration of docker that is read, in bytes.
const CONFIG_BYTES: u64 = 1 << 20;
/// Largest file of certificates, in bytes.
const AUTHORITY_BYTES: u64 = 1 << 20;

/// How registries are reached.
#[derive(Default)]
pub struct RegistryAccess {
    /// Registries and repositories, each with its user and password.
    logins: Vec<(String, RegistryAuth)>,
    /// The registries whose credentials a helper program would give; `None` stands for all others. None is run (ADR
    /// 0033).
    helpers: Vec<Option<String>>,
    authorities: Vec<Certificate>,
    mirrors: Vec<Mirror>,
    plain: Vec<String>,
}

/// Another place for the artifacts of a registry: `REGISTRY[/PATH]=REGISTRY[/PATH]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mirror {
    /// The beginning of the names that it mirrors.
    of: String,
    /// What stands there instead.
    at: String,
}

impl FromStr for Mirror {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let is_prefix = |text: &str| {
            let registry = text.split('/').next().unwrap_or_default();
            let image = format!("{text}/x:x");
            is_registry(registry) && Image::parse(&image).is_some()
        };
        text.split_once('=')
            .filter(|(of, at)| is_prefix(of) && is_prefix(at))
            .map(|(of, at)| Self {
                of: of.to_owned(),
                at: at.to_owned(),
            })
            .ok_or_else(|| "expected `REGISTRY[/PATH]=REGISTRY[/PATH]`".to_owned())
    }
}

impl fmt::Display for Mirror {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.of, self.at)
    }
}

impl Mirror {
    /// Where an image lies on the mirror.
    fn place(&self, image: &Image) -> Option<Image> {
        let name = image.name();
        let rest = name.strip_prefix(&self.of)?;
        if !rest.starts_with('/') {
            return None;
        }
        let mirrored = format!("{}{rest}", self.at);
        let (registry, repository) = mirrored.split_once('/')?;
        Some(Image {
            registry: registry.to_owned(),
            repository: repository.to_owned(),
            ..image.clone()
        })
    }
}

/// An artifact at one registry.
pub(super) struct ArtifactPlace {
    pub(super) reference: Reference,
    pub(super) login: RegistryAuth,
}

impl ArtifactPlace {
    fn of(image: &Image, login: RegistryAuth) -> Self {
        let (registry, repository) = (image.registry.clone(), image.repository.clone());
        let tag = image.tag.clone().unwrap_or_default();
        let reference = match image.digest.clone() {
            Some(digest) => Reference::with_digest(registry, repository, digest),
            None => Reference::with_tag(registry, repository, tag),
        };
        Self { reference, login }
    }

    /// The registry and the repository.
    pub(super) fn name(&self) -> String {
        let reference = &self.reference;
        format!("{}/{}", reference.registry(), reference.repository())
    }

    /// Whether two places are one repository.
    pub(super) fn is_with(&self, other: &Self) -> bool {
        let of = |at: &Self| {
            let (registry, repository) =
                (at.reference.resolve_registry(), at.reference.repository());
            (registry.to_owned(), repository.to_owned())
        };
        of(self) == of(other)
    }
}

impl RegistryAccess {
    /// Reads what the flags name. `config` is docker's `config.json`, as in a Secret of the type
    /// `kubernetes.io/dockerconfigjson`; `authority` holds certificates as PEM.
    ///
    /// # Errors
    /// With the file or the registry that cannot be used. Shows no content of a file.
    pub fn read(
        config: Option<&Path>,
        authority: Option<&Path>,
        mirrors: &[Mirror],
        plain: &[String],
    ) -> Result<Self, String> {
        plain
            .iter()
            .try_for_each(|one| plain_registry(one).map(drop))?;
        let config = config.map(|path| {
            let text = small(path, CONFIG_BYTES)
                .map_err(|error| format!("failed to read `{}`: {error}", path.display()))?;
            logins(&text).zip(helpers(&text)).ok_or_else(|| {
                format!(
                    "failed to read `{}`: it is not a configuration of docker with `auths`",
                    path.display()
                )
            })
        });
        let (logins, helpers) = config.transpose()?.unwrap_or_default();
        let authorities = authority.map(|path| {
            let data = small(path, AUTHORITY_BYTES)
                .map_err(|error| format!("failed to read `{}`: {error}", path.display()))?;
            certificates(&data).ok_or_else(|| {
                format!(
                    "failed to read `{}`: it holds no certificate as PEM",
                    path.display()
                )
            })
        });
        Ok(Self {
            logins,
            helpers,
            authorities: authorities.transpose()?.unwrap_or_default(),
            mirrors: mirrors.to_vec(),
            plain: plain.to_vec(),
        })
    }

    pub(super) fn plain(&self) -> &[String] {
        &self.plain
    }

    pub(super) fn authorities(&self) -> &[Certificate] {
        &self.authorities
    }

    /// The mirrors of an image, in the order of the flags.
    pub(super) fn mirrors(&self, image: &Image) -> Vec<ArtifactPlace> {
        let mirrored = self.mirrors.iter().filter_map(|mirror| mirror.place(image));
        mirrored.map(|image| self.place(&image)).collect()
    }

    /// An image at its own registry.
    pub(super) fn place(&self, image: &Image) -> ArtifactPlace {
        ArtifactPlace::of(image, self.login(image))
    }

    /// The credential for an image: that of the longest beginning of its name.
    fn login(&self, image: &Image) -> RegistryAuth {
        let name = image.name();
        let is_of = |key: &str| {
            name.strip_prefix(key)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let matching = self.logins.iter().filter(|(key, _)| is_of(key));
        let longest = matching.max_by_key(|(key, _)| key.len());
        longest.map_or(RegistryAuth::Anonymous, |(_, login)| login.clone())
    }

    /// The field of the configuration that names a program for the credential of an image, if there is no other one.
    pub(super) fn helper(&self, image: &Image) -> Option<&'static str> {
        if self.login(image) != RegistryAuth::Anonymous {
            return None;
        }
        let of = |registry: Option<&str>| self.helpers.iter().any(|one| one.as_deref() == registry);
        match of(Some(&image.registry)) {
            true => Some("credHelpers"),
            false => of(None).then_some("credsStore"),
        }
    }
}

/// Reads a small file, also through a link, as kubelet makes them for mounted Secrets.
fn small(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(most + 1).read_to_end(&mut bytes)?;
    match bytes.len() as u64 > most {
        true => Err(io::ErrorKind::FileTooLarge.into()),
        false => Ok(bytes),
    }
}

/// The registries for which a configuration of docker names a program; `None` for all that have no other one.
fn helpers(text: &[u8]) -> Option<Vec<Option<String>>> {
    let config: Value = serde_json::from_slice(text).ok()?;
    let names = |program: &Value| program.as_str().is_some_and(|name| !name.is_empty());
    let all = config.get("credsStore").filter(|program| names(program));
    let each = config.get("credHelpers").and_then(Value::as_object);
    let each = each.into_iter().flatten();
    let each = each.filter(|(_, program)| names(program));
    let each = each.map(|(registry, _)| Some(place(registry)));
    Some(all.map(|_| None).into_iter().chain(each).collect())
}

/// The credentials of a configuration of docker.
fn logins(text: &[u8]) -> Option<Vec<(String, RegistryAuth)>> {
    let config: Value = serde_json::from_slice(text).ok()?;
    // Helpers may hold all credentials.
    let Some(auths) = config.as_object()?.get("auths") else {
        return Some(Vec::new());
    };
    Some(
        auths
            .as_object()?
            .iter()
            .filter_map(|(key, entry)| Some((place(key), login(entry)?)))
            .collect(),
    )
}

/// The registry, with a path if there is one, of a key such as `https://registry.example/v1/`.
fn place(key: &str) -> String {
    let bare = key.split_once("://").map_or(key, |(_, rest)| rest);
    let bare = bare.trim_end_matches('/');
    let bare = bare
        .strip_suffix("/v1")
        .or_else(|| bare.strip_suffix("/v2"))
        .unwrap_or(bare);
    // The same registry by the name that docker writes.
    match bare {
        "index.docker.io" => "docker.io".to_owned(),
        _ => bare.to_owned(),
    }
}

fn login(entry: &Value) -> Option<RegistryAuth> {
    let text = |field: &str| entry.get(field)?.as_str().filter(|text| !text.is_empty());
    if let Some(token) = text("registrytoken") {
        return Some(RegistryAuth::Bearer(token.to_owned()));
    }
    let plain = text("username").zip(text("password"));
    let plain = plain.map(|(user, password)| (user.to_owned(), password.to_owned()));
    let encoded = || {
        let decoded = String::from_utf8(STANDARD.decode(text("auth")?).ok()?).ok()?;
        let (user, password) = decoded.split_once(':')?;
        Some((user.to_owned(), password.to_owned()))
    };
    let (user, password) = plain.or_else(encoded)?;
    Some(RegistryAuth::Basic(user, password))
}

/// The certificates of a PEM file, each on its own.
fn certificates(pem: &[u8]) -> Option<Vec<Certificate>> {
    const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
    let text = std::str::from_utf8(pem).ok()?;
    let all: Vec<_> = text
        .split(BEGIN)
        .skip(1)
        .map(|rest| Certificate {
            encoding: CertificateEncoding::Pem,
            data: format!("{BEGIN}{rest}").into_bytes(),
        })
        .collect();
    (!all.is_empty()).then_some(all)
}

/// A registry that is reached without TLS.
///
/// # Errors
/// When it is not on this machine.
pub fn plain_registry(registry: &str) -> Result<String, String> {
    match is_loopback(registry) {
        true => Ok(registry.to_owned()),
        false => Err(format!(
            "`{registry}` is not on this machine: only there is TLS not needed"
        )),
    }
}

/// Whether a registry is on this machine.
pub(super) fn is_loopback(registry: &str) -> bool {
    let host = match registry.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => registry,
    };
    let address = host.trim_start_matches('[').trim_end_matches(']');
    is_registry(registry)
        && (host == "localhost"
            || address
                .parse::<IpAddr>()
                .is_ok_and(|address| address.is_loopback()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn image(text: &str) -> Image {
        Image::parse(text).unwrap()
    }

    fn with(config: &Value) -> RegistryAccess {
        RegistryAccess {
            logins: logins(config.to_string().as_bytes()).unwrap(),
            helpers: helpers(config.to_string().as_bytes()).unwrap(),
            ..RegistryAccess::default()
        }
    }

    fn user(access: &RegistryAccess, name: &str) -> Option<String> {
        match access.login(&image(name)) {
            RegistryAuth::Basic(user, _) => Some(user),
            RegistryAuth::Bearer(token) => Some(format!("token {token}")),
            RegistryAuth::Anonymous => None,
        }
    }

    #[test]
    fn a_helper_that_is_not_run_is_named_where_there_is_no_other_credential() {
        let access = with(&json!({
            "auths": {"own.example": {"auth": STANDARD.encode("u:p")}, "store.example": {}},
            "credHelpers": {"https://cloud.example": "cloud", "none.example": ""},
            "credsStore": "desktop",
        }));
        let field = |name: &str| access.helper(&image(&format!("{name}/r:t")));
        assert_eq!(field("own.example"), None);
        assert_eq!(field("cloud.example"), Some("credHelpers"));
        assert_eq!(field("store.example"), Some("credsStore"));
        let one = with(&json!({"credHelpers": {"cloud.example": "cloud"}}));
        assert_eq!(one.helper(&image("other.example/r:t")), None);
        assert_eq!(
            with(&json!({"credsStore": 7})).helper(&image("o.example/r:t")),
            None
        );
    }

    #[test]
    fn the_longest_matching_name_gives_the_credential() {
        let auth = |user: &str| json!({"auth": STANDARD.encode(format!("{user}:pass:word"))});
        let access = with(&json!({"auths": {
            "registry.example": auth("all"),
            "registry.example/team": {"username": "team", "password": "p"},
            "https://index.example/v1/": auth("index"),
            "token.example:5000": {"registrytoken": "t"},
            "helper.example": {},
            "broken.example": {"auth": "?"},
        }}));
        for (name, expected) in [
            ("registry.example/a:v1", Some("all")),
            ("registry.example/team/a:v1", Some("team")),
            ("registry.example/teams/a:v1", Some("all")),
            ("registry.example.org/a:v1", None),
            ("registry.example:5000/a:v1", None),
            ("index.example/a:v1", Some("index")),
            ("token.example:5000/a:v1", Some("token t")),
            ("helper.example/a:v1", None),
            ("broken.example/a:v1", None),
        ] {
            assert_eq!(user(&access, name).as_deref(), expected, "{name}");
        }
        assert!(logins(b"{}").is_some_and(|none| none.is_empty()));
        assert!(logins(b"x").is_none() && logins(b"[]").is_none());
    }

    #[test]
    fn mirrors_come_before_the_registry() {
        let mirror = |text: &str| text.parse::<Mirror>();
        let access = RegistryAccess {
            mirrors: vec![
                mirror("registry.example/team=mirror.example:5000/cache/team").unwrap(),
                mirror("other.example=mirror.example").unwrap(),
            ],
            ..RegistryAccess::default()
        };
        let places = |name: &str| -> Vec<String> {
            let places = access.mirrors(&image(name));
            places.iter().map(|place| place.reference.whole()).collect()
        };
        assert_eq!(
            places("registry.example/team/a:v1"),
            ["mirror.example:5000/cache/team/a:v1"]
        );
        assert!(places("registry.example/teams/a:v1").is_empty());
        for wrong in [
            "",
            "a=b",
            "registry.example",
            "registry.example=",
            "registry.example/A=b.example",
            "=b.example",
        ] {
            assert!(mirror(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn only_this_machine_is_reached_without_tls() {
        for (registry, loopback) in [
            ("127.0.0.1:5000", true),
            ("127.8.0.1:5000", true),
            ("localhost:5000", true),
            ("localhost", true),
            ("[::1]:5000", true),
            ("registry.example:5000", false),
            ("127.0.0.1.example:5000", false),
            ("10.0.0.1:5000", false),
            ("localhost/x", false),
            ("", false),
        ] {
            let read = RegistryAccess::read(None, None, &[], &[registry.to_owned()]);
            assert_eq!(read.is_ok(), loopback, "{registry}");
        }
    }

    #[test]
    fn an_error_about_a_file_shows_nothing_of_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.json");
        std::fs::write(&path, r#"{"auths": "canary"}"#).unwrap();
        for why in [
            RegistryAccess::read(Some(&path), None, &[], &[])
                .err()
                .unwrap(),
            RegistryAccess::read(None, Some(&path), &[], &[])
                .err()
                .unwrap(),
            RegistryAccess::read(Some(&folder.path().join("none")), None, &[], &[])
                .err()
                .unwrap(),
        ] {
            assert!(
                !why.contains("canary") && why.contains(folder.path().to_str().unwrap()),
                "{why}"
            );
        }
    }
}
