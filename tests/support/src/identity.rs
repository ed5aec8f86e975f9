//! Real CAs and client certificates, as HyperShift makes them: RSA 2048, keys in PKCS#1. Generated from a seed, so that
//! every run has the same; the keys protect nothing.

use crate::numbers::Numbers;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, Error as CertificateError,
    ExtendedKeyUsagePurpose, IsCa, KeyIdMethod, KeyUsagePurpose, PublicKeyData, SerialNumber,
    SignatureAlgorithm, SigningKey, date_time_ymd,
};
use rsa::pkcs1::{EncodeRsaPrivateKey as _, EncodeRsaPublicKey as _, LineEnding};
use rsa::pkcs1v15::SigningKey as Pkcs1v15;
use rsa::sha2::Sha256;
use rsa::signature::{SignatureEncoding as _, Signer as _};
use rsa::{RsaPrivateKey, RsaPublicKey};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

/// A CA with one administrator's certificate and key; each a PEM document.
#[derive(Clone)]
pub struct Identity {
    /// The CA's own certificate.
    pub ca: String,
    /// The administrator's certificate (`system:admin` in `system:masters`).
    pub certificate: String,
    /// Its key.
    pub key: String,
}

/// An error while generating an identity.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// The key.
    #[error("failed to generate an RSA key")]
    Key(#[from] rsa::Error),
    /// The form of the key.
    #[error("failed to encode an RSA key")]
    Encode(#[from] rsa::pkcs1::Error),
    /// The certificate.
    #[error("failed to sign a certificate")]
    Certificate(#[from] CertificateError),
}

impl Identity {
    /// The identity for a seed and a place in it, generated once per process: that takes a second if the RSA arithmetic
    /// is not optimised.
    pub fn generate(seed: u64, place: u64) -> Result<Self, IdentityError> {
        static KNOWN: Mutex<BTreeMap<(u64, u64), Identity>> = Mutex::new(BTreeMap::new());
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(match known.entry((seed, place)) {
            Entry::Occupied(known) => known.get().clone(),
            Entry::Vacant(unknown) => unknown.insert(Self::new(seed, place)?).clone(),
        })
    }

    /// A CA certificate that ends at this time.
    ///
    /// # Errors
    /// When it cannot be generated.
    pub fn authority_until(seed: u64, ends: SystemTime) -> Result<String, IdentityError> {
        let mut numbers = Numbers::new(seed, 0);
        let mut params = authority(&mut numbers)?;
        params.not_after = ends.into();
        Ok(CertifiedIssuer::self_signed(params, Key::generate(&mut numbers)?)?.pem())
    }

    fn new(seed: u64, place: u64) -> Result<Self, IdentityError> {
        let mut numbers = Numbers::new(seed, place);
        let authority =
            CertifiedIssuer::self_signed(authority(&mut numbers)?, Key::generate(&mut numbers)?)?;
        let key = Key::generate(&mut numbers)?;
        let certificate = administrator(&mut numbers)?.signed_by(&key, &authority)?;
        Ok(Self {
            ca: authority.pem(),
            certificate: certificate.pem(),
            key: key.pem()?,
        })
    }
}

impl std::fmt::Debug for Identity {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("Identity(..)")
    }
}

fn authority(numbers: &mut Numbers) -> Result<CertificateParams, IdentityError> {
    let mut params = params(numbers, "root-ca", "openshift")?;
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![
        KeyUsagePurpose::DigitalSignature,
        KeyUsagePurpose::KeyEncipherment,
        KeyUsagePurpose::KeyCertSign,
    ];
    Ok(params)
}

fn administrator(numbers: &mut Numbers) -> Result<CertificateParams, IdentityError> {
    let mut params = params(numbers, "system:admin", "system:masters")?;
    params.use_authority_key_identifier_extension = true;
    params.key_usages = vec![
        KeyUsagePurpose::DigitalSignature,
        KeyUsagePurpose::KeyEncipherment,
    ];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    Ok(params)
}

/// Valid from 2020 to 2099, so that no test depends on the day it runs.
fn params(
    numbers: &mut Numbers,
    name: &str,
    unit: &str,
) -> Result<CertificateParams, IdentityError> {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params
        .distinguished_name
        .push(DnType::OrganizationalUnitName, unit);
    params.not_before = date_time_ymd(2020, 1, 1);
    params.not_after = date_time_ymd(2099, 12, 31);
    params.serial_number = Some(SerialNumber::from(numbers.take() >> 1));
    params.key_identifier_method = KeyIdMethod::PreSpecified(numbers.take().to_be_bytes().to_vec());
    Ok(params)
}

/// An RSA key that signs for `rcgen`.
struct Key {
    private: RsaPrivateKey,
    public: Vec<u8>,
}

impl Key {
    fn generate(numbers: &mut Numbers) -> Result<Self, IdentityError> {
        let private = RsaPrivateKey::new(numbers, 2048)?;
        let public = RsaPublicKey::from(&private).to_pkcs1_der()?.into_vec();
        Ok(Self { private, public })
    }

    fn pem(&self) -> Result<String, IdentityError> {
        Ok(self.private.to_pkcs1_pem(LineEnding::LF)?.to_string())
    }
}

impl PublicKeyData for Key {
    fn der_bytes(&self) -> &[u8] {
        &self.public
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        &rcgen::PKCS_RSA_SHA256
    }
}

impl SigningKey for Key {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, CertificateError> {
        let signer = Pkcs1v15::<Sha256>::new(self.private.clone());
        let signature = signer
            .try_sign(message)
            .map_err(|_| CertificateError::RemoteKeyError)?;
        Ok(signature.to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rsa::pkcs1::DecodeRsaPrivateKey as _;
    use rsa::pkcs1v15::{Signature, VerifyingKey};
    use rsa::signature::Verifier as _;
    use x509_cert::Certificate;
    use x509_cert::der::{DecodePem as _, Encode as _};

    #[test]
    fn an_identity_has_the_given_facts_and_is_reproducible() {
        let identity = Identity::generate(1, 2).unwrap();
        // Made anew: `generate` keeps what it made.
        assert_eq!(identity.key, Identity::new(1, 2).unwrap().key);
        let ca = Certificate::from_pem(&identity.ca).unwrap();
        let certificate = Certificate::from_pem(&identity.certificate).unwrap();
        let key = RsaPrivateKey::from_pkcs1_pem(&identity.key).unwrap();

        let of_certificate = certificate
            .tbs_certificate()
            .subject_public_key_info()
            .subject_public_key
            .raw_bytes();
        assert_eq!(
            of_certificate,
            RsaPublicKey::from(&key).to_pkcs1_der().unwrap().as_bytes()
        );
        let issuer = rsa::pkcs1::DecodeRsaPublicKey::from_pkcs1_der(
            ca.tbs_certificate()
                .subject_public_key_info()
                .subject_public_key
                .raw_bytes(),
        );
        let issuer = VerifyingKey::<Sha256>::new(issuer.unwrap());
        for signed in [&ca, &certificate] {
            let signature = Signature::try_from(signed.signature().raw_bytes()).unwrap();
            issuer
                .verify(&signed.tbs_certificate().to_der().unwrap(), &signature)
                .unwrap();
        }
        assert_eq!(
            certificate.tbs_certificate().issuer(),
            ca.tbs_certificate().subject()
        );
    }

    #[test]
    fn a_key_is_never_shown() {
        let identity = Identity {
            ca: String::new(),
            certificate: String::new(),
            key: "canary".to_owned(),
        };
        assert_eq!(format!("{identity:?}"), "Identity(..)");
    }
}
