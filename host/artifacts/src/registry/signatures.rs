//! Finds the signatures of an artifact in its repository: as cosign 3 stores them, as it did before, and in the
//! manifest itself. Believes none of them; takes no more of them than the limits.

use super::access::ArtifactPlace;
use super::{Client, MANIFEST_BYTES, blob, failed};
use crate::gathered::Unread;
use crate::signature::{
    BUNDLE, Evidence, MAX_SIGNATURE_BYTES, MAX_SIGNATURES, PLAIN_SIGNATURE, SIGNED, SIMPLE,
    SIMPLE_SIGNATURE, Signature,
};
use oci_client::Reference;
use oci_client::errors::{OciDistributionError, OciErrorCode};
use oci_client::manifest::{OCI_IMAGE_INDEX_MEDIA_TYPE, OCI_IMAGE_MEDIA_TYPE, OciDescriptor};
use serde_json::Value;
use transom_api::KnownReason;
use transom_core::digest::{Digest, is_digest};
use transom_core::policy::component::Image;

/// The annotation by which cosign tells signatures from attestations; a hint.
const PREDICATE: &str = "dev.sigstore.bundle.predicateType";

/// The repository of an artifact, and a client that has its credential.
pub(super) struct Repository<'a> {
    pub(super) client: &'a Client,
    pub(super) image: &'a Image,
    pub(super) place: &'a ArtifactPlace,
}

/// Signatures, and what could not be read.
type FoundSignatures = Vec<Result<Signature, Unread>>;

impl Repository<'_> {
    /// All signatures of the artifact with this manifest. One that cannot be read hides none of the others.
    ///
    /// # Errors
    /// When none is found, and something cannot be read.
    pub(super) async fn signatures(&self, manifest: &[u8]) -> Result<Vec<Signature>, Unread> {
        // The request for what refers to an artifact has no credential of its own.
        let (registry, login) = (self.place.reference.resolve_registry(), &self.place.login);
        self.client.store_auth_if_needed(registry, login).await;
        let digest = Digest::of_bytes(manifest).to_string();
        let mut found: FoundSignatures = annotated(manifest).map(Ok).into_iter().collect();
        found.extend(self.bundles(&digest).await);
        found.extend(self.simple(&digest).await);
        let (mut signatures, mut unread) = (Vec::new(), None);
        for one in found {
            match one {
                Ok(signature) => signatures.push(signature),
                Err(failure) => drop(unread.get_or_insert(failure)),
            }
        }
        signatures.truncate(MAX_SIGNATURES);
        match unread.filter(|_| signatures.is_empty()) {
            Some(unread) => Err(unread),
            None => Ok(signatures),
        }
    }

    fn tagged(&self, tag: String) -> Reference {
        let at = &self.place.reference;
        let (registry, repository) = (at.resolve_registry().to_owned(), at.repository().to_owned());
        Reference::with_tag(registry, repository, tag)
    }

    fn named(&self, digest: &str) -> Reference {
        let at = &self.place.reference;
        let (registry, repository) = (at.resolve_registry().to_owned(), at.repository().to_owned());
        Reference::with_digest(registry, repository, digest.to_owned())
    }

    /// Sigstore bundles that refer to the artifact.
    async fn bundles(&self, digest: &str) -> FoundSignatures {
        let referrers = match self.referrers(digest).await {
            Ok(referrers) => referrers,
            Err(unread) => return vec![Err(unread)],
        };
        let mut found = Vec::new();
        for referrer in referrers {
            let manifest = self.manifest(&self.named(&referrer)).await;
            let bundle = manifest.map(|manifest| {
                let layers = layers(&manifest.unwrap_or_default());
                layers.into_iter().find(|one| one.0.media_type == BUNDLE)
            });
            match bundle {
                Ok(Some((layer, _))) => found.push(self.blob(&layer).await.map(Signature::Bundle)),
                Ok(None) => {}
                Err(unread) => found.push(Err(unread)),
            }
        }
        found
    }

    /// The digests of what refers to the artifact and may be a signature.
    async fn referrers(&self, digest: &str) -> Result<Vec<String>, Unread> {
        let listed = self
            .client
            .pull_referrers(&self.named(digest), Some(BUNDLE))
            .await;
        let listed = match listed {
            Ok(index) => serde_json::to_value(index).unwrap_or_default(),
            Err(error) if is_absent(&error) => {
                // The list may be empty in a way that the library does not read.
                let tag = digest.replace(':', "-");
                self.manifest(&self.tagged(tag)).await?.unwrap_or_default()
            }
            Err(error) => return Err(failed("find the signatures of", self.image, &error)),
        };
        let entries = listed.get("manifests").and_then(Value::as_array);
        let may_be_signature = |entry: &&Value| {
            let predicate = entry.get("annotations").and_then(|all| all.get(PREDICATE));
            let artifact = entry.get("artifactType").and_then(Value::as_str);
            artifact == Some(BUNDLE)
                && predicate
                    .and_then(Value::as_str)
                    .is_none_or(|one| one == SIGNED)
        };
        let entries = entries.into_iter().flatten().filter(may_be_signature);
        let digests = entries.filter_map(|entry| entry.get("digest")?.as_str());
        let digests = digests.filter(|digest| is_digest(digest));
        Ok(digests.take(MAX_SIGNATURES).map(str::to_owned).collect())
    }

    /// Signatures in the older form of cosign, which appends: the last ones are the newest.
    async fn simple(&self, digest: &str) -> FoundSignatures {
        let tag = format!("{}.sig", digest.replace(':', "-"));
        let manifest = match self.manifest(&self.tagged(tag)).await {
            Ok(manifest) => manifest.unwrap_or_default(),
            Err(unread) => return vec![Err(unread)],
        };
        let is_simple = |one: &(OciDescriptor, _)| one.0.media_type == SIMPLE;
        let mut layers: Vec<_> = layers(&manifest).into_iter().filter(is_simple).collect();
        layers.reverse();
        let mut found = Vec::new();
        for (layer, signature) in layers.into_iter().take(MAX_SIGNATURES) {
            if let Some(signature) = signature {
                let payload = self.blob(&layer).await;
                found.push(payload.map(|payload| Signature::Simple { payload, signature }));
            }
        }
        found
    }

    /// A manifest or index of the repository; `None` when there is none that can be read.
    async fn manifest(&self, reference: &Reference) -> Result<Option<Value>, Unread> {
        let accepted = [OCI_IMAGE_MEDIA_TYPE, OCI_IMAGE_INDEX_MEDIA_TYPE];
        let login = &self.place.login;
        match self
            .client
            .pull_manifest_raw(reference, login, &accepted)
            .await
        {
            Ok((bytes, _)) if bytes.len() > MANIFEST_BYTES => Ok(None),
            Ok((bytes, _)) => Ok(serde_json::from_slice(&bytes).ok()),
            Err(error) if is_absent(&error) => Ok(None),
            Err(error) => Err(failed("find the signatures of", self.image, &error)),
        }
    }

    async fn blob(&self, layer: &OciDescriptor) -> Result<Vec<u8>, Unread> {
        blob(self.client, self.image, &self.place.reference, layer).await
    }
}

/// A signature that stands in the manifest of the component.
fn annotated(manifest: &[u8]) -> Option<Signature> {
    let manifest: Value = serde_json::from_slice(manifest).ok()?;
    let text = manifest
        .get("annotations")?
        .get(PLAIN_SIGNATURE)?
        .as_str()?;
    Some(Signature::Plain(text.as_bytes().to_vec()))
}

/// The layers of a manifest that are small enough, each with its signature, if it has one. Without further addresses:
/// only the registry itself is asked.
fn layers(manifest: &Value) -> Vec<(OciDescriptor, Option<String>)> {
    let layer = |layer: &Value| {
        let text = |field: &str| layer.get(field)?.as_str().map(str::to_owned);
        let size = layer.get("size")?.as_i64()?;
        let fits = usize::try_from(size).is_ok_and(|size| size <= MAX_SIGNATURE_BYTES);
        let digest = text("digest").filter(|digest| fits && is_digest(digest))?;
        let signature = layer
            .get("annotations")
            .and_then(|all| all.get(SIMPLE_SIGNATURE));
        let signature = signature.and_then(Value::as_str).map(str::to_owned);
        let descriptor = OciDescriptor {
            media_type: text("mediaType")?,
            digest,
            size,
            ..OciDescriptor::default()
        };
        Some((descriptor, signature))
    };
    let all = manifest.get("layers").and_then(Value::as_array);
    all.into_iter().flatten().filter_map(layer).collect()
}

/// Whether a registry says that it has no such thing, or answers with something else.
fn is_absent(error: &OciDistributionError) -> bool {
    use OciDistributionError as E;
    let is_client_error =
        |code: u16| (400..500).contains(&code) && !matches!(code, 401 | 403 | 429);
    match error {
        E::ImageManifestNotFoundError(_)
        | E::ManifestParsingError(_)
        | E::SpecViolationError(_)
        | E::UnsupportedMediaTypeError(_) => true,
        E::ServerError { code, .. } => is_client_error(*code),
        E::RegistryError { envelope, .. } => {
            let mut codes = envelope.errors.iter().map(|one| &one.code);
            codes.any(|code| *code == OciErrorCode::Unsupported)
                || super::failure::why(error).reason == KnownReason::ComponentNotFound
        }
        _ => false,
    }
}

/// What was found for verifying a component.
pub(super) fn evidence(manifest: &[u8], signatures: Vec<Signature>) -> Evidence {
    Evidence {
        manifest: Some(manifest.to_vec()),
        signatures,
    }
}
