//! How much a policy may hold. The schema of the CRD and the check of a policy use the same numbers; never a second one.

/// The most patterns of namespaces of a primary, read grants, keys of a Secret and keys of taints.
pub const MANY: usize = 64;
/// The most write grants, servers, roles of certificate authorities, roles of `keepUntilAbsent`, labels, annotations and names.
pub const FEW: usize = 16;
/// The longest pattern, in characters.
pub const PATTERN: usize = 253;
/// The longest template of `grant.names`, in characters.
pub const TEMPLATE: usize = 512;
/// The longest kind, name of a connection, and role, in bytes.
pub const LABEL: usize = 63;
/// The longest group and version, in bytes.
pub const API_VERSION: usize = 317;
/// The longest place of a component, and the longest server, in characters.
pub const PLACE: usize = 1024;
/// The longest key of a taint, a label or an annotation, in characters.
pub const TAINT_KEY: usize = 317;
/// The longest key of a Secret's data, and the longest domain, in bytes.
pub const DATA_KEY: usize = 253;
/// The longest value of an annotation, in characters.
pub const ANNOTATION: usize = 1024;
