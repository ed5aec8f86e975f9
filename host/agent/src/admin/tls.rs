//! TLS with a certificate and a key from files, which are read again when they change. No error quotes the key.

use anyhow::Context as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::SystemTime;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tracing::{info, warn};
use transom_core::share::lock::MutexExt as _;

/// Size and modification time of both files; `None` for a file that cannot be read.
type Versions = [Option<(u64, SystemTime)>; 2];

/// A certificate that is read again when its files change.
pub(super) struct Tls {
    certificate: PathBuf,
    key: PathBuf,
    held: Mutex<(Versions, TlsAcceptor)>,
}

impl Tls {
    /// Reads both files.
    ///
    /// # Errors
    /// When one cannot be read, or they do not belong together.
    pub(super) fn open(certificate: PathBuf, key: PathBuf) -> anyhow::Result<Self> {
        let fingerprints = [fingerprint(&certificate), fingerprint(&key)];
        let acceptor = read(&certificate, &key)?;
        Ok(Self {
            certificate,
            key,
            held: Mutex::new((fingerprints, acceptor)),
        })
    }

    /// The acceptor for the next connection. Reads files that changed first; while they cannot be used, the earlier
    /// ones stay in use.
    pub(super) fn acceptor(&self) -> TlsAcceptor {
        let mut held = self.held.locked();
        let fingerprints = [fingerprint(&self.certificate), fingerprint(&self.key)];
        if fingerprints != held.0 {
            // Logged once for each change, not for each connection.
            held.0 = fingerprints;
            match read(&self.certificate, &self.key) {
                Ok(acceptor) => {
                    info!("reloaded the certificate of the admin server");
                    held.1 = acceptor;
                }
                Err(error) => {
                    warn!("the previous certificate of the admin server stays active: {error:#}");
                }
            }
        }
        held.1.clone()
    }
}

fn fingerprint(path: &Path) -> Option<(u64, SystemTime)> {
    let about = std::fs::metadata(path).ok()?;
    Some((about.len(), about.modified().ok()?))
}

fn read(certificate: &Path, key: &Path) -> anyhow::Result<TlsAcceptor> {
    // The parser's error could quote a line of the key, so only the file is named.
    let chain: Option<Vec<_>> = CertificateDer::pem_file_iter(certificate)
        .ok()
        .and_then(|all| all.collect::<Result<_, _>>().ok());
    let chain = chain.filter(|chain| !chain.is_empty());
    let chain = chain.with_context(|| {
        format!(
            "failed to read --admin-tls-cert `{}`: not a file with PEM certificates",
            certificate.display()
        )
    })?;
    let private = PrivateKeyDer::from_pem_file(key).ok();
    let private = private.with_context(|| {
        format!(
            "failed to read --admin-tls-key `{}`: not a file with a PEM private key",
            key.display()
        )
    })?;
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .context("failed to set up TLS")?
        .with_no_client_auth()
        .with_single_cert(chain, private)
        .ok()
        .context(
            "failed to use --admin-tls-cert with --admin-tls-key: they do not match, or their type is not supported",
        )?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, KeyPair};
    use std::fs;
    use tokio_rustls::TlsConnector;
    use tokio_rustls::rustls::{ClientConfig, RootCertStore};

    /// A certificate for `localhost` and its key, as PEM.
    fn pair() -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        (params.self_signed(&key).unwrap().pem(), key.serialize_pem())
    }

    /// Whether a client that trusts only this certificate gets through.
    async fn meets(tls: &Tls, trusted: &str) -> bool {
        let mut roots = RootCertStore::empty();
        roots
            .add(CertificateDer::from_pem_slice(trusted.as_bytes()).unwrap())
            .unwrap();
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let (near, far) = tokio::io::duplex(1 << 16);
        let name = "localhost".try_into().unwrap();
        let (connector, acceptor) = (TlsConnector::from(Arc::new(config)), tls.acceptor());
        let (client, _server) = tokio::join!(connector.connect(name, near), acceptor.accept(far));
        client.is_ok()
    }

    #[tokio::test]
    async fn reloads_a_changed_certificate_and_keeps_the_old_one_if_broken() {
        let folder = tempfile::tempdir().unwrap();
        let (certificate, key) = (folder.path().join("tls.crt"), folder.path().join("tls.key"));
        let put = |(first, second): (&str, &str)| {
            fs::write(&certificate, first).unwrap();
            fs::write(&key, second).unwrap();
        };
        let (first, second) = (pair(), pair());
        put((&first.0, &first.1));
        let tls = Tls::open(certificate.clone(), key.clone()).unwrap();
        assert!(meets(&tls, &first.0).await && !meets(&tls, &second.0).await);
        put((&first.0, "no key at all"));
        assert!(
            meets(&tls, &first.0).await,
            "the previous certificate stays active"
        );
        put((&second.0, &second.1));
        assert!(meets(&tls, &second.0).await && !meets(&tls, &first.0).await);
    }

    #[test]
    fn names_an_unusable_file_without_showing_its_content() {
        let folder = tempfile::tempdir().unwrap();
        let (certificate, key) = (folder.path().join("tls.crt"), folder.path().join("tls.key"));
        let (first, second) = (pair(), pair());
        for (one, other, said) in [
            (&*first.0, &*second.1, "do not match"),
            ("", &*first.1, "--admin-tls-cert"),
            (
                &*first.0,
                "-----BEGIN PRIVATE KEY-----\ncanary\n-----END PRIVATE KEY-----\n",
                "--admin-tls-key",
            ),
        ] {
            fs::write(&certificate, one).unwrap();
            fs::write(&key, other).unwrap();
            let error = format!(
                "{:#}",
                Tls::open(certificate.clone(), key.clone()).err().unwrap()
            );
            assert!(error.contains(said) && !error.contains("canary"), "{error}");
        }
    }
}
