//! The CEL rules: what must hold between fields.

const NAME: &str = "self.all(k, k.matches('^[A-Za-z0-9]{1,63}$'))";
/// `grant.names` defines every template that a pattern uses.
const NAMED: &str = "self.write.all(w, [has(w.namespace) ? w.namespace : '', has(w.name) ? w.name : ''].all(p, p.findAll('[{][A-Za-z0-9]+[}]').all(n, has(self.names) && n.substring(1, n.size() - 1) in self.names)))";
const NAMED_READ: &str = "!has(self.read) || self.read.all(r, [has(r.namespace) ? r.namespace : '', r.name].all(p, p.findAll('[{][A-Za-z0-9]+[}]').all(n, has(self.names) && n.substring(1, n.size() - 1) in self.names)))";
/// Keys of labels and annotations that Kubernetes allows, except those of `labels::is_reserved`.
const META_KEYS: &str = r"self.all(k, size(k) <= 317 && k.matches('^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?$') && !k.matches('^(app[.]kubernetes[.]io/managed-by$|([^/]*[.])?transom[.]dev/)'))";

/// Place, CEL rule, and the message when the rule does not hold.
pub(super) const RULES: [(&str, &str, &str); 38] = [
    (
        "spec.verify.keys[]",
        "has(self.configMap) != has(self.file)",
        "a key must have exactly one of configMap and file",
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
        "(!has(self.finalizers) || size(self.finalizers) == 0 ? !('release' in self.verbs) : 'release' in self.verbs || ['create', 'update', 'delete'].all(v, v in self.verbs)) && (!has(self.labels) || self.verbs.all(v, v in ['remove', 'release']))",
        "finalizers must be named where `release` is granted, else they need create, update and delete; and labels are for `remove` and `release`",
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
