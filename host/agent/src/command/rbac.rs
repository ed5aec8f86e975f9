//! `transom rbac`: the least rights that the agent needs for its policies, as roles and bindings.

mod values;

use crate::args::{RbacArgs, RbacFormat};
use crate::input;
use crate::output::{CommandEnd, Screen};
use crate::policies;
use anyhow::bail;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use transom_artifacts::Location;
use transom_core::own_records::OwnRecords;
use transom_core::policy::{Policy, check, manifest};
use transom_core::reference::LOCAL;
use transom_core::rights::{
    self, AgentDuties, AnyOf, CoveredObjects, Right, Rights, RightsRequest, Verb, kinds,
};

/// The version of roles and bindings.
const API_VERSION: &str = "rbac.authorization.k8s.io/v1";
/// Their group.
const API_GROUP: &str = "rbac.authorization.k8s.io";

/// Prints the rights that the policies need on one connection.
///
/// # Errors
/// When the policies cannot be read at all, there is none, or values are asked for without them.
pub(crate) fn rbac(args: &RbacArgs, screen: &Screen) -> anyhow::Result<CommandEnd> {
    if args.output == RbacFormat::Values && args.policies.is_none() {
        bail!(
            "failed to print values: name your own policies with --policies; the chart has the bundled ones"
        );
    }
    let Some(found) = policies(args, screen)? else {
        return Ok(CommandEnd::Failed);
    };
    let (policies, manifests): (Vec<Policy>, Vec<Value>) = found.into_iter().unzip();
    note_others(&policies, args, screen);
    let kind = |_: &str, kind: &str| kinds::guess(kind);
    let home =
        rights::home(args.context.iter().map(|context| context.name.as_str())).unwrap_or(LOCAL);
    let components = args.sources.config_maps();
    let asked = RightsRequest {
        connection: &args.connection,
        home,
        secrets: args.secret_reads.into(),
        read_only: args.read_only,
        own: own(args, &components),
        kind: &kind,
    };
    let rights = rights::of(&policies.iter().collect::<Vec<_>>(), asked);
    for policy in &policies {
        for sentence in rights::every_secret(policy, args.secret_reads.into(), args.read_only) {
            screen.note(format_args!("policy {}: {sentence}", policy.name));
        }
    }
    let name = args
        .name
        .clone()
        .unwrap_or_else(|| format!("{}-policies", args.service_account));
    let roles = roles(&rights, &name, &args.namespace, &args.service_account);
    if let Some(path) = args
        .policies
        .as_ref()
        .filter(|_| policies.is_empty() && roles.is_empty())
    {
        bail!("failed to find a policy in {}", input::shown(path));
    }
    print(args, manifests, (&rights, &roles), screen);
    Ok(CommandEnd::Right)
}

/// Prints the rights in the form that was asked for.
fn print(
    args: &RbacArgs,
    manifests: Vec<Value>,
    (rights, roles): (&Rights, &[BoundRole]),
    screen: &Screen,
) {
    match args.output {
        RbacFormat::Values => screen.text(&values::yaml(args, manifests, roles)),
        RbacFormat::Table => {
            let heading = ["NAMESPACE", "OBJECTS", "VERBS", "BECAUSE"];
            screen.table(heading, rights.iter().flat_map(rows));
        }
        RbacFormat::Yaml => {
            let documents: Vec<_> = roles.iter().map(BoundRole::yaml).collect();
            screen.text(&documents.join("---\n"));
        }
        RbacFormat::Json => {
            let items: Vec<_> = roles.iter().flat_map(BoundRole::objects).collect();
            screen.json(&json!({"apiVersion": "v1", "kind": "List", "items": items}));
        }
    }
}

/// Names the other connections of the policies.
fn note_others(policies: &[Policy], args: &RbacArgs, screen: &Screen) {
    let named = policies.iter().flat_map(named);
    let others: BTreeSet<&String> = named.filter(|name| **name != args.connection).collect();
    for other in others {
        screen.note(format_args!(
            "the policies also name the connection `{other}`: --connection {other} prints its permissions"
        ));
    }
}

/// The requests of the agent itself under these flags.
fn own<'a>(args: &'a RbacArgs, components: &'a [AnyOf]) -> AgentDuties<'a> {
    AgentDuties {
        components,
        lease: args.lease_namespace.as_deref(),
        policies: args.policy_objects,
        // A loopback address can only be reached from this machine, so no access to it is reviewed.
        reviews: args
            .admin_address
            .is_some_and(|address| !address.ip().is_loopback()),
    }
}

/// Every policy with its manifest, checked but without its components, on which no right depends. `None` when one is
/// refused: applying incomplete rights would take the missing ones away.
///
/// # Errors
/// When the policies cannot be read, or the path holds none: an empty list of roles would take every right away. Only
/// of a folder without policies the roles of the agent alone are printed, if it needs any.
fn policies(args: &RbacArgs, screen: &Screen) -> anyhow::Result<Option<Vec<(Policy, Value)>>> {
    let found = match &args.policies {
        Some(path) if args.output == RbacFormat::Values || !path.is_dir() => {
            policies::read_some(path, None)?
        }
        path => policies::read(path.as_deref(), None)?,
    };
    let records = OwnRecords::beside_lease(args.lease_namespace.as_deref());
    let mut refused = found.broken;
    let mut policies: BTreeMap<Arc<str>, (Policy, Value)> = BTreeMap::new();
    for written in found.policies {
        let (place, value) = (written.shown_place(), &written.value);
        let allowed = |one: Location| one.check(&args.sources).map_err(|error| error.to_string());
        if let Err(why) = written
            .read_from()
            .into_iter()
            .filter(Location::is_remote)
            .try_for_each(allowed)
        {
            refused.push((place, why));
            continue;
        }
        let checked = manifest::parse(value).and_then(check::policy);
        match checked.and_then(|policy| records.check(policy)) {
            Ok(Policy { name, .. }) if policies.contains_key(&name) => {
                let why = format!("metadata.name: the policy `{name}` is defined in two places");
                refused.push((place, why));
            }
            Ok(policy) => {
                policies.insert(Arc::clone(&policy.name), (policy, written.value));
            }
            Err(error) => refused.push((place, error.to_string())),
        }
    }
    for (place, why) in &refused {
        screen.note(format_args!("refused: {place}: {why}"));
    }
    Ok(refused.is_empty().then(|| policies.into_values().collect()))
}

/// The connections that a policy names.
fn named(policy: &Policy) -> Vec<&String> {
    let mut all = vec![&policy.primary.cluster];
    all.extend(policy.reads.iter().map(|rule| &rule.cluster));
    all.extend(policy.beside().map(|(_, rule)| &rule.cluster));
    all
}

/// A row for each right and reason; only the first one of a right names it.
fn rows((objects, right): (&CoveredObjects, &Right)) -> Vec<[String; 4]> {
    let group = match objects.group.as_str() {
        "" => String::new(),
        group => format!(".{group}"),
    };
    let name = objects.name.as_ref();
    let name = name.map(|name| format!(" {name}")).unwrap_or_default();
    let namespace = objects.namespace.as_deref().unwrap_or("all").to_owned();
    let verbs: Vec<_> = right.verbs.iter().map(Verb::as_str).collect();
    let what = format!("{}{group}{name}", objects.resource);
    let mut first = [namespace, what, verbs.join(",")];
    let row = |because: &rights::Because| {
        let [namespace, what, verbs] = std::mem::take(&mut first);
        [namespace, what, verbs, because.to_string()]
    };
    right.because.iter().map(row).collect()
}

/// A ClusterRole, or a Role of one namespace, that is bound to the agent.
struct BoundRole<'a> {
    namespace: Option<&'a str>,
    rules: Vec<(&'a CoveredObjects, &'a Right)>,
    name: &'a str,
    home: &'a str,
    account: &'a str,
}

/// One role for the cluster, and one for each exact namespace, in order.
fn roles<'a>(
    rights: &'a Rights,
    name: &'a str,
    home: &'a str,
    account: &'a str,
) -> Vec<BoundRole<'a>> {
    let mut by_namespace: BTreeMap<Option<&str>, Vec<_>> = BTreeMap::new();
    for (objects, right) in rights {
        by_namespace
            .entry(objects.namespace.as_deref())
            .or_default()
            .push((objects, right));
    }
    by_namespace
        .into_iter()
        .map(|(namespace, rules)| BoundRole {
            namespace,
            rules,
            name,
            home,
            account,
        })
        .collect()
}

impl BoundRole<'_> {
    /// The role and its binding.
    fn objects(&self) -> [Value; 2] {
        let head = |kind: &str| {
            let labels = json!({"app.kubernetes.io/name": "transom"});
            let mut metadata = json!({"name": self.name, "labels": labels});
            if let Some(namespace) = self.namespace {
                metadata["namespace"] = namespace.into();
            }
            json!({"apiVersion": API_VERSION, "kind": kind, "metadata": metadata})
        };
        let kind = self.kind();
        let (mut role, mut binding) = (head(kind), head(&format!("{kind}Binding")));
        role["rules"] = self.rules.iter().map(|rule| rule_of(*rule)).collect();
        binding["roleRef"] = json!({"apiGroup": API_GROUP, "kind": kind, "name": self.name});
        binding["subjects"] =
            json!([{"kind": "ServiceAccount", "name": self.account, "namespace": self.home}]);
        [role, binding]
    }

    fn kind(&self) -> &'static str {
        match self.namespace {
            Some(_) => "Role",
            None => "ClusterRole",
        }
    }

    /// The role and its binding as YAML, with the reasons in front of each rule. Every text is quoted as in JSON.
    fn yaml(&self) -> String {
        let kind = self.kind();
        let (role, binding) = (self.head(kind), self.head(&format!("{kind}Binding")));
        let rules: String = self.rules.iter().map(|rule| yaml_of(*rule)).collect();
        let [name, account, home] = [self.name, self.account, self.home].map(quoted);
        format!(
            "# Least-privilege permissions of the agent for its policies, as printed by `transom rbac`.\n\
             {role}rules:\n{rules}---\n\
             {binding}roleRef:\n  apiGroup: {API_GROUP}\n  kind: {kind}\n  name: {name}\n\
             subjects:\n- kind: ServiceAccount\n  name: {account}\n  namespace: {home}\n"
        )
    }

    fn head(&self, kind: &str) -> String {
        let name = quoted(self.name);
        let namespace = self
            .namespace
            .map(|name| format!("  namespace: {}\n", quoted(name)));
        let namespace = namespace.unwrap_or_default();
        format!(
            "apiVersion: {API_VERSION}\nkind: {kind}\n\
             metadata:\n  name: {name}\n{namespace}  labels:\n    app.kubernetes.io/name: transom\n"
        )
    }
}

/// A rule of RBAC.
fn rule_of((objects, right): (&CoveredObjects, &Right)) -> Value {
    let verbs: Vec<_> = right.verbs.iter().map(Verb::as_str).collect();
    let mut rule =
        json!({"apiGroups": [objects.group], "resources": [objects.resource], "verbs": verbs});
    if let Some(name) = &objects.name {
        rule["resourceNames"] = json!([name]);
    }
    rule
}

/// A rule of RBAC as an item of a YAML list, after its reasons as comments.
fn yaml_of((objects, right): (&CoveredObjects, &Right)) -> String {
    let rule = rule_of((objects, right));
    let fields = ["apiGroups", "resources", "resourceNames", "verbs"];
    let fields = fields.iter().filter_map(|field| {
        let items: Vec<_> = rule
            .get(field)?
            .as_array()?
            .iter()
            .map(Value::to_string)
            .collect();
        Some(format!("  {field}: [{}]\n", items.join(", ")))
    });
    let fields: String = fields.collect();
    let reasons = right.because.iter().map(|because| format!("# {because}\n"));
    reasons.chain([fields.replacen(' ', "-", 1)]).collect()
}

fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}
