//! Key pairs of cosign, and signatures of what lies in a registry, without any public service: no certificate, no
//! transparency log.

use crate::registry::{Registry, run};
use anyhow::{Context as _, Result};
use std::fs;
use std::path::PathBuf;

/// How a signature is stored beside what is signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// As version 3 of cosign stores it: a Sigstore bundle that refers to the signed manifest.
    Bundle,
    /// As older versions did: a manifest with the tag `sha256-<digest>.sig`.
    Tag,
}

/// A key pair without a password.
#[derive(Clone, Debug)]
pub struct Keys {
    prefix: PathBuf,
}

impl Keys {
    /// Generates a pair as `<name>.key` and `<name>.pub` in the folder of a registry.
    ///
    /// # Errors
    /// When cosign cannot.
    pub fn generate(registry: &Registry, name: &str) -> Result<Self> {
        let prefix = registry.folder().join(name);
        let mut generate = registry.client("cosign", &["generate-key-pair"])?;
        generate.arg("--output-key-prefix").arg(&prefix);
        run(generate)?;
        Ok(Self { prefix })
    }

    /// The file of the public key.
    pub fn public_file(&self) -> PathBuf {
        self.prefix.with_extension("pub")
    }

    /// The public key, PEM.
    ///
    /// # Errors
    /// When its file cannot be read.
    pub fn public(&self) -> Result<String> {
        let path = self.public_file();
        fs::read_to_string(&path).with_context(|| format!("failed to read `{}`", path.display()))
    }

    /// Signs `<repository>@<digest>` in a registry.
    ///
    /// # Errors
    /// When cosign cannot.
    pub fn sign(&self, registry: &Registry, name: &str, form: Form) -> Result<()> {
        let key = self.prefix.with_extension("key").display().to_string();
        let words = ["sign", "--yes", "--key", &key, form.flag()];
        let offline = ["--use-signing-config=false", "--tlog-upload=false"];
        registry.cosign(&[&words[..], &offline, &[&registry.place(name)]].concat())?;
        Ok(())
    }

    /// Attests something about `<repository>@<digest>`: a statement of the same key that is no signature.
    ///
    /// # Errors
    /// When cosign cannot.
    pub fn attest(&self, registry: &Registry, name: &str) -> Result<()> {
        let key = self.prefix.with_extension("key").display().to_string();
        let predicate = registry.folder().join("predicate.json");
        fs::write(&predicate, "{}").context("failed to write a predicate")?;
        let predicate = predicate.display().to_string();
        let words = ["attest", "--yes", "--key", &key, "--predicate", &predicate];
        let offline = ["--use-signing-config=false", "--tlog-upload=false"];
        registry.cosign(&[&words[..], &offline, &[&registry.place(name)]].concat())?;
        Ok(())
    }

    /// Lets cosign verify `<repository>@<digest>`; returns what it prints, which is JSON.
    ///
    /// # Errors
    /// When it finds no signature by this key in this form.
    pub fn verify(&self, registry: &Registry, name: &str, form: Form) -> Result<String> {
        let key = self.public_file().display().to_string();
        let words = ["verify", "--key", &key, form.flag()];
        let offline = ["--insecure-ignore-tlog=true"];
        registry.cosign(&[&words[..], &offline, &[&registry.place(name)]].concat())
    }
}

impl Form {
    fn flag(self) -> &'static str {
        match self {
            Self::Bundle => "--new-bundle-format=true",
            Self::Tag => "--new-bundle-format=false",
        }
    }
}
