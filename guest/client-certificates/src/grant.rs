//! What this guest reads, and what it asks a policy to grant.

use crate::decide;
use transom_guest::{Grant, ObjectPattern, Read, ReadGrant, WriteGrant};

/// The fields that it reads.
pub(crate) const READS: [Read; 1] = [Read {
    api_version: "certificates.k8s.io/v1",
    kind: "CertificateSigningRequest",
    fields: &[
        r#"metadata.labels["open-cluster-management.io/cluster-name"]"#,
        r#"metadata.labels["open-cluster-management.io/addon-name"]"#,
        "status.conditions",
    ],
    changes: &[],
}];

/// What it asks for.
pub(crate) const GRANT: Grant = Grant {
    read: &[ReadGrant {
        role: decide::REQUEST,
        object: ObjectPattern {
            api_version: "certificates.k8s.io/v1",
            kind: "CertificateSigningRequest",
            namespace: None,
            name: "{primary.name}",
        },
        keys: &[],
        why: "What the request asks for.",
    }],
    write: &[WriteGrant::conditions(
        &["Approved"],
        "Approves the request.",
    )],
};
