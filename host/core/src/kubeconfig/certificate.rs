//! PEM blocks, the facts of X.509 certificates, and whether a private key belongs to a certificate. Verifies no
//! signature, and keeps no byte of a key.

use crate::digest::Digest;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use x509_cert::Certificate;
use x509_cert::der::asn1::AnyRef;
use x509_cert::der::{Decode as _, Reader as _, SliceReader, Tag, Tagged as _};
use x509_cert::ext::pkix::BasicConstraints;
use x509_cert::spki::ObjectIdentifier;

/// One block.
pub(crate) struct Block<'b> {
    /// `CERTIFICATE`, `RSA PRIVATE KEY`, ...
    pub(crate) label: &'b str,
    /// Whether lines such as `Proc-Type: 4,ENCRYPTED` precede the base64.
    pub(super) has_headers: bool,
    /// The decoded bytes.
    pub(crate) der: Vec<u8>,
}

/// Reads the blocks of a text as clients do, which have `pem.Decode` of Go: what is no block is passed over, and so is
/// a broken one.
pub(crate) fn readable(bytes: &[u8]) -> Vec<Block<'_>> {
    let mut found = Vec::new();
    let mut open: Option<Block<'_>> = None;
    for line in bytes
        .split(|byte| *byte == b'\n')
        .map(<[u8]>::trim_ascii_end)
    {
        if let Some(label) = between_dashes(line, b"-----BEGIN ") {
            let (has_headers, der) = (false, Vec::new());
            open = Some(Block {
                label,
                has_headers,
                der,
            });
        } else if line.starts_with(b"-----END ") {
            let ended = open.take();
            let ended = ended.filter(|one| between_dashes(line, b"-----END ") == Some(one.label));
            found.extend(ended.and_then(|one| {
                let der = STANDARD.decode(&one.der).ok()?;
                Some(Block { der, ..one })
            }));
        } else if let Some(block) = &mut open {
            // Until the end these are the bytes of the base64.
            match block.der.is_empty() && line.contains(&b':') {
                true => block.has_headers = true,
                false => block
                    .der
                    .extend(line.iter().filter(|byte| !byte.is_ascii_whitespace())),
            }
        }
    }
    found
}

/// The label in a line that begins or ends a block.
fn between_dashes<'b>(line: &'b [u8], begins: &[u8]) -> Option<&'b str> {
    let label = line.strip_prefix(begins)?.strip_suffix(b"-----")?;
    std::str::from_utf8(label).ok()
}

/// Reads every block of a text; `None` when a block is broken or has headers, or the bytes are not UTF-8.
pub(crate) fn blocks(bytes: &[u8]) -> Option<Vec<Block<'_>>> {
    let mut rest = std::str::from_utf8(bytes).ok()?;
    let mut found = Vec::new();
    while let Some((_, after)) = rest.split_once("-----BEGIN ") {
        let (label, after) = after.split_once("-----")?;
        let (body, after) = after.split_once("-----END ")?;
        rest = after.strip_prefix(label)?.strip_prefix("-----")?;
        found.push(Block {
            label,
            has_headers: false,
            der: decode(body)?,
        });
    }
    Some(found)
}

/// Decodes base64 over several lines. A body with headers, as of an encrypted key, is not base64.
fn decode(body: &str) -> Option<Vec<u8>> {
    let dense: String = body.split_ascii_whitespace().collect();
    STANDARD.decode(dense).ok()
}

/// Reads the base64 of a field as clients do: line ends are ignored.
pub(super) fn field(text: &str) -> Option<Vec<u8>> {
    if !text.contains(['\n', '\r']) {
        return STANDARD.decode(text).ok();
    }
    STANDARD.decode(text.replace(['\n', '\r'], "")).ok()
}

/// Writes the base64 of a field.
pub(super) fn to_field(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// The facts of one certificate.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct CertificateFacts {
    /// SHA-256 in hexadecimal.
    pub(crate) fingerprint: String,
    /// The begin of validity in seconds since 1970.
    pub(crate) starts_seconds: i64,
    /// The end of validity in seconds since 1970.
    pub(crate) ends_seconds: i64,
    /// Whether it may sign others: its basic constraints say so, or it has none and is older than version 3.
    pub(super) is_ca: bool,
}

/// The public key of a certificate.
pub(crate) struct PublicKey {
    /// Its algorithm.
    pub(super) algorithm: ObjectIdentifier,
    /// The bits of the key.
    pub(super) bits: Vec<u8>,
    /// Whether Go can use it, as clients do: RSA, EC on a curve of NIST, or Ed25519.
    is_known: bool,
}

/// Reads one certificate; `None` when it is malformed.
pub(crate) fn read(der: &[u8]) -> Option<(CertificateFacts, PublicKey)> {
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
        fingerprint: Digest::of_bytes(der).hex(),
        starts_seconds: seconds(content.validity().not_before)?,
        ends_seconds: seconds(content.validity().not_after)?,
        is_ca: says_ca.unwrap_or(!modern),
    };
    let key = content.subject_public_key_info();
    let curve = key.algorithm.parameters.as_ref();
    let curve: Option<ObjectIdentifier> = curve.and_then(|curve| curve.decode_as().ok());
    Some((
        facts,
        PublicKey {
            algorithm: key.algorithm.oid,
            bits: key.subject_public_key.raw_bytes().to_vec(),
            is_known: match key.algorithm.oid {
                EC => curve.is_some_and(|curve| CURVES.contains(&curve)),
                algorithm => matches!(algorithm, RSA | ED25519),
            },
        },
    ))
}

const RSA: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.1");
const EC: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.2.1");
const ED25519: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.101.112");
/// P-224, P-256, P-384 and P-521.
const CURVES: [ObjectIdentifier; 4] = [
    ObjectIdentifier::new_unwrap("1.3.132.0.33"),
    ObjectIdentifier::new_unwrap("1.2.840.10045.3.1.7"),
    ObjectIdentifier::new_unwrap("1.3.132.0.34"),
    ObjectIdentifier::new_unwrap("1.3.132.0.35"),
];

/// Whether a key and a certificate belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pair {
    /// They do.
    Matches,
    /// They do not.
    Differs,
    /// The key's file does not contain the public half.
    Untold,
}

/// Compares a key with a certificate's, as far as that shows without arithmetic on curves: always for RSA, and for EC
/// and Ed25519 when the key's file contains the public half, as the usual tools write it. `None` when the block is not
/// a readable private key, or clients cannot use the kind of key.
pub(crate) fn compare(key: &Block<'_>, public: &PublicKey) -> Option<Pair> {
    if !public.is_known {
        return None;
    }
    let outer = AnyRef::from_der(&key.der).ok()?;
    let parts = children(outer.value())?;
    match key.label {
        "RSA PRIVATE KEY" => rsa(&parts, public),
        "EC PRIVATE KEY" => ec(&parts, public),
        "PRIVATE KEY" => pkcs8(&parts, public),
        _ => None,
    }
}

/// The values inside a DER value, in order.
pub(crate) fn children(content: &[u8]) -> Option<Vec<AnyRef<'_>>> {
    let mut reader = SliceReader::new(content).ok()?;
    let mut found = Vec::new();
    while !reader.is_finished() {
        found.push(AnyRef::decode(&mut reader).ok()?);
    }
    Some(found)
}

/// PKCS #8: version, algorithm, key in an OCTET STRING, attributes, and from its second version on the public half.
fn pkcs8(parts: &[AnyRef<'_>], public: &PublicKey) -> Option<Pair> {
    let [_, algorithm, key, further @ ..] = parts else {
        return None;
    };
    let names = children(algorithm.value())?;
    let algorithm: ObjectIdentifier = names.first()?.decode_as().ok()?;
    let inner = || children(AnyRef::from_der(key.value()).ok()?.value());
    if algorithm == RSA {
        return rsa(&inner()?, public);
    }
    if algorithm == EC {
        return ec(&inner()?, public);
    }
    let told = further
        .iter()
        .find(|part| is_context(part, 1))
        .and_then(|bits| bits.value().get(1..));
    Some(judge(told, public, algorithm))
}

/// PKCS #1: version, modulus, public exponent, ...
fn rsa(parts: &[AnyRef<'_>], public: &PublicKey) -> Option<Pair> {
    let [_, modulus, exponent, ..] = parts else {
        return None;
    };
    if public.algorithm != RSA {
        return Some(Pair::Differs);
    }
    let theirs = children(AnyRef::from_der(&public.bits).ok()?.value())?;
    let same = theirs
        .into_iter()
        .map(AnyRef::value)
        .eq([modulus.value(), exponent.value()]);
    Some(if same { Pair::Matches } else { Pair::Differs })
}

/// SEC 1: version, key, curve, public half in a BIT STRING.
fn ec(parts: &[AnyRef<'_>], public: &PublicKey) -> Option<Pair> {
    let [_, _, further @ ..] = parts else {
        return None;
    };
    let told = match further.iter().find(|part| is_context(part, 1)) {
        Some(part) => AnyRef::from_der(part.value()).ok()?.value().get(1..),
        None => None,
    };
    Some(judge(told, public, EC))
}

fn judge(told: Option<&[u8]>, public: &PublicKey, algorithm: ObjectIdentifier) -> Pair {
    match told {
        _ if public.algorithm != algorithm => Pair::Differs,
        None => Pair::Untold,
        Some(bits) if bits == public.bits => Pair::Matches,
        Some(_) => Pair::Differs,
    }
}

fn is_context(part: &AnyRef<'_>, number: u32) -> bool {
    matches!(part.tag(), Tag::ContextSpecific { number: found, .. } if found.value() == number)
}
