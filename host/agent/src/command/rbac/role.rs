//! Turns rights into roles and bindings.

use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use transom_core::rights::{Objects, Right, Rights};

const API_VERSION: &str = "rbac.authorization.k8s.io/v1";

/// A ClusterRole, or a Role of one namespace, that is bound to the agent.
pub(super) struct Role<'a> {
    namespace: Option<&'a str>,
    rules: Vec<(&'a Objects, &'a Right)>,
    name: &'a str,
    home: &'a str,
    account: &'a str,
}

/// One role for the cluster, and one for each exact namespace, in order.
pub(super) fn roles<'a>(
    rights: &'a Rights,
    name: &'a str,
    home: &'a str,
    account: &'a str,
) -> Vec<Role<'a>> {
    let mut by_namespace: BTreeMap<Option<&str>, Vec<_>> = BTreeMap::new();
    for (objects, right) in rights {
        by_namespace
            .entry(objects.namespace.as_deref())
            .or_default()
            .push((objects, right));
    }
    by_namespace
        .into_iter()
        .map(|(namespace, rules)| Role {
            namespace,
            rules,
            name,
            home,
            account,
        })
        .collect()
}

impl Role<'_> {
    /// The role and its binding.
    pub(super) fn objects(&self) -> [Value; 2] {
        let head = |kind: &str| {
            let mut metadata =
                json!({"name": self.name, "labels": {"app.kubernetes.io/name": "transom"}});
            if let (Some(namespace), Some(metadata)) = (self.namespace, metadata.as_object_mut()) {
                metadata.insert("namespace".to_owned(), namespace.into());
            }
            json!({"apiVersion": API_VERSION, "kind": kind, "metadata": metadata})
        };
        let with = |mut object: Value, fields: Value| {
            if let (Some(object), Value::Object(fields)) = (object.as_object_mut(), fields) {
                object.extend(fields);
            }
            object
        };
        let rules: Vec<Value> = self.rules.iter().map(|rule| rule_of(*rule)).collect();
        let binding = json!({
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": self.kind(), "name": self.name},
            "subjects": [{"kind": "ServiceAccount", "name": self.account, "namespace": self.home}],
        });
        let bound = format!("{}Binding", self.kind());
        [
            with(head(self.kind()), json!({"rules": rules})),
            with(head(&bound), binding),
        ]
    }

    fn kind(&self) -> &'static str {
        if self.namespace.is_some() {
            "Role"
        } else {
            "ClusterRole"
        }
    }

    /// The role and its binding as YAML, with the reasons in front of each rule. Every text is quoted as in JSON.
    fn write(&self, text: &mut String) -> std::fmt::Result {
        self.head(text, self.kind())?;
        writeln!(text, "rules:")?;
        for rule in &self.rules {
            for because in &rule.1.because {
                writeln!(text, "# {because}")?;
            }
            let value = rule_of(*rule);
            let fields = ["apiGroups", "resources", "resourceNames", "verbs"];
            let fields = fields
                .into_iter()
                .filter_map(|field| Some((field, value.get(field)?)));
            for (index, (field, value)) in fields.enumerate() {
                writeln!(
                    text,
                    "{} {field}: {}",
                    if index == 0 { '-' } else { ' ' },
                    list(value)
                )?;
            }
        }
        writeln!(text, "---")?;
        self.head(text, &format!("{}Binding", self.kind()))?;
        writeln!(
            text,
            "roleRef:\n  apiGroup: rbac.authorization.k8s.io\n  kind: {}",
            self.kind()
        )?;
        writeln!(
            text,
            "  name: {}\nsubjects:\n- kind: ServiceAccount",
            quoted(self.name)
        )?;
        writeln!(
            text,
            "  name: {}\n  namespace: {}",
            quoted(self.account),
            quoted(self.home)
        )
    }

    fn head(&self, text: &mut String, kind: &str) -> std::fmt::Result {
        writeln!(
            text,
            "apiVersion: {API_VERSION}\nkind: {kind}\nmetadata:\n  name: {}",
            quoted(self.name)
        )?;
        if let Some(namespace) = self.namespace {
            writeln!(text, "  namespace: {}", quoted(namespace))?;
        }
        writeln!(text, "  labels:\n    app.kubernetes.io/name: transom")
    }
}

/// All roles as YAML documents.
pub(super) fn yaml(roles: &[Role<'_>]) -> String {
    let documents = roles.iter().map(|role| {
        let mut text =
            "# Least-privilege permissions of the agent for its policies, as printed by `transom rbac`.\n".to_owned();
        // Writing to a string does not fail.
        let _ = role.write(&mut text);
        text
    });
    documents.collect::<Vec<_>>().join("---\n")
}

/// A rule of RBAC.
fn rule_of((objects, right): (&Objects, &Right)) -> Value {
    let verbs: Vec<_> = right.verbs.iter().map(|verb| verb.as_str()).collect();
    let mut rule =
        json!({"apiGroups": [objects.group], "resources": [objects.resource], "verbs": verbs});
    if let (Some(name), Some(rule)) = (&objects.name, rule.as_object_mut()) {
        rule.insert("resourceNames".to_owned(), json!([name]));
    }
    rule
}

/// A list of texts on one line.
fn list(value: &Value) -> String {
    let items: Vec<_> = value
        .as_array()
        .into_iter()
        .flatten()
        .map(Value::to_string)
        .collect();
    format!("[{}]", items.join(", "))
}

fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}
