//! The bytes of Secrets among the inputs, by reference, and what certificates in Secrets say. Errors name the Secret
//! and a path, never the content.

use super::Found;
use crate::contract::decide::Form;
use crate::contract::secrets::{
    Certificate, CertificateContent, CertificateKeys, PrivateKey, SecretBytes,
};
use crate::failure::Failure;
use crate::kubeconfig::certificate::{self, Pair, PublicKey};
use crate::object::Object;
use crate::projection::path;
use crate::reference::ObjectRef;
use std::fmt;
use transom_api::KnownReason;
use x509_cert::der::Decode as _;

/// The bytes under one key of a Secret.
pub struct HeldSecret {
    /// The role under which they were asked for.
    pub role: String,
    /// The Secret.
    pub secret: ObjectRef,
    /// The key.
    pub key: String,
    /// The bytes.
    pub bytes: Vec<u8>,
}

impl fmt::Debug for HeldSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (secret, size) = (&self.secret, self.bytes.len());
        let path = path::of(&["data", &self.key]);
        write!(f, "Held({secret}: `{path}`, {size} bytes)")
    }
}

/// The bytes that an answer may refer to; a reference is a place in the list.
#[derive(Debug, Default)]
pub struct Secrets {
    held: Vec<HeldSecret>,
}

impl Secrets {
    /// An upper bound of the bytes that it takes to hold what was found, and to write it.
    pub fn cost(found: &[Found]) -> usize {
        let size = |found: &Found, key: &String| {
            let text = found.object.as_ref().and_then(|object| object.data(key));
            text.and_then(|text| text.as_str()).map_or(0, str::len)
        };
        let sizes = found.iter().map(|found| match &found.need.form {
            Form::Secret(keys) => keys.iter().map(|key| size(found, key)).sum(),
            Form::Certificate(keys) => keys.all().map(|key| size(found, key)).sum::<usize>(),
            _ => 0,
        });
        sizes.sum::<usize>().saturating_mul(2)
    }

    /// Holds the bytes under some keys of a Secret, and returns what a guest may see of them.
    ///
    /// # Errors
    /// `InvalidBase64`.
    pub fn hold(
        &mut self,
        role: &str,
        object: &Object,
        keys: &[String],
    ) -> Result<Vec<SecretBytes>, Failure> {
        let mut seen = Vec::new();
        for key in keys {
            let Some(bytes) = bytes(object, key)? else {
                continue;
            };
            let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
            seen.push(SecretBytes {
                key: key.clone(),
                reference: count(self.held.len()),
                size: count(bytes.len()),
            });
            self.held.push(HeldSecret {
                role: role.to_owned(),
                secret: object.reference.clone(),
                key: key.clone(),
                bytes,
            });
        }
        Ok(seen)
    }

    /// What a reference stands for.
    pub fn get(&self, reference: u32) -> Option<&HeldSecret> {
        self.held.get(usize::try_from(reference).ok()?)
    }
}

/// The bytes under a key; `None` when it is not there.
fn bytes(object: &Object, key: &str) -> Result<Option<Vec<u8>>, Failure> {
    let there = object.data(key).filter(|value| !value.is_null());
    let decoded = there.map(|_| object.secret_bytes(key));
    match decoded {
        Some(None) => {
            let secret = &object.reference;
            let path = path::of(&["data", key]);
            let message = format!("{secret}: `{path}` is not base64");
            Err(Failure::known(KnownReason::InvalidBase64, message).about([secret.clone()]))
        }
        decoded => Ok(decoded.flatten()),
    }
}

/// What the first certificate under a key of a Secret says.
///
/// # Errors
/// `InvalidBase64`. A key without a certificate is `Malformed`, and no error.
pub fn certificate(object: &Object, keys: &CertificateKeys) -> Result<CertificateContent, Failure> {
    let key = &keys.certificate;
    let Some(content) = bytes(object, key)? else {
        let why = format!("there is no key `{key}`");
        return Ok(CertificateContent::Malformed(why));
    };
    let (mut certificate, public) = match first(&content) {
        Ok(read) => read,
        Err(why) => return Ok(CertificateContent::Malformed(why.to_owned())),
    };
    if let Some(key) = &keys.private_key {
        certificate.private_key = match bytes(object, key)? {
            None => PrivateKey::Missing,
            Some(content) => belongs(&content, &public),
        };
    }
    Ok(CertificateContent::Readable(certificate))
}

fn first(content: &[u8]) -> Result<(Certificate, PublicKey), &'static str> {
    let blocks = certificate::readable(content);
    let mut blocks = blocks.iter();
    let block = blocks.find(|block| block.label == "CERTIFICATE");
    let block = block.ok_or("no PEM block in it is a CERTIFICATE")?;
    let broken = "its first certificate is not X.509";
    let (facts, public) = certificate::read(&block.der).ok_or(broken)?;
    let parsed = x509_cert::Certificate::from_der(&block.der).map_err(|_| broken)?;
    let content = parsed.tbs_certificate();
    let certificate = Certificate {
        subject: content.subject().to_string(),
        issuer: content.issuer().to_string(),
        starts_seconds: facts.starts_seconds,
        ends_seconds: facts.ends_seconds,
        fingerprint: facts.fingerprint,
        private_key: PrivateKey::NotAsked,
    };
    Ok((certificate, public))
}

/// Whether the first private key in PEM is that of a certificate.
fn belongs(content: &[u8], public: &PublicKey) -> PrivateKey {
    let blocks = certificate::readable(content);
    let key = blocks
        .iter()
        .find(|block| block.label.ends_with("PRIVATE KEY"));
    match key.and_then(|key| certificate::compare(key, public)) {
        Some(Pair::Matches) => PrivateKey::Belongs,
        Some(Pair::Untold) => PrivateKey::Untold,
        Some(Pair::Differs) | None => PrivateKey::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::object;
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use serde_json::{Map, Value, json};

    const RSA: &str = include_str!("../../tests/kubeconfig/given/rsa.pem");
    const RSA_KEY: &str = include_str!("../../tests/kubeconfig/given/rsa-pkcs1.key");
    const EC: &str = include_str!("../../tests/kubeconfig/given/ec.pem");
    const EC_KEY: &str = include_str!("../../tests/kubeconfig/given/ec-pkcs8.key");
    const CA: &str = include_str!("../../tests/kubeconfig/given/ca.pem");

    fn secret(data: &[(&str, &str)]) -> Object {
        let data = data.iter();
        let data: Map<String, Value> = data
            .map(|(key, text)| ((*key).to_owned(), json!(STANDARD.encode(text))))
            .collect();
        let reference = ObjectRef::local("v1", "Secret", Some("n"), "s");
        object(reference, json!({"data": data}))
    }

    #[test]
    fn what_crosses_of_bytes_is_a_number_and_a_size() {
        let mut secrets = Secrets::default();
        let object = secret(&[("a", "canary"), ("b", "")]);
        let keys = ["b", "c", "a"].map(str::to_owned);
        let seen = secrets.hold("one", &object, &keys).unwrap();
        let again = secrets.hold("two", &object, &keys[2..]).unwrap();
        let told: Vec<_> = seen
            .iter()
            .chain(&again)
            .map(|bytes| (bytes.key.as_str(), bytes.reference, bytes.size))
            .collect();
        assert_eq!(told, [("b", 0, 0), ("a", 1, 6), ("a", 2, 6)]);
        let held = secrets.get(2).unwrap();
        assert_eq!(
            (held.role.as_str(), held.bytes.as_slice()),
            ("two", &b"canary"[..])
        );
        assert!(secrets.get(3).is_none());
        assert_eq!(format!("{held:?}"), "Held(Secret n/s: `data.a`, 6 bytes)");
        // A number of a call does not count.
        assert_eq!(json!(seen[1]), json!(again[0]));
        let mut broken = object;
        broken.body["data"]["a"] = json!("canary!");
        let failure = secrets.hold("one", &broken, &keys).unwrap_err();
        assert_eq!(failure.reason.as_str(), "InvalidBase64");
        assert!(!failure.message.contains("canary"), "{failure}");
    }

    #[test]
    fn a_certificate_is_told_with_its_key() {
        let says = |data: &[(&str, &str)], key: Option<&str>| {
            let keys = CertificateKeys {
                certificate: "tls.crt".to_owned(),
                private_key: key.map(str::to_owned),
            };
            certificate(&secret(data), &keys).unwrap()
        };
        let chain = format!("a comment\n{RSA}{CA}");
        let read = says(&[("tls.crt", &chain)], None);
        let CertificateContent::Readable(read) = read else {
            panic!("{read:?}");
        };
        let expected = Certificate {
            subject: "CN=system:admin,O=system:masters".to_owned(),
            issuer: "CN=root-ca,O=openshift".to_owned(),
            starts_seconds: 1_767_225_600,
            ends_seconds: 2_082_585_600,
            fingerprint: read.fingerprint.clone(),
            private_key: PrivateKey::NotAsked,
        };
        assert_eq!(read, expected);
        assert!(read.fingerprint.starts_with("e63a71a0") && read.fingerprint.len() == 64);
        for (certificate, key, told) in [
            (RSA, RSA_KEY, PrivateKey::Belongs),
            (EC, EC_KEY, PrivateKey::Belongs),
            (EC, RSA_KEY, PrivateKey::Other),
            (RSA, "canary", PrivateKey::Other),
            (RSA, "", PrivateKey::Other),
        ] {
            let read = says(
                &[("tls.crt", certificate), ("tls.key", key)],
                Some("tls.key"),
            );
            match read {
                CertificateContent::Readable(read) => assert_eq!(read.private_key, told),
                CertificateContent::Malformed(why) => panic!("{why}"),
            }
        }
        match says(&[("tls.crt", RSA)], Some("tls.key")) {
            CertificateContent::Readable(read) => assert_eq!(read.private_key, PrivateKey::Missing),
            CertificateContent::Malformed(why) => panic!("{why}"),
        }
        for content in [
            "canary",
            RSA_KEY,
            "",
            "-----BEGIN CERTIFICATE-----\ncanary\n-----END CERTIFICATE-----\n",
        ] {
            match says(&[("tls.crt", content)], None) {
                CertificateContent::Malformed(why) => assert!(!why.contains("canary"), "{why}"),
                CertificateContent::Readable(read) => panic!("{read:?}"),
            }
        }
    }
}
