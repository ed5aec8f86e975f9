//! The rights to ask the API server, and those of the agent itself by its flags.

use super::{
    AgentDuties, AnyOf, Because, CoveredObjects, EVENTS_OF_CLUSTER, LEASE, LIMITS, Needed, Verb,
    because,
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
            let objects = CoveredObjects::all("authorization.k8s.io", resource);
            let because = because(policy, format!("spec.grant.ask[{index}]"));
            self.add(objects, &[Verb::Create], because);
        }
    }

    /// Adds what the agent itself does, whatever the policies say.
    pub(super) fn own(&mut self, own: AgentDuties<'_>) {
        let is_local = self.asked.connection == LOCAL;
        if let Some(namespace) = own.lease {
            self.own_namespace(namespace, is_local);
        }
        if own.policies {
            self.own_policies(is_local);
        }
        for AnyOf { namespace, name } in own.components.iter().filter(|_| is_local) {
            let config_maps = CoveredObjects {
                namespace: namespace.clone(),
                name: name.clone(),
                ..CoveredObjects::all("", "configmaps")
            };
            self.agent(config_maps, &[Verb::List, Verb::Watch], "reads components");
        }
        if own.reviews {
            let tokens = CoveredObjects::all("authentication.k8s.io", "tokenreviews");
            let why = "authenticates readers of its metrics";
            self.agent(tokens, &[Verb::Create], why);
            let access = CoveredObjects::all("authorization.k8s.io", "subjectaccessreviews");
            let why = "authorizes readers of its metrics";
            self.agent(access, &[Verb::Create], why);
        }
    }

    /// What lies in the agent's namespace: its lease, the revisions of its policies, and what they changed.
    fn own_namespace(&mut self, namespace: &str, is_local: bool) {
        use Verb::{Create, Delete, Get, List, Patch, Update};
        let writes = !self.asked.read_only;
        let lies_in = |objects: CoveredObjects, name: Option<&str>| CoveredObjects {
            namespace: Some(namespace.to_owned()),
            name: name.map(str::to_owned),
            ..objects
        };
        let lease = CoveredObjects::all("coordination.k8s.io", "leases");
        let verbs = &[Get, Create, Update];
        self.agent(lies_in(lease, Some(LEASE)), verbs, "runs leader election");
        if is_local {
            let revisions = lies_in(CoveredObjects::all("apps", "controllerrevisions"), None);
            let verbs: &[Verb] = match writes {
                true => &[List, Create, Patch, Delete],
                false => &[List],
            };
            self.agent(revisions, verbs, "keeps the revisions of its policies");
        }
        if writes {
            let limits = lies_in(CoveredObjects::all("", "configmaps"), Some(LIMITS));
            let why = "records how much its policies changed";
            self.agent(limits, &[List, Create, Patch], why);
        }
    }

    /// `FleetPolicy` objects, their status and Events about them.
    fn own_policies(&mut self, is_local: bool) {
        use Verb::{Create, List, Patch, Watch};
        let policies = CoveredObjects::all(GROUP, "fleetpolicies");
        self.agent(policies, &[List, Watch], "watches its policies");
        if !self.asked.read_only {
            let status = CoveredObjects::all(GROUP, "fleetpolicies/status");
            self.agent(status, &[Patch], "writes the status of its policies");
            let events = CoveredObjects {
                namespace: Some(EVENTS_OF_CLUSTER.to_owned()),
                ..CoveredObjects::all("events.k8s.io", "events")
            };
            let why = "reports limits that its policies reach";
            self.agent(events, &[Create, Patch], why);
        }
        if is_local {
            let access = CoveredObjects::all("authorization.k8s.io", "subjectaccessreviews");
            self.agent(access, &[Create], "checks who approved a plan");
        }
    }

    fn agent(&mut self, objects: CoveredObjects, verbs: &[Verb], why: &'static str) {
        self.add(objects, verbs, [Because::Agent(why)]);
    }
}
