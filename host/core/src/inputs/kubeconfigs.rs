//! The kubeconfigs among the inputs of one reconcile. Failures name the Secret and a path, never the content.

use super::Found;
use crate::contract::credentials::SourceView;
use crate::contract::decide::Form;
use crate::failure::Failure;
use crate::kubeconfig::{COST, KubeconfigError, KubeconfigLimits, SourceKubeconfig};
use crate::object::Object;
use crate::projection::path;
use crate::reference::ObjectRef;
use transom_api::KnownReason;

/// One kubeconfig that was read.
#[derive(Debug)]
pub struct ReadKubeconfig {
    /// The role under which it was asked for.
    pub role: String,
    /// The Secret.
    secret: ObjectRef,
    /// Its parsed content.
    pub kubeconfig: SourceKubeconfig,
}

/// The kubeconfigs, and the limits of one.
#[derive(Debug)]
pub struct Kubeconfigs {
    read: Vec<ReadKubeconfig>,
    limits: KubeconfigLimits,
}

impl Kubeconfigs {
    /// No kubeconfig yet.
    pub fn new(limits: KubeconfigLimits) -> Self {
        Self {
            read: Vec::new(),
            limits,
        }
    }

    /// An upper bound of the bytes that it takes to read the kubeconfigs that were found, and to assemble one.
    pub fn cost(&self, found: &[Found]) -> usize {
        let text = |found: &Found| match &found.need.form {
            Form::Kubeconfig(key) => found.object.as_ref()?.data(key)?.as_str().map(str::len),
            _ => None,
        };
        let most = self.limits.bytes.saturating_mul(2);
        found
            .iter()
            .filter_map(text)
            .map(|bytes| bytes.min(most))
            .sum::<usize>()
            .saturating_mul(COST)
    }

    /// The limits of one kubeconfig.
    pub fn limits(&self) -> KubeconfigLimits {
        self.limits
    }

    /// Reads the kubeconfig under a key of a Secret, and returns what a guest may see of it.
    pub fn read(
        &mut self,
        found: &Found,
        object: &Object,
        key: &str,
    ) -> Result<SourceView, Failure> {
        let secret = &object.reference;
        let failed = |word, message: String| Failure::known(word, message).about([secret.clone()]);
        if object.data(key).is_none() {
            return Err(failed(
                KnownReason::KubeconfigMissing,
                format!("{secret} has no key `{key}`"),
            ));
        }
        let path = path::of(&["data", key]);
        let Some(bytes) = object.secret_bytes(key) else {
            return Err(failed(
                KnownReason::InvalidBase64,
                format!("{secret}: `{path}` is not base64"),
            ));
        };
        let kubeconfig = SourceKubeconfig::parse(&bytes, &self.limits)
            .map_err(|error| failed(error.reason, format!("{secret}: `{path}`: {error}")))?;
        let view = kubeconfig.view();
        self.read.push(ReadKubeconfig {
            role: found.need.role.clone(),
            secret: secret.clone(),
            kubeconfig,
        });
        Ok(view)
    }

    /// The only kubeconfig of a role; none if there are several.
    pub fn of(&self, role: &str) -> Option<&ReadKubeconfig> {
        let mut all = self.read.iter().filter(|one| one.role == role);
        all.next().filter(|_| all.next().is_none())
    }

    /// The only kubeconfig; the guest's answer refers to its entries by number.
    pub fn only(&self) -> Result<&ReadKubeconfig, Failure> {
        match self.read.as_slice() {
            [one] => Ok(one),
            _ => Err(Failure::known(
                KnownReason::ContractBroken,
                "the guest answered `transform` without having required exactly one kubeconfig",
            )),
        }
    }
}

impl ReadKubeconfig {
    /// The failure for an error of assembly. It is about the Secret, or about what the guest proposed.
    pub fn failure(&self, error: &KubeconfigError) -> Failure {
        match error.proposed {
            true => Failure::known(error.reason, error.to_string()),
            false => Failure::known(error.reason, format!("{}: {error}", self.secret))
                .about([self.secret.clone()]),
        }
    }
}
