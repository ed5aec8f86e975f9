//! Converts the parts of needs and inputs, such as certificate requests, members of sets and ages.

use super::generated::transom::policy::forms as wit;
use crate::measure::{Lift, Lower};
use transom_core::contract::decide::{
    Absence, Age, CertificateRequest, LastOutcome, Member, Query, RequestContent, Wake,
};

impl Lower {
    fn texts(&mut self, texts: &[String]) -> Vec<String> {
        self.list(texts, |lower, text| lower.text(text))
    }

    pub(in crate::bindings) fn certificate_request(
        &mut self,
        request: &CertificateRequest,
    ) -> wit::CertificateRequest {
        wit::CertificateRequest {
            signer: self.text(&request.signer),
            requester: self.text(&request.requester),
            groups: self.texts(&request.groups),
            usages: self.texts(&request.usages),
            seconds: request.seconds,
            content: match &request.content {
                RequestContent::Readable(requested) => {
                    wit::RequestContent::Readable(wit::Requested {
                        common_name: self.maybe(requested.common_name.as_deref()),
                        organisations: self.texts(&requested.organisations),
                        other_subject: self.texts(&requested.other_subject),
                        names: self.texts(&requested.names),
                        key: self.text(&requested.key),
                        key_bits: requested.key_bits,
                    })
                }
                RequestContent::Malformed(why) => wit::RequestContent::Malformed(self.text(why)),
            },
        }
    }

    pub(in crate::bindings) fn outcome(&mut self, outcome: &LastOutcome) -> wit::Outcome {
        wit::Outcome {
            state: self.text(&outcome.state),
            reason: self.text(&outcome.reason),
            since_seconds: outcome.since_seconds,
            failures: outcome.failures,
        }
    }

    pub(in crate::bindings) fn member(&mut self, member: &Member) -> wit::Member {
        wit::Member {
            namespace: self.maybe(member.namespace.as_deref()),
            name: self.text(&member.name),
            fields: self.json(&member.fields),
        }
    }
}

impl Lift<'_> {
    pub(in crate::bindings) fn age(&mut self, age: wit::Age) -> Age {
        Age {
            field: self.text(age.field),
            seconds: age.seconds,
        }
    }

    pub(in crate::bindings) fn query(&mut self, query: wit::Query) -> Query {
        Query {
            labels: self.list(query.labels, Self::label_term),
            names_only: query.names_only,
            terminating: query.terminating,
        }
    }

    pub(in crate::bindings) fn absence(&mut self, absence: wit::Absence) -> Absence {
        match absence {
            wit::Absence::Wait(reason) => Absence::Wait(self.reason(reason)),
            wit::Absence::Fail(reason) => Absence::Fail(self.reason(reason)),
            wit::Absence::Fine => Absence::Fine,
        }
    }

    pub(in crate::bindings) fn wake(&mut self, wake: wit::Wake) -> Wake {
        match wake {
            wit::Wake::Change => Wake::Change,
            wit::Wake::Presence => Wake::Presence,
            wit::Wake::Never => Wake::Never,
        }
    }
}
