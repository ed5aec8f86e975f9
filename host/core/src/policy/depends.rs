//! Which objects a policy depends on: its primaries, and what it may read or write.

use super::Policy;
use crate::observation::{Unreadable, Unwatched};
use crate::reference::ObjectRef;
use std::sync::Arc;

impl Policy {
    /// Whether it depends on objects of a kind, by version and name, on a connection; without a kind, on any there: a
    /// file that cannot be read may hold any kind.
    pub fn depends_on(&self, connection: &str, wanted: Option<(&str, &str)>) -> bool {
        let is = |cluster: &str, api_version: &str, kind: &str| {
            cluster == connection && wanted.is_none_or(|wanted| wanted == (api_version, kind))
        };
        let mut written = self.beside().map(|(_, rule)| rule);
        let mut reads = self.reads.iter();
        let primary = &self.primary;
        written.any(|rule| is(&rule.cluster, &rule.api_version, &rule.kind))
            || reads.any(|rule| is(&rule.cluster, &rule.api_version, &rule.kind))
            || is(&primary.cluster, &primary.api_version, &primary.kind)
    }

    /// Whether it may lack what cannot be read. A file says neither its connection nor its kinds.
    pub fn lacks(&self, unreadable: &Unreadable) -> bool {
        match &unreadable.unwatched {
            Unwatched::Kind {
                cluster,
                api_version,
                kind,
            } => self.depends_on(cluster, Some((api_version, kind))),
            Unwatched::Connection(cluster) => self.depends_on(cluster, None),
            Unwatched::Part => {
                let needed = |one: &Arc<ObjectRef>| {
                    self.depends_on(&one.cluster, Some((&one.api_version, &one.kind)))
                };
                unreadable.objects.is_empty() || unreadable.objects.iter().any(needed)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{check, manifest};
    use crate::reference::LOCAL;
    use serde_json::json;
    use transom_api::KnownReason;

    fn unreadable(unwatched: Unwatched, objects: Vec<ObjectRef>) -> Unreadable {
        Unreadable {
            place: "place".to_owned(),
            reason: KnownReason::ReadFailed,
            message: String::new(),
            unwatched,
            objects: objects.into_iter().map(Arc::new).collect(),
        }
    }

    #[test]
    fn a_policy_lacks_what_it_reads_or_writes() {
        let written = json!({
            "apiVersion": transom_api::API_VERSION, "kind": transom_api::KIND,
            "metadata": {"name": "taints"},
            "spec": {
                "primary": {"apiVersion": "cluster.open-cluster-management.io/v1", "kind": "ManagedCluster"},
                "guests": {"decide": {"component": "builtin:taints"}},
                "grant": {"write": []},
            },
        });
        let policy = check::policy(manifest::parse(&written).unwrap()).unwrap();
        let (version, kind) = (&*policy.primary.api_version, &*policy.primary.kind);
        let watch = |cluster: &str, api_version: &str, kind: &str| Unwatched::Kind {
            cluster: cluster.to_owned(),
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
        };
        let connection = |name: &str| Unwatched::Connection(name.to_owned());
        let object = |kind: &str| ObjectRef::local(version, kind, None, "one");
        for (lacks, unwatched, objects) in [
            (true, watch(LOCAL, version, kind), vec![]),
            (false, watch(LOCAL, version, "Other"), vec![]),
            (false, watch(LOCAL, "v1", kind), vec![]),
            (false, watch("hub", version, kind), vec![]),
            (true, connection(LOCAL), vec![]),
            (false, connection("hub"), vec![]),
            (true, Unwatched::Part, vec![object("Other"), object(kind)]),
            (false, Unwatched::Part, vec![object("Other")]),
            (true, Unwatched::Part, vec![]),
        ] {
            let one = unreadable(unwatched, objects);
            assert_eq!(policy.lacks(&one), lacks, "{one:?}");
        }
    }
}
