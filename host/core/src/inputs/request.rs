//! What a CertificateSigningRequest asks for, and who asks. Its bytes do not cross, and no signature is verified: the
//! API server did that when it took the request.

use crate::contract::decide::{CertificateRequest, RequestContent, Requested};
use crate::failure::InvalidField;
use crate::kubeconfig::certificate::{self, Block};
use crate::object::Object;
use crate::object::field::FieldPlace;
use crate::reference::group;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use std::collections::BTreeMap;
use std::net::IpAddr;
use x509_cert::der::asn1::AnyRef;
use x509_cert::der::{Decode as _, Encode as _, Tag, Tagged as _};
use x509_cert::ext::Extension;
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;
use x509_cert::request::CertReq;
use x509_cert::spki::{ObjectIdentifier, SubjectPublicKeyInfoOwned};

/// Group and kind of the requests.
pub const REQUEST: (&str, &str) = ("certificates.k8s.io", "CertificateSigningRequest");

const COMMON_NAME: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.3");
const ORGANISATION: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.10");
const SUBJECT_ALT_NAME: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.17");
const EXTENSIONS: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.9.14");
const RSA: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.1");
const EC: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.2.1");
const ED25519: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.101.112");
/// The curves that have a size here.
const CURVES: [(&str, u32); 3] = [
    ("1.2.840.10045.3.1.7", 256),
    ("1.3.132.0.34", 384),
    ("1.3.132.0.35", 521),
];

/// Who made a request, as the API server wrote it down.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Requester {
    /// Name of the user.
    pub name: String,
    /// Its identifier.
    pub uid: String,
    /// Its groups.
    pub groups: Vec<String>,
    /// What else the authenticator said.
    pub extra: BTreeMap<String, Vec<String>>,
}

/// Whether objects of a kind are such requests.
pub fn is_request(api_version: &str, kind: &str) -> bool {
    (group(api_version), kind) == REQUEST
}

/// Who made a request.
///
/// # Errors
/// The first field of another type.
pub fn requester(object: &Object) -> Result<Requester, InvalidField> {
    let spec = FieldPlace::top(&object.body).map("spec")?;
    let extra = spec.get("extra").entries()?.into_iter().flatten();
    let texts = |(key, _): (&String, _)| {
        let values = spec.get("extra").get(key).each(FieldPlace::required_text)?;
        Ok((key.clone(), values))
    };
    Ok(Requester {
        name: spec.get("username").text()?.unwrap_or_default(),
        uid: spec.get("uid").text()?.unwrap_or_default(),
        groups: spec.get("groups").each(FieldPlace::required_text)?,
        extra: extra.map(texts).collect::<Result<_, _>>()?,
    })
}

/// What a request asks for.
///
/// # Errors
/// The first field of another type. A request that is no PEM or no PKCS #10 is `Malformed`, and no error.
pub fn read(object: &Object) -> Result<CertificateRequest, InvalidField> {
    let Requester { name, groups, .. } = requester(object)?;
    let spec = FieldPlace::top(&object.body).map("spec")?;
    let seconds = spec.get("expirationSeconds");
    let number = |place: &FieldPlace<'_>| {
        let number = place.value().and_then(serde_json::Value::as_u64);
        let number = number.and_then(|number| u32::try_from(number).ok());
        number.ok_or_else(|| place.not("a number of seconds"))
    };
    let text = spec.get("request").required_text()?;
    let content = content(&text).map_or_else(RequestContent::Malformed, RequestContent::Readable);
    Ok(CertificateRequest {
        signer: spec.get("signerName").text()?.unwrap_or_default(),
        requester: name,
        groups,
        usages: spec.get("usages").each(FieldPlace::required_text)?,
        seconds: seconds.value().map(|_| number(&seconds)).transpose()?,
        content,
    })
}

/// Reads the base64 of a PEM file with exactly one block.
fn content(text: &str) -> Result<Requested, String> {
    let malformed = |why: &str| Err(why.to_owned());
    let Ok(bytes) = STANDARD.decode(text) else {
        return malformed("spec.request is not base64");
    };
    let blocks = certificate::blocks(&bytes);
    match blocks.as_deref() {
        Some([Block { label, der, .. }]) if *label == "CERTIFICATE REQUEST" => parse(der),
        Some([_]) => malformed("the PEM block is no CERTIFICATE REQUEST"),
        Some(_) => malformed("it is not exactly one PEM block"),
        None => malformed("it is not PEM"),
    }
}

fn parse(der: &[u8]) -> Result<Requested, String> {
    let request = CertReq::from_der(der).map_err(|_| "it is no PKCS #10 request".to_owned())?;
    let mut requested = Requested::default();
    for part in request.info.subject.iter() {
        let value = part.value.to_der().ok();
        let value = value.as_deref().and_then(text);
        let value = value.ok_or("a part of the subject is not text")?;
        match part.oid {
            COMMON_NAME if requested.common_name.is_some() => {
                return Err("the subject has more than one common name".to_owned());
            }
            COMMON_NAME => requested.common_name = Some(value),
            ORGANISATION => requested.organisations.push(value),
            other => requested.other_subject.push(format!("{other}={value}")),
        }
    }
    for extension in extensions(&request)? {
        if extension.extn_id != SUBJECT_ALT_NAME {
            continue;
        }
        let names = SubjectAltName::from_der(extension.extn_value.as_bytes());
        let names = names.map_err(|_| "its alternative names cannot be read".to_owned())?;
        requested.names.extend(names.0.iter().map(name));
    }
    (requested.key, requested.key_bits) = key(&request.info.public_key);
    Ok(requested)
}

/// The text of a value of the subject.
fn text(der: &[u8]) -> Option<String> {
    let value = AnyRef::from_der(der).ok()?;
    let is_text = matches!(
        value.tag(),
        Tag::Utf8String | Tag::PrintableString | Tag::Ia5String
    );
    let bytes = is_text.then(|| value.value().to_vec())?;
    String::from_utf8(bytes).ok()
}

/// The extensions that are asked for.
fn extensions(request: &CertReq) -> Result<Vec<Extension>, String> {
    let unreadable = || "the extensions that it asks for cannot be read".to_owned();
    let mut all = Vec::new();
    for attribute in request.info.attributes.iter() {
        for value in attribute
            .values
            .iter()
            .filter(|_| attribute.oid == EXTENSIONS)
        {
            let extensions: Vec<Extension> = value.decode_as().map_err(|_| unreadable())?;
            all.extend(extensions);
        }
    }
    Ok(all)
}

/// An alternative name, as `DNS:a.example`, `IP:192.0.2.1`, `URI:…`, `email:…`; `other` for one of another type.
fn name(name: &GeneralName) -> String {
    match name {
        GeneralName::DnsName(name) => format!("DNS:{}", name.as_str()),
        GeneralName::Rfc822Name(name) => format!("email:{}", name.as_str()),
        GeneralName::UniformResourceIdentifier(name) => format!("URI:{}", name.as_str()),
        GeneralName::IpAddress(bytes) => {
            let four = <[u8; 4]>::try_from(bytes.as_bytes()).map(IpAddr::from);
            let sixteen = <[u8; 16]>::try_from(bytes.as_bytes()).map(IpAddr::from);
            four.or(sixteen)
                .map_or_else(|_| "other".to_owned(), |address| format!("IP:{address}"))
        }
        _ => "other".to_owned(),
    }
}

/// Kind and size of a public key; of an unknown one the identifier, and 0.
fn key(public: &SubjectPublicKeyInfoOwned) -> (String, u32) {
    let algorithm = &public.algorithm;
    let parameters = algorithm.parameters.as_ref();
    match algorithm.oid {
        RSA => (
            "RSA".to_owned(),
            modulus(public.subject_public_key.raw_bytes()),
        ),
        EC => {
            let curve = parameters.and_then(|curve| curve.decode_as::<ObjectIdentifier>().ok());
            let curve = curve.map(|curve| curve.to_string());
            let known = CURVES.iter().find(|(id, _)| Some(*id) == curve.as_deref());
            ("ECDSA".to_owned(), known.map_or(0, |(_, bits)| *bits))
        }
        ED25519 => ("Ed25519".to_owned(), 256),
        other => (other.to_string(), 0),
    }
}

/// The size of the modulus of an RSA key.
fn modulus(der: &[u8]) -> u32 {
    let modulus = || {
        let sequence = AnyRef::from_der(der).ok()?;
        let parts = certificate::children(sequence.value())?;
        let bytes = parts.first()?.value();
        let first = bytes.iter().position(|byte| *byte != 0)?;
        let bytes = bytes.get(first..)?;
        let bits = bytes.len().checked_mul(8)?;
        let unused = bytes.first()?.leading_zeros() as usize;
        u32::try_from(bits - unused).ok()
    };
    modulus().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference::ObjectRef;
    use crate::sample::object;
    use serde_json::{Value, json};

    const PLAIN: &str = include_str!("../../tests/requests/plain.pem");
    const NAMES: &str = include_str!("../../tests/requests/names.pem");
    const OF_RSA: &str = include_str!("../../tests/requests/rsa.pem");
    const TWO: &str = include_str!("../../tests/requests/two.pem");

    fn request(spec: Value) -> Object {
        let version = "certificates.k8s.io/v1";
        let reference = ObjectRef::local(version, REQUEST.1, None, "x");
        object(reference, json!({"spec": spec}))
    }

    fn of(pem: &str) -> RequestContent {
        let spec = json!({"request": STANDARD.encode(pem), "signerName": "s"});
        read(&request(spec)).unwrap().content
    }

    fn readable(pem: &str) -> Requested {
        match of(pem) {
            RequestContent::Readable(requested) => requested,
            RequestContent::Malformed(why) => panic!("{why}"),
        }
    }

    #[test]
    fn reads_subject_names_and_key() {
        let cluster = "system:open-cluster-management:c1";
        let plain = readable(PLAIN);
        assert_eq!(plain.common_name, Some(format!("{cluster}:agent")));
        let clusters = "system:open-cluster-management:managed-clusters";
        assert_eq!(plain.organisations, [cluster, clusters]);
        assert_eq!((plain.key.as_str(), plain.key_bits), ("ECDSA", 256));
        assert!(plain.names.is_empty() && plain.other_subject.is_empty());
        let names = [
            "DNS:a.example",
            "IP:192.0.2.1",
            "URI:spiffe://x",
            "email:a@b.c",
        ];
        assert_eq!(readable(NAMES).names, names);
        let rsa = readable(OF_RSA);
        assert_eq!((rsa.key.as_str(), rsa.key_bits), ("RSA", 2048));
        assert_eq!(rsa.other_subject, ["2.5.4.11=x"]);
    }

    #[test]
    fn a_malformed_request_is_told_and_no_error() {
        let other = PLAIN.replace("CERTIFICATE REQUEST", "CERTIFICATE");
        let twice = [PLAIN, PLAIN].concat();
        let broken = PLAIN.replacen("MIIB", "AAAA", 1);
        for pem in [TWO, "", "x", &other, &twice, &broken] {
            assert!(matches!(of(pem), RequestContent::Malformed(_)), "{pem}");
        }
        let spec = json!({"request": "!"});
        let content = read(&request(spec)).unwrap().content;
        assert!(matches!(content, RequestContent::Malformed(_)));
    }

    #[test]
    fn names_fields_of_another_type() {
        for (spec, path) in [
            (json!({}), "spec.request"),
            (json!({"request": "", "usages": "x"}), "spec.usages"),
            (json!({"request": "", "groups": [1]}), "spec.groups[0]"),
            (json!({"request": "", "extra": {"a": "b"}}), "spec.extra.a"),
            (
                json!({"request": "", "expirationSeconds": -1}),
                "spec.expirationSeconds",
            ),
        ] {
            let invalid = read(&request(spec)).map(drop).unwrap_err();
            assert_eq!(invalid.path, path);
        }
    }

    #[test]
    fn says_who_made_the_request() {
        let spec = json!({"username": "u", "uid": "1", "groups": ["g"], "extra": {"a": ["b"]}});
        let requester = requester(&request(spec)).unwrap();
        assert_eq!(
            (requester.name.as_str(), requester.uid.as_str()),
            ("u", "1")
        );
        assert_eq!(
            requester.extra,
            BTreeMap::from([("a".to_owned(), vec!["b".to_owned()])])
        );
    }
}
