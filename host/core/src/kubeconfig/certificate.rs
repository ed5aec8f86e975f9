//! Facts of an X.509 certificate: fingerprint, validity, CA flag, public key. Verifies no signature.

use sha2::{Digest as _, Sha256};
use x509_cert::Certificate;
use x509_cert::der::Decode as _;
use x509_cert::ext::pkix::BasicConstraints;

/// The facts of one certificate.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct CertificateFacts {
    /// SHA-256 in hexadecimal.
    pub(super) fingerprint: String,
    /// The begin of validity in seconds since 1970.
    pub(super) starts_seconds: i64,
    /// The end of validity in seconds since 1970.
    pub(super) ends_seconds: i64,
    /// Whether it may sign others: its basic constraints say so, or it has none and is older than version 3.
    pub(super) is_ca: bool,
}

/// The public key of a certificate.
pub(super) struct PublicKey {
    /// Its algorithm.
    pub(super) algorithm: x509_cert::spki::ObjectIdentifier,
    /// The bits of the key.
    pub(super) bits: Vec<u8>,
}

/// Reads one certificate; `None` when it is malformed.
pub(super) fn read(der: &[u8]) -> Option<(CertificateFacts, PublicKey)> {
    let certificate = Certificate::from_der(der).ok()?;
    let content = certificate.tbs_certificate();
    let says_ca = content
        .get_extension::<BasicConstraints>()
        .ok()?
        .map(|(_, constraints)| constraints.ca);
    let modern = content.version() == x509_cert::certificate::Version::V3;
    let seconds =
        |time: x509_cert::time::Time| i64::try_from(time.to_unix_duration().as_secs()).ok();
    let facts = CertificateFacts {
        fingerprint: hexadecimal(&Sha256::digest(der)),
        starts_seconds: seconds(content.validity().not_before)?,
        ends_seconds: seconds(content.validity().not_after)?,
        is_ca: says_ca.unwrap_or(!modern),
    };
    let key = content.subject_public_key_info();
    Some((
        facts,
        PublicKey {
            algorithm: key.algorithm.oid,
            bits: key.subject_public_key.raw_bytes().to_vec(),
        },
    ))
}

fn hexadecimal(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |half: u8| {
        DIGITS
            .get(usize::from(half))
            .map_or('0', |digit| char::from(*digit))
    };
    bytes
        .iter()
        .flat_map(|byte| [digit(byte >> 4), digit(byte & 15)])
        .collect()
}
