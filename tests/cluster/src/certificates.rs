//! The certificates of one cluster, its users, and their kubeconfigs. Shows no credential.

use anyhow::{Context as _, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose, SanType,
};
use serde_json::{Value, json};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr};

/// The names of the server.
const NAMES: [&str; 3] = ["localhost", "kubernetes.default", "kubernetes.default.svc"];

/// The CA that server and users trust.
pub(crate) struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate and its key, each a PEM document.
pub struct Pair {
    /// The certificate.
    pub certificate: String,
    /// Its key, PKCS#8.
    pub key: String,
}

impl fmt::Debug for Pair {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Pair(..)")
    }
}

impl Authority {
    /// Generates a new CA.
    pub(crate) fn new() -> Result<Self> {
        let mut params = CertificateParams::default();
        params
            .distinguished_name
            .push(DnType::CommonName, "transom-test-cluster");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![
            KeyUsagePurpose::DigitalSignature,
            KeyUsagePurpose::KeyCertSign,
        ];
        let issuer = CertifiedIssuer::self_signed(params, key()?)
            .context("failed to make a certificate authority")?;
        Ok(Self(issuer))
    }

    /// Its certificate.
    pub(crate) fn pem(&self) -> String {
        self.0.pem()
    }

    /// Its key, PKCS#8.
    pub(crate) fn key_pem(&self) -> String {
        self.0.key().serialize_pem()
    }

    /// A certificate for a server on loopback, which has these names, too.
    pub(crate) fn server(&self, more: &[String]) -> Result<Pair> {
        let names = NAMES.map(str::to_owned).into_iter();
        let names: Vec<String> = names.chain(more.iter().cloned()).collect();
        let mut params =
            CertificateParams::new(names).context("failed to name the server's certificate")?;
        params
            .distinguished_name
            .push(DnType::CommonName, "localhost");
        params
            .subject_alt_names
            .push(SanType::IpAddress(IpAddr::V4(Ipv4Addr::LOCALHOST)));
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.sign(params)
    }

    /// A certificate for a user in groups.
    pub(crate) fn client(&self, user: &str, groups: &[&str]) -> Result<Pair> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, user);
        for group in groups {
            params
                .distinguished_name
                .push(DnType::OrganizationName, *group);
        }
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(params)
    }

    fn sign(&self, mut params: CertificateParams) -> Result<Pair> {
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        let key = key()?;
        let certificate = params
            .signed_by(&key, &self.0)
            .context("failed to sign a certificate")?;
        Ok(Pair {
            certificate: certificate.pem(),
            key: key.serialize_pem(),
        })
    }
}

/// A key for tokens of service accounts: the private one and the public one.
pub(crate) fn signing_key() -> Result<(String, String)> {
    let key = key()?;
    Ok((key.serialize_pem(), key.public_key_pem()))
}

fn key() -> Result<KeyPair> {
    KeyPair::generate().context("failed to generate a key")
}

/// A user of one cluster; cluster-admin only if created as such.
#[derive(Clone)]
pub struct User {
    name: String,
    credential: Value,
}

impl User {
    /// By certificate.
    pub(crate) fn with_certificate(name: &str, pair: &Pair) -> Self {
        let [certificate, key] = [&pair.certificate, &pair.key].map(|pem| STANDARD.encode(pem));
        let credential = json!({"client-certificate-data": certificate, "client-key-data": key});
        Self {
            name: name.to_owned(),
            credential,
        }
    }

    /// By token.
    pub(crate) fn with_token(name: &str, token: &str) -> Self {
        Self {
            name: name.to_owned(),
            credential: json!({"token": token}),
        }
    }

    /// Without a credential.
    pub(crate) fn nobody() -> Self {
        Self {
            name: "nobody".to_owned(),
            credential: json!({}),
        }
    }

    /// Its name in RBAC and the audit log, `system:serviceaccount:<namespace>:<name>` for a service account.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its token, so that a test can search for leaks; none for a user with a certificate.
    pub fn token(&self) -> Option<&str> {
        self.credential["token"].as_str()
    }

    /// A kubeconfig as YAML, for a server with this CA.
    pub(crate) fn kubeconfig(&self, server: &str, authority: &str) -> Result<String> {
        let cluster =
            json!({"server": server, "certificate-authority-data": STANDARD.encode(authority)});
        let document = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "test",
            "clusters": [{"name": "test", "cluster": cluster}],
            "users": [{"name": self.name, "user": self.credential}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": self.name}}],
        });
        serde_yaml::to_string(&document).context("failed to write a kubeconfig")
    }
}

impl fmt::Debug for User {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "User({})", self.name)
    }
}

/// A client without retries: a test counts exactly its own requests.
pub(crate) async fn client(kubeconfig: &str) -> Result<Client> {
    let read =
        Kubeconfig::from_yaml(kubeconfig).context("failed to read a kubeconfig of our own")?;
    let config = Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await;
    let mut config = config.context("failed to use a kubeconfig of our own")?;
    config.default_retry = false;
    Client::try_from(config).context("failed to make a client of a kubeconfig of our own")
}
