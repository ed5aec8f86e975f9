//! Limits of a policy. The schema of the CRD and the check of a policy both use these numbers.

/// Maximum number of namespace patterns of a primary, read grants, keys of a Secret, and taint keys.
pub const MANY: usize = 64;
/// Maximum number of write grants, servers, CA roles, roles of `keepUntilAbsent`, labels, annotations and names.
pub const FEW: usize = 16;
/// Maximum length of a pattern, in characters.
pub const PATTERN: usize = 253;
/// Maximum length of a template of `grant.names`, in characters.
pub const TEMPLATE: usize = 512;
/// Maximum length of a kind, a connection name and a role, in bytes.
pub const LABEL: usize = 63;
/// Maximum length of group and version, in bytes.
pub const API_VERSION: usize = 317;
/// Maximum length of a component's path and of a server, in characters.
pub const PLACE: usize = 1024;
/// Maximum length of the key of a taint, a label or an annotation, in characters.
pub const TAINT_KEY: usize = 317;
/// Maximum length of a key of a Secret's data and of a domain, in bytes.
pub const DATA_KEY: usize = 253;
/// Maximum length of the value of an annotation, in characters.
pub const ANNOTATION: usize = 1024;
