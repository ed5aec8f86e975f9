//! The settings of the guest `kubeconfig`. Never says what a kubeconfig then looks like.
//! The defaults are the safe ones; what goes beyond them must be granted by the policy, too.

use serde::Deserialize;
use transom_guest::Problem;

/// All settings.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Settings {
    /// `cluster.local` when absent; empty for addresses that end in `.svc`.
    pub cluster_domain: Option<String>,
    /// Which port of the Service.
    pub port: Port,
    /// How the managed cluster is named.
    pub naming: Naming,
    /// Which cluster entry is rewired.
    pub entry: Entry,
    /// What to do about a source without CA, whose server a client could not verify.
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

/// Which port of the Service.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Port {
    /// The port of this name and no other.
    pub name: Option<String>,
    /// How to find it without a name.
    pub choice: PortChoice,
}

/// How to find the port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum PortChoice {
    /// By name, protocol and target; refuses where that does not tell.
    #[default]
    Detect,
    /// The first TCP port, as the existing agent does.
    First,
}

/// How the managed cluster is named.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Naming {
    /// Whether the annotation or the discovery name wins where there are both.
    pub precedence: Precedence,
    /// Whether an agent that does not work for the hub's own cluster uses the discovery name.
    pub discovery: bool,
    /// Stands before the name of the hosted cluster in a discovery name. The name of the agent's cluster when absent,
    /// nothing when empty.
    pub prefix: Option<String>,
}

impl Default for Naming {
    fn default() -> Self {
        Self { precedence: Precedence::default(), discovery: true, prefix: None }
    }
}

/// Which name wins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum Precedence {
    /// The annotation.
    #[default]
    Annotation,
    /// The discovery name, as in the existing agent.
    Discovery,
}

/// Which cluster entry is rewired.
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
    /// Take it away; what is left must do without.
    Drop,
    /// Refuse a source that has it.
    Refuse,
    /// Keep it where there is no CA; where there is one, take it away, because clients refuse both.
    Keep,
}

/// What to do about a field that may be right or wrong inside the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum Keep {
    /// Take it away.
    Drop,
    /// As in the source.
    Keep,
}

/// Whether something is accepted at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum Permission {
    /// Refuse a source that has it.
    Refuse,
    /// As in the source.
    Allow,
}

impl Settings {
    /// The domain of the cluster, `cluster.local` by default.
    pub(crate) fn domain(&self) -> &str {
        self.cluster_domain.as_deref().unwrap_or("cluster.local")
    }

    /// Texts that could never be part of the names that they are for.
    pub(crate) fn check(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        if !self.domain().is_empty() && !self.domain().split('.').all(is_label) {
            problems.push(Problem::in_settings("clusterDomain", "not a DNS name in lower case, such as cluster.local"));
        }
        if self.naming.prefix.as_deref().is_some_and(|prefix| !prefix.bytes().all(is_label_byte)) {
            problems.push(Problem::in_settings("naming.prefix", "not of lower-case letters, digits and dashes"));
        }
        if self.port.name.as_deref() == Some("") {
            problems.push(Problem::in_settings("port.name", "empty; leave it out to find the port without a name"));
        }
        if self.port.name.is_some() && self.port.choice == PortChoice::First {
            problems.push(Problem::in_settings("port.choice", "has no meaning beside a name"));
        }
        problems
    }
}

/// Whether a text is one label of a DNS name: at most 63 of `[a-z0-9-]`, no dash at the ends.
pub(crate) fn is_label(text: &str) -> bool {
    (1..=63).contains(&text.len()) && text.bytes().all(is_label_byte) && !text.starts_with('-') && !text.ends_with('-')
}

fn is_label_byte(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_domain_is_a_dns_name() {
        let accepts = |domain: &str| {
            let settings = Settings { cluster_domain: Some(domain.to_owned()), ..Settings::default() };
            settings.check().is_empty()
        };
        for domain in ["", "cluster.local", "k8s.example-1.org", "x"] {
            assert!(accepts(domain), "{domain}");
        }
        for domain in ["Cluster.local", "a..b", ".local", "local.", "-a", "a-", "a/b", "a b", "a:443", "a@b", "ä"] {
            assert!(!accepts(domain), "{domain}");
        }
    }

    #[test]
    fn a_label_has_at_most_63_characters() {
        assert!(is_label(&"a".repeat(63)));
        assert!(!is_label(&"a".repeat(64)));
        assert!(!is_label(""));
    }
}
