//! What a guest asks a policy to grant, as constants. It grants nothing by itself: `transom policy init` writes a
//! manifest with it.

mod crossing;
mod write;

pub use crate::bindings::guest::exports::transom::policy::guest::Verb;
use crate::kinds::Kind;
use crate::objects::{Operator, Who};
pub use write::WriteGrant;

/// What a guest asks a policy to grant, unless the settings say otherwise.
#[derive(Clone, Copy, Debug)]
pub struct Grant {
    /// Which labels the primaries have.
    pub primary_labels: &'static [LabelGrant],
    /// Templates that patterns use as `{name}`: name and text.
    pub names: &'static [(&'static str, &'static str)],
    /// The objects that it asks for, by role.
    pub read: &'static [ReadGrant],
    /// What it asks the API server.
    pub ask: &'static [AskGrant],
    /// What it writes; a trigger guest writes nothing.
    pub write: &'static [WriteGrant],
    /// The finalizer that it keeps on the primary.
    pub finalizer: Option<&'static str>,
}

impl Grant {
    /// No grant at all: the base for `..Grant::NONE`.
    pub const NONE: Self = Self {
        primary_labels: &[],
        names: &[],
        read: &[],
        ask: &[],
        write: &[],
        finalizer: None,
    };
}

/// What the label of one key must fulfil.
#[derive(Clone, Copy, Debug)]
pub struct LabelGrant {
    /// Key of the label.
    pub key: &'static str,
    /// How its value is compared.
    pub operator: Operator,
    /// The values, where there are any.
    pub values: &'static [&'static str],
}

/// Objects, as a grant of a policy names them: `*` matches any text, `{primary.namespace}` and `{primary.name}` are
/// those of the primary, `{name}` is a template of [`Grant::names`].
#[derive(Clone, Copy, Debug)]
pub struct ObjectPattern {
    /// Group and version, such as `v1`.
    pub api_version: &'static str,
    /// Kind, such as `Secret`.
    pub kind: &'static str,
    /// Pattern of the namespace; absent for a kind that is cluster-scoped.
    pub namespace: Option<&'static str>,
    /// Pattern of the name.
    pub name: &'static str,
}

/// Objects that a guest asks for under a role.
#[derive(Clone, Copy, Debug)]
pub struct ReadGrant {
    /// The role, as in the needs of the guest.
    pub role: &'static str,
    /// Which objects.
    pub object: ObjectPattern,
    /// The keys of a Secret's data that it asks for.
    pub keys: &'static [&'static str],
    /// For a set: the most objects, and the most bytes of names and declared fields.
    pub every: Option<(u32, u32)>,
    /// What it needs them for, in one sentence.
    pub why: &'static str,
}

impl ReadGrant {
    /// One object, or the presence of one.
    pub const fn object(role: &'static str, object: ObjectPattern, why: &'static str) -> Self {
        Self {
            role,
            object,
            keys: &[],
            every: None,
            why,
        }
    }

    /// A Secret with these keys.
    pub const fn secret(
        role: &'static str,
        secret: ObjectPattern,
        keys: &'static [&'static str],
        why: &'static str,
    ) -> Self {
        Self {
            keys,
            ..Self::object(role, secret, why)
        }
    }

    /// All objects, or their number, with the limits that a policy has by default.
    pub const fn every(role: &'static str, objects: ObjectPattern, why: &'static str) -> Self {
        Self {
            every: Some((1_000, 1 << 20)),
            ..Self::object(role, objects, why)
        }
    }
}

/// A question to the API server.
#[derive(Clone, Copy, Debug)]
pub struct AskGrant {
    /// Who may, or may not.
    pub who: Who,
    /// What: `renew`.
    pub verb: &'static str,
    /// With resources of this group; empty for the core group.
    pub group: &'static str,
    /// Plural name of the resource.
    pub resource: &'static str,
    /// A part of it.
    pub subresource: Option<&'static str>,
    /// Pattern of the namespace; absent where the question names none.
    pub namespace: Option<&'static str>,
    /// Pattern of the name; absent where the question names none.
    pub name: Option<&'static str>,
    /// What it needs the answer for, in one sentence.
    pub why: &'static str,
}

/// A field of a Secret that the host fills.
#[derive(Clone, Copy, Debug)]
pub struct HoleGrant {
    /// Its path.
    pub path: &'static str,
    /// The roles of Secrets whose bytes go there, or into Secrets of the text.
    pub bytes: &'static [&'static str],
    /// The same for kubeconfigs.
    pub kubeconfigs: &'static [&'static str],
    /// The kinds of the objects of the text that goes there.
    pub manifests: &'static [Kind],
}

impl HoleGrant {
    /// Bytes of Secrets of these roles.
    pub const fn bytes(path: &'static str, roles: &'static [&'static str]) -> Self {
        Self {
            path,
            bytes: roles,
            kubeconfigs: &[],
            manifests: &[],
        }
    }

    /// A kubeconfig that is made of one of these roles.
    pub const fn kubeconfigs(path: &'static str, roles: &'static [&'static str]) -> Self {
        Self {
            kubeconfigs: roles,
            ..Self::bytes(path, &[])
        }
    }

    /// A text of objects of these kinds.
    pub const fn manifests(path: &'static str, kinds: &'static [Kind]) -> Self {
        Self {
            manifests: kinds,
            ..Self::bytes(path, &[])
        }
    }
}
