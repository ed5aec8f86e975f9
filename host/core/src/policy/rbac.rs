//! Grants to make RBAC objects, and to write them into texts. They list every rule, role and subject, so that the agent
//! knows when it loads a policy which rights it must hold to hand them on, and which rights a text may give.

pub(crate) mod labels;

use super::check::{Checked, within, wrong};
use crate::policy::WriteRule;
use crate::projection::path::Path;
use crate::rights::kinds;
use serde_json::{Map, Value};
use transom_api::policy::bounds::{MANY, PATTERN};
use transom_api::policy::{ManifestKind, WriteGrantSpec};

/// The group of the kinds that give rights.
pub const GROUP: &str = "rbac.authorization.k8s.io";
/// The group under which OpenShift serves the same roles and bindings.
const OPENSHIFT: &str = "authorization.openshift.io";
const API_VERSION: &str = "rbac.authorization.k8s.io/v1";
/// The most rights that the objects of one policy may give: each verb on each name of each resource of each group.
const MAX_RIGHTS: usize = 4096;

/// Rights that the objects of a grant give to others: each verb on each name of each resource of each group. The API
/// server lets only those give them who hold them. A short rule may have very many, so they stay as they are listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandedOn {
    /// Exact namespace; `None` for all, or for a cluster-scoped object.
    pub namespace: Option<String>,
    /// API groups, empty for the core group.
    pub groups: Vec<String>,
    /// Plural names, each with the subresource if it is one.
    pub resources: Vec<String>,
    /// Exact names; `None` for all.
    pub names: Vec<Option<String>>,
    /// What may be done, as RBAC spells it.
    pub verbs: Vec<String>,
}

impl HandedOn {
    /// How many rights these are.
    fn count(&self) -> usize {
        let lists = [&self.groups, &self.resources, &self.verbs];
        lists.iter().map(|list| list.len()).product::<usize>() * self.names.len()
    }
}

/// Checks that the write grants of a policy hand on no more rights than it takes to tell which the agent needs.
pub(crate) fn check_count(rules: &[WriteRule]) -> Checked<()> {
    let count = |rule: &WriteRule| rule.hands_on.iter().map(HandedOn::count).sum::<usize>();
    let all: usize = rules.iter().map(count).sum();
    let most = rules.iter().enumerate().max_by_key(|(_, rule)| count(rule));
    let Some((index, rule)) = most.filter(|_| all > MAX_RIGHTS) else {
        return Ok(());
    };
    let field = format!("spec.grant.write[{index}]");
    let part = parts(&field, &rule.api_version, &rule.kind)?;
    let part = part.first().copied().unwrap_or_default();
    let why = format!(
        "hands on {} rights, the most of {all} that the policy hands on: more than {MAX_RIGHTS}",
        count(rule)
    );
    wrong(format!("{field}.values[\"{part}\"]"), why)
}

/// Whether a kind gives rights.
pub fn gives_rights(api_version: &str) -> bool {
    let group = api_version.split('/').next();
    group.is_some_and(|group| [GROUP, OPENSHIFT].contains(&group))
}

/// Checks a grant of one of these kinds, and tells what its objects hand on. `others` are all write grants of the
/// policy.
pub(crate) fn check(
    field: &str,
    grant: &WriteGrantSpec,
    fields: &[Path],
    others: &[WriteGrantSpec],
) -> Checked<Vec<HandedOn>> {
    let kind = grant.kind.as_deref().unwrap_or_default();
    let parts = parts(field, &grant.api_version, kind)?;
    for (index, path) in fields.iter().enumerate() {
        let keys = path.keys().unwrap_or_default();
        let granted = match keys.as_slice() {
            ["metadata", "labels", key] => !labels::add_rights(key),
            ["metadata", "annotations", _] => true,
            [part] => parts.contains(part),
            _ => false,
        };
        if !granted {
            let parts = parts.join(", ");
            let why = format!(
                "cannot be granted for a {kind}; a policy may grant {parts}, and labels and annotations by their key"
            );
            return wrong(format!("{field}.fields[{index}]"), why);
        }
    }
    for part in parts {
        let granted = fields.iter().any(|path| path.to_string() == *part);
        if granted && !grant.values.contains_key(*part) {
            return unlisted(field, part);
        }
    }
    if kind == "ClusterRole" {
        labels::are_listed(field, grant, fields)?;
    }
    handed_on(field, grant, others)
}

/// The fields of a kind that say which rights it gives.
fn parts(field: &str, api_version: &str, kind: &str) -> Checked<&'static [&'static str]> {
    match kind {
        "Role" | "ClusterRole" if api_version == API_VERSION => Ok(&["rules"]),
        "RoleBinding" | "ClusterRoleBinding" if api_version == API_VERSION => {
            Ok(&["roleRef", "subjects"])
        }
        _ => {
            let why = format!(
                "is no Role, ClusterRole, RoleBinding or ClusterRoleBinding of {API_VERSION}; no other kind that gives \
                 rights can be granted"
            );
            wrong(format!("{field}.kind"), why)
        }
    }
}

fn unlisted<T>(field: &str, part: &str) -> Checked<T> {
    let why =
        format!("is missing: whatever gives rights has to be listed, and `{part}` is granted");
    wrong(format!("{field}.values[\"{part}\"]"), why)
}

/// Whether objects of one of these kinds are in a namespace.
pub(crate) fn is_namespaced(kind: &str) -> bool {
    kinds::known(GROUP, kind).is_some_and(|kind| kind.namespaced)
}

/// Checks what a text of objects may have of one of these kinds, and returns the fields that are listed. Nothing is
/// handed on: whoever applies the text holds the rights.
pub(crate) fn check_text(field: &str, grant: &ManifestKind) -> Checked<Vec<Path>> {
    // What an object gives depends on where it is: roles and bindings of other names are there already.
    let place: &[&str] = match is_namespaced(&grant.kind) {
        true => &["metadata.name", "metadata.namespace"],
        false => &["metadata.name"],
    };
    let parts = [place, parts(field, &grant.api_version, &grant.kind)?].concat();
    if let Some(part) = parts.iter().find(|part| !grant.values.contains_key(**part)) {
        let why = "is missing: of an object that gives rights, a text has what is listed and nothing else";
        return wrong(format!("{field}.values[\"{part}\"]"), why);
    }
    for (part, values) in &grant.values {
        let field = format!("{field}.values[\"{part}\"]");
        if !parts.contains(&part.as_str()) {
            let (kind, parts) = (&grant.kind, parts.join(", "));
            return wrong(
                field,
                format!("gives no rights in a {kind}; the fields that do are: {parts}"),
            );
        }
        within(&field, values.len(), MANY)?;
        for (index, value) in values.iter().enumerate() {
            let field = format!("{field}[{index}]");
            match part.as_str() {
                "rules" => drop(rule(&field, value, None)?),
                "roleRef" => drop(role(&field, value)?),
                "subjects" => subject(&field, value)?,
                _ => drop(text(&field, value)?),
            }
        }
    }
    let fields = parts.iter().map(|part| Path::parse(part));
    fields
        .collect::<Result<_, _>>()
        .or_else(|error| wrong(format!("{field}.values"), error.to_string()))
}

fn handed_on(
    field: &str,
    grant: &WriteGrantSpec,
    others: &[WriteGrantSpec],
) -> Checked<Vec<HandedOn>> {
    let namespace = exact_namespace(grant);
    let mut handed_on = Vec::new();
    for (part, values) in &grant.values {
        let field = format!("{field}.values[\"{part}\"]");
        within(&field, values.len(), MANY)?;
        for (index, value) in values.iter().enumerate() {
            let field = format!("{field}[{index}]");
            match part.as_str() {
                "rules" => handed_on.push(rule(&field, value, namespace.as_ref())?),
                "roleRef" => handed_on.extend(bound(&field, value, grant, others)?),
                "subjects" => subject(&field, value)?,
                _ if part.starts_with("metadata") => {}
                _ => return wrong(field, "is a part of a field; list the whole field"),
            }
        }
    }
    Ok(handed_on)
}

/// Whether a text stands for itself only.
fn is_exact(text: &str) -> bool {
    !text.contains(['*', '{'])
}

/// The text of a value; `*` would stand for any text, and for all of something.
fn text<'a>(field: &str, value: &'a Value) -> Checked<&'a str> {
    match value.as_str() {
        Some(text) if text.contains('*') => wrong(field, "has `*`: rights are named one by one"),
        Some(text) if text.chars().count() > PATTERN => {
            wrong(field, "is longer than 253 characters")
        }
        Some(text) => Ok(text),
        None => wrong(field, "is not a text"),
    }
}

fn map<'a>(field: &str, value: &'a Value, keys: &[&str]) -> Checked<&'a Map<String, Value>> {
    let Some(map) = value.as_object() else {
        return wrong(field, "is not a map");
    };
    match map.keys().find(|key| !keys.contains(&key.as_str())) {
        Some(key) => wrong(
            format!("{field}.{key}"),
            format!("cannot be granted; what can be: {}", keys.join(", ")),
        ),
        None => Ok(map),
    }
}

/// The rights of one rule of a role.
fn rule(field: &str, value: &Value, namespace: Option<&String>) -> Checked<HandedOn> {
    let keys = ["apiGroups", "resources", "resourceNames", "verbs"];
    let map = map(field, value, &keys)?;
    let texts = |key: &str| -> Checked<Vec<&str>> {
        let field = format!("{field}.{key}");
        match map.get(key).map(Value::as_array) {
            None => Ok(Vec::new()),
            Some(None) => wrong(field, "is not a list"),
            Some(Some(values)) => {
                within(&field, values.len(), MANY)?;
                values.iter().map(|value| text(&field, value)).collect()
            }
        }
    };
    let (groups, resources) = (texts("apiGroups")?, texts("resources")?);
    let (names, verbs) = (texts("resourceNames")?, texts("verbs")?);
    for (key, texts) in [
        ("apiGroups", &groups),
        ("resources", &resources),
        ("verbs", &verbs),
    ] {
        let field = format!("{field}.{key}");
        if texts.is_empty() {
            return wrong(field, "is empty or missing");
        }
        if texts.iter().any(|text| text.contains('{')) {
            return wrong(
                field,
                "has a template; only namespaces, names and subjects may have one",
            );
        }
    }
    let names: Vec<Option<String>> = match names.iter().all(|name| is_exact(name)) {
        true if !names.is_empty() => names.iter().map(|name| Some((*name).to_owned())).collect(),
        _ => vec![None],
    };
    let owned = |texts: Vec<&str>| texts.into_iter().map(str::to_owned).collect();
    Ok(HandedOn {
        namespace: namespace.cloned(),
        groups: owned(groups),
        resources: owned(resources),
        names,
        verbs: owned(verbs),
    })
}

/// The one namespace of what is granted, if there is one.
fn exact_namespace(grant: &WriteGrantSpec) -> Option<String> {
    grant.namespace.clone().filter(|text| is_exact(text))
}

/// The right to bind a role, in the namespace of the binding. Of a role that the policy itself makes, the agent holds
/// all rights, which is enough.
fn bound(
    field: &str,
    value: &Value,
    grant: &WriteGrantSpec,
    others: &[WriteGrantSpec],
) -> Checked<Option<HandedOn>> {
    let (kind, name) = role(field, value)?;
    let resource = match kind {
        "Role" => "roles",
        _ => "clusterroles",
    };
    let is_made = |other: &WriteGrantSpec| {
        other.api_version == API_VERSION
            && other.kind.as_deref() == Some(kind)
            && other.name.as_deref() == Some(name)
            && other.cluster == grant.cluster
            && (kind != "Role" || other.namespace == grant.namespace)
    };
    if others.iter().any(is_made) {
        return Ok(None);
    }
    if !is_exact(name) {
        let why = format!(
            "names a {kind} by a template that no other grant of the policy makes; the agent would have to be allowed to \
             bind every {kind}"
        );
        return wrong(format!("{field}.name"), why);
    }
    Ok(Some(HandedOn {
        namespace: exact_namespace(grant),
        groups: vec![GROUP.to_owned()],
        resources: vec![resource.to_owned()],
        names: vec![Some(name.to_owned())],
        verbs: vec!["bind".to_owned()],
    }))
}

/// Kind and name of the role that is bound.
fn role<'a>(field: &str, value: &'a Value) -> Checked<(&'a str, &'a str)> {
    let map = map(field, value, &["apiGroup", "kind", "name"])?;
    let of = |key: &str| {
        let value = map.get(key).unwrap_or(&Value::Null);
        text(&format!("{field}.{key}"), value)
    };
    if of("apiGroup")? != GROUP {
        return wrong(format!("{field}.apiGroup"), format!("is not {GROUP}"));
    }
    match of("kind")? {
        kind @ ("Role" | "ClusterRole") => Ok((kind, of("name")?)),
        _ => wrong(format!("{field}.kind"), "is neither Role nor ClusterRole"),
    }
}

fn subject(field: &str, value: &Value) -> Checked<()> {
    let map = map(field, value, &["apiGroup", "kind", "name", "namespace"])?;
    for (key, value) in map {
        text(&format!("{field}.{key}"), value)?;
    }
    match map.get("kind").and_then(Value::as_str) {
        Some("User" | "Group" | "ServiceAccount") if map.contains_key("name") => Ok(()),
        _ => wrong(field, "is no User, Group or ServiceAccount with a name"),
    }
}

#[cfg(test)]
mod tests {
    use crate::policy::{Policy, check, manifest};
    use crate::sample::{objects_manifest, with};
    use serde_json::{Value, json};

    const CLUSTERS: &str = "cluster.open-cluster-management.io";

    /// A policy that makes a ClusterRole for each cluster, binds it, and binds a Role that others made.
    fn manifest() -> Value {
        let role = json!({"apiVersion": super::API_VERSION, "kind": "ClusterRole", "name": "access-{primary.name}",
        "verbs": ["create", "update", "delete"], "fields": ["rules", "metadata.labels.x"],
        "values": {"metadata.labels.x": ["y"], "rules": [
            {"apiGroups": [CLUSTERS], "resources": ["managedclusters"], "resourceNames": ["{primary.name}"],
                "verbs": ["get", "renew"]},
            {"apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["facts"], "verbs": ["get"]},
        ]}});
        let binding = json!({"apiVersion": super::API_VERSION, "kind": "ClusterRoleBinding",
        "name": "access-{primary.name}", "verbs": ["create"], "fields": ["roleRef", "subjects"],
        "values": {
            "roleRef": [{"apiGroup": super::GROUP, "kind": "ClusterRole", "name": "access-{primary.name}"}],
            "subjects": [{"apiGroup": super::GROUP, "kind": "Group", "name": "clusters:{primary.name}"}],
        }});
        let within = json!({"apiVersion": super::API_VERSION, "kind": "RoleBinding", "namespace": "agents", "name": "works",
        "verbs": ["create"], "fields": ["roleRef", "subjects"],
        "values": {
            "roleRef": [{"apiGroup": super::GROUP, "kind": "Role", "name": "work"}],
            "subjects": [{"kind": "ServiceAccount", "namespace": "{primary.name}", "name": "agent"}],
        }});
        with(
            objects_manifest(),
            &[("/spec/grant/write", json!([role, binding, within]))],
        )
    }

    fn checked(manifest: &Value) -> Result<Policy, (String, String)> {
        let parsed = manifest::parse(manifest).unwrap();
        check::policy(parsed).map_err(|error| (error.field, error.why))
    }

    #[test]
    fn tells_what_the_objects_of_a_grant_hand_on() {
        let policy = checked(&manifest()).unwrap();
        let handed_on = policy.writes.iter().flat_map(|rule| &rule.hands_on);
        let handed_on: Vec<String> = handed_on
            .map(|rights| {
                let namespace = rights.namespace.as_deref().unwrap_or("-");
                let names = rights
                    .names
                    .iter()
                    .map(|name| name.as_deref().unwrap_or("-"));
                let names: Vec<&str> = names.collect();
                let resources = rights.resources.join(",");
                format!(
                    "{namespace} {resources} {} {}",
                    names.join(","),
                    rights.verbs.join(",")
                )
            })
            .collect();
        assert_eq!(
            handed_on,
            [
                "- managedclusters - get,renew",
                "- configmaps facts get",
                "agents roles work bind",
            ]
        );
    }

    #[test]
    fn a_role_is_bound_only_in_the_namespace_of_the_binding_and_is_made_only_in_its_own() {
        let role = |namespace: &str| {
            json!({"apiVersion": super::API_VERSION, "kind": "Role", "namespace": namespace, "name": "work",
                "verbs": ["create"], "fields": ["rules"],
                "values": {"rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]}})
        };
        let kind = "/spec/grant/write/1/values/roleRef/0/kind";
        let bindings = |first: Value, kind_of_role: &str| {
            let within = manifest().pointer("/spec/grant/write/2").cloned();
            let writes = json!([first, within]);
            let changes = [("/spec/grant/write", writes), (kind, json!(kind_of_role))];
            let policy = checked(&with(objects_manifest(), &changes)).unwrap();
            let bound = policy.writes[1].hands_on.iter();
            let bound = bound.map(|rights| (rights.namespace.clone(), rights.resources.concat()));
            bound.collect::<Vec<_>>()
        };
        let agents = |resource: &str| vec![(Some("agents".to_owned()), resource.to_owned())];
        assert_eq!(bindings(role("agents"), "Role"), []);
        assert_eq!(bindings(role("others"), "Role"), agents("roles"));
        assert_eq!(
            bindings(role("agents"), "ClusterRole"),
            agents("clusterroles")
        );
    }

    /// A rule with so many texts in each of its lists.
    fn wide(count: usize) -> Value {
        let texts: Vec<String> = (0..count).map(|number| format!("t{number}")).collect();
        json!({"apiGroups": texts, "resources": texts, "resourceNames": texts, "verbs": texts})
    }

    #[test]
    fn a_short_rule_cannot_give_more_rights_than_memory_holds() {
        let refused = |rules: Value| {
            let changes = [("/spec/grant/write/0/values/rules", rules)];
            checked(&with(manifest(), &changes)).err()
        };
        let rules = |count| vec![wide(count)];
        assert_eq!(refused(json!(rules(7))), None);
        let at = "spec.grant.write[0].values[\"rules\"]".to_owned();
        // 150 texts in four lists are 3 KB, and 506 million rights.
        for (rules, field, why) in [
            (
                json!(rules(150)),
                format!("{at}[0].apiGroups"),
                "has 150 entries, more than 64",
            ),
            (
                json!(rules(64)),
                at.clone(),
                "hands on 16777216 rights, the most of 16777217 that the policy hands on: more than 4096",
            ),
            (
                json!([wide(7), wide(7)]),
                at.clone(),
                "hands on 4802 rights, the most of 4803 that the policy hands on: more than 4096",
            ),
            (
                json!(vec![wide(1); 65]),
                at.clone(),
                "has 65 entries, more than 64",
            ),
            (
                json!([{"apiGroups": ["a".repeat(254)], "resources": ["b"], "verbs": ["get"]}]),
                format!("{at}[0].apiGroups"),
                "is longer than 253 characters",
            ),
        ] {
            assert_eq!(refused(rules), Some((field, why.to_owned())));
        }
    }

    #[test]
    fn a_text_of_objects_lists_no_more_than_memory_holds() {
        let listed = |rules: Value| {
            let name = json!(["x"]);
            let values = json!({"metadata.name": name, "rules": rules});
            let kind =
                json!({"apiVersion": super::API_VERSION, "kind": "ClusterRole", "values": values});
            let checked = super::check_text("at", &serde_json::from_value(kind).unwrap());
            checked.err().map(|error| error.field)
        };
        // Nothing of a text is handed on, so there is nothing to count.
        assert_eq!(listed(json!([wide(64)])), None);
        let at = "at.values[\"rules\"]";
        assert_eq!(
            listed(json!([wide(150)])),
            Some(format!("{at}[0].apiGroups"))
        );
        assert_eq!(listed(json!(vec![wide(1); 65])), Some(at.to_owned()));
    }

    #[test]
    fn refuses_grants_that_do_not_list_every_right() {
        let refused = |changes: &[(&str, Value)]| {
            let changes = changes.iter();
            let changes: Vec<(String, Value)> = changes
                .map(|(pointer, value)| (format!("/spec/grant/write/{pointer}"), value.clone()))
                .collect();
            let changes: Vec<(&str, Value)> = changes
                .iter()
                .map(|(pointer, value)| (&**pointer, value.clone()))
                .collect();
            let (field, _) = checked(&with(manifest(), &changes)).unwrap_err();
            field.replace("spec.grant.write", "")
        };
        let rule = "0/values/rules/0";
        let at = |part: &str| format!("{rule}/{part}");
        for (pointer, value, field) in [
            ("0/values", json!({}), "[0].values[\"rules\"]"),
            ("1/values/subjects", json!(null), "[1].values[\"subjects\"]"),
            ("0/kind", json!("Group"), "[0].kind"),
            (
                "0/apiVersion",
                json!("rbac.authorization.k8s.io/v1beta1"),
                "[0].kind",
            ),
            (
                "0/fields",
                json!(["rules", "aggregationRule"]),
                "[0].fields[1]",
            ),
            (
                "0/fields",
                json!(["rules", "metadata.labels"]),
                "[0].fields[1]",
            ),
            (
                "0/fields",
                json!([
                    "rules",
                    r#"metadata.labels["rbac.authorization.k8s.io/aggregate-to-admin"]"#
                ]),
                "[0].fields[1]",
            ),
            ("0/fields", json!(["rules.x"]), "[0].fields[0]"),
            (rule, json!("*"), "[0].values[\"rules\"][0]"),
            (&at("verbs"), json!(["*"]), "[0].values[\"rules\"][0].verbs"),
            (&at("verbs"), json!([]), "[0].values[\"rules\"][0].verbs"),
            (
                &at("verbs"),
                json!(["{primary.name}"]),
                "[0].values[\"rules\"][0].verbs",
            ),
            (
                &at("resources"),
                json!(["pods/*"]),
                "[0].values[\"rules\"][0].resources",
            ),
            (
                &at("apiGroups"),
                json!([1]),
                "[0].values[\"rules\"][0].apiGroups",
            ),
            (
                &at("nonResourceURLs"),
                json!(["/"]),
                "[0].values[\"rules\"][0].nonResourceURLs",
            ),
            (
                "1/values/roleRef/0/name",
                json!("other-{primary.name}"),
                "[1].values[\"roleRef\"][0].name",
            ),
            (
                "1/values/roleRef/0/name",
                json!("*"),
                "[1].values[\"roleRef\"][0].name",
            ),
            (
                "1/values/roleRef/0/kind",
                json!("Secret"),
                "[1].values[\"roleRef\"][0].kind",
            ),
            (
                "1/values/roleRef/0/apiGroup",
                json!("x"),
                "[1].values[\"roleRef\"][0].apiGroup",
            ),
            (
                "1/values/subjects/0/name",
                json!("*"),
                "[1].values[\"subjects\"][0].name",
            ),
            (
                "1/values/subjects/0/kind",
                json!("All"),
                "[1].values[\"subjects\"][0]",
            ),
        ] {
            assert_eq!(refused(&[(pointer, value)]), field, "{pointer}");
        }
    }
}
