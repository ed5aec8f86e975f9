//! The conversion of the grant that a guest suggests.

use super::generated::exports::transom::policy::guest as wit;
use crate::measure::Lift;
use transom_core::contract::description::{
    AskGrant, EverySpec, HoleGrant, ObjectPattern, ReadGrant, SuggestedGrant, WriteGrant, WriteVerb,
};

impl Lift<'_> {
    pub(super) fn suggested_grant(&mut self, grant: wit::SuggestedGrant) -> SuggestedGrant {
        SuggestedGrant {
            primary_labels: self.list(grant.primary_labels, Self::label_term),
            names: self.list(grant.names, |lift, template| {
                (lift.text(template.name), lift.text(template.text))
            }),
            read: self.list(grant.read, Self::read_grant),
            ask: self.list(grant.ask, |lift, ask| AskGrant {
                review: lift.review(ask.review),
                why: lift.sentence(ask.why),
            }),
            write: self.list(grant.write, Self::write_grant),
            finalizer: self.maybe(grant.finalizer),
        }
    }

    fn object_pattern(&mut self, pattern: wit::ObjectPattern) -> ObjectPattern {
        ObjectPattern {
            api_version: self.text(pattern.api_version),
            kind: self.text(pattern.kind),
            namespace: self.maybe(pattern.namespace),
            name: self.text(pattern.name),
        }
    }

    fn read_grant(&mut self, grant: wit::ReadGrant) -> ReadGrant {
        ReadGrant {
            role: self.text(grant.role),
            object: self.object_pattern(grant.object),
            keys: self.list(grant.keys, Self::text),
            every: grant.every.map(|limits| EverySpec {
                objects: limits.objects,
                bytes: limits.bytes,
            }),
            why: self.sentence(grant.why),
        }
    }

    fn write_grant(&mut self, grant: wit::WriteGrant) -> WriteGrant {
        WriteGrant {
            object: grant.object.map(|object| self.object_pattern(object)),
            verbs: self.list(grant.verbs, |_, verb| match verb {
                wit::Verb::Create => WriteVerb::Create,
                wit::Verb::Update => WriteVerb::Update,
                wit::Verb::Delete => WriteVerb::Delete,
                wit::Verb::Patch => WriteVerb::Patch,
                wit::Verb::Remove => WriteVerb::Remove,
                wit::Verb::Release => WriteVerb::Release,
            }),
            fields: self.list(grant.fields, Self::text),
            values: self.list(grant.values, |lift, allowed| {
                (
                    lift.text(allowed.path),
                    lift.list(allowed.values, Self::text),
                )
            }),
            labels: self.list(grant.labels, Self::label_term),
            finalizers: self.list(grant.finalizers, Self::text),
            taint_keys: self.list(grant.taint_keys, Self::text),
            conditions: self.list(grant.conditions, Self::text),
            signers: self.list(grant.signers, Self::text),
            servers: self.list(grant.servers, Self::text),
            authorities: self.list(grant.authorities, Self::text),
            holes: self.list(grant.holes, |lift, hole| HoleGrant {
                path: lift.text(hole.path),
                bytes: lift.list(hole.bytes, Self::text),
                kubeconfigs: lift.list(hole.kubeconfigs, Self::text),
                manifests: lift.list(hole.manifests, |lift, kind| {
                    (lift.text(kind.api_version), lift.text(kind.kind))
                }),
            }),
            why: self.sentence(grant.why),
        }
    }
}
