//! What both refuse: a change of a policy, and its place. No answer of a server.

/// Of everything that `core::policy::check` refuses, only the stars of `keepUntilAbsent` are left to the agent
/// (counting them costs more than a rule may), and which fields and values an objects guest may write. One case a line:
/// the policy by the letter that `main.rs` gives it, the path, and the new value (null removes the field).
pub(crate) const REFUSED: &str = r#"
k /metadata/name "A"
k /metadata/name "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
k /spec null
k /spec {}
k /spec/suspended true
k /spec/suspend "yes"
k /spec/verify {}
k /spec/verify {"keys": []}
k /spec/verify {"mode": "Some", "keys": [{"name": "a", "file": "a"}]}
k /spec/verify {"keys": [{"name": "a", "file": "a"}, {"name": "a", "file": "b"}]}
k /spec/verify {"keys": [{"name": "a"}]}
k /spec/verify {"keys": [{"name": "A", "file": "a"}]}
k /spec/verify {"keys": [{"name": "a", "file": "a", "configMap": "a/b/c"}]}
k /spec/verify {"keys": [{"name": "a", "configMap": "a/b"}]}
k /spec/verify {"keys": [{"name": "a", "file": ""}]}
k /spec/resyncSeconds -1
k /spec/resyncSeconds 4294967296
k /spec/primary {"apiVersion": "v1", "kind": "Secret"}
k /spec/primary/kind null
k /spec/primary/kind "hostedCluster"
k /spec/primary/apiVersion "a/b/c"
k /spec/primary/cluster "The Hub"
k /spec/primary/namespaces []
k /spec/primary/namespaces ["a", "**"]
k /spec/primary/namespaces ["a*b*c*"]
k /spec/primary/namespaces ["{primary.name}"]
k /spec/guests/decide null
k /spec/guests/decide/component ""
k /spec/guests/decide/digest "sha256:12"
k /spec/guests/trigger/capabilities ["log", "log"]
k /spec/guests/trigger/capabilities ["clock"]
k /spec/guests/trigger/settings []
k /spec/guests/other {"component": "builtin:trigger"}
k /spec/grant null
k /spec/grant/names null
k /spec/grant/names {}
k /spec/grant/names/a-b "primary.name"
k /spec/grant/names/managedCluster ""
k /spec/grant/names/managedCluster "primary.uid"
k /spec/grant/names/managedCluster "primary.name |"
k /spec/grant/names/managedCluster "primary.annotations[a]"
k /spec/grant/names/managedCluster "\"*\" primary.name"
k /spec/grant/names/managedCluster "dashed(\"a\")"
k /spec/grant/read null
k /spec/grant/read/1/role "source"
k /spec/grant/read/1/role "a b"
k /spec/grant/read/0/keys null
k /spec/grant/read/0/keys ["a/b"]
k /spec/grant/read/0/keys ["a", "a"]
k /spec/grant/read/0/namespace null
k /spec/grant/read/1/namespace null
k /spec/grant/read/1/keys ["a"]
k /spec/grant/read/2/name "{name}"
k /spec/grant/read/2/name "}"
k /spec/grant/read/2/name "{primary.uid}"
k /spec/grant/write/0/namespace "a-{name}"
h /spec/grant/write/0/kubeconfig null
h /spec/grant/write/0/holes {}
h /spec/grant/write/0/holes {"data.a": {"bytes": ["admin"]}}
h /spec/grant/write/0/holes {"x.a": {"kubeconfig": ["admin"]}}
h /spec/grant/write/0/holes {"data.a": {"kubeconfig": ["a b"]}}
h /spec/grant/write/0/holes {"data.a": {"x": ["admin"], "kubeconfig": ["admin"]}}
h /spec/grant/write/0/holes {"data.a": {"kubeconfig": ["admin"], "manifests": [{"kind": "a"}]}}
h /spec/grant/write/0/kind "ConfigMap"
h /spec/grant/write/0/kubeconfig/server []
k /spec/grant/write/0/kubeconfig null
k /spec/grant/write/0/target "primary"
k /spec/grant/write/0/kind "ConfigMap"
k /spec/grant/write/0/kind null
k /spec/grant/write/0/apiVersion "v2"
k /spec/grant/write/0/namespace null
k /spec/grant/write/0/name ""
k /spec/grant/write/0/cluster "-"
k /spec/grant/write/0/verbs []
k /spec/grant/write/0/verbs ["patch"]
k /spec/grant/write/0/verbs ["create", "create"]
k /spec/grant/write/0/verbs ["Create"]
k /spec/grant/write/0/fields ["data.a", "data.b"]
k /spec/grant/write/0/fields ["metadata.labels"]
k /spec/grant/write/0/fields ["spec.taints"]
k /spec/grant/write/0/taintKeys ["a"]
k /spec/grant/write/0/kubeconfig/server []
k /spec/grant/write/0/kubeconfig/server ["home"]
k /spec/grant/write/0/kubeconfig/server ["nobody"]
k /spec/grant/write/0/kubeconfig/server ["https://a?b"]
k /spec/grant/write/0/kubeconfig/server ["https://user@a"]
k /spec/grant/write/0/kubeconfig/server ["ftp://a"]
k /spec/grant/write/0/kubeconfig/ca ["service"]
k /spec/grant/write/0/kubeconfig/ca []
k /spec/grant/write/0/kubeconfig/credentials ["Token", "Token"]
k /spec/grant/write/0/kubeconfig/credentials ["Key"]
k /spec/grant/write/0/kubeconfig/clusterDomain "a b"
k /spec/grant/write/0/kubeconfig/proxy "Yes"
k /spec/own/keepUntilAbsent ["nobody"]
k /spec/own/adopt "Always"
k /spec/own/labels {"team": 1}
k /spec/own/labels {"team": "a b"}
k /spec/own/labels {"a b": "x"}
k /spec/own/labels {"A/a": "x"}
k /spec/own/labels {"app.kubernetes.io/managed-by": "x"}
k /spec/own/labels {"transom.dev/policy": "x"}
k /spec/own/annotations {"/a": "x"}
k /spec/own/annotations {"x.transom.dev/a": "x"}
t /spec/primary/kind "Node"
o /spec/grant/write/0/verbs ["patch", "update"]
o /spec/grant/write/0/name null
o /spec/grant/write/0/target "primary"
o /spec/grant/write/0/taintKeys ["a"]
o /spec/grant/write/0/apiVersion "transom.dev/v1alpha1"
o /spec/grant/write/0 {"target": "primary", "verbs": ["patch"], "fields": ["spec.x"]}
o /spec/grant/write/0/fields ["status.x"]
o /spec/grant/write/0/conditions ["Ours"]
o /spec/grant/write/0/signers ["a/b"]
s /spec/grant/write/0/fields ["status"]
s /spec/grant/write/0/conditions []
s /spec/grant/write/0/conditions ["Ours", "Ours"]
s /spec/grant/write/0/conditions [""]
s /spec/grant/write/0/signers ["a/b"]
s /spec/primary {"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest"}
s /spec/grant/write/0/fields ["metadata.labels.a"]
v /spec/grant/write/0/signers []
v /spec/grant/write/0/conditions ["Failed"]
v /spec/grant/write/0/fields ["status.conditions", "status.certificate"]
v /spec/primary/kind "Other"
f /spec/grant/write/0/verbs ["patch", "create"]
f /spec/grant/write/0/verbs ["create"]
f /spec/grant/write/0/name null
f /spec/grant/write/0/conditions []
f /spec/grant/write/0/fields ["status"]
f /spec/grant/write/0/signers ["a/b"]
f /spec/own {"labels": {"a": "b"}}
f /spec/grant/write/0 {"kind": "Secret", "namespace": "a", "name": "b", "verbs": ["patch"], "fields": ["data.x"]}
f /spec/grant/write/0 {"apiVersion": "transom.dev/v1alpha1", "kind": "FleetPolicy", "name": "b", "verbs": ["patch"], "fields": ["spec.x"]}
f /spec/grant/write/0 {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "name": "b", "verbs": ["patch"], "fields": ["metadata.labels.x"]}
f /spec/grant/write/0 {"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "name": "b", "verbs": ["patch"], "fields": ["metadata.labels.x"]}
t /spec/grant/write/0/kind "Pod"
t /spec/grant/write/0/cluster "The Hub"
t /spec/grant/write/0/verbs ["patch", "delete"]
t /spec/grant/write/0/fields ["spec"]
t /spec/grant/write/0/taintKeys []
t /spec/grant/write/0/taintKeys ["a", "a"]
t /spec/grant/write/0/taintKeys [""]
t /spec/own {"keepUntilAbsent": ["x"]}
t /spec/own {"labels": {"a": "b"}}
t /spec/own {"annotations": {"a": "b"}}
t /spec/grant/write/1 {"target": "primary", "verbs": ["patch"], "fields": ["spec.taints"], "taintKeys": ["a"]}
t /spec/replaces [{"lease": ""}]
t /spec/replaces [{"lease": "A controller"}]
t /spec/replaces [{"lease": "a..b"}]
t /spec/replaces [{"lease": "a"}, {"lease": "a"}, {"lease": "a"}, {"lease": "a"}, {"lease": "a"}, {"lease": "a"}, {"lease": "a"}, {"lease": "a"}, {"lease": "a"}, {"lease": "a"}, {"lease": "a"}, {"lease": "a"}, {"lease": "a"}, {"lease": "a"}, {"lease": "a"}, {"lease": "a"}, {"lease": "a"}]
"#;
