//! The settings of the guest `kubeconfig`.
//! The defaults are the safe choices; the policy must also grant what goes beyond them.

use serde::Deserialize;
use transom_guest::Problem;
use transom_guest::naming::is_label;
pub use transom_guest::naming::{Naming, Precedence};

/// All settings.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Settings {
    /// DNS domain of the cluster; `cluster.local` when absent, empty for addresses that end in `.svc`.
    pub cluster_domain: Option<String>,
    /// The port of the Service.
    pub port: Port,
    /// The name of the managed cluster.
    pub naming: Naming,
    /// The cluster entry to rewire.
    pub entry: Entry,
    /// What to do about a source without a CA, whose server a client could not verify.
    pub missing_authority: Permission,
    /// What to do about `insecure-skip-tls-verify`.
    pub insecure: Insecure,
    /// What to do about `proxy-url`.
    pub proxy: Keep,
    /// What to do about `tls-server-name`.
    pub tls_server_name: Keep,
    /// What to do about credentials that run a program.
    pub exec: Permission,
    /// What to do about credentials of a legacy auth provider.
    pub auth_provider: Permission,
    /// What to do about credentials that lie in files.
    pub file: Permission,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            cluster_domain: None,
            port: Port::default(),
            naming: Naming::default(),
            entry: Entry::CurrentContext,
            missing_authority: Permission::Refuse,
            insecure: Insecure::Drop,
            proxy: Keep::Drop,
            tls_server_name: Keep::Keep,
            exec: Permission::Refuse,
            auth_provider: Permission::Refuse,
            file: Permission::Refuse,
        }
    }
}

/// The port of the Service.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Port {
    /// The port of this name and no other.
    pub name: Option<String>,
    /// How to find the port without a name.
    pub choice: PortChoice,
}

/// How to find the port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum PortChoice {
    /// By name, protocol and target; refuses the source if the port is ambiguous.
    #[default]
    Detect,
    /// The first TCP port, as the existing agent does.
    First,
}

/// The cluster entry to rewire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum Entry {
    /// The one to which current-context leads.
    CurrentContext,
    /// The one named `cluster`, as the existing agent does; current-context must lead to it.
    Cluster,
}

/// What to do about `insecure-skip-tls-verify`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum Insecure {
    /// Remove it; the server must be verified then.
    Drop,
    /// Refuse a source that has it.
    Refuse,
    /// Keep it if there is no CA. If there is one, remove it, because clients refuse both together.
    Keep,
}

/// What to do about a field that may or may not fit inside the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum Keep {
    /// Remove it.
    Drop,
    /// Keep it as in the source.
    Keep,
}

/// Whether something is accepted at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum Permission {
    /// Refuse a source that has it.
    Refuse,
    /// Keep it as in the source.
    Allow,
}

impl Settings {
    /// The domain of the cluster, `cluster.local` by default.
    pub(crate) fn domain(&self) -> &str {
        self.cluster_domain.as_deref().unwrap_or("cluster.local")
    }

    /// Refuses texts that cannot be part of a name.
    pub(crate) fn check(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        if !self.domain().is_empty() && !self.domain().split('.').all(is_label) {
            problems.push(Problem::in_settings(
                "clusterDomain",
                "not a DNS name in lower case, such as cluster.local",
            ));
        }
        problems.extend(self.naming.check("naming"));
        if self.port.name.as_deref() == Some("") {
            problems.push(Problem::in_settings(
                "port.name",
                "empty; leave it out to find the port without a name",
            ));
        }
        if self.port.name.is_some() && self.port.choice == PortChoice::First {
            problems.push(Problem::in_settings(
                "port.choice",
                "has no meaning beside a name",
            ));
        }
        problems
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_domain_is_a_dns_name() {
        let accepts = |domain: &str| {
            let settings = Settings {
                cluster_domain: Some(domain.to_owned()),
                ..Settings::default()
            };
            settings.check().is_empty()
        };
        for domain in ["", "cluster.local", "k8s.example-1.org", "x"] {
            assert!(accepts(domain), "{domain}");
        }
        for domain in [
            "Cluster.local",
            "a..b",
            ".local",
            "local.",
            "-a",
            "a-",
            "a/b",
            "a b",
            "a:443",
            "a@b",
            "ä",
        ] {
            assert!(!accepts(domain), "{domain}");
        }
    }
}
