//! What crosses of a grant.

use super::{AskGrant, Grant, HoleGrant, LabelGrant, ObjectPattern, ReadGrant, WriteGrant};
use crate::about::owned;
use crate::bindings::guest::exports::transom::policy::guest as wit;
use crate::kinds::Kind;
use crate::objects::{LabelTerm, Review};

/// Makes what crosses of each item.
fn all<T, U: for<'a> From<&'a T>>(items: &[T]) -> Vec<U> {
    items.iter().map(Into::into).collect()
}

impl From<&Grant> for wit::SuggestedGrant {
    fn from(grant: &Grant) -> Self {
        let template = |(name, text): &(&str, &str)| wit::Template {
            name: (*name).into(),
            text: (*text).into(),
        };
        Self {
            primary_labels: all(grant.primary_labels),
            names: grant.names.iter().map(template).collect(),
            read: all(grant.read),
            ask: all(grant.ask),
            write: all(grant.write),
            finalizer: grant.finalizer.map(Into::into),
        }
    }
}

impl From<&LabelGrant> for LabelTerm {
    fn from(label: &LabelGrant) -> Self {
        Self {
            key: label.key.into(),
            operator: label.operator,
            values: owned(label.values),
        }
    }
}

impl From<&ObjectPattern> for wit::ObjectPattern {
    fn from(object: &ObjectPattern) -> Self {
        Self {
            api_version: object.api_version.into(),
            kind: object.kind.into(),
            namespace: object.namespace.map(Into::into),
            name: object.name.into(),
        }
    }
}

impl From<&ReadGrant> for wit::ReadGrant {
    fn from(grant: &ReadGrant) -> Self {
        let limits = |(objects, bytes)| wit::SetLimits { objects, bytes };
        Self {
            role: grant.role.into(),
            object: (&grant.object).into(),
            keys: owned(grant.keys),
            every: grant.every.map(limits),
            why: grant.why.into(),
        }
    }
}

impl From<&AskGrant> for wit::AskGrant {
    fn from(grant: &AskGrant) -> Self {
        let review = Review {
            who: grant.who,
            verb: grant.verb.into(),
            group: grant.group.into(),
            resource: grant.resource.into(),
            subresource: grant.subresource.map(Into::into),
            namespace: grant.namespace.map(Into::into),
            name: grant.name.map(Into::into),
        };
        Self {
            review,
            why: grant.why.into(),
        }
    }
}

impl From<&HoleGrant> for wit::HoleGrant {
    fn from(grant: &HoleGrant) -> Self {
        let kind = |kind: &Kind| wit::ManifestKind {
            api_version: kind.api_version.into(),
            kind: kind.kind.into(),
        };
        Self {
            path: grant.path.into(),
            bytes: owned(grant.bytes),
            kubeconfigs: owned(grant.kubeconfigs),
            manifests: grant.manifests.iter().map(kind).collect(),
        }
    }
}

impl From<&WriteGrant> for wit::WriteGrant {
    fn from(grant: &WriteGrant) -> Self {
        let allowed = |(path, values): &(&str, &[&str])| wit::AllowedValues {
            path: (*path).into(),
            values: owned(values),
        };
        Self {
            object: grant.object.as_ref().map(Into::into),
            verbs: grant.verbs.to_vec(),
            fields: owned(grant.fields),
            values: grant.values.iter().map(allowed).collect(),
            labels: all(grant.labels),
            finalizers: owned(grant.finalizers),
            taint_keys: owned(grant.taint_keys),
            conditions: owned(grant.conditions),
            signers: owned(grant.signers),
            servers: owned(grant.servers),
            authorities: owned(grant.authorities),
            holes: all(grant.holes),
            why: grant.why.into(),
        }
    }
}
