//! Whether a component is signed by the keys that a policy trusts. Decides over values: reads nothing, and asks no
//! service.

mod form;
mod key;
#[cfg(test)]
mod sample;

pub use form::PLAIN_SIGNATURE;
pub(crate) use form::{BUNDLE, SIGNED, SIMPLE, SIMPLE_SIGNATURE};
pub use key::{MAX_KEY_BYTES, TrustedKey};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use form::{Subject, UnfitSignature};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use transom_api::KnownReason;
use transom_api::policy::VerifyMode;
use transom_core::digest::Digest;

/// The most signatures of one component that are looked at.
pub const MAX_SIGNATURES: usize = 16;
/// The most bytes of one signature with what it signs.
pub const MAX_SIGNATURE_BYTES: usize = 64 << 10;

/// A signature as it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Signature {
    /// A Sigstore bundle, as cosign 3 makes it: the file.
    Bundle(Vec<u8>),
    /// The older form of cosign.
    Simple {
        /// What is signed.
        payload: Vec<u8>,
        /// The signature, base64.
        signature: String,
    },
    /// A signature of the text `sha256:<hex>`, the digest of the component; base64.
    Plain(Vec<u8>),
}

/// What is known for verifying a component.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Evidence {
    /// The manifest that names the component, if it comes from a registry.
    pub manifest: Option<Vec<u8>>,
    /// The signatures beside it.
    pub signatures: Vec<Signature>,
}

/// Which keys have to have signed.
#[derive(Clone, Debug)]
pub struct Demand {
    /// Any of the keys, or all of them.
    pub mode: VerifyMode,
    /// The keys.
    pub keys: Vec<TrustedKey>,
}

/// Why a component does not count as signed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unverified {
    /// Signatures are missing.
    #[error("it has no signature by {0}")]
    Missing(String),
    /// There are signatures that no key made, or of something else.
    #[error("it has no valid signature by {keys}: {why}")]
    Invalid {
        /// The keys that are asked for.
        keys: String,
        /// What is wrong with a signature that is there.
        why: &'static str,
    },
}

impl Unverified {
    /// The reason to show.
    pub fn reason(&self) -> KnownReason {
        match self {
            Self::Missing(_) => KnownReason::SignatureMissing,
            Self::Invalid { .. } => KnownReason::SignatureInvalid,
        }
    }
}

impl Demand {
    /// A digest of each key, by name: another key under the same name has another one.
    pub fn digests(&self) -> BTreeMap<String, Digest> {
        let keys = self.keys.iter();
        keys.map(|key| (key.name().to_owned(), key.digest()))
            .collect()
    }

    /// The names of the keys that signed a component, in order. `component` is `sha256:<hex>` of its bytes.
    ///
    /// # Errors
    /// When they are not the demanded ones.
    pub fn check(&self, component: &str, evidence: &Evidence) -> Result<Vec<String>, Unverified> {
        let manifest = evidence.manifest.as_deref();
        let manifest = manifest.filter(|manifest| names(manifest, component));
        let manifest = manifest.map(|manifest| Digest::of_bytes(manifest).to_string());
        let subject = Subject {
            component,
            manifest: manifest.as_deref(),
        };
        let (mut signers, mut wrong) = (BTreeSet::new(), None);
        for signature in evidence.signatures.iter().take(MAX_SIGNATURES) {
            let signed = match signature.open(&subject) {
                Ok(signed) => signed,
                Err(UnfitSignature::NoSignature) => continue,
                Err(UnfitSignature::Broken(why)) => {
                    wrong = wrong.or(Some(why));
                    continue;
                }
            };
            let is_by = |key: &&TrustedKey| {
                let mut all = signed.signatures.iter();
                all.any(|one| key.has_signed(&signed.message, one))
            };
            let by = self.keys.iter().filter(is_by).map(TrustedKey::name);
            let by: Vec<_> = by.collect();
            if by.is_empty() {
                wrong = wrong.or(Some("a signature is by another key, or of other bytes"));
            }
            signers.extend(by);
        }
        let is_signer = |key: &&TrustedKey| signers.contains(key.name());
        let is_met = match self.mode {
            VerifyMode::Any => !signers.is_empty(),
            // No keys are no demand that could be met.
            VerifyMode::All => !signers.is_empty() && self.keys.iter().all(|key| is_signer(&key)),
        };
        if is_met {
            let signers = self.keys.iter().filter(is_signer);
            return Ok(signers.map(|key| key.name().to_owned()).collect());
        }
        let absent = self.keys.iter().filter(|key| !is_signer(key));
        let absent: Vec<_> = absent.map(|key| format!("`{}`", key.name())).collect();
        let keys = match self.mode {
            VerifyMode::Any => absent.join(" or "),
            VerifyMode::All => absent.join(" and "),
        };
        Err(match wrong {
            Some(why) => Unverified::Invalid { keys, why },
            None => Unverified::Missing(keys),
        })
    }
}

/// Whether a component is the one layer of a manifest.
fn names(manifest: &[u8], component: &str) -> bool {
    let Ok(manifest) = serde_json::from_slice::<Value>(manifest) else {
        return false;
    };
    let layers = manifest.get("layers").and_then(Value::as_array);
    let [layer] = layers.map(Vec::as_slice).unwrap_or_default() else {
        return false;
    };
    layer.get("digest").and_then(Value::as_str) == Some(component)
}

impl Evidence {
    /// A signature that lies in a file or key beside a component.
    pub fn beside(text: Vec<u8>) -> Self {
        Self {
            manifest: None,
            signatures: vec![Signature::Plain(text)],
        }
    }

    /// As JSON, for a pipe or a file.
    pub fn to_json(&self) -> Value {
        let signature = |one: &Signature| match one {
            Signature::Bundle(bundle) => json!({"bundle": STANDARD.encode(bundle)}),
            Signature::Simple { payload, signature } => {
                json!({"payload": STANDARD.encode(payload), "signature": signature})
            }
            Signature::Plain(text) => json!({"plain": STANDARD.encode(text)}),
        };
        let signatures: Vec<_> = self.signatures.iter().map(signature).collect();
        let manifest = self.manifest.as_ref().map(|one| STANDARD.encode(one));
        json!({"manifest": manifest, "signatures": signatures})
    }

    /// From [`Evidence::to_json`]; `None` when it is damaged.
    pub fn from_json(value: &Value) -> Option<Self> {
        let bytes = |value: &Value| STANDARD.decode(value.as_str()?).ok();
        let signature = |one: &Value| {
            if let Some(bundle) = one.get("bundle") {
                return Some(Signature::Bundle(bytes(bundle)?));
            }
            if let Some(text) = one.get("plain") {
                return Some(Signature::Plain(bytes(text)?));
            }
            Some(Signature::Simple {
                payload: bytes(one.get("payload")?)?,
                signature: one.get("signature")?.as_str()?.to_owned(),
            })
        };
        let manifest = match value.get("manifest")? {
            Value::Null => None,
            manifest => Some(bytes(manifest)?),
        };
        let signatures = value.get("signatures")?.as_array()?;
        let signatures = signatures.iter().map(signature).collect::<Option<_>>()?;
        Some(Self {
            manifest,
            signatures,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::sample::{COMPONENT, Edwards, P256, bundle, demand, digest, manifest, simple};
    use super::*;

    const OTHER: &str = "sha256:0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a";

    fn evidence(signatures: Vec<Signature>) -> Evidence {
        Evidence {
            manifest: Some(manifest(COMPONENT)),
            signatures,
        }
    }

    fn reason(demand: &Demand, evidence: &Evidence) -> Option<KnownReason> {
        let checked = demand.check(COMPONENT, evidence);
        checked.err().map(|unverified| unverified.reason())
    }

    #[test]
    fn every_form_verifies_by_its_key_alone() {
        let (one, other) = (P256::new(), P256::new());
        let (edwards, strange) = (Edwards::new(1), Edwards::new(2));
        let manifest = digest(&manifest(COMPONENT));
        let plain = |key: &Edwards, text: &str| {
            Signature::Plain(format!("{}\n", STANDARD.encode(key.sign(text.as_bytes()))).into())
        };
        for (signature, by, not) in [
            (bundle(&one, SIGNED, &manifest), one.pem(), other.pem()),
            (simple(&one, &manifest), one.pem(), other.pem()),
            (plain(&edwards, COMPONENT), edwards.pem(), strange.pem()),
        ] {
            let signed = evidence(vec![signature]);
            let by = demand(VerifyMode::Any, &[("release", &by)]);
            assert_eq!(by.check(COMPONENT, &signed).unwrap(), ["release"]);
            let not = demand(VerifyMode::Any, &[("release", &not)]);
            assert_eq!(reason(&not, &signed), Some(KnownReason::SignatureInvalid));
            // The same signature proves nothing of another component.
            assert!(by.check(OTHER, &signed).is_err());
            assert_eq!(
                reason(&by, &evidence(vec![])),
                Some(KnownReason::SignatureMissing)
            );
        }
    }

    #[test]
    fn a_signature_of_something_else_counts_as_none() {
        let key = P256::new();
        let demand = demand(VerifyMode::Any, &[("release", &key.pem())]);
        let manifest = digest(&manifest(COMPONENT));
        for signature in [bundle(&key, SIGNED, OTHER), simple(&key, OTHER)] {
            let found = reason(&demand, &evidence(vec![signature]));
            assert_eq!(found, Some(KnownReason::SignatureInvalid));
        }
        let attestation = bundle(&key, "https://slsa.dev/provenance/v1", &manifest);
        let found = reason(&demand, &evidence(vec![attestation.clone()]));
        assert_eq!(found, Some(KnownReason::SignatureMissing));
        // It does no harm beside a signature.
        let both = evidence(vec![attestation, simple(&key, &manifest)]);
        assert_eq!(reason(&demand, &both), None);
    }

    #[test]
    fn a_changed_signature_or_manifest_is_refused() {
        let key = P256::new();
        let demand = demand(VerifyMode::Any, &[("release", &key.pem())]);
        let signed = digest(&manifest(COMPONENT));
        let Signature::Bundle(bundle) = bundle(&key, SIGNED, &signed) else {
            panic!("a bundle");
        };
        let text = String::from_utf8(bundle).unwrap();
        let mut value: Value = serde_json::from_str(&text).unwrap();
        // The claim of the payload is right, and was not signed.
        let payload = json!({"predicateType": SIGNED, "subject": [{"digest": {"sha256": &signed[7..]}}], "more": 1});
        value["dsseEnvelope"]["payload"] = STANDARD.encode(payload.to_string()).into();
        let Signature::Simple { payload, signature } = simple(&key, &signed) else {
            panic!("a payload");
        };
        let mut longer = payload.clone();
        longer.push(b' ');
        let cases = [
            Signature::Bundle(value.to_string().into()),
            Signature::Bundle(b"{}".to_vec()),
            Signature::Bundle(b"[".to_vec()),
            Signature::Simple {
                payload: longer,
                signature: signature.clone(),
            },
            Signature::Simple {
                payload: payload.clone(),
                signature: "?".to_owned(),
            },
            Signature::Plain(b"AAAA".to_vec()),
        ];
        for case in cases {
            let found = reason(&demand, &evidence(vec![case.clone()]));
            assert_eq!(found, Some(KnownReason::SignatureInvalid), "{case:?}");
        }
        // The manifest names another component, or two, or is missing.
        let whole = Signature::Simple { payload, signature };
        let two = json!({"layers": [{"digest": COMPONENT}, {"digest": OTHER}]}).to_string();
        for manifest in [Some(manifest(OTHER)), Some(two.into_bytes()), None] {
            let evidence = Evidence {
                manifest,
                signatures: vec![whole.clone()],
            };
            assert!(demand.check(COMPONENT, &evidence).is_err(), "{evidence:?}");
        }
    }

    #[test]
    fn any_needs_one_key_and_all_need_each() {
        let (one, other) = (P256::new(), Edwards::new(1));
        let manifest = digest(&manifest(COMPONENT));
        let first = simple(&one, &manifest);
        let second = Signature::Plain(STANDARD.encode(other.sign(COMPONENT.as_bytes())).into());
        let keys = [("one", one.pem()), ("other", other.pem())];
        let keys = keys.each_ref().map(|(name, pem)| (*name, pem.as_str()));
        let (any, all) = (
            demand(VerifyMode::Any, &keys),
            demand(VerifyMode::All, &keys),
        );
        let (half, whole) = (
            evidence(vec![first.clone()]),
            evidence(vec![second, first.clone()]),
        );
        assert_eq!(any.check(COMPONENT, &half).unwrap(), ["one"]);
        assert_eq!(any.check(COMPONENT, &whole).unwrap(), ["one", "other"]);
        assert_eq!(all.check(COMPONENT, &whole).unwrap(), ["one", "other"]);
        let missing = all.check(COMPONENT, &half).unwrap_err();
        assert_eq!(missing, Unverified::Missing("`other`".to_owned()));
        // The same signature twice is one signer.
        let twice = evidence(vec![first.clone(), first]);
        assert!(all.check(COMPONENT, &twice).is_err());
        assert!(
            demand(VerifyMode::All, &[])
                .check(COMPONENT, &whole)
                .is_err()
        );
    }

    #[test]
    fn evidence_survives_a_pipe_and_damage_counts_as_none() {
        let key = P256::new();
        let manifest = digest(&manifest(COMPONENT));
        let signatures = vec![
            bundle(&key, SIGNED, &manifest),
            simple(&key, &manifest),
            Signature::Plain(b"x".to_vec()),
        ];
        for evidence in [evidence(signatures), Evidence::default()] {
            assert_eq!(Evidence::from_json(&evidence.to_json()), Some(evidence));
        }
        for damaged in [
            json!({}),
            json!({"manifest": "?", "signatures": []}),
            json!({"manifest": null, "signatures": [{}]}),
        ] {
            assert_eq!(Evidence::from_json(&damaged), None);
        }
    }
}
