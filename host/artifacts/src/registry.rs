//! Pulls components from registries, and pushes them there, in the layout of the CNCF for wasm: one layer. Trusts
//! nothing that a registry answers: bytes count only by their digest, and no text of a registry is shown. How much
//! memory an answer takes is bounded by who calls this, in a process of its own.

mod access;
mod failure;
mod layer;
mod signatures;
mod token;

pub use access::{Mirror, RegistryAccess, plain_registry};

use crate::gathered::{Pulled, Unread};
use crate::signature::{Evidence, MAX_SIGNATURES, Signature};
use access::ArtifactPlace;
use failure::{broken, failed, unread};
use layer::{LAYERS, blob, layer};
use oci_client::client::{Client, ClientConfig, ClientProtocol};
use oci_client::manifest::OCI_IMAGE_MEDIA_TYPE;
use serde_json::{Value, json};
use signatures::Repository;
use std::time::Duration;
use tokio::time::timeout;
use transom_api::KnownReason;
use transom_core::digest::Digest;
use transom_core::policy::component::Image;

/// The media type of the configuration, and of the artifact.
const CONFIG: &str = "application/vnd.wasm.config.v0+json";
/// The most bytes of a manifest.
const MANIFEST_BYTES: usize = 64 << 10;
/// How long to wait for a connection.
const CONNECT: Duration = Duration::from_secs(10);
/// How long to wait for the next bytes of an answer.
const READ: Duration = Duration::from_secs(30);
/// What requests call this program.
const USER_AGENT: &str = concat!("transom/", env!("CARGO_PKG_VERSION"));

/// How long a mirror may take before the next place is asked.
const MIRROR: Duration = Duration::from_secs(15);
/// How long the registry itself may take to tell the signatures of what a mirror gave: so short that there is time left
/// for those on the mirror.
const ORIGIN: Duration = Duration::from_secs(5);

/// Registries, reached in one way.
pub struct Registries(RegistryAccess);

impl Registries {
    /// Registries that are reached this way.
    ///
    /// # Errors
    /// When the certificates cannot be used.
    pub fn new(access: RegistryAccess) -> Result<Self, String> {
        let registries = Self(access);
        registries.client().map(drop)?;
        Ok(registries)
    }

    /// A client for one place: a shared one would use the first credential of a host for all its repositories.
    fn client(&self) -> Result<Client, String> {
        let config = ClientConfig {
            protocol: ClientProtocol::HttpsExcept(self.0.plain().to_vec()),
            extra_root_certificates: self.0.authorities().to_vec(),
            platform_resolver: None,
            connect_timeout: Some(CONNECT),
            read_timeout: Some(READ),
            user_agent: USER_AGENT,
            ..ClientConfig::default()
        };
        let client = Client::try_from(config);
        client.map_err(|error| format!("failed to set up TLS: {error}"))
    }

    fn client_for(&self, image: &Image) -> Result<Client, Unread> {
        self.client().map_err(|why| {
            let message = format!("failed to reach the registry of `oci:{image}`: {why}");
            Unread::new(KnownReason::RegistryUnavailable, message)
        })
    }

    /// Pulls a component: from the first mirror that has it, else from the registry itself; with its signatures, if
    /// they are wanted.
    ///
    /// # Errors
    /// With the failure of the registry itself.
    pub async fn pull(&self, image: &Image, signed: bool) -> Result<Pulled, Unread> {
        let mut failures = Vec::new();
        for place in self.0.mirrors(image) {
            let mirror = place.name();
            let why = match timeout(MIRROR, self.pull_from(image, place, signed)).await {
                Ok(Ok(pulled)) => return Ok(pulled),
                Ok(Err(unread)) => unread.message,
                Err(_) => format!("it takes longer than {} seconds", MIRROR.as_secs()),
            };
            failures.push((mirror, why));
        }
        let pulled = self.pull_from(image, self.0.place(image), signed).await;
        pulled.map_err(|unread| after(image, &failures, self.explained(image, unread)))
    }

    /// A place with the credential that its requests need. `actions` are those of a token.
    ///
    /// # Errors
    /// When the registry or its token service does not answer, or refuses.
    async fn admitted(
        &self,
        attempt: &str,
        image: &Image,
        place: ArtifactPlace,
        actions: &str,
    ) -> Result<ArtifactPlace, Unread> {
        let login = token::login(&self.0, &place, actions).await;
        let login = login.map_err(|failed| unread(attempt, image, failed))?;
        Ok(ArtifactPlace { login, ..place })
    }

    /// Adds to a refusal that a credential helper is configured, which the agent does not run.
    fn explained(&self, image: &Image, mut unread: Unread) -> Unread {
        if unread.reason == KnownReason::RegistryForbidden
            && let Some(field) = self.0.helper(image)
        {
            unread.message += &format!(
                "; `{field}` in the configuration of docker names a program that would give the credential, which transom does \
                 not run: put the credential into `auths`"
            );
        }
        unread
    }

    async fn pull_from(
        &self,
        image: &Image,
        place: ArtifactPlace,
        signed: bool,
    ) -> Result<Pulled, Unread> {
        let failed = |error| failed("pull", image, &error);
        let place = self.admitted("pull", image, place, "pull").await?;
        let ArtifactPlace { reference, login } = &place;
        let accepted = [OCI_IMAGE_MEDIA_TYPE];
        let client = self.client_for(image)?;
        let (manifest, _) = client
            .pull_manifest_raw(reference, login, &accepted)
            .await
            .map_err(failed)?;
        let layer = layer(image, &manifest)?;
        let bytes = blob(&client, image, reference, &layer).await?;
        let evidence = match signed {
            true => Some(self.evidence(image, &manifest, &client, &place).await?),
            false => None,
        };
        Ok(Pulled {
            bytes,
            manifest: Digest::of_bytes(&manifest).to_string(),
            evidence,
        })
    }

    /// What lies beside an artifact for verifying it: at the registry itself, and where it was found.
    ///
    /// # Errors
    /// When none is found, and one of the two cannot be read: the signatures may be there.
    async fn evidence(
        &self,
        image: &Image,
        manifest: &[u8],
        client: &Client,
        place: &ArtifactPlace,
    ) -> Result<Evidence, Unread> {
        let here = Repository {
            client,
            image,
            place,
        };
        let origin = self.0.place(image);
        if origin.is_with(place) {
            let found = here.signatures(manifest).await?;
            return Ok(signatures::evidence(manifest, found));
        }
        // A mirror may be all that can be reached. What it has may be old, so what the registry itself has comes first.
        let told = timeout(ORIGIN, self.at_origin(image, origin, manifest)).await;
        let (mut found, unread) = match told {
            Ok(Ok(found)) => (found, None),
            Ok(Err(unread)) => (Vec::new(), Some(unread)),
            Err(_) => (Vec::new(), Some(late(image))),
        };
        let mirrored = match here.signatures(manifest).await {
            Err(unread) if found.is_empty() => return Err(unread),
            mirrored => mirrored.unwrap_or_default(),
        };
        let new: Vec<_> = mirrored
            .into_iter()
            .filter(|one| !found.contains(one))
            .collect();
        found.extend(new);
        found.truncate(MAX_SIGNATURES);
        match unread.filter(|_| found.is_empty()) {
            Some(unread) => Err(unread),
            None => Ok(signatures::evidence(manifest, found)),
        }
    }

    /// The signatures at the registry itself.
    async fn at_origin(
        &self,
        image: &Image,
        origin: ArtifactPlace,
        manifest: &[u8],
    ) -> Result<Vec<Signature>, Unread> {
        let attempt = "find the signatures of";
        let place = &self.admitted(attempt, image, origin, "pull").await?;
        let client = &self.client_for(image)?;
        let there = Repository {
            client,
            image,
            place,
        };
        there.signatures(manifest).await
    }

    /// `sha256:<hex>` of the manifest that a tag names now.
    ///
    /// # Errors
    /// When the registry does not tell it.
    pub async fn resolve(&self, image: &Image) -> Result<String, Unread> {
        let client = self.client_for(image)?;
        let admitted = self.admitted("look up", image, self.0.place(image), "pull");
        let admitted = admitted.await;
        let ArtifactPlace { reference, login } =
            admitted.map_err(|one| self.explained(image, one))?;
        let digest = client.fetch_manifest_digest(&reference, &login).await;
        let digest =
            digest.map_err(|error| self.explained(image, failed("look up", image, &error)))?;
        match Image::parse(&format!("r.r/r@{digest}")) {
            Some(_) => Ok(digest),
            None => Err(broken(image, "the registry names no digest `sha256:HEX`")),
        }
    }

    /// Pushes a component under the tag of an image; returns the digest of its manifest. The same component gives the
    /// same digest. `interface` is what the component imports and exports.
    ///
    /// # Errors
    /// When the image has no tag, or the registry refuses it.
    pub async fn push(
        &self,
        image: &Image,
        component: &[u8],
        interface: &Value,
    ) -> Result<String, Unread> {
        if image.tag.is_none() || image.digest.is_some() {
            return Err(broken(
                image,
                "a component is pushed under a tag, without a digest",
            ));
        }
        let failed = |error| self.explained(image, failed("push", image, &error));
        let admitted = self.admitted("push", image, self.0.place(image), "pull,push");
        let admitted = admitted.await;
        let ArtifactPlace { reference, login } =
            admitted.map_err(|one| self.explained(image, one))?;
        let client = self.client_for(image)?;
        let layer = Digest::of_bytes(component).to_string();
        let config =
            json!({"created": "1970-01-01T00:00:00Z", "architecture": "wasm", "os": "wasip2",
            "layerDigests": [layer], "component": interface})
            .to_string()
            .into_bytes();
        let config_digest = Digest::of_bytes(&config).to_string();
        let descriptor = |media: &str, digest: &str, size: usize| json!({"mediaType": media, "digest": digest, "size": size});
        let manifest =
            json!({"schemaVersion": 2, "mediaType": OCI_IMAGE_MEDIA_TYPE, "artifactType": CONFIG,
            "config": descriptor(CONFIG, &config_digest, config.len()),
            "layers": [descriptor(LAYERS[0], &layer, component.len())]})
            .to_string();
        client
            .store_auth_if_needed(reference.resolve_registry(), &login)
            .await;
        for (bytes, digest) in [(component.to_vec(), &layer), (config, &config_digest)] {
            client
                .push_blob(&reference, bytes, digest)
                .await
                .map_err(failed)?;
        }
        let digest = Digest::of_bytes(manifest.as_bytes()).to_string();
        let media = http::HeaderValue::from_static(OCI_IMAGE_MEDIA_TYPE);
        let pushed = client.push_manifest_raw(&reference, manifest.into_bytes(), media);
        pushed.await.map_err(failed)?;
        Ok(digest)
    }
}

/// The registry itself did not tell the signatures in time.
fn late(image: &Image) -> Unread {
    let seconds = ORIGIN.as_secs();
    let message = format!(
        "failed to find the signatures of `oci:{image}`: the registry takes longer than {seconds} seconds"
    );
    Unread::silent(KnownReason::RegistryUnavailable, message)
}

/// A failure of the registry itself, with those of its mirrors before.
fn after(image: &Image, mirrors: &[(String, String)], mut unread: Unread) -> Unread {
    let prefix = format!("failed to pull `oci:{image}`: ");
    for (mirror, why) in mirrors {
        let why = why.strip_prefix(&prefix).unwrap_or(why);
        unread.message += &format!("; before, its mirror `{mirror}` failed: {why}");
    }
    unread
}

#[cfg(test)]
mod tests {
    use super::token::tests::{Server, access};
    use super::*;

    #[test]
    fn a_failure_names_the_mirrors_that_failed_before() {
        let registry = Server::start(|_, _| (404, String::new(), "canary"));
        let (address, closed) = (registry.address.clone(), "127.0.0.1:1");
        let mirror = |from: &str| format!("{from}={closed}/copy").parse().unwrap();
        let mirrors = [mirror(&address), mirror("registry.example")];
        let registries = Registries::new(access(&address, &mirrors)).unwrap();
        let image = Image::parse(&format!("{address}/team/a:v1")).unwrap();
        let pulled = registries.pull(&image, false);
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let unread = runtime.block_on(pulled).unwrap_err();
        assert_eq!(unread.reason, KnownReason::ComponentNotFound);
        let expected = format!(
            "failed to pull `oci:{image}`: the registry does not have it; before, its mirror `{closed}/copy/team/a` failed: \
             failed to connect to the registry"
        );
        let message = unread.message;
        assert!(
            message.starts_with(&expected) && !message.contains("canary"),
            "{message}"
        );
    }

    /// Pulls a component from a mirror without signatures, whose registry answers so about its own.
    fn mirrored(status: u16) -> Result<Pulled, Unread> {
        let layer = Digest::of_bytes(b"one").to_string();
        let layer = json!({"mediaType": LAYERS[0], "digest": layer, "size": 3});
        let manifest = json!({"schemaVersion": 2, "mediaType": OCI_IMAGE_MEDIA_TYPE,
            "config": {"mediaType": CONFIG, "digest": layer["digest"], "size": 3}, "layers": [layer]});
        let manifest: &str = manifest.to_string().leak();
        let server = Server::start(move |_, path| match path {
            "/v2/" => (200, String::new(), ""),
            "/v2/copy/team/a/manifests/v1" => {
                let media = format!("content-type: {OCI_IMAGE_MEDIA_TYPE}\r\n");
                (200, media, manifest)
            }
            path if path.starts_with("/v2/copy/team/a/blobs/") => (200, String::new(), "one"),
            path if path.starts_with("/v2/team/") => (status, String::new(), "canary"),
            _ => (404, String::new(), ""),
        });
        let address = &server.address;
        let mirror = format!("{address}={address}/copy").parse().unwrap();
        let registries = Registries::new(access(address, &[mirror])).unwrap();
        let image = Image::parse(&format!("{address}/team/a:v1")).unwrap();
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(registries.pull(&image, true))
    }

    #[test]
    fn a_registry_that_does_not_tell_its_signatures_is_not_one_without_signatures() {
        assert!(mirrored(404).unwrap().evidence.is_some(), "it has none");
        let unread = mirrored(503).unwrap_err();
        assert_eq!(unread.reason, KnownReason::RegistryUnavailable);
        let message = unread.message;
        assert!(message.contains("find the signatures of"), "{message}");
        assert!(!message.contains("canary"), "{message}");
    }
}
