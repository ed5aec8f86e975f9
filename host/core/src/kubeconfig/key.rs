//! Whether a private key belongs to a certificate, as far as that shows without arithmetic on curves: always for RSA,
//! and for EC and Ed25519 when the key's file contains the public half, as the usual tools write it. Keeps no byte of
//! the key.

use super::certificate::PublicKey;
use super::pem::Block;
use x509_cert::der::asn1::AnyRef;
use x509_cert::der::{Decode as _, Reader as _, SliceReader};
use x509_cert::spki::ObjectIdentifier;

const RSA: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.1");
const EC: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.2.1");

/// Whether a key and a certificate belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pair {
    /// They do.
    Matches,
    /// They do not.
    Differs,
    /// The key's file does not contain the public half.
    Untold,
}

/// Compares a key with a certificate's; `None` when the block is not a readable private key.
pub(super) fn compare(key: &Block<'_>, public: &PublicKey) -> Option<Pair> {
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
fn children(content: &[u8]) -> Option<Vec<AnyRef<'_>>> {
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
    if algorithm == RSA {
        return rsa(
            &children(AnyRef::from_der(key.value()).ok()?.value())?,
            public,
        );
    }
    if algorithm == EC {
        return ec(
            &children(AnyRef::from_der(key.value()).ok()?.value())?,
            public,
        );
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
    let bits = match further.iter().find(|part| is_context(part, 1)) {
        Some(part) => Some(AnyRef::from_der(part.value()).ok()?),
        None => None,
    };
    Some(judge(
        bits.as_ref().and_then(|bits| bits.value().get(1..)),
        public,
        EC,
    ))
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
    use x509_cert::der::{Tag, Tagged as _};
    matches!(part.tag(), Tag::ContextSpecific { number: found, .. } if found.value() == number)
}
