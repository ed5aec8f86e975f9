//! Converts what a guest sees of Secrets: references and sizes of values, and certificates.

use super::generated::transom::policy::secrets as wit;
use crate::measure::{Lift, Lower};
use transom_core::contract::secrets::{
    CertificateContent, CertificateKeys, PrivateKey, SecretBytes,
};

impl Lower {
    pub(in crate::bindings) fn secret_bytes(&mut self, bytes: &SecretBytes) -> wit::SecretBytes {
        wit::SecretBytes {
            key: self.text(&bytes.key),
            reference: bytes.reference,
            size: bytes.size,
        }
    }

    pub(in crate::bindings) fn certificate(
        &mut self,
        content: &CertificateContent,
    ) -> wit::CertificateContent {
        match content {
            CertificateContent::Malformed(why) => {
                wit::CertificateContent::Malformed(self.text(why))
            }
            CertificateContent::Readable(certificate) => {
                wit::CertificateContent::Readable(wit::Certificate {
                    subject: self.text(&certificate.subject),
                    issuer: self.text(&certificate.issuer),
                    starts_seconds: certificate.starts_seconds,
                    ends_seconds: certificate.ends_seconds,
                    fingerprint: self.text(&certificate.fingerprint),
                    private_key: match certificate.private_key {
                        PrivateKey::NotAsked => wit::PrivateKey::NotAsked,
                        PrivateKey::Missing => wit::PrivateKey::Missing,
                        PrivateKey::Belongs => wit::PrivateKey::Belongs,
                        PrivateKey::Other => wit::PrivateKey::Other,
                        PrivateKey::Untold => wit::PrivateKey::Untold,
                    },
                })
            }
        }
    }
}

impl Lift<'_> {
    pub(in crate::bindings) fn certificate_keys(
        &mut self,
        keys: wit::CertificateKeys,
    ) -> CertificateKeys {
        CertificateKeys {
            certificate: self.text(keys.certificate),
            private_key: self.maybe(keys.private_key),
        }
    }
}
