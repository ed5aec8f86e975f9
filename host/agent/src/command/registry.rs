//! `transom push`, `pull` and `digest`: components in registries. `transom fetch` is how the agent pulls one.

use crate::args::{DigestArgs, FetchArgs, PullArgs, PushArgs, ReconcileArgs, RegistryArgs};
use crate::command::{block_on, child, place, replace_file};
use crate::output::{CommandEnd, Screen};
use crate::policies::component_cache::ComponentCache;
use crate::policies::components::Components;
use crate::policies::images::Images;
use anyhow::{Context as _, anyhow, bail};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::io::Write as _;
use std::path::PathBuf;
use tokio_rustls::rustls::crypto::ring;
use transom_artifacts::registry::{Registries, RegistryAccess};
use transom_artifacts::signature::Evidence;
use transom_artifacts::{Pulled, Unread};
use transom_core::digest::Digest;
use transom_core::policy::component::Image;
use transom_engine::is_component;
use wit_component::DecodedWasm;

/// Variables that send plain HTTP through a proxy, also to this machine.
const PROXIES: [&str; 4] = ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"];

impl RegistryArgs {
    fn registries(&self) -> anyhow::Result<Registries> {
        // Fails only when there is one already.
        drop(ring::default_provider().install_default());
        let proxied = PROXIES.iter().find(|name| std::env::var_os(name).is_some());
        if let Some(name) = proxied.filter(|_| !self.registry_http.is_empty()) {
            bail!(
                "--registry-http: {name} is set, and would send the credentials in clear to the proxy"
            );
        }
        let config = self.registry_config.clone().or_else(of_docker);
        let (ca, mirrors) = (self.registry_ca.as_deref(), &self.registry_mirror);
        let access = RegistryAccess::read(config.as_deref(), ca, mirrors, &self.registry_http);
        access.and_then(Registries::new).map_err(|why| anyhow!(why))
    }

    /// The words by which the agent has a component pulled.
    pub(crate) fn images(&self) -> Images {
        let mut words = child::guard();
        words.extend([child::PROGRAM, "fetch"].map(OsString::from));
        let mut flag = |name: &str, value: OsString| words.extend([name.into(), value]);
        for (name, file) in [
            ("--registry-config", &self.registry_config),
            ("--registry-ca", &self.registry_ca),
        ] {
            file.iter().for_each(|file| flag(name, file.clone().into()));
        }
        let mirrors = self.registry_mirror.iter();
        mirrors.for_each(|mirror| flag("--registry-mirror", mirror.to_string().into()));
        let plain = self.registry_http.iter();
        plain.for_each(|registry| flag("--registry-http", registry.into()));
        Images::new(words)
    }
}

impl ReconcileArgs {
    /// How the components of policies are read.
    pub(crate) fn reading(&self) -> Components {
        let kept = ComponentCache::new(super::engine::cache("components").as_deref());
        Components::new(&self.sources).pulling(self.registry.images(), kept)
    }

    /// The same, without what earlier runs loaded.
    pub(crate) fn reading_without_files(&self) -> Components {
        Components::new(&self.sources).pulling(self.registry.images(), ComponentCache::default())
    }
}

/// The configuration of docker of this user, if there is one.
fn of_docker() -> Option<PathBuf> {
    let folder = std::env::var_os("DOCKER_CONFIG").map(PathBuf::from);
    let folder =
        folder.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".docker")))?;
    Some(folder.join("config.json")).filter(|path| path.is_file())
}

/// Prints what a registry gives for an artifact: a line about it, then the bytes.
///
/// # Errors
/// When nothing can be written.
pub(crate) fn fetch(args: &FetchArgs) -> anyhow::Result<CommandEnd> {
    let image = Image::parse(&args.image);
    let image = image.with_context(|| format!("`{}` names no artifact", args.image))?;
    let pulled = match args.registry.registries() {
        Ok(registries) => block_on(ask(&registries, &image, args))?,
        Err(why) => {
            let message = format!("failed to pull `oci:{image}`: {why}");
            let reason = transom_api::KnownReason::RegistryUnavailable;
            Err(Unread::silent(reason, message))
        }
    };
    let mut stdout = std::io::stdout().lock();
    match &pulled {
        Ok(pulled) => {
            let evidence = pulled.evidence.as_ref().map(Evidence::to_json);
            let head = json!({"manifest": pulled.manifest, "evidence": evidence});
            writeln!(stdout, "{head}")?;
            stdout.write_all(&pulled.bytes)?;
        }
        Err(unread) => {
            let (reason, message) = (unread.reason.as_str(), &unread.message);
            let head = json!({"reason": reason, "message": message, "silent": unread.silent});
            writeln!(stdout, "{head}")?;
        }
    }
    stdout.flush()?;
    Ok(CommandEnd::failed_if(pulled.is_err()))
}

/// What a registry gives; without the component, where only the manifest is asked for.
async fn ask(registries: &Registries, image: &Image, args: &FetchArgs) -> Result<Pulled, Unread> {
    match args.resolve {
        true => Ok(Pulled {
            bytes: Vec::new(),
            manifest: registries.resolve(image).await?,
            evidence: None,
        }),
        false => registries.pull(image, args.signatures).await,
    }
}

/// Pulls a component into a file.
///
/// # Errors
/// When it cannot be pulled or written.
pub(crate) fn pull(args: &PullArgs, screen: &Screen) -> anyhow::Result<CommandEnd> {
    let images = args.registry.images();
    let pulled = block_on(async { images.pull(&args.image, false).await })??;
    replace_file(&args.output, &pulled.bytes)
        .with_context(|| format!("failed to write `{}`", args.output.display()))?;
    screen.line(format_args!(
        "component {}",
        Digest::of_bytes(&pulled.bytes)
    ));
    screen.line(format_args!("manifest  {}", pulled.manifest));
    Ok(CommandEnd::Right)
}

/// Pushes a component.
///
/// # Errors
/// When it is none, or the registry refuses it.
pub(crate) fn push(args: &PushArgs, screen: &Screen) -> anyhow::Result<CommandEnd> {
    let place::ReadComponent {
        location, artifact, ..
    } = place::read(args.component.clone(), &args.from, false)?;
    let interface = interface(&artifact.bytes);
    let interface = interface.with_context(|| format!("failed to push `{location}`"))?;
    let registries = args.from.registry.registries()?;
    let pushed = registries.push(&args.image, &artifact.bytes, &interface);
    let manifest = block_on(pushed)??;
    screen.line(format_args!("component {}", artifact.digest));
    screen.line(format_args!("manifest  {manifest}"));
    Ok(CommandEnd::Right)
}

/// The names of what a component imports and exports.
fn interface(bytes: &[u8]) -> anyhow::Result<Value> {
    is_component(bytes)?;
    let DecodedWasm::Component(resolve, world) = wit_component::decode(bytes)? else {
        bail!("it is a package of interfaces");
    };
    let world = &resolve.worlds[world];
    let imports: Vec<_> = world
        .imports
        .keys()
        .map(|key| resolve.name_world_key(key))
        .collect();
    let exports: Vec<_> = world
        .exports
        .keys()
        .map(|key| resolve.name_world_key(key))
        .collect();
    Ok(json!({"imports": imports, "exports": exports}))
}

/// Prints the digest of a component, as a policy names it.
///
/// # Errors
/// When it cannot be read or pulled.
pub(crate) fn digest(args: &DigestArgs, screen: &Screen) -> anyhow::Result<CommandEnd> {
    let found = place::read(args.component.clone(), &args.from, false)?;
    screen.line(format_args!("{}", found.artifact.digest));
    Ok(CommandEnd::Right)
}
