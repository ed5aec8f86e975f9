//! A user of the cluster and its kubeconfig. Shows no credential.

use crate::certificates::Pair;
use anyhow::{Context as _, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::{Value, json};
use std::fmt;

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
