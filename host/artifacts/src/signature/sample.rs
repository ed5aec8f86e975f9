//! Keys and signatures for tests, in the forms that cosign writes.

use super::form::authenticated;
use super::{Demand, Signature, TrustedKey};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _};
use serde_json::json;
use transom_api::policy::VerifyMode;
use transom_core::digest::Digest;

/// The digest of the component that is signed.
pub(super) const COMPONENT: &str =
    "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

pub(super) fn digest(bytes: &[u8]) -> String {
    Digest::of_bytes(bytes).to_string()
}

/// The manifest of an artifact with one layer.
pub(super) fn manifest(layer: &str) -> Vec<u8> {
    json!({"layers": [{"digest": layer}]})
        .to_string()
        .into_bytes()
}

fn pem(prefix: &[u8], point: &[u8]) -> String {
    let body = STANDARD.encode([prefix, point].concat());
    format!("-----BEGIN PUBLIC KEY-----\n{body}\n-----END PUBLIC KEY-----\n")
}

/// A key pair of Ed25519.
pub(super) struct Edwards(Ed25519KeyPair);

impl Edwards {
    pub(super) fn new(seed: u8) -> Self {
        Self(Ed25519KeyPair::from_seed_unchecked(&[seed; 32]).unwrap())
    }

    pub(super) fn pem(&self) -> String {
        let prefix = [
            0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00,
        ];
        pem(&prefix, self.0.public_key().as_ref())
    }

    pub(super) fn sign(&self, message: &[u8]) -> Vec<u8> {
        self.0.sign(message).as_ref().to_vec()
    }
}

/// A key pair of ECDSA on P-256.
pub(super) struct P256(EcdsaKeyPair);

impl P256 {
    pub(super) fn new() -> Self {
        let (algorithm, random) = (&ECDSA_P256_SHA256_ASN1_SIGNING, SystemRandom::new());
        let document = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
        Self(EcdsaKeyPair::from_pkcs8(algorithm, document.as_ref(), &random).unwrap())
    }

    pub(super) fn pem(&self) -> String {
        let prefix = [
            0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06,
            0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
        ];
        pem(&prefix, self.0.public_key().as_ref())
    }

    fn sign(&self, message: &[u8]) -> Vec<u8> {
        let signed = self.0.sign(&SystemRandom::new(), message).unwrap();
        signed.as_ref().to_vec()
    }
}

/// A bundle with a statement about an artifact.
pub(super) fn bundle(key: &P256, predicate: &str, about: &str) -> Signature {
    let media = "application/vnd.in-toto+json";
    let hex = about.trim_start_matches("sha256:");
    let statement = json!({"_type": "https://in-toto.io/Statement/v1", "predicateType": predicate,
        "subject": [{"digest": {"sha256": hex}}], "predicate": {}})
    .to_string();
    let signature = key.sign(&authenticated(media, statement.as_bytes()));
    let envelope = json!({"payload": STANDARD.encode(&statement), "payloadType": media,
        "signatures": [{"sig": STANDARD.encode(signature)}]});
    Signature::Bundle(json!({"dsseEnvelope": envelope}).to_string().into_bytes())
}

/// The older form about an artifact.
pub(super) fn simple(key: &P256, about: &str) -> Signature {
    let payload = json!({"critical": {"type": "cosign container image signature",
        "image": {"docker-manifest-digest": about}}, "optional": null})
    .to_string()
    .into_bytes();
    let signature = STANDARD.encode(key.sign(&payload));
    Signature::Simple { payload, signature }
}

/// A demand for named keys.
pub(super) fn demand(mode: VerifyMode, keys: &[(&str, &str)]) -> Demand {
    let key = |(name, pem): &(&str, &str)| TrustedKey::parse(name, pem.as_bytes()).unwrap();
    Demand {
        mode,
        keys: keys.iter().map(key).collect(),
    }
}
