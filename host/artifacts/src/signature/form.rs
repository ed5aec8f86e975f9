//! The forms of signatures: what each of them signs, and whether that is about a component. Trusts no hint in them.

use super::Signature;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

/// What an artifact type or media type of a Sigstore bundle begins with.
pub(crate) const BUNDLE: &str = "application/vnd.dev.sigstore.bundle.v0.3+json";
/// The media type of what is signed in the older form of cosign.
pub(crate) const SIMPLE: &str = "application/vnd.dev.cosign.simplesigning.v1+json";
/// The annotation of a layer with its signature, in that form.
pub(crate) const SIMPLE_SIGNATURE: &str = "dev.cosignproject.cosign/signature";
/// The annotation of a component's manifest with a plain signature.
pub const PLAIN_SIGNATURE: &str = "transom.dev/signature";
/// The type of a statement that says only that its subject is signed. Other statements are attestations.
pub(crate) const SIGNED: &str = "https://sigstore.dev/cosign/sign/v1";
/// The type of a payload in a bundle.
const STATEMENT: &str = "application/vnd.in-toto+json";
/// The most signatures of one envelope.
const MAX_IN_ENVELOPE: usize = 4;

/// What signatures are about: digests as `sha256:<hex>`.
pub(super) struct Subject<'a> {
    pub(super) component: &'a str,
    /// That of the manifest, if it names exactly this component.
    pub(super) manifest: Option<&'a str>,
}

/// A message about a subject, and its signatures.
#[derive(Debug)]
pub(super) struct Signed {
    pub(super) message: Vec<u8>,
    pub(super) signatures: Vec<Vec<u8>>,
}

/// Why something is no signature of a subject.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum UnfitSignature {
    /// It is another statement about it, such as an attestation.
    NoSignature,
    /// It cannot be used, and why.
    Broken(&'static str),
}

impl Signature {
    /// What was signed, if it is about the subject.
    pub(super) fn open(&self, subject: &Subject<'_>) -> Result<Signed, UnfitSignature> {
        match self {
            Self::Plain(text) => Ok(Signed {
                message: subject.component.as_bytes().to_vec(),
                signatures: vec![decoded(text)?],
            }),
            Self::Simple { payload, signature } => {
                let claim: Value = parsed(payload)?;
                let digest = claim.pointer("/critical/image/docker-manifest-digest");
                about(subject, digest.and_then(Value::as_str).into_iter())?;
                Ok(Signed {
                    message: payload.clone(),
                    signatures: vec![decoded(signature.as_bytes())?],
                })
            }
            Self::Bundle(bundle) => envelope(bundle, subject),
        }
    }
}

/// A Sigstore bundle with a statement in a DSSE envelope.
fn envelope(bundle: &[u8], subject: &Subject<'_>) -> Result<Signed, UnfitSignature> {
    let bundle: Value = parsed(bundle)?;
    let envelope = bundle.get("dsseEnvelope");
    let envelope = envelope.ok_or(UnfitSignature::Broken("it holds no envelope"))?;
    let text = |field: &str| envelope.get(field).and_then(Value::as_str);
    let (Some(STATEMENT), Some(payload)) = (text("payloadType"), text("payload")) else {
        return Err(UnfitSignature::Broken("it holds no statement"));
    };
    let payload = decoded(payload.as_bytes())?;
    let statement: Value = parsed(&payload)?;
    if statement.get("predicateType").and_then(Value::as_str) != Some(SIGNED) {
        return Err(UnfitSignature::NoSignature);
    }
    let subjects = statement.get("subject").and_then(Value::as_array);
    let digests = subjects.into_iter().flatten().filter_map(|one| {
        let hex = one.pointer("/digest/sha256")?.as_str()?;
        Some(format!("sha256:{hex}"))
    });
    let digests: Vec<_> = digests.collect();
    about(subject, digests.iter().map(String::as_str))?;
    let signatures = envelope.get("signatures").and_then(Value::as_array);
    let signatures = signatures.into_iter().flatten().take(MAX_IN_ENVELOPE);
    let signatures = signatures.map(|one| {
        let text = one.get("sig").and_then(Value::as_str);
        decoded(text.unwrap_or_default().as_bytes())
    });
    Ok(Signed {
        message: authenticated(STATEMENT, &payload),
        signatures: signatures.collect::<Result<_, _>>()?,
    })
}

/// The pre-authentication encoding of DSSE: what an envelope signs.
pub(super) fn authenticated(media: &str, payload: &[u8]) -> Vec<u8> {
    let head = format!("DSSEv1 {} {media} {} ", media.len(), payload.len());
    [head.as_bytes(), payload].concat()
}

/// Checks that one of the digests is the manifest's.
fn about<'d>(
    subject: &Subject<'_>,
    mut digests: impl Iterator<Item = &'d str>,
) -> Result<(), UnfitSignature> {
    let is_about = |manifest: &str| digests.any(|digest| digest == manifest);
    match subject.manifest.is_some_and(is_about) {
        true => Ok(()),
        false => Err(UnfitSignature::Broken("it is about another artifact")),
    }
}

fn parsed(bytes: &[u8]) -> Result<Value, UnfitSignature> {
    serde_json::from_slice(bytes).map_err(|_| UnfitSignature::Broken("it is not JSON"))
}

/// The bytes of base64, which may have line breaks.
fn decoded(text: &[u8]) -> Result<Vec<u8>, UnfitSignature> {
    let text: Vec<_> = text
        .iter()
        .copied()
        .filter(|byte| !byte.is_ascii_whitespace())
        .collect();
    STANDARD
        .decode(text)
        .map_err(|_| UnfitSignature::Broken("it is not base64"))
}
