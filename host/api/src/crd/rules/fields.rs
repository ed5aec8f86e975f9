//! Bounds of the fields of each part of a policy and of its status.

use super::*;

/// Those of the primaries.
pub(super) fn of_primary() -> Vec<(&'static str, Value)> {
    vec![
        ("cluster", text(CONNECTION, LABEL)),
        ("apiVersion", text(VERSION, API_VERSION)),
        ("kind", text(KIND, LABEL)),
        ("namespaces", list(MANY)),
        ("namespaces[]", text(NAMESPACES, PATTERN)),
    ]
}

/// Those of a guest.
pub(super) fn of_guest() -> Vec<(&'static str, Value)> {
    vec![
        ("component", any(PLACE)),
        ("digest", json!({"pattern": "^sha256:[0-9a-f]{64}$"})),
        ("capabilities", set(1)),
    ]
}

/// Those of the grant.
pub(super) fn of_grant(template: &str) -> Vec<(&'static str, Value)> {
    let named =
        json!({"type": "string", "minLength": 1, "maxLength": TEMPLATE, "pattern": template});
    vec![
        ("names", texts(named)),
        ("read", map(MANY, "role")),
        ("ask", list(FEW)),
        ("write", json!({"maxItems": FEW})),
        ("finalizer", text(FINALIZER, TAINT_KEY)),
    ]
}

/// Those of a read grant.
pub(super) fn of_read(names: &str) -> Vec<(&'static str, Value)> {
    vec![
        ("role", text(ROLE, LABEL)),
        ("cluster", text(CONNECTION, LABEL)),
        ("apiVersion", text(VERSION, API_VERSION)),
        ("kind", text(KIND, LABEL)),
        ("namespace", text(names, PATTERN)),
        ("name", text(names, PATTERN)),
        ("keys", set(MANY)),
        ("keys[]", text(KEY, DATA_KEY)),
        ("every.objects", number(EverySpec::MAX_OBJECTS)),
        ("every.bytes", number(EverySpec::MAX_BYTES)),
    ]
}

/// Those of a write grant.
pub(super) fn of_write(names: &str) -> Vec<(&'static str, Value)> {
    let value = json!({"x-kubernetes-preserve-unknown-fields": true, "nullable": true});
    let value = json!({"type": "array", "maxItems": MANY, "items": value});
    let values = json!({"maxProperties": MANY, "additionalProperties": value});
    let verbs = json!({"maxItems": 4, "minItems": 1, "x-kubernetes-list-type": "set"});
    vec![
        ("cluster", text(CONNECTION, LABEL)),
        ("apiVersion", text(VERSION, API_VERSION)),
        ("kind", text(KIND, LABEL)),
        ("namespace", text(names, PATTERN)),
        ("name", text(names, PATTERN)),
        ("verbs", verbs),
        ("fields", json!({"maxItems": MANY})),
        ("fields[]", any(TEMPLATE)),
        ("finalizers", set(FEW)),
        ("finalizers[]", any(TAINT_KEY)),
        ("values", values.clone()),
        ("holes", json!({"maxProperties": FEW})),
        ("holes{}.bytes", set(FEW)),
        ("holes{}.bytes[]", text(ROLE, LABEL)),
        ("holes{}.kubeconfig", set(FEW)),
        ("holes{}.kubeconfig[]", text(ROLE, LABEL)),
        ("holes{}.manifests", list(MANY)),
        ("holes{}.manifests[].apiVersion", text(VERSION, API_VERSION)),
        ("holes{}.manifests[].kind", text(KIND, LABEL)),
        ("holes{}.manifests[].values", values),
        ("taintKeys", set(MANY)),
        ("taintKeys[]", any(TAINT_KEY)),
        ("conditions", set(MANY)),
        ("conditions[]", any(TAINT_KEY)),
        ("signers", set(MANY)),
        ("signers[]", any(TAINT_KEY)),
    ]
}

/// Those of a question about access.
pub(super) fn of_review(names: &str) -> Vec<(&'static str, Value)> {
    vec![
        ("verb", text(CONNECTION, LABEL)),
        ("group", any(DATA_KEY)),
        ("resource", any(TAINT_KEY)),
        ("namespace", text(names, PATTERN)),
        ("name", text(names, PATTERN)),
    ]
}

/// A number from 1 on.
fn number(most: u32) -> Value {
    json!({"minimum": 1, "maximum": most})
}

/// Those of a selector of labels.
pub(super) fn of_labels(label: &Value) -> Vec<(&'static str, Value)> {
    let labels = json!({"maxProperties": FEW, "additionalProperties": label});
    // As for every selector of Kubernetes, an empty list is none.
    let expressions = json!({"maxItems": FEW});
    vec![("matchLabels", labels), ("matchExpressions", expressions)]
}

/// Those of one expression of a selector of labels.
pub(super) fn of_expression(label: &Value) -> Vec<(&'static str, Value)> {
    vec![
        ("key", any(TAINT_KEY)),
        ("values", set(MANY)),
        ("values[]", label.clone()),
    ]
}

/// Those of the signatures that are demanded.
pub(super) fn of_verify() -> Vec<(&'static str, Value)> {
    let mut keys = map(FEW, "name");
    keys["minItems"] = json!(1);
    vec![("keys", keys)]
}

/// Those of a key of signatures.
pub(super) fn of_key() -> Vec<(&'static str, Value)> {
    vec![
        ("name", text(CONNECTION, LABEL)),
        ("configMap", text(KEY_PLACE, PLACE)),
        ("file", any(PLACE)),
    ]
}

/// Those of the status.
pub(super) fn of_status() -> Vec<(&'static str, Vec<(&'static str, Value)>)> {
    let atomic = |most: usize| json!({"maxItems": most, "x-kubernetes-list-type": "atomic"});
    let conditions = json!({"maxItems": 8, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]});
    vec![
        (
            "status.limits",
            vec![
                ("changes", atomic(Limited::ALL.len())),
                ("primaries", atomic(MAX_WITHHELD)),
            ],
        ),
        ("status.candidate", vec![("effects", atomic(MAX_LISTED))]),
        (
            "status",
            vec![
                ("waiting", atomic(MAX_LISTED)),
                ("topFailures", atomic(MAX_TOP_FAILURES)),
                ("watchErrors", atomic(MAX_LISTED)),
                ("usage", atomic(Budgeted::ALL.len())),
                ("conditions", conditions),
            ],
        ),
    ]
}

/// Those of ownership.
pub(super) fn of_own(label: Value) -> Vec<(&'static str, Value)> {
    let annotation = json!({"type": "string", "maxLength": ANNOTATION});
    vec![
        ("keepUntilAbsent", json!({"maxItems": FEW})),
        ("keepUntilAbsent[]", text(ROLE, LABEL)),
        ("labels", texts(label)),
        ("annotations", texts(annotation)),
    ]
}

/// Those of what one call of a guest may use.
pub(super) fn of_budget() -> Vec<(&'static str, Value)> {
    vec![("timeMilliseconds", json!({"minimum": 1}))]
}

/// Those of how a new revision becomes active.
pub(super) fn of_rollout() -> Vec<(&'static str, Value)> {
    let (least, most) = HISTORY;
    let (shortest, longest) = RollbackSpec::WINDOW;
    vec![
        ("history", json!({"minimum": least, "maximum": most})),
        (
            "rollback.windowSeconds",
            json!({"minimum": shortest, "maximum": longest}),
        ),
        ("rollback.count", json!({"minimum": 1})),
        ("rollback.percent", json!({"maximum": 100})),
    ]
}

/// Those of the controllers that a policy replaces.
pub(super) fn of_replaced() -> Vec<(&'static str, Value)> {
    vec![
        ("replaces", json!({"maxItems": FEW})),
        ("replaces[].lease", text(DOMAIN, DATA_KEY)),
    ]
}

/// Those of what becomes of what was applied while a guest fails.
pub(super) fn of_on_failure() -> Vec<(&'static str, Value)> {
    let most = json!({"maximum": OnFailureSpec::MAX_STALE_AFTER_SECONDS});
    vec![("staleAfterSeconds", most)]
}

/// Those of how much may change.
pub(super) fn of_limits() -> Vec<(&'static str, Value)> {
    let interval = json!({"minimum": 1, "maximum": LimitsSpec::MAX_INTERVAL_SECONDS});
    let percent = json!({"maximum": 100});
    vec![
        ("intervalSeconds", interval),
        ("elementsAdded.percent", percent.clone()),
        ("elementsRemoved.percent", percent.clone()),
        ("objectsChanged.percent", percent.clone()),
        ("objectsPruned.percent", percent),
    ]
}

/// Those of what a written kubeconfig may say.
pub(super) fn of_kubeconfig() -> Vec<(&'static str, Value)> {
    let few = json!({"maxItems": FEW});
    let port = json!({"format": "int32", "minimum": 1, "maximum": u16::MAX});
    vec![
        ("server", few.clone()),
        ("server[]", text(SERVER, PLACE)),
        ("addresses", few),
        ("addresses[].role", text(ROLE, LABEL)),
        ("addresses[].host", text(HOST, PATTERN)),
        ("addresses[].field", any(TEMPLATE)),
        ("addresses[].primaryField", any(TEMPLATE)),
        ("addresses[].port", port),
        ("ca", list(FEW)),
        ("ca[]", text(ROLE, LABEL)),
        ("credentials", set(6)),
        ("clusterDomain", text(DOMAIN, DATA_KEY)),
    ]
}

pub(super) fn text(pattern: &str, most: usize) -> Value {
    json!({"pattern": pattern, "minLength": 1, "maxLength": most})
}

pub(super) fn any(most: usize) -> Value {
    json!({"minLength": 1, "maxLength": most})
}

pub(super) fn list(most: usize) -> Value {
    json!({"maxItems": most, "minItems": 1})
}

pub(super) fn set(most: usize) -> Value {
    json!({"maxItems": most, "x-kubernetes-list-type": "set"})
}

/// A map of few texts.
fn texts(value: Value) -> Value {
    json!({"maxProperties": FEW, "additionalProperties": value})
}

/// A list whose elements differ in the field `key`.
fn map(most: usize, key: &str) -> Value {
    json!({"maxItems": most, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [key]})
}
