//! What a guest writes.

use super::{HoleGrant, LabelGrant, ObjectPattern, Verb};

/// What a guest writes.
#[derive(Clone, Copy, Debug)]
pub struct WriteGrant {
    /// Which objects; absent for the primary itself.
    pub object: Option<ObjectPattern>,
    /// What it does with them.
    pub verbs: &'static [Verb],
    /// Dotted paths of the fields that it writes.
    pub fields: &'static [&'static str],
    /// Which values fields may get: path, and each value as JSON.
    pub values: &'static [(&'static str, &'static [&'static str])],
    /// Which labels objects of others have that it removes or releases.
    pub labels: &'static [LabelGrant],
    /// The finalizers that it takes off, or that objects of the policy bear.
    pub finalizers: &'static [&'static str],
    /// Keys of the taints that it owns.
    pub taint_keys: &'static [&'static str],
    /// Types of the conditions that it sets.
    pub conditions: &'static [&'static str],
    /// The signers of the requests that it approves or denies.
    pub signers: &'static [&'static str],
    /// Roles of which the server of a kubeconfig may come, or URLs.
    pub servers: &'static [&'static str],
    /// Roles of which the certificate authorities of a kubeconfig may come.
    pub authorities: &'static [&'static str],
    /// Fields of a Secret that the host fills.
    pub holes: &'static [HoleGrant],
    /// What it writes, in one sentence.
    pub why: &'static str,
}

impl WriteGrant {
    /// These fields of the primary.
    pub const fn fields(fields: &'static [&'static str], why: &'static str) -> Self {
        Self {
            object: None,
            verbs: &[Verb::Patch],
            fields,
            values: &[],
            labels: &[],
            finalizers: &[],
            taint_keys: &[],
            conditions: &[],
            signers: &[],
            servers: &[],
            authorities: &[],
            holes: &[],
            why,
        }
    }

    /// The taints of the primary with these keys.
    pub const fn taints(keys: &'static [&'static str], why: &'static str) -> Self {
        Self {
            taint_keys: keys,
            ..Self::fields(&["spec.taints"], why)
        }
    }

    /// The conditions of these types in the status of the primary.
    pub const fn conditions(types: &'static [&'static str], why: &'static str) -> Self {
        Self {
            conditions: types,
            ..Self::fields(&["status.conditions"], why)
        }
    }

    /// These fields of objects that others made.
    pub const fn fields_of(
        object: ObjectPattern,
        fields: &'static [&'static str],
        why: &'static str,
    ) -> Self {
        Self {
            object: Some(object),
            ..Self::fields(fields, why)
        }
    }

    /// The conditions of these types in the status of objects that others made.
    pub const fn conditions_of(
        object: ObjectPattern,
        types: &'static [&'static str],
        why: &'static str,
    ) -> Self {
        Self {
            object: Some(object),
            ..Self::conditions(types, why)
        }
    }

    /// Objects that the policy makes, keeps and prunes, with these fields.
    pub const fn objects(
        object: ObjectPattern,
        fields: &'static [&'static str],
        why: &'static str,
    ) -> Self {
        Self {
            verbs: &[Verb::Create, Verb::Update, Verb::Delete],
            ..Self::fields_of(object, fields, why)
        }
    }

    /// Secrets that the policy makes, with these fields beside those that the host fills.
    pub const fn secrets(
        secret: ObjectPattern,
        fields: &'static [&'static str],
        holes: &'static [HoleGrant],
        why: &'static str,
    ) -> Self {
        Self {
            holes,
            ..Self::objects(secret, fields, why)
        }
    }

    /// The key `kubeconfig` of Secrets, with servers and certificate authorities of these roles: for a guest of the
    /// world `kubeconfig-guest`.
    pub const fn kubeconfig(
        secret: ObjectPattern,
        servers: &'static [&'static str],
        authorities: &'static [&'static str],
        why: &'static str,
    ) -> Self {
        Self::objects(secret, &["data.kubeconfig"], why).reaching(servers, authorities)
    }

    /// Objects that others made and that it removes.
    pub const fn removal(object: ObjectPattern, why: &'static str) -> Self {
        Self {
            verbs: &[Verb::Remove],
            ..Self::fields_of(object, &[], why)
        }
    }

    /// Finalizers that it takes off objects that others made.
    pub const fn release(
        object: ObjectPattern,
        finalizers: &'static [&'static str],
        why: &'static str,
    ) -> Self {
        Self {
            verbs: &[Verb::Release],
            finalizers,
            ..Self::fields_of(object, &[], why)
        }
    }

    /// With servers and certificate authorities of kubeconfigs, by role.
    #[must_use]
    pub const fn reaching(
        self,
        servers: &'static [&'static str],
        authorities: &'static [&'static str],
    ) -> Self {
        Self {
            servers,
            authorities,
            ..self
        }
    }

    /// With other verbs: `[Verb::Create]` alone for objects that are made once and then belong to others.
    #[must_use]
    pub const fn doing(self, verbs: &'static [Verb]) -> Self {
        Self { verbs, ..self }
    }

    /// With the values that fields may get, each as JSON.
    #[must_use]
    pub const fn of_values(
        self,
        values: &'static [(&'static str, &'static [&'static str])],
    ) -> Self {
        Self { values, ..self }
    }

    /// With finalizers that objects of the policy bear until it does not want them any more.
    #[must_use]
    pub const fn bearing(self, finalizers: &'static [&'static str]) -> Self {
        Self { finalizers, ..self }
    }

    /// With the signers of the requests that it approves or denies.
    #[must_use]
    pub const fn of_signers(self, signers: &'static [&'static str]) -> Self {
        Self { signers, ..self }
    }

    /// With the labels of the objects that it removes or releases.
    #[must_use]
    pub const fn labelled(self, labels: &'static [LabelGrant]) -> Self {
        Self { labels, ..self }
    }
}
