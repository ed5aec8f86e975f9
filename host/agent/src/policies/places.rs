//! What policies may name of the world of their agent: its connections, and none of its own records.

use super::load::invalid;
use std::collections::BTreeSet;
use transom_core::catalogue::Refusal;
use transom_core::own_records::OwnRecords;
use transom_core::policy::Policy;

/// What an agent knows when it loads policies.
#[derive(Clone, Debug, Default)]
pub(crate) struct KnownPlaces {
    connections: BTreeSet<String>,
    records: OwnRecords,
}

/// The connections of an agent without a namespace of its own.
impl<const N: usize> From<[String; N]> for KnownPlaces {
    fn from(connections: [String; N]) -> Self {
        Self::new(connections.into(), OwnRecords::default())
    }
}

impl KnownPlaces {
    /// These connections, and these records.
    pub(crate) fn new(connections: BTreeSet<String>, records: OwnRecords) -> Self {
        Self {
            connections,
            records,
        }
    }

    /// Whether there is such a connection.
    pub(super) fn has(&self, connection: &str) -> bool {
        self.connections.contains(connection)
    }

    /// Refuses a policy that names a cluster without a connection, or a record of the agent to be written.
    ///
    /// # Errors
    /// With the field that names it.
    pub(super) fn check(&self, policy: Policy) -> Result<Policy, Refusal> {
        let absent = policy.clusters().find(|(_, cluster)| !self.has(cluster));
        if let Some((field, cluster)) = absent {
            let known = self.connections.iter().map(|name| format!("`{name}`"));
            let known = known.collect::<Vec<_>>().join(", ");
            return Err(invalid(format!(
                "{field}: no connection `{cluster}`; known connections: {known}"
            )));
        }
        let checked = self.records.check(policy);
        checked.map_err(|error| invalid(error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policies::load;
    use serde_json::json;

    #[test]
    fn refuses_a_policy_that_names_no_connection_or_a_record_of_the_agent() {
        let refused = |cluster: &str, namespace: &str| {
            let grant = json!({"cluster": cluster, "kind": "ConfigMap", "namespace": namespace, "name": "transom-limits",
                "verbs": ["patch"], "fields": ["data"]});
            let policy = load::check(&json!({
                "apiVersion": "transom.dev/v1alpha1", "kind": "FleetPolicy", "metadata": {"name": "p"},
                "spec": {
                    "primary": {"apiVersion": "v1", "kind": "Node"},
                    "guests": {"decide": {"component": "builtin:x"}},
                    "grant": {"write": [grant]},
                },
            }));
            let records = OwnRecords::beside_lease(Some("own"));
            let places = KnownPlaces::new(["local".to_owned()].into(), records);
            let refusal = policy.and_then(|policy| places.check(policy)).err()?;
            refusal
                .message
                .split_once(':')
                .map(|(field, _)| field.trim_matches('`').to_owned())
        };
        let field = |name: &str| Some(format!("spec.grant.write[0].{name}"));
        assert_eq!(refused("hub", "other"), field("cluster"));
        assert_eq!(refused("local", "own"), field("name"));
        assert_eq!(refused("local", "other"), None);
    }
}
