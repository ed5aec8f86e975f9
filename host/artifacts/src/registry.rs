//! Pulls components from registries, and pushes them there, in the layout of the CNCF for wasm: one layer. Trusts nothing
//! that a registry answers: bytes count only by their digest, and no text of a registry is shown. How much memory an answer
//! takes is bounded by who calls this, in a process of its own.

mod access;
mod failure;
mod signatures;

pub use access::{Access, Mirror};

use crate::gathered::{Pulled, Unread};
use crate::location::MAX_BYTES;
use crate::signature::Evidence;
use access::Place;
use failure::{broken, failed};
use futures::TryStreamExt as _;
use oci_client::Reference;
use oci_client::client::{Client, ClientConfig, ClientProtocol};
use oci_client::manifest::{OCI_IMAGE_MEDIA_TYPE, OciDescriptor, OciImageManifest};
use serde_json::{Value, json};
use signatures::Repository;
use std::time::Duration;
use tokio::time::timeout;
use transom_api::KnownReason;
use transom_core::digest::Digest;
use transom_core::policy::component::Image;

/// The media type of the configuration, and of the artifact.
const CONFIG: &str = "application/vnd.wasm.config.v0+json";
/// The media type of the layer, and one that older tools write, because some registries refuse the first.
const LAYERS: [&str; 2] = [
    "application/wasm",
    "application/vnd.wasm.content.layer.v1+wasm",
];
/// The most bytes of a manifest.
const MANIFEST_BYTES: usize = 64 << 10;
/// How long to wait for a connection.
const CONNECT: Duration = Duration::from_secs(10);
/// How long to wait for the next bytes of an answer.
const READ: Duration = Duration::from_secs(30);

/// How long a mirror may take before the next place is asked.
const MIRROR: Duration = Duration::from_secs(15);

/// Registries, reached in one way.
pub struct Registries(Access);

impl Registries {
    /// Registries that are reached this way.
    ///
    /// # Errors
    /// When the certificates cannot be used.
    pub fn new(access: Access) -> Result<Self, String> {
        let registries = Self(access);
        registries.client().map(drop)?;
        Ok(registries)
    }

    /// A client for one place: it would use the first credential of a host for all of its repositories.
    fn client(&self) -> Result<Client, String> {
        let config = ClientConfig {
            protocol: ClientProtocol::HttpsExcept(self.0.plain().to_vec()),
            extra_root_certificates: self.0.authorities().to_vec(),
            platform_resolver: None,
            connect_timeout: Some(CONNECT),
            read_timeout: Some(READ),
            user_agent: concat!("transom/", env!("CARGO_PKG_VERSION")),
            ..ClientConfig::default()
        };
        let client = Client::try_from(config);
        client.map_err(|error| format!("failed to set up TLS: {error}"))
    }

    fn client_for(&self, image: &Image) -> Result<Client, Unread> {
        self.client().map_err(|why| Unread {
            reason: KnownReason::RegistryUnavailable,
            message: format!("failed to reach the registry of `oci:{image}`: {why}"),
        })
    }

    /// Pulls a component: from the first mirror that has it, else from the registry itself; with its signatures, if they
    /// are wanted.
    ///
    /// # Errors
    /// With the failure of the registry itself.
    pub async fn pull(&self, image: &Image, signed: bool) -> Result<Pulled, Unread> {
        for place in self.0.mirrors(image) {
            let pulled = timeout(MIRROR, self.pull_from(image, &place, signed)).await;
            if let Ok(Ok(pulled)) = pulled {
                return Ok(pulled);
            }
        }
        let pulled = self.pull_from(image, &self.0.place(image), signed).await;
        pulled.map_err(|unread| self.explained(image, unread))
    }

    /// A refusal says which credential would have been there.
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
        place: &Place,
        signed: bool,
    ) -> Result<Pulled, Unread> {
        let failed = |error| failed("pull", image, &error);
        let Place { reference, login } = place;
        let accepted = [OCI_IMAGE_MEDIA_TYPE];
        let client = self.client_for(image)?;
        let (manifest, _) = client
            .pull_manifest_raw(reference, login, &accepted)
            .await
            .map_err(failed)?;
        let layer = layer(image, &manifest)?;
        let bytes = blob(&client, image, reference, &layer).await?;
        let evidence = match signed {
            true => Some(self.evidence(image, &manifest, &client, place).await?),
            false => None,
        };
        Ok(Pulled {
            bytes,
            manifest: Digest::of_bytes(&manifest).to_string(),
            evidence,
        })
    }

    /// What lies beside an artifact for verifying it: at the registry itself, and where it was found.
    async fn evidence(
        &self,
        image: &Image,
        manifest: &[u8],
        client: &Client,
        place: &Place,
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
        let client = self.client_for(image)?;
        let there = Repository {
            client: &client,
            image,
            place: &origin,
        };
        // A mirror may be all that can be reached. What it has may be old, so what the registry itself has comes first.
        let mut found = there.signatures(manifest).await.unwrap_or_default();
        let mirrored = match here.signatures(manifest).await {
            Err(unread) if found.is_empty() => return Err(unread),
            mirrored => mirrored.unwrap_or_default(),
        };
        let new: Vec<_> = mirrored
            .into_iter()
            .filter(|one| !found.contains(one))
            .collect();
        found.extend(new);
        Ok(signatures::evidence(manifest, found))
    }

    /// `sha256:<hex>` of the manifest that a tag names now.
    ///
    /// # Errors
    /// When the registry does not tell it.
    pub async fn resolve(&self, image: &Image) -> Result<String, Unread> {
        let client = self.client_for(image)?;
        let Place { reference, login } = self.0.place(image);
        let digest = client.fetch_manifest_digest(&reference, &login).await;
        let digest =
            digest.map_err(|error| self.explained(image, failed("look up", image, &error)))?;
        match Image::parse(&format!("r.r/r@{digest}")) {
            Some(_) => Ok(digest),
            None => Err(broken(image, "the registry names no digest `sha256:HEX`")),
        }
    }

    /// Pushes a component under the tag of an image; returns the digest of its manifest. The same component gives the same
    /// digest. `interface` is what the component imports and exports.
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
        let Place { reference, login } = self.0.place(image);
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

/// The bytes of a layer: as many as it has, with its digest.
async fn blob(
    client: &Client,
    image: &Image,
    reference: &Reference,
    layer: &OciDescriptor,
) -> Result<Vec<u8>, Unread> {
    let unread = |reason, why: String| Unread {
        reason,
        message: format!("failed to pull `oci:{image}`: {why}"),
    };
    let most = u64::try_from(layer.size).unwrap_or_default();
    let stream = client.pull_blob_stream(reference, layer).await;
    let mut stream = stream
        .map_err(|error| failed("pull", image, &error))?
        .stream;
    let mut bytes = Vec::new();
    loop {
        match stream.try_next().await {
            Ok(Some(more)) if (bytes.len() + more.len()) as u64 > most => {
                let why = "the layer has more bytes than its manifest says".to_owned();
                return Err(unread(KnownReason::ComponentTooLarge, why));
            }
            Ok(Some(more)) => bytes.extend_from_slice(&more),
            Ok(None) => break,
            Err(_) if bytes.len() as u64 == most => break,
            Err(_) => {
                let got = bytes.len();
                let why = format!("the registry sent {got} of {most} bytes of the layer");
                return Err(unread(KnownReason::RegistryUnavailable, why));
            }
        }
    }
    let (found, expected) = (Digest::of_bytes(&bytes).to_string(), &layer.digest);
    match found == *expected {
        true => Ok(bytes),
        false => {
            let why = format!(
                "the registry sent a layer with the digest {found}; the manifest says {expected}"
            );
            Err(unread(KnownReason::DigestMismatch, why))
        }
    }
}

/// The one layer of a manifest, if it can hold a component.
fn layer(image: &Image, manifest: &[u8]) -> Result<OciDescriptor, Unread> {
    let unfit = |why: String| broken(image, &why);
    if manifest.len() > MANIFEST_BYTES {
        return Err(unfit(format!(
            "its manifest is larger than {MANIFEST_BYTES} bytes"
        )));
    }
    let manifest: OciImageManifest = serde_json::from_slice(manifest)
        .map_err(|_| unfit("its manifest is not one of an artifact".to_owned()))?;
    let [layer] = manifest.layers.as_slice() else {
        let count = manifest.layers.len();
        return Err(unfit(format!("it has {count} layers; a component has one")));
    };
    if !LAYERS.contains(&layer.media_type.as_str()) {
        let expected = LAYERS[0];
        return Err(unfit(format!(
            "its layer is not of the media type `{expected}`"
        )));
    }
    if !(1..=MAX_BYTES).contains(&u64::try_from(layer.size).unwrap_or_default()) {
        return Err(Unread {
            reason: KnownReason::ComponentTooLarge,
            message: format!(
                "failed to pull `oci:{image}`: its layer has {} bytes; a component has 1 to {MAX_BYTES}",
                layer.size
            ),
        });
    }
    if Image::parse(&format!("r.r/r@{}", layer.digest)).is_none() {
        return Err(unfit(
            "the digest of its layer is not `sha256:HEX`".to_owned(),
        ));
    }
    // Without further addresses: only the registry itself is asked.
    Ok(OciDescriptor {
        media_type: layer.media_type.clone(),
        digest: layer.digest.clone(),
        size: layer.size,
        ..OciDescriptor::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(change: impl FnOnce(&mut Value)) -> Result<i64, (KnownReason, String)> {
        let digest = format!("sha256:{}", "0a".repeat(32));
        let layer = json!({"mediaType": "application/wasm", "digest": digest, "size": 9,
            "urls": ["http://elsewhere.example"]});
        let mut manifest = json!({"schemaVersion": 2, "config": {"mediaType": CONFIG, "digest": digest, "size": 2},
            "layers": [layer]});
        change(&mut manifest);
        let image = Image::parse("registry.example/taints:v1").unwrap();
        let found = super::layer(&image, manifest.to_string().as_bytes());
        if let Ok(layer) = &found {
            assert_eq!(layer.urls, None);
        }
        found.map(|layer| layer.size).map_err(|unread| {
            assert!(unread.message.contains("registry.example/taints:v1"));
            (unread.reason, unread.message)
        })
    }

    #[test]
    fn takes_one_layer_of_wasm() {
        assert_eq!(refused(|_| {}), Ok(9));
        let older = |manifest: &mut Value| manifest["layers"][0]["mediaType"] = json!(LAYERS[1]);
        assert_eq!(refused(older), Ok(9));
    }

    #[test]
    #[expect(clippy::too_many_lines, reason = "a test tells its story in one piece")]
    fn refuses_any_other_manifest() {
        let cases: [(&str, Value, KnownReason, &str); 7] = [
            (
                "/layers",
                json!([]),
                KnownReason::ComponentInvalid,
                "0 layers",
            ),
            (
                "/layers",
                json!([1]),
                KnownReason::ComponentInvalid,
                "not one of an artifact",
            ),
            (
                "/layers/0/mediaType",
                json!("text/plain"),
                KnownReason::ComponentInvalid,
                "application/wasm",
            ),
            (
                "/layers/0/size",
                json!(0),
                KnownReason::ComponentTooLarge,
                "0 bytes",
            ),
            (
                "/layers/0/size",
                json!(-1),
                KnownReason::ComponentTooLarge,
                "-1 bytes",
            ),
            (
                "/layers/0/size",
                json!(MAX_BYTES + 1),
                KnownReason::ComponentTooLarge,
                "8388609 bytes",
            ),
            (
                "/layers/0/digest",
                json!("sha512:00"),
                KnownReason::ComponentInvalid,
                "sha256:HEX",
            ),
        ];
        for (at, value, reason, part) in cases {
            let put = |manifest: &mut Value| *manifest.pointer_mut(at).unwrap() = value.clone();
            let (found, message) = refused(put).unwrap_err();
            assert!(
                found == reason && message.contains(part),
                "{at} {value}: {message}"
            );
        }
        let (_, message) =
            refused(|manifest| manifest["annotations"] = json!({"a": "x".repeat(70_000)}))
                .unwrap_err();
        assert!(message.contains("larger than"), "{message}");
    }
}
