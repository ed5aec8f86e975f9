//! Arguments for guests: small, plausible, without a credential.

use serde_json::json;
use transom_core::contract::taints::{
    ClusterCondition, ManagedCluster, Status, Taint, TaintEffect,
};
use transom_core::contract::{AgentFacts, Context, Primary};
use transom_core::reference::ObjectRef;

/// A context with these settings.
pub fn context(settings: &str) -> Context {
    Context {
        now_seconds: 1_795_000_000,
        settings: settings.into(),
        agent: AgentFacts {
            cluster_name: "local-cluster".to_owned(),
            self_managed: true,
            records: Default::default(),
        },
    }
}

/// A managed cluster that is available and has a taint of its user.
pub fn managed_cluster() -> ManagedCluster {
    ManagedCluster {
        reference: ObjectRef::local(
            "cluster.open-cluster-management.io/v1",
            "ManagedCluster",
            None,
            "spoke-1",
        ),
        uid: "0b0f3e0c-9c1e-4d0e-8a75-1f6f0a7c2b11".to_owned(),
        created_seconds: Some(1_700_000_000),
        deleting: false,
        accepted: true,
        lease_duration_seconds: 60,
        kubernetes_version: Some("v1.34.4".to_owned()),
        labels: vec![("cloud".to_owned(), "Azure".to_owned())],
        annotations: Vec::new(),
        claims: Vec::new(),
        conditions: vec![ClusterCondition {
            kind: "ManagedClusterConditionAvailable".to_owned(),
            status: Status::Yes,
            reason: "ManagedClusterAvailable".to_owned(),
            changed_seconds: Some(1_794_000_000),
        }],
        taints: vec![Taint {
            key: "example.com/mine".to_owned(),
            value: String::new(),
            effect: TaintEffect::NoSelect,
            added_seconds: Some(1_793_000_000),
        }],
    }
}

/// A hosted cluster with a uid and a few fields.
pub fn hosted_cluster() -> Primary {
    Primary {
        reference: ObjectRef::local(
            "hypershift.openshift.io/v1beta1",
            "HostedCluster",
            Some("clusters"),
            "demo",
        ),
        uid: "6e1d4a3c-0d5e-4f3e-bb0c-2f2f64c3a001".to_owned(),
        created_seconds: Some(1_700_000_000),
        deleting: false,
        fields: json!({"status": {"conditions": [{"type": "Available", "status": "True", "reason": "AsExpected"}]}}),
    }
}
