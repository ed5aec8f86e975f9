//! The rights to ask the API server, and those of the agent itself by its flags.

use super::{
    AnyOf, Because, EVENTS_OF_CLUSTER, LEASE, LIMITS, Needed, Objects, Own, Verb, because,
};
use crate::contract::decide::Who;
use crate::policy::Policy;
use crate::reference::LOCAL;
use transom_api::GROUP;

impl Needed<'_> {
    /// Questions to the API server are objects that are made and not kept.
    pub(super) fn asks(&mut self, policy: &Policy) {
        if policy.primary.cluster != self.asked.connection {
            return;
        }
        for (index, rule) in policy.asks.iter().enumerate() {
            let resource = match rule.who {
                Who::Requester => "subjectaccessreviews",
                Who::Agent => "selfsubjectaccessreviews",
            };
            let objects = Objects::all("authorization.k8s.io", resource);
            let because = because(policy, format!("spec.grant.ask[{index}]"));
            self.add(objects, &[Verb::Create], because);
        }
    }

    /// Adds what the agent itself does, whatever the policies say.
    pub(super) fn own(&mut self, own: Own<'_>) {
        use Verb::{Create, Delete, Get, List, Patch, Update, Watch};
        let writes = !self.asked.read_only;
        let is_local = self.asked.connection == LOCAL;
        let mut add = |objects, verbs, why| self.add(objects, verbs, [Because::Agent(why)]);
        if let Some(namespace) = own.lease {
            let lease = Objects {
                namespace: Some(namespace.to_owned()),
                name: Some(LEASE.to_owned()),
                ..Objects::all("coordination.k8s.io", "leases")
            };
            add(lease, &[Get, Create, Update], "runs leader election");
        }
        if let Some(namespace) = own.lease.filter(|_| is_local) {
            let revisions = Objects {
                namespace: Some(namespace.to_owned()),
                ..Objects::all("apps", "controllerrevisions")
            };
            let verbs: &[Verb] = match writes {
                true => &[List, Create, Patch, Delete],
                false => &[List],
            };
            add(revisions, verbs, "keeps the revisions of its policies");
        }
        if let Some(namespace) = own.lease.filter(|_| writes) {
            let limits = Objects {
                namespace: Some(namespace.to_owned()),
                name: Some(LIMITS.to_owned()),
                ..Objects::all("", "configmaps")
            };
            let why = "records how much its policies changed";
            add(limits, &[List, Create, Patch], why);
        }
        if own.policies {
            let policies = Objects::all(GROUP, "fleetpolicies");
            add(policies, &[List, Watch], "watches its policies");
        }
        if own.policies && writes {
            let status = Objects::all(GROUP, "fleetpolicies/status");
            add(status, &[Patch], "writes the status of its policies");
            let events = Objects {
                namespace: Some(EVENTS_OF_CLUSTER.to_owned()),
                ..Objects::all("events.k8s.io", "events")
            };
            let why = "reports limits that its policies reach";
            add(events, &[Create, Patch], why);
        }
        if own.policies && is_local {
            let access = Objects::all("authorization.k8s.io", "subjectaccessreviews");
            add(access, &[Create], "checks who approved a plan");
        }
        for AnyOf { namespace, name } in own.components.iter().filter(|_| is_local) {
            let config_maps = Objects {
                namespace: namespace.clone(),
                name: name.clone(),
                ..Objects::all("", "configmaps")
            };
            add(config_maps, &[List, Watch], "reads components");
        }
        if own.reviews {
            let tokens = Objects::all("authentication.k8s.io", "tokenreviews");
            add(tokens, &[Create], "authenticates readers of its metrics");
            let access = Objects::all("authorization.k8s.io", "subjectaccessreviews");
            add(access, &[Create], "authorizes readers of its metrics");
        }
    }
}
