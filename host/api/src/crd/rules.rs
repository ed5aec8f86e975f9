//! Bounds, patterns and CEL rules that the types do not express, so that the API server rejects what the agent would
//! reject. Never stricter than `core::policy::check`, which also checks what a schema cannot express.

mod fields;

use crate::policy::bounds::{
    ANNOTATION, API_VERSION, DATA_KEY, FEW, LABEL, MANY, PATTERN, PLACE, TAINT_KEY, TEMPLATE,
};
use crate::policy::rollout::HISTORY;
use crate::policy::{Budgeted, EverySpec, Limited, LimitsSpec, OnFailureSpec};
use crate::status::{MAX_LISTED, MAX_TOP_FAILURES, MAX_WITHHELD};
use fields::*;
use serde_json::{Map, Value, json};

const CONNECTION: &str = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$";
const ROLE: &str = "^[A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?$";
const KIND: &str = "^[A-Z][A-Za-z0-9]*$";
const VERSION: &str = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[a-z0-9]([-a-z0-9]*[a-z0-9])?$";
const DOMAIN: &str = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$";
/// What may be between two `*`: text, a template, or the name of one.
const BETWEEN: &str = r"[^*{}]|\{(primary\.(namespace|name)|[A-Za-z0-9]+|TEMPLATE)\}";
/// A template: alternatives separated by `|`; see `core::pattern::template`.
const TEMPLATE_TEXT: &str = r#" *TERM( *TERM)* *(\| *TERM( *TERM)* *)*"#;
const TERM: &str = r#"("[-.a-z0-9]+"|FIELD|dashed\(FIELD\))"#;
const TERM_FIELD: &str = r#"(primary\.(namespace|name|(labels|annotations)\["[-_./A-Za-z0-9]+"\])|agent\.remoteCluster)"#;
const NAME: &str = "self.all(k, k.matches('^[A-Za-z0-9]{1,63}$'))";
/// `grant.names` defines every template that a pattern uses.
const NAMED: &str = "self.write.all(w, [has(w.namespace) ? w.namespace : '', has(w.name) ? w.name : ''].all(p, p.findAll('[{][A-Za-z0-9]+[}]').all(n, has(self.names) && n.substring(1, n.size() - 1) in self.names)))";
const NAMED_READ: &str = "!has(self.read) || self.read.all(r, [has(r.namespace) ? r.namespace : '', r.name].all(p, p.findAll('[{][A-Za-z0-9]+[}]').all(n, has(self.names) && n.substring(1, n.size() - 1) in self.names)))";
const NAMESPACES: &str = r"^[^*{}]*(\*([^*{}]+(\*[^*{}]*)?)?)?$";
/// The name of a finalizer, with its domain.
const FINALIZER: &str = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/[A-Za-z0-9]([-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?$";
const HOST: &str = r"^(\*\.[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)+|[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*|[0-9A-Fa-f:.]+)$";
const KEY: &str = "^[-_.A-Za-z0-9]+$";
/// A key of a ConfigMap: `NAMESPACE/NAME/KEY`.
const KEY_PLACE: &str = "^[-a-z0-9]+/[-.a-z0-9]+/[-_.A-Za-z0-9]+$";
const LABEL_VALUE: &str = "^([A-Za-z0-9]([-_.A-Za-z0-9]*[A-Za-z0-9])?)?$";
/// Keys of labels and annotations that Kubernetes allows, except those of `labels::is_reserved`.
const META_KEYS: &str = r"self.all(k, size(k) <= 317 && k.matches('^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?$') && !k.matches('^(app[.]kubernetes[.]io/managed-by$|([^/]*[.])?transom[.]dev/)'))";
const SERVER: &str = r##"^([A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?|[Hh][Tt][Tt][Pp][Ss]?://([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?(/[!$-;=A-\[\]-~]*)?)$"##;

/// The pattern of a template.
fn template() -> String {
    TEMPLATE_TEXT
        .replace("TERM", TERM)
        .replace("FIELD", TERM_FIELD)
}

/// At most two `*`, not next to each other, with text or templates between them.
fn names() -> String {
    let between = BETWEEN.replace("TEMPLATE", &template());
    format!(r"^({between})*(\*(({between})+(\*({between})*)?)?)?$")
}

/// Adds the bounds and rules to the schema of the whole object.
pub(super) fn add(schema: &mut Value) {
    for (place, bound) in bounds() {
        if let (Some(at), Value::Object(bound)) = (find(schema, &place), bound) {
            at.extend(bound);
        }
    }
    for (place, rule, message) in RULES {
        if let Some(at) = find(schema, place) {
            let rules = at
                .entry("x-kubernetes-validations")
                .or_insert_with(|| json!([]));
            if let Value::Array(rules) = rules {
                rules.push(json!({"rule": rule, "message": message}));
            }
        }
    }
}

/// The schema at a place such as `spec.grant.read[].keys`; `{}` leads to the values of a map.
fn find<'a>(schema: &'a mut Value, place: &str) -> Option<&'a mut Map<String, Value>> {
    let mut at = schema;
    for name in place.split('.').filter(|name| !name.is_empty()) {
        let plain = name.trim_end_matches("[]").trim_end_matches("{}");
        at = at.get_mut("properties")?.get_mut(plain)?;
        at = match name.strip_prefix(plain) {
            Some("{}") => at.get_mut("additionalProperties")?,
            Some("[]") => at.get_mut("items")?,
            _ => at,
        };
    }
    at.as_object_mut()
}

/// Lengths, patterns and kinds of lists, by the place of each field.
fn bounds() -> Vec<(String, Value)> {
    let (names, template) = (names(), format!("^{}$", template()));
    let texts = |value: Value| json!({"maxProperties": FEW, "additionalProperties": value});
    let map = |most: usize, key: &str| json!({"maxItems": most, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [key]});
    let guest = || {
        vec![
            ("component", any(PLACE)),
            ("digest", json!({"pattern": "^sha256:[0-9a-f]{64}$"})),
            ("capabilities", set(1)),
        ]
    };
    let mut keys = map(FEW, "name");
    keys["minItems"] = json!(1);
    let named =
        json!({"type": "string", "minLength": 1, "maxLength": TEMPLATE, "pattern": template});
    let label = json!({"type": "string", "maxLength": LABEL, "pattern": LABEL_VALUE});
    let annotation = json!({"type": "string", "maxLength": ANNOTATION});
    let places = [
        (
            "spec.primary",
            vec![
                ("cluster", text(CONNECTION, LABEL)),
                ("apiVersion", text(VERSION, API_VERSION)),
                ("kind", text(KIND, LABEL)),
                ("namespaces", list(MANY)),
                ("namespaces[]", text(NAMESPACES, PATTERN)),
            ],
        ),
        ("spec.primary.labels", of_labels(&label)),
        (
            "spec.primary.labels.matchExpressions[]",
            of_expression(&label),
        ),
        ("spec.grant.write[].labels", of_labels(&label)),
        (
            "spec.grant.write[].labels.matchExpressions[]",
            of_expression(&label),
        ),
        ("spec.guests.decide", guest()),
        ("spec.guests.trigger", guest()),
        (
            "spec.grant",
            vec![
                ("names", texts(named)),
                ("read", map(MANY, "role")),
                ("ask", list(FEW)),
                ("write", json!({"maxItems": FEW})),
                ("finalizer", text(FINALIZER, TAINT_KEY)),
            ],
        ),
        ("spec.grant.read[]", of_read(&names)),
        ("spec.grant.ask[].accessReview", of_review(&names)),
        ("spec.grant.write[]", of_write(&names)),
        ("spec.grant.write[].kubeconfig", of_kubeconfig()),
        ("spec.verify", vec![("keys", keys)]),
        ("spec.verify.keys[]", of_key()),
        (
            "spec.own",
            vec![
                ("keepUntilAbsent", json!({"maxItems": FEW})),
                ("keepUntilAbsent[]", text(ROLE, LABEL)),
                ("labels", texts(label)),
                ("annotations", texts(annotation)),
            ],
        ),
        ("spec.limits", of_limits()),
        ("spec.onFailure", of_on_failure()),
        (
            "spec.budget",
            vec![("timeMilliseconds", json!({"minimum": 1}))],
        ),
        (
            "spec.rollout",
            vec![(
                "history",
                json!({"minimum": HISTORY.0, "maximum": HISTORY.1}),
            )],
        ),
    ];
    let of_place = |(place, fields): (&str, Vec<(&str, Value)>)| -> Vec<_> {
        let fields = fields.into_iter();
        fields
            .map(|(field, bound)| (format!("{place}.{field}"), bound))
            .collect()
    };
    let all = places.into_iter().chain(of_status());
    all.flat_map(of_place).collect()
}

/// Place, CEL rule, and the message when the rule does not hold.
const RULES: [(&str, &str, &str); 38] = [
    (
        "spec.verify.keys[]",
        "has(self.configMap) != has(self.file)",
        "a key needs either configMap or file",
    ),
    (
        "",
        "size(self.metadata.name) <= 63",
        "metadata.name is limited to 63 bytes, because it becomes a label value",
    ),
    (
        "spec",
        "self.primary.apiVersion == 'cluster.open-cluster-management.io/v1' && self.primary.kind == 'ManagedCluster' || !self.grant.write.exists(w, has(w.taintKeys) && size(w.taintKeys) > 0)",
        "only a ManagedCluster of cluster.open-cluster-management.io/v1 has taints",
    ),
    (
        "spec",
        "self.grant.write.all(w, !has(w.kubeconfig) || !has(w.kubeconfig.server) || w.kubeconfig.server.all(s, s == 'source' || s.contains('://') || has(self.grant.read) && self.grant.read.exists(r, r.role == s && r.kind == 'Service' && r.apiVersion == 'v1')))",
        "each entry of grant.write[].kubeconfig.server must be the role of a Service, `source` or a URL",
    ),
    (
        "spec",
        "self.grant.write.all(w, !has(w.kubeconfig) || !has(w.kubeconfig.addresses) || w.kubeconfig.addresses.all(a, !has(a.role) || has(self.grant.read) && self.grant.read.exists(r, r.role == a.role && (has(a.field) ? r.kind != 'Secret' || r.apiVersion != 'v1' : r.kind == 'Service' && r.apiVersion == 'v1'))))",
        "each role in grant.write[].kubeconfig.addresses must be the role of a Service, or of an object with the field",
    ),
    (
        "spec.grant.write[].kubeconfig",
        "has(self.server) && size(self.server) > 0 || has(self.addresses) && size(self.addresses) > 0",
        "a kubeconfig grant needs at least one server or address",
    ),
    (
        "spec.grant.write[].kubeconfig.addresses[]",
        "(has(self.nodePort) && self.nodePort ? 1 : 0) + (has(self.loadBalancer) && self.loadBalancer ? 1 : 0) + (has(self.field) ? 1 : 0) + (has(self.primaryField) ? 1 : 0) == 1 && has(self.role) != has(self.primaryField) && has(self.host) == (has(self.nodePort) && self.nodePort) && (!has(self.port) || has(self.field) || has(self.primaryField))",
        "an address is role, nodePort and host; role and loadBalancer; role and field; or primaryField; \
         port is for field and primaryField only",
    ),
    (
        "spec",
        "self.grant.write.all(w, !has(w.kubeconfig) || w.kubeconfig.ca.all(c, has(self.grant.read) && self.grant.read.exists(r, r.role == c && r.kind == 'Secret' && r.apiVersion == 'v1')))",
        "each entry of grant.write[].kubeconfig.ca must be the role of a Secret",
    ),
    (
        "spec",
        "!has(self.own) || !has(self.own.keepUntilAbsent) || self.own.keepUntilAbsent.all(k, has(self.grant.read) && self.grant.read.exists(r, r.role == k))",
        "each entry of own.keepUntilAbsent must be a role of grant.read",
    ),
    (
        "spec.primary",
        "self.apiVersion != 'v1' || self.kind != 'Secret'",
        "a Secret cannot be a primary, because guests would see its fields",
    ),
    (
        "spec.grant.names",
        NAME,
        "the name of a template must consist of 1 to 63 letters and digits",
    ),
    (
        "spec.grant",
        NAMED,
        "a pattern of grant.write uses a template that grant.names does not define",
    ),
    (
        "spec.grant",
        NAMED_READ,
        "a pattern of grant.read uses a template that grant.names does not define",
    ),
    (
        "spec.grant.read[]",
        "(self.kind == 'Secret' && self.apiVersion == 'v1') == (has(self.keys) && size(self.keys) > 0)",
        "a read grant for Secrets must list the keys that may be read; other read grants must have no keys",
    ),
    (
        "spec.grant.read[]",
        "!has(self.every) || self.name == '*' && !(self.kind == 'Secret' && self.apiVersion == 'v1')",
        "every needs the name `*`, and is not for Secrets",
    ),
    (
        "spec.grant.read[]",
        "has(self.namespace) || !(self.kind == 'Service' || self.kind == 'Secret' && self.apiVersion == 'v1')",
        "a read grant for a Secret or a Service needs a namespace",
    ),
    (
        "spec.grant.write",
        "self.all(w, has(w.kubeconfig) && !(has(w.holes) && size(w.holes) > 0)) || self.all(w, (!has(w.kubeconfig) || has(w.holes) && size(w.holes) > 0) && (size(self) == 1 || !has(w.taintKeys) || size(w.taintKeys) == 0))",
        "a policy writes either kubeconfigs, or the taints of its primary, or other objects and fields; use several policies for several of them",
    ),
    (
        "spec.grant.write",
        "size(self.filter(w, has(w.target))) <= 1",
        "at most one grant with `target: primary`; it names all fields",
    ),
    (
        "spec.grant.write[]",
        "has(self.target) ? !has(self.kubeconfig) : has(self.kubeconfig) || has(self.kind) && has(self.name)",
        "a write grant must have either `target: primary` or the kind and name of objects, with `kubeconfig` for a Secret",
    ),
    (
        "spec.grant.write[]",
        "!('patch' in self.verbs) || self.verbs == ['patch']",
        "the verbs for objects that the policy makes are create, update and delete, for those of others remove and release; patch stands alone",
    ),
    (
        "spec.grant.write[]",
        "has(self.target) || self.verbs != ['patch'] || !self.apiVersion.startsWith('rbac.authorization.k8s.io/') && !(has(self.kind) && self.kind == 'CertificateSigningRequest' && self.apiVersion.startsWith('certificates.k8s.io/'))",
        "of objects that give rights, and of CertificateSigningRequests that are no primary, no field can be patched",
    ),
    (
        "spec.grant.write[]",
        "self.verbs.all(v, v in ['remove', 'release']) ? !has(self.target) && size(self.fields) == 0 : (size(self.fields) > 0 || has(self.holes) && size(self.holes) > 0) && !self.verbs.exists(v, v in ['remove', 'release'])",
        "fields must not be empty without `holes`; with `remove` and `release`, which stand alone, fields and target must be absent",
    ),
    (
        "spec.grant.write[]",
        "('release' in self.verbs) == (has(self.finalizers) && size(self.finalizers) > 0) && (!has(self.labels) || self.verbs.all(v, v in ['remove', 'release']))",
        "finalizers must be named exactly where `release` is granted, and labels are for `remove` and `release`",
    ),
    (
        "spec.grant.write[]",
        "has(self.kubeconfig) || has(self.holes) && size(self.holes) > 0 || !has(self.kind) || !(self.kind == 'Secret' && self.apiVersion == 'v1') && !self.apiVersion.startsWith('transom.dev/')",
        "Secrets without `kubeconfig` or `holes`, and policies, cannot be granted",
    ),
    (
        "spec.grant.write[]",
        "!has(self.holes) || has(self.kind) && self.kind == 'Secret' && self.apiVersion == 'v1' && has(self.namespace) && !has(self.target) && self.holes.all(p, p.startsWith('data')) && self.fields.all(f, f == 'type' || f.startsWith('metadata.'))",
        "holes are for Secrets of v1 in a namespace, below `data`, beside the fields type, labels and annotations",
    ),
    (
        "spec.grant.write[]",
        "!has(self.holes) || size(self.holes) == 0 || has(self.kubeconfig) == self.holes.exists(p, has(self.holes[p].kubeconfig) && size(self.holes[p].kubeconfig) > 0)",
        "beside holes, `kubeconfig` must be there exactly where one of them gets a kubeconfig",
    ),
    (
        "spec.grant.write[]",
        "!has(self.target) || !has(self.kind) && !has(self.namespace) && !has(self.name)",
        "with `target: primary`, kind, namespace and name must be absent",
    ),
    (
        "spec.grant.write[]",
        "!has(self.target) || self.verbs == ['patch']",
        "with `target: primary`, verbs must be [patch]",
    ),
    (
        "spec.grant.write[]",
        "!has(self.taintKeys) || has(self.target) && self.fields == ['spec.taints'] && size(self.taintKeys) > 0",
        "taintKeys must not be empty, and are for `target: primary` with the fields [spec.taints] only",
    ),
    (
        "spec.grant.write[]",
        "('status.conditions' in self.fields) == (has(self.conditions) && size(self.conditions) > 0)",
        "conditions must name types exactly where `status.conditions` is one of the fields",
    ),
    (
        "spec.grant.write[]",
        "self.fields.all(f, f != 'status' && (self.verbs == ['patch'] || !f.startsWith('status.')))",
        "fields of a status can be written with the verb patch only, and not all of them at once",
    ),
    (
        "spec",
        "self.grant.write.all(w, (has(w.signers) && size(w.signers) > 0) == (has(w.target) && has(w.conditions) && size(w.conditions) > 0 && self.primary.kind == 'CertificateSigningRequest' && self.primary.apiVersion.startsWith('certificates.k8s.io/')))",
        "signers must not be empty where a policy sets conditions of CertificateSigningRequests, and are for that only",
    ),
    (
        "spec.grant.write[]",
        "!has(self.signers) || size(self.signers) == 0 || self.conditions.all(c, c in ['Approved', 'Denied']) && self.fields.all(f, !f.startsWith('status.') || f == 'status.conditions')",
        "of a CertificateSigningRequest only the conditions Approved and Denied can be set",
    ),
    (
        "spec.grant.write[]",
        "!has(self.kubeconfig) || self.apiVersion == 'v1' && has(self.kind) && self.kind == 'Secret' && has(self.namespace) && has(self.name)",
        "a kubeconfig grant needs apiVersion v1, kind Secret, a namespace and a name",
    ),
    (
        "spec.grant.write[]",
        "!has(self.kubeconfig) || has(self.holes) && size(self.holes) > 0 || !('patch' in self.verbs) && size(self.fields) == 1 && self.fields[0].startsWith('data.')",
        "a kubeconfig grant allows the verbs create, update and delete, and exactly one field, a key of data",
    ),
    (
        "spec",
        "self.grant.write.exists(w, w.verbs != ['patch']) || !has(self.own) || (!has(self.own.labels) || size(self.own.labels) == 0) && (!has(self.own.annotations) || size(self.own.annotations) == 0)",
        "own.labels and own.annotations need a policy that creates objects, and this one creates none",
    ),
    (
        "spec.own.labels",
        META_KEYS,
        "a key is not a valid label key, or is reserved for the agent",
    ),
    (
        "spec.own.annotations",
        META_KEYS,
        "a key is not a valid annotation key, or is reserved for the agent",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bound_and_rule_matches_a_field() {
        let mut schema = super::super::schema();
        let bounds = bounds().into_iter().map(|(place, _)| place);
        for place in bounds.chain(RULES.map(|(place, ..)| place.to_owned())) {
            assert!(find(&mut schema, &place).is_some(), "{place} not found");
        }
    }
}
