//! Where the settings of a client come from: a kubeconfig or the pod's identity, and the proxy.
//! A broken source is an error: with the next source the agent would work on another cluster.
//! Messages contain no credential of a kubeconfig.

use super::KubernetesOptions;
use http::Uri;
use hyper_util::client::proxy::matcher::Matcher;
use kube::Config;
use kube::config::{
    AuthInfo, Cluster, Context, KubeConfigOptions, Kubeconfig, KubeconfigError, NamedAuthInfo,
};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::json;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use transom_core::digest::Digest;
use transom_core::redact::visible::visible;

/// Set in every container of a pod.
const POD: &str = "KUBERNETES_SERVICE_HOST";
/// The token of a pod's service account; a pod may do without one.
const POD_TOKEN: &str = "/var/run/secrets/kubernetes.io/serviceaccount/token";
/// Lists kubeconfig files. They are merged; of several values the first one counts.
const KUBECONFIG: &str = "KUBECONFIG";

/// The settings that options and environment select, with the context of the kubeconfig and the [`digest`] of what it
/// says, or what is wrong with them.
pub(super) async fn of(
    options: &KubernetesOptions,
) -> Result<(Option<String>, Config, Option<Digest>), String> {
    let Some((place, kubeconfig)) = kubeconfig(options.kubeconfig.as_deref())? else {
        return match &options.context {
            Some(name) => {
                Err(format!("there is no kubeconfig for the context `{name}`: no KUBECONFIG, no ~/.kube/config"))
            }
            None => Config::incluster().map(|config| (None, config, None)).map_err(|error| {
                format!(
                    "there is no kubeconfig (--kubeconfig, KUBECONFIG, ~/.kube/config), and no service account of a pod: {error}"
                )
            }),
        };
    };
    let about = |error| format!("{place}: {}", cause(&error));
    let context = options
        .context
        .clone()
        .or_else(|| kubeconfig.current_context.clone());
    let named = cluster(&kubeconfig, context.as_deref());
    let proxy_url = named.and_then(|named| named.proxy_url.clone());
    let choice = KubeConfigOptions {
        context: options.context.clone(),
        ..KubeConfigOptions::default()
    };
    let (at, name, _) = user(&kubeconfig, context.as_deref());
    let digest = named_digest(&kubeconfig, context.as_deref());
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &choice)
        .await
        .map_err(about)?;
    config.proxy_url = proxy(proxy_url, &config.cluster_url)
        .map_err(KubeconfigError::ParseProxyUrl)
        .map_err(about)?;
    usable(&config.auth_info).map_err(|why| format!("{place}: user `{name}`: {at}.user.{why}"))?;
    Ok((context, config, digest))
}

/// The settings of the cluster whose pod this is, whatever a kubeconfig says, or what is wrong with them; `None`
/// outside of pods, and in a pod without a token.
pub(super) fn of_pod() -> Result<Option<Config>, String> {
    if !has_pod_identity(std::env::var_os(POD).as_deref(), Path::new(POD_TOKEN)) {
        return Ok(None);
    }
    let config = Config::incluster();
    config
        .map(Some)
        .map_err(|error| format!("the service account of the pod cannot be used: {error}"))
}

/// Whether a host of [`POD`] and a path of [`POD_TOKEN`] are those of a pod with a token.
fn has_pod_identity(host: Option<&OsStr>, token: &Path) -> bool {
    host.is_some_and(|host| !host.is_empty()) && token.exists()
}

/// Refuses a credential with a character that no header may hold, and names its field. Otherwise the client would
/// panic, or return an error that quotes the credential.
fn usable(user: &AuthInfo) -> Result<(), String> {
    let secret = SecretString::expose_secret;
    let own = [
        ("token", user.token.as_ref().map(secret)),
        ("username", user.username.as_deref()),
        ("password", user.password.as_ref().map(secret)),
        ("as", user.impersonate.as_deref()),
        ("as-uid", user.impersonate_uid.as_deref()),
    ];
    let groups = user.impersonate_groups.iter().flatten();
    let extra = user.impersonate_user_extra.iter().flatten();
    let extra = extra.flat_map(|(name, values)| values.iter().chain([name]));
    let provider = user.auth_provider.iter();
    let provider = provider.flat_map(|provider| provider.config.values());
    let texts = own
        .into_iter()
        .filter_map(|(field, text)| Some((field, text?)))
        .chain(groups.map(|text| ("as-groups", text.as_str())))
        .chain(extra.map(|text| ("as-user-extra", text.as_str())))
        .chain(provider.map(|text| ("auth-provider.config", text.as_str())));
    for (field, text) in texts {
        if text.chars().any(char::is_control) {
            return Err(format!(
                "{field} holds a control character, such as a line break"
            ));
        }
    }
    let mut providers = user.auth_provider.iter();
    match providers.any(|provider| provider.config.contains_key("cmd-path")) {
        true => {
            Err("auth-provider names a program by `cmd-path`; use users[].user.exec".to_owned())
        }
        false => Ok(()),
    }
}

/// The user of a context: its place in the kubeconfig and its name, both for messages, and its entry.
fn user<'a>(
    kubeconfig: &'a Kubeconfig,
    context: Option<&str>,
) -> (String, String, Option<&'a NamedAuthInfo>) {
    let named = named(kubeconfig, context);
    let name = named.and_then(|named| named.user.clone());
    let name = name.unwrap_or_default();
    let at = kubeconfig
        .auth_infos
        .iter()
        .position(|one| one.name == name);
    (
        at.map_or_else(|| "users[]".to_owned(), |at| format!("users[{at}]")),
        visible(&name).into_owned(),
        at.map(|at| &kubeconfig.auth_infos[at]),
    )
}

/// The context of this name.
fn named<'a>(kubeconfig: &'a Kubeconfig, context: Option<&str>) -> Option<&'a Context> {
    let mut contexts = kubeconfig.contexts.iter();
    let named = contexts.find(|one| Some(one.name.as_str()) == context)?;
    named.context.as_ref()
}

/// The cluster of a context.
fn cluster<'a>(kubeconfig: &'a Kubeconfig, context: Option<&str>) -> Option<&'a Cluster> {
    let name = &named(kubeconfig, context)?.cluster;
    let mut clusters = kubeconfig.clusters.iter();
    clusters.find(|one| one.name == *name)?.cluster.as_ref()
}

/// The kubeconfig to use, and its description for messages; `None` if none is given and the user has none.
fn kubeconfig(given: Option<&Path>) -> Result<Option<(String, Kubeconfig)>, String> {
    let (paths, named) = files(given);
    let mut merged: Option<(String, Kubeconfig)> = None;
    for path in paths {
        let (place, next) = read(&path, &named)?;
        merged = Some(match merged {
            None => (place, next),
            Some((before, kubeconfig)) => {
                let both = kubeconfig.merge(next);
                let both = both.map_err(|error| format!("{place}: {}", cause(&error)))?;
                (format!("{before}, and {place}"), both)
            }
        });
    }
    Ok(merged)
}

/// The files of the kubeconfig to use, and who names them, for messages.
fn files(given: Option<&Path>) -> (Vec<PathBuf>, String) {
    if let Some(path) = given {
        return (vec![path.to_owned()], String::new());
    }
    let variable = std::env::var_os(KUBECONFIG).unwrap_or_default();
    let paths = std::env::split_paths(&variable).filter(|path| !path.as_os_str().is_empty());
    let paths: Vec<_> = paths.collect();
    if !paths.is_empty() {
        return (paths, format!(", which {KUBECONFIG} names"));
    }
    let home = std::env::home_dir().filter(|home| !home.as_os_str().is_empty());
    let own = home.map(|home| home.join(".kube").join("config"));
    let own = own.filter(|path| path.exists());
    (own.into_iter().collect(), String::new())
}

/// Description of the kubeconfig to use, for messages.
pub(super) fn place(given: Option<&Path>) -> String {
    let (paths, named) = files(given);
    let places = paths.iter().map(|path| place_of(path, &named));
    places.collect::<Vec<_>>().join(", and ")
}

fn place_of(path: &Path, named: &str) -> String {
    format!("kubeconfig `{}`{named}", path.display())
}

/// Digest of what the kubeconfig to use says of a context, and of its CA; `None` if it cannot be used.
pub(super) fn digest(given: Option<&Path>, context: &str) -> Option<Digest> {
    let (_, kubeconfig) = kubeconfig(given).ok()??;
    named_digest(&kubeconfig, Some(context))
}

/// The digest of a context of a kubeconfig.
fn named_digest(kubeconfig: &Kubeconfig, context: Option<&str>) -> Option<Digest> {
    let cluster = cluster(kubeconfig, context)?;
    let user = user(kubeconfig, context).2;
    let authority = match (
        &cluster.certificate_authority,
        &cluster.certificate_authority_data,
    ) {
        (Some(path), None) => Some(Digest::of_bytes(&std::fs::read(path).ok()?).to_string()),
        _ => None,
    };
    Some(Digest::of(&json!([cluster, user, authority])))
}

/// A kubeconfig and its description for messages, which ends with who names it.
fn read(path: &Path, named: &str) -> Result<(String, Kubeconfig), String> {
    let place = place_of(path, named);
    match Kubeconfig::read_from(path) {
        Ok(kubeconfig) => Ok((place, kubeconfig)),
        Err(error) => Err(format!("{place}: {}", cause(&error))),
    }
}

/// The proxy to an API server: that of the kubeconfig, else that of the environment, unless `NO_PROXY` names the
/// server. Does not leave this to kube, which matches `NO_PROXY` against the proxy's own address, and applies it to the
/// proxy of a kubeconfig, too.
fn proxy(of_cluster: Option<String>, server: &Uri) -> Result<Option<Uri>, http::uri::InvalidUri> {
    if let Some(url) = of_cluster.filter(|url| !url.is_empty()) {
        return url.parse().map(Some);
    }
    let exempt = variable(["NO_PROXY", "no_proxy"]).unwrap_or_default();
    // The address is a placeholder: only whether the matcher uses a proxy counts.
    let used = Matcher::builder()
        .all("http://proxy")
        .no(exempt)
        .build()
        .intercept(server)
        .is_some();
    let url = variable(["HTTPS_PROXY", "https_proxy"]).filter(|_| used);
    url.map(|url| url.parse()).transpose()
}

/// The first of the variables that is set and not empty.
fn variable(names: [&str; 2]) -> Option<String> {
    names
        .iter()
        .find_map(|name| std::env::var(name).ok().filter(|value| !value.is_empty()))
}

/// What is wrong with a kubeconfig. Leaves out the parser's message, which may quote a value.
fn cause(error: &KubeconfigError) -> String {
    use KubeconfigError as E;
    match error {
        E::ReadConfig(cause, _) => cause.to_string(),
        E::Parse(_) | E::KindMismatch | E::ApiVersionMismatch => {
            "it is not a well-formed kubeconfig".to_owned()
        }
        E::CurrentContextNotSet => "it sets no current-context; name one with --context".to_owned(),
        E::LoadContext(name) => format!("it has no context `{name}`"),
        E::LoadClusterOfContext(name) => {
            format!("it has no cluster `{name}`, which the context names")
        }
        E::MissingClusterUrl => "its cluster has no server".to_owned(),
        E::ParseClusterUrl(_) => "the server of its cluster is not a URL".to_owned(),
        E::ParseProxyUrl(_) => {
            "the proxy-url of its cluster, or HTTPS_PROXY, is not a URL".to_owned()
        }
        E::ParseNoProxy(_) => {
            "NO_PROXY is not a comma-separated list of hosts, addresses and networks".to_owned()
        }
        _ => "it cannot be used: a certificate or key in it is broken".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_has_an_identity_only_with_a_token() {
        let folder = tempfile::tempdir().unwrap();
        let token = folder.path().join("token");
        let host = OsStr::new("10.0.0.1");
        assert!(!has_pod_identity(Some(host), &token), "no token");
        std::fs::write(&token, "canary").unwrap();
        assert!(has_pod_identity(Some(host), &token));
        assert!(!has_pod_identity(None, &token), "not in a pod");
        assert!(!has_pod_identity(Some(OsStr::new("")), &token));
    }
}
