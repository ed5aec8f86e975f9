//! What a guest may ask for, by form.

use super::*;

impl Need {
    /// One object with the declared fields of its kind. If it does not exist, its value is `absent`; every change of it
    /// triggers a reconcile.
    pub fn object(role: &str, reference: ObjectRef) -> Self {
        Self {
            role: role.to_owned(),
            reference,
            form: Form::Object,
            absence: Absence::Fine,
            wake: Wake::Change,
        }
    }

    /// Only whether an object is there.
    pub fn presence(role: &str, reference: ObjectRef) -> Self {
        Self {
            form: Form::Presence,
            wake: Wake::Presence,
            ..Self::object(role, reference)
        }
    }

    /// How old a time in a declared field of an object is.
    pub fn age(role: &str, reference: ObjectRef, field: &str, seconds: u32) -> Self {
        let field = field.to_owned();
        Self {
            form: Form::Age(Age { field, seconds }),
            ..Self::object(role, reference)
        }
    }

    /// How long ago the agent saw a declared field of an object change, whatever it says.
    pub fn observed(role: &str, reference: ObjectRef, field: &str, seconds: u32) -> Self {
        let field = field.to_owned();
        Self {
            form: Form::Observed(Age { field, seconds }),
            ..Self::object(role, reference)
        }
    }

    /// All objects of a kind, in the namespace of `place` if it has one; the name of `place` is empty. Of their
    /// texts the first 4,096 bytes cross.
    pub fn every(role: &str, place: ObjectRef, labels: Vec<LabelTerm>) -> Self {
        let query = Query {
            labels,
            ..Query::default()
        };
        Self {
            form: Form::Every(query),
            ..Self::object(role, place)
        }
    }

    /// The same, with those that are being deleted.
    pub fn every_with_terminating(role: &str, place: ObjectRef, labels: Vec<LabelTerm>) -> Self {
        let query = Query {
            labels,
            terminating: true,
            ..Query::default()
        };
        Self {
            form: Form::Every(query),
            ..Self::object(role, place)
        }
    }

    /// How many objects of a kind have such labels, in the namespace of `place` if it has one; the name of `place` is
    /// empty.
    pub fn count(role: &str, place: ObjectRef, labels: Vec<LabelTerm>) -> Self {
        Self {
            form: Form::Count(labels),
            ..Self::object(role, place)
        }
    }

    /// How the last reconcile of the primary ended.
    pub fn outcome(role: &str, primary: &Primary) -> Self {
        Self {
            form: Form::Outcome,
            wake: Wake::Never,
            ..Self::object(role, primary.reference.clone())
        }
    }

    /// The write that failed in the last reconcile of the primary.
    pub fn failed_write(role: &str, primary: &Primary) -> Self {
        Self {
            form: Form::FailedWrite,
            ..Self::outcome(role, primary)
        }
    }

    /// What a CertificateSigningRequest asks for.
    pub fn certificate_request(role: &str, reference: ObjectRef) -> Self {
        Self {
            form: Form::CertificateRequest,
            ..Self::object(role, reference)
        }
    }

    /// The bytes under keys of a Secret, by reference. The policy grants the keys; those that are not there are left
    /// out.
    pub fn secret(role: &str, reference: ObjectRef, keys: &[&str]) -> Self {
        let keys = keys.iter().map(|key| (*key).to_owned()).collect();
        Self {
            form: Form::Secret(keys),
            ..Self::object(role, reference)
        }
    }

    /// A Service as a record.
    pub fn service(role: &str, reference: ObjectRef) -> Self {
        Self {
            form: Form::Service,
            ..Self::object(role, reference)
        }
    }

    /// The kubeconfig under a key of a Secret, by reference. The policy grants the key.
    pub fn kubeconfig(role: &str, reference: ObjectRef, key: &str) -> Self {
        Self {
            form: Form::Kubeconfig(key.to_owned()),
            ..Self::object(role, reference)
        }
    }

    /// What the first certificate under `tls.crt` of a Secret says, and whether the key under `tls.key` belongs to it.
    pub fn certificate(role: &str, reference: ObjectRef) -> Self {
        let keys = CertificateKeys {
            certificate: "tls.crt".to_owned(),
            private_key: Some("tls.key".to_owned()),
        };
        Self {
            form: Form::Certificate(keys),
            ..Self::object(role, reference)
        }
    }

    /// What the API server says about who may do something.
    pub fn access(role: &str, primary: &Primary, review: Review) -> Self {
        Self {
            form: Form::Access(review),
            wake: Wake::Never,
            ..Self::object(role, primary.reference.clone())
        }
    }

    /// With another meaning of its absence.
    #[must_use]
    pub fn or(self, absence: Absence) -> Self {
        Self { absence, ..self }
    }

    /// With another wake.
    #[must_use]
    pub fn waking(self, wake: Wake) -> Self {
        Self { wake, ..self }
    }
}
