//! Secrets with kubeconfigs, read as a client would read them. Shows only the server and the ownership labels.

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_yaml::Value;
use std::ffi::OsStr;
use std::path::Path;
use std::{fmt, fs};

/// A kubeconfig, with the ownership labels of its secret.
#[derive(Clone, PartialEq)]
pub struct Secret {
    /// The component that created it; empty if there is none.
    pub component: String,
    /// The server of its first cluster.
    pub server: String,
    /// The whole document without the server.
    rest: Value,
}

impl fmt::Debug for Secret {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Secret")
            .field("component", &self.component)
            .field("server", &self.server)
            .finish()
    }
}

impl Secret {
    /// The one Secret with a kubeconfig among the documents of a file.
    ///
    /// # Errors
    /// When there is none, or any part of it is invalid.
    pub fn read(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path)
            .with_context(|| format!("failed to read `{}`", path.display()))?;
        Self::parse(&text).with_context(|| format!("failed to use `{}`", path.display()))
    }

    /// The one Secret with a kubeconfig among the documents of a text.
    ///
    /// # Errors
    /// When there is none, or any part of it is invalid.
    pub fn parse(text: &str) -> Result<Self> {
        let mut documents = text
            .split("\n---\n")
            .filter(|document| document.contains("kind: Secret"));
        let document = documents.next().context("there is no Secret")?;
        // Parser errors may quote the input.
        let secret: Value = serde_yaml::from_str(document)
            .ok()
            .context("the Secret is not YAML")?;
        let encoded = secret["data"]["kubeconfig"]
            .as_str()
            .context("the Secret has no kubeconfig")?;
        let bytes = STANDARD
            .decode(encoded)
            .ok()
            .context("the kubeconfig is not base64")?;
        let mut rest: Value = serde_yaml::from_slice(&bytes)
            .ok()
            .context("the kubeconfig is not YAML")?;
        let server = rest["clusters"][0]["cluster"]["server"]
            .as_str()
            .context("it names no server")?
            .to_owned();
        let key = &rest["users"][0]["user"]["client-key-data"];
        ensure!(
            key.as_str().is_some_and(|key| STANDARD.decode(key).is_ok()),
            "it holds no whole key"
        );
        rest["clusters"][0]["cluster"]["server"] = Value::Null;
        let component = secret["metadata"]["annotations"]["transom.dev/component"]
            .as_str()
            .unwrap_or_default();
        Ok(Self {
            component: component.to_owned(),
            server,
            rest,
        })
    }

    /// Whether everything except the server is equal.
    pub fn carries(&self, source: &Self) -> bool {
        self.rest == source.rest
    }
}

/// Whether a file of the agent's own objects is a Secret, and not a revision of a policy.
pub fn is_secret(path: &Path) -> bool {
    let name = path.file_name().and_then(OsStr::to_str);
    name.is_some_and(|name| name.starts_with("Secret."))
}
