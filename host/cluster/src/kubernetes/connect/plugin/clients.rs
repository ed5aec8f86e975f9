//! The clients for the credentials that a plugin gives.

use super::{PemPair, PluginCredential};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube::Config;
use kube::client::Client;
use std::sync::Mutex;
use transom_core::share::lock::MutexExt as _;

/// The clients of one connection.
pub(super) struct Clients {
    config: Config,
    plain: Client,
    /// The client for the certificate that the plugin gave last.
    certified: Mutex<Option<(PemPair, Client)>>,
}

impl Clients {
    /// With the client for credentials without a certificate.
    pub(super) fn new(config: Config, plain: Client) -> Self {
        Self {
            config,
            plain,
            certified: Mutex::default(),
        }
    }

    /// The client for a credential.
    pub(super) fn of(&self, said: &PluginCredential) -> Result<Client, kube::Error> {
        let Some(pair) = &said.certificate else {
            return Ok(self.plain.clone());
        };
        let mut certified = self.certified.locked();
        if let Some((_, client)) = certified.as_ref().filter(|(of, _)| of == pair) {
            return Ok(client.clone());
        }
        let mut config = self.config.clone();
        config.auth_info.client_certificate_data = Some(STANDARD.encode(&pair.0));
        config.auth_info.client_key_data = Some(STANDARD.encode(&pair.1).into());
        let client = Client::try_from(config)?;
        *certified = Some((pair.clone(), client.clone()));
        Ok(client)
    }
}
