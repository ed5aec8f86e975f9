//! Decides what a HostedCluster is imported as, and whether it is imported at all. Pure functions.

use crate::AutoImport;
use crate::cluster::{self, Hosted};
use crate::reasons;
use crate::settings::{Addons, Settings};
use serde_json::json;
use transom_guest::kinds::{Kind, MANAGED_CLUSTER, ManagedCluster, NAMESPACE as NAMESPACES};
use transom_guest::naming::{IMPORTED, hosting_cluster};
use transom_guest::objects::{Answer, Desired, Input, Need, Objects, Requirement, Value, found};
use transom_guest::{Context, Failure, ObjectRef, Primary, Problem, Waiting, object};

/// Role of the ManagedCluster.
pub(crate) const CLUSTER: &str = "cluster";
/// Role of its namespace on the hub.
pub(crate) const NAMESPACE: &str = "namespace";

const ADDON_CONFIG: Kind = Kind::new(
    "agent.open-cluster-management.io/v1",
    "KlusterletAddonConfig",
);

/// The objects of one import, all on the hub.
struct Import {
    hosted: Hosted,
    /// The name of the managed cluster.
    name: String,
    cluster: ObjectRef,
    namespace: ObjectRef,
    addon_config: ObjectRef,
}

impl Import {
    fn of(context: &Context<Settings>, primary: &Primary) -> Result<Self, Problem> {
        let settings = &context.settings;
        let name = settings.naming.name(&context.agent, primary)?;
        let hub = settings.hub.as_deref();
        let hub = hub.unwrap_or(&primary.reference.cluster);
        Ok(Self {
            hosted: primary.read()?,
            cluster: MANAGED_CLUSTER.at(hub, &name),
            namespace: NAMESPACES.at(hub, &name),
            addon_config: ADDON_CONFIG.at(hub, &name).in_namespace(&name),
            name,
        })
    }

    /// Whether it is left alone: it was imported before, and since then a person detached it, imported it by hand, or
    /// gave it another name; or its ManagedCluster was made for another HostedCluster.
    fn is_left(&self, there: Option<&ManagedCluster>, primary: &Primary) -> bool {
        let is_ours = there.is_some_and(|there| cluster::is_made_for(there, primary));
        let imported_as = self.hosted.imported_as();
        imported_as.is_some_and(|name| name != self.name || !is_ours)
    }

    /// Of one that is left alone: what a person has to know.
    fn told(self, there: Option<&ManagedCluster>, primary: &Primary) -> Option<Waiting> {
        let (name, imported_as) = (&self.name, self.hosted.imported_as()?);
        let problem = match there.map(|there| there.metadata.is_made_for(primary)) {
            // Other policies go by the new name, and nobody imported it by hand under that.
            None | Some(Some(false)) if imported_as != name => reasons::RENAMED_AFTER_IMPORT
                .problem(format!(
                    "it was imported as ManagedCluster {imported_as}, and is named {name} now"
                )),
            // Either it was detached and another HostedCluster took the name, or it takes the place of one that is
            // gone. Which of both it is cannot be told from here.
            Some(Some(false)) if imported_as == name => reasons::IMPORTED_FOR_ANOTHER
                .problem(format!("ManagedCluster {name} was made for another one")),
            _ => return None,
        };
        Some(problem.waiting(vec![self.cluster]))
    }
}

impl Objects for AutoImport {
    /// The ManagedCluster; and as targets the objects of the import, unless the cluster is left alone.
    fn require(
        context: &Context<Settings>,
        primary: &Primary,
        inputs: &[Input],
    ) -> Result<Requirement, Failure> {
        let import = Import::of(context, primary)?;
        let mut needs = vec![Need::object(CLUSTER, import.cluster.clone())];
        let asked = inputs.iter().any(|input| input.role == CLUSTER);
        let there: Option<ManagedCluster> = found(inputs, CLUSTER).read()?;
        // Before the ManagedCluster was looked at, it may be one to make.
        if asked && import.is_left(there.as_ref(), primary) {
            return Ok(Requirement {
                targets: Vec::new(),
                needs,
            });
        }
        let mut targets = vec![import.cluster];
        if context.settings.addons.is_some() {
            needs.push(Need::presence(NAMESPACE, import.namespace));
            targets.push(import.addon_config);
        }
        Ok(Requirement { targets, needs })
    }

    /// The ManagedCluster, the note on the HostedCluster that it was imported, and the KlusterletAddonConfig.
    fn reconcile(
        context: &Context<Settings>,
        primary: &Primary,
        inputs: Vec<Input>,
    ) -> Result<Answer, Failure> {
        let import = Import::of(context, primary)?;
        let there: Option<ManagedCluster> = found(&inputs, CLUSTER).read()?;
        if import.is_left(there.as_ref(), primary) {
            return Ok(Answer {
                wait: import.told(there.as_ref(), primary),
                ..Answer::default()
            });
        }
        let hosting_cluster =
            hosting_cluster(&context.agent, context.settings.hosting_cluster.as_deref())?;
        let Import {
            cluster, hosted, ..
        } = &import;
        let cluster = cluster::wanted(cluster, hosting_cluster, hosted, there.as_ref());
        let note =
            object!(&primary.reference, {"metadata": {"annotations": {(IMPORTED): import.name}}});
        let mut answer = Answer::from_iter([cluster, note.fields()]);
        match (&context.settings.addons, found(&inputs, NAMESPACE)) {
            (None, _) => {}
            (Some(addons), Value::Present) => {
                answer.apply.push(addon_config(&import, addons));
            }
            (Some(_), _) => {
                let message = format!("the hub has not made the namespace `{}` yet", import.name);
                let problem = reasons::CLUSTER_NAMESPACE_MISSING.problem(message);
                answer.wait = Some(problem.waiting(vec![import.namespace]));
            }
        }
        Ok(answer)
    }
}

fn addon_config(import: &Import, addons: &Addons) -> Desired {
    let name = &import.name;
    let enabled = |enabled: bool| json!({"enabled": enabled});
    let config = object!(&import.addon_config, {"spec": {
        "clusterName": name,
        "clusterNamespace": name,
        "clusterLabels": {"cloud": "auto-detect", "vendor": "auto-detect"},
        "applicationManager": enabled(addons.application_manager),
        "certPolicyController": enabled(addons.cert_policy_controller),
        "policyController": enabled(addons.policy_controller),
        "searchCollector": enabled(addons.search_collector),
    }});
    config.whole()
}
