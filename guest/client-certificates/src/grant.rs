//! What this guest reads, and what it asks a policy to grant.

use crate::decide;
use transom_guest::kinds::{CERTIFICATE_REQUEST, MANAGED_CLUSTER};
use transom_guest::objects::{Operator, Who};
use transom_guest::{AskGrant, Grant, LabelGrant, Read, ReadGrant, WriteGrant};

/// The fields that it reads.
pub(crate) const READS: [Read; 1] = [CERTIFICATE_REQUEST.read(&[
    r#"metadata.labels["open-cluster-management.io/cluster-name"]"#,
    r#"metadata.labels["open-cluster-management.io/addon-name"]"#,
    "status.conditions",
])];

/// What it asks for.
pub(crate) const GRANT: Grant = Grant {
    read: &[
        ReadGrant::object(
            decide::REQUEST,
            CERTIFICATE_REQUEST.named("{primary.name}"),
            "What the request asks for.",
        ),
        ReadGrant::object(
            decide::CLUSTER,
            MANAGED_CLUSTER.named("{cluster}"),
            "For the setting `bootstrap.imported`: how the cluster came to the hub.",
        ),
    ],
    write: &[
        WriteGrant::conditions(&["Approved"], "Approves the request.")
            .of_signers(&["kubernetes.io/kube-apiserver-client"]),
    ],
    primary_labels: &[
        LabelGrant {
            key: "open-cluster-management.io/cluster-name",
            operator: Operator::Exists,
            values: &[],
        },
        LabelGrant {
            key: "open-cluster-management.io/addon-name",
            operator: Operator::DoesNotExist,
            values: &[],
        },
    ],
    names: &[(
        "cluster",
        r#"primary.labels["open-cluster-management.io/cluster-name"]"#,
    )],
    ask: &[AskGrant {
        who: Who::Requester,
        verb: "renew",
        group: "register.open-cluster-management.io",
        resource: "managedclusters",
        subresource: Some("clientcertificates"),
        namespace: None,
        name: None,
        why: "Whether the requester may renew certificates of the cluster.",
    }],
    ..Grant::NONE
};
