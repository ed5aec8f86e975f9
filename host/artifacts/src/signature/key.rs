//! Public keys that a policy trusts: ECDSA on P-256 or Ed25519, as PEM.

use ring::signature::{ECDSA_P256_SHA256_ASN1, ED25519, UnparsedPublicKey, VerificationAlgorithm};
use rustls_pki_types::SubjectPublicKeyInfoDer;
use rustls_pki_types::pem::PemObject as _;
use std::fmt;
use transom_core::digest::Digest;

/// Largest file of a key, in bytes.
pub const MAX_KEY_BYTES: usize = 16 << 10;

/// How the DER of each kind of key begins; the bytes that follow are the key.
const P256: &[u8] = &[
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a,
    0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];
const EDWARDS: &[u8] = &[
    0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00,
];

/// A trusted public key.
#[derive(Clone)]
pub struct TrustedKey {
    name: String,
    key: UnparsedPublicKey<Vec<u8>>,
}

impl TrustedKey {
    /// Reads a PEM file with exactly one public key.
    ///
    /// # Errors
    /// With what is wrong, as the end of a sentence that begins with the file. Shows nothing of the file.
    pub fn parse(name: &str, pem: &[u8]) -> Result<Self, String> {
        if pem.len() > MAX_KEY_BYTES {
            return Err(format!("is larger than {MAX_KEY_BYTES} bytes"));
        }
        let keys: Result<Vec<_>, _> = SubjectPublicKeyInfoDer::pem_slice_iter(pem).collect();
        let keys = keys.map_err(|_| "is not PEM".to_owned())?;
        let [key] = keys.as_slice() else {
            let count = keys.len();
            return Err(format!(
                "holds {count} public keys; expected one, as PEM with `BEGIN PUBLIC KEY`"
            ));
        };
        let point = |prefix: &[u8], length| {
            let rest = key.as_ref().strip_prefix(prefix);
            rest.filter(|rest| rest.len() == length).map(<[u8]>::to_vec)
        };
        let parsed = |algorithm: &'static dyn VerificationAlgorithm, point| Self {
            name: name.to_owned(),
            key: UnparsedPublicKey::new(algorithm, point),
        };
        let p256 = point(P256, 65).map(|point| parsed(&ECDSA_P256_SHA256_ASN1, point));
        p256.or_else(|| point(EDWARDS, 32).map(|point| parsed(&ED25519, point)))
            .ok_or_else(|| "is neither a key of ECDSA on P-256 nor of Ed25519".to_owned())
    }

    /// The name by which the policy shows it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A digest of the key.
    pub(super) fn digest(&self) -> Digest {
        Digest::of_bytes(self.key.as_ref())
    }

    /// Whether a signature of these bytes is by this key.
    pub(super) fn has_signed(&self, message: &[u8], signature: &[u8]) -> bool {
        self.key.verify(message, signature).is_ok()
    }
}

impl fmt::Debug for TrustedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({})", self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::signature::sample;

    #[test]
    fn takes_one_public_key_of_two_kinds() {
        let (edwards, p256) = (sample::Edwards::new(1).pem(), sample::P256::new().pem());
        for pem in [&edwards, &p256] {
            assert_eq!(TrustedKey::parse("a", pem.as_bytes()).unwrap().name(), "a");
        }
        let (other, two) = (
            "-----BEGIN PUBLIC KEY-----\nMAA=\n-----END PUBLIC KEY-----\n",
            format!("{edwards}{p256}"),
        );
        let private = edwards.replace("PUBLIC", "PRIVATE");
        let long = format!("{edwards}{}", " ".repeat(MAX_KEY_BYTES));
        for (pem, part) in [
            (other, "neither"),
            (two.as_str(), "holds 2 public keys"),
            ("", "holds 0 public keys"),
            (private.as_str(), "holds 0 public keys"),
            ("-----BEGIN PUBLIC KEY-----\n", "not PEM"),
            (long.as_str(), "larger"),
        ] {
            let why = TrustedKey::parse("a", pem.as_bytes()).unwrap_err();
            assert!(why.contains(part), "{pem}: {why}");
        }
    }
}
