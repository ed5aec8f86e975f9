//! `transom rbac`: the least rights that the agent needs for its policies, as manifests.

mod role;

use crate::args::OutputFormat;
use crate::args::RbacArgs;
use crate::output::{Ending, Screen};
use crate::policies::{Source, Written};
use anyhow::Context as _;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use transom_core::policy::{Policy, check, manifest};
use transom_core::reference::LOCAL;
use transom_core::rights::{self, Asked, Objects, Own, Right, Rights, kinds};

/// Prints the rights that the policies need on one connection.
///
/// # Errors
/// When the policies cannot be read at all.
pub(crate) fn rbac(args: &RbacArgs, screen: &Screen) -> anyhow::Result<Ending> {
    let Some(policies) = policies(args, screen)? else {
        return Ok(Ending::Failed);
    };
    let others: BTreeSet<&String> = policies
        .iter()
        .flat_map(named)
        .filter(|name| **name != args.connection)
        .collect();
    for other in others {
        screen.note(format_args!(
            "the policies also name the connection `{other}`: --connection {other} prints its permissions"
        ));
    }
    let kind = |_: &str, kind: &str| kinds::guess(kind);
    let home =
        rights::home(args.context.iter().map(|context| context.name.as_str())).unwrap_or(LOCAL);
    let asked = Asked {
        connection: &args.connection,
        home,
        secrets: args.secret_reads.into(),
        read_only: args.read_only,
        own: own(args),
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
    let roles = role::roles(&rights, &name, &args.namespace, &args.service_account);
    match args.output {
        OutputFormat::Yaml => screen.text(&role::yaml(&roles)),
        OutputFormat::Json => {
            let items: Vec<_> = roles.iter().flat_map(role::Role::objects).collect();
            screen.json(&json!({"apiVersion": "v1", "kind": "List", "items": items}));
        }
        OutputFormat::Table => table(&rights, screen),
    }
    Ok(Ending::Right)
}

/// The requests of the agent itself under these flags.
fn own(args: &RbacArgs) -> Own<'_> {
    Own {
        lease: args.lease_namespace.as_deref(),
        policies: args.policy_objects,
        // A loopback address can only be reached from this machine, so no access to it is reviewed.
        reviews: args
            .admin_address
            .is_some_and(|address| !address.ip().is_loopback()),
    }
}

/// Every policy, checked but without its components, on which no right depends. `None` when one is refused: applying
/// incomplete rights would take the missing ones away.
fn policies(args: &RbacArgs, screen: &Screen) -> anyhow::Result<Option<Vec<Policy>>> {
    let found = Source::new(args.policies.as_deref(), None)
        .read()
        .with_context(|| {
            let path = args.policies.as_deref().unwrap_or(Path::new("builtin"));
            format!("failed to read the policies `{}`", path.display())
        })?;
    let mut refused = found.broken;
    let mut policies: BTreeMap<Arc<str>, Policy> = BTreeMap::new();
    for Written { place, value, .. } in found.policies {
        match manifest::parse(&value).and_then(check::policy) {
            Ok(policy) if policies.contains_key(&policy.name) => {
                refused.push((
                    place,
                    format!(
                        "metadata.name: the policy `{}` is defined in two places",
                        policy.name
                    ),
                ));
            }
            Ok(policy) => drop(policies.insert(Arc::clone(&policy.name), policy)),
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
    all.extend(policy.makes().map(|(_, rule)| &rule.cluster));
    all
}

/// A line for each right and reason.
fn table(rights: &Rights, screen: &Screen) {
    let rows: Vec<[String; 4]> = rights.iter().flat_map(rows).collect();
    let width = |column: usize| {
        rows.iter()
            .filter_map(|row| row.get(column))
            .map(String::len)
            .max()
            .unwrap_or_default()
    };
    let (place, objects, verbs) = (width(0).max(9), width(1).max(7), width(2).max(5));
    screen.line(format_args!(
        "{:<place$}  {:<objects$}  {:<verbs$}  BECAUSE",
        "NAMESPACE", "OBJECTS", "VERBS"
    ));
    for [namespace, what, may, why] in &rows {
        screen.line(format_args!(
            "{namespace:<place$}  {what:<objects$}  {may:<verbs$}  {why}"
        ));
    }
}

fn rows((objects, right): (&Objects, &Right)) -> Vec<[String; 4]> {
    let Objects {
        namespace,
        group,
        resource,
        name,
    } = objects;
    let name = name
        .as_ref()
        .map(|name| format!(" {name}"))
        .unwrap_or_default();
    let what = if group.is_empty() {
        format!("{resource}{name}")
    } else {
        format!("{resource}.{group}{name}")
    };
    let verbs: Vec<_> = right.verbs.iter().map(|verb| verb.as_str()).collect();
    let first = [
        namespace.clone().unwrap_or_else(|| "all".to_owned()),
        what,
        verbs.join(","),
    ];
    let cells = |index: usize| {
        if index == 0 {
            first.clone()
        } else {
            Default::default()
        }
    };
    let row = |(index, because): (usize, &rights::Because)| {
        let [namespace, what, verbs] = cells(index);
        [namespace, what, verbs, because.to_string()]
    };
    right.because.iter().enumerate().map(row).collect()
}
