//! What this guest reads, and what it asks a policy to grant.

use crate::decide;
use transom_guest::kinds::CERTIFICATE_REQUEST;
use transom_guest::{Grant, Read, ReadGrant, WriteGrant};

/// The fields that it reads.
pub(crate) const READS: [Read; 1] = [CERTIFICATE_REQUEST.read(&[
    r#"metadata.labels["open-cluster-management.io/cluster-name"]"#,
    r#"metadata.labels["open-cluster-management.io/addon-name"]"#,
    "status.conditions",
])];

/// What it asks for.
pub(crate) const GRANT: Grant = Grant {
    read: &[ReadGrant {
        role: decide::REQUEST,
        object: CERTIFICATE_REQUEST.named("{primary.name}"),
        keys: &[],
        why: "What the request asks for.",
    }],
    write: &[WriteGrant::conditions(
        &["Approved"],
        "Approves the request.",
    )],
};
