//! The one layer of an artifact that holds a component: which one it is, and its bytes.

use super::MANIFEST_BYTES;
use super::failure::{broken, failed};
use crate::gathered::Unread;
use crate::location::MAX_BYTES;
use futures::TryStreamExt as _;
use oci_client::Reference;
use oci_client::client::Client;
use oci_client::manifest::{OciDescriptor, OciImageManifest};
use std::io;
use transom_api::KnownReason;
use transom_core::digest::Digest;
use transom_core::policy::component::Image;

/// The media type of the layer, and one that older tools write, because some registries refuse the first.
pub(super) const LAYERS: [&str; 2] = [
    "application/wasm",
    "application/vnd.wasm.content.layer.v1+wasm",
];
/// The bytes of a layer: as many as it has, with its digest.
pub(super) async fn blob(
    client: &Client,
    image: &Image,
    reference: &Reference,
    layer: &OciDescriptor,
) -> Result<Vec<u8>, Unread> {
    let unread =
        |reason, why: String| Unread::new(reason, format!("failed to pull `oci:{image}`: {why}"));
    let most = u64::try_from(layer.size).unwrap_or_default();
    let stream = client.pull_blob_stream(reference, layer).await;
    let mut stream = stream
        .map_err(|error| failed("pull", image, &error))?
        .stream;
    // As the manifest says, which was compared with the limit; growing step by step would take twice as much.
    let mut bytes = Vec::with_capacity(usize::try_from(most).unwrap_or_default());
    loop {
        match stream.try_next().await {
            Ok(Some(more)) if (bytes.len() + more.len()) as u64 > most => {
                let why = "the layer has more bytes than its manifest says".to_owned();
                return Err(unread(KnownReason::ComponentTooLarge, why));
            }
            Ok(Some(more)) => bytes.extend_from_slice(&more),
            Ok(None) => break,
            Err(_) if bytes.len() as u64 == most => break,
            Err(error) => {
                let got = bytes.len();
                let why = format!("the registry sent {got} of {most} bytes of the layer");
                let unread = unread(KnownReason::RegistryUnavailable, why);
                let silent = is_timeout(&error);
                return Err(Unread { silent, ..unread });
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

/// Whether a registry sent nothing more for too long.
fn is_timeout(error: &io::Error) -> bool {
    let source = error.get_ref();
    let source = source.and_then(|error| error.downcast_ref::<reqwest::Error>());
    source.is_some_and(reqwest::Error::is_timeout)
}

/// The one layer of a manifest, if it can hold a component.
pub(super) fn layer(image: &Image, manifest: &[u8]) -> Result<OciDescriptor, Unread> {
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
        let message = format!(
            "failed to pull `oci:{image}`: its layer has {} bytes; a component has 1 to {MAX_BYTES}",
            layer.size
        );
        return Err(Unread::new(KnownReason::ComponentTooLarge, message));
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
    use super::super::CONFIG;
    use super::*;
    use serde_json::{Value, json};

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
