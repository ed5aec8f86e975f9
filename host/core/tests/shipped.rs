//! The names that the bundled policy grants for a HostedCluster: those of its own managed cluster only.

#![cfg(test)]

use serde_json::{Value, json};
use std::path::Path;
use transom_core::contract::AgentFacts;
use transom_core::contract::decide::{Absence, Form, Need, Requirement, Wake};
use transom_core::object::Object;
use transom_core::pattern::TemplateData;
use transom_core::plan::prune;
use transom_core::policy::{Policy, check, manifest};
use transom_core::reference::ObjectRef;
use transom_core::requirements::Rounds;
use transom_core::work::Key;

const ANNOTATION: &str = "cluster.open-cluster-management.io/managedcluster-name";

fn shipped() -> Policy {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../policies/external-managed-kubeconfig/policy.yaml");
    let value: Value = serde_yaml::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    check::policy(manifest::parse(&value).unwrap()).unwrap()
}

fn hosted(name: &str, annotation: &Value) -> Object {
    let reference = ObjectRef::local(
        "hypershift.openshift.io/v1beta1",
        "HostedCluster",
        Some("clusters"),
        name,
    );
    Object {
        reference,
        version: String::new(),
        body: json!({"metadata": {"annotations": {ANNOTATION: annotation}}}),
    }
}

fn target(cluster: &str) -> ObjectRef {
    ObjectRef::local(
        "v1",
        "Secret",
        Some(&format!("klusterlet-{cluster}")),
        "external-managed-kubeconfig",
    )
}

/// Why a guest may not write the secret of a managed cluster after it requested its namespace.
fn refused(data: &TemplateData<'_>, cluster: &str) -> Option<String> {
    let namespace = ObjectRef::local("v1", "Namespace", None, &format!("klusterlet-{cluster}"));
    let need = |reference| Need {
        role: "home".to_owned(),
        reference,
        form: Form::Presence,
        absence: Absence::Fine,
        wake: Wake::Change,
    };
    let ask = |needs| {
        Rounds::default().answer(
            &shipped(),
            data,
            Requirement {
                target: Some(target(cluster)),
                targets: Vec::new(),
                needs,
            },
        )
    };
    let (written, read) = (ask(vec![]).err(), ask(vec![need(namespace)]).err());
    assert_eq!(
        written.is_none(),
        read.is_none(),
        "{cluster}: {written:?} {read:?}"
    );
    written.map(|failure| failure.reason.as_str().to_owned())
}

#[test]
fn a_guest_reaches_only_its_own_managed_cluster() {
    let (own, remote) = (
        AgentFacts::new("local-cluster", None),
        AgentFacts::new("spoke", Some("hub")),
    );
    let candidates = [
        "demo",
        "spoke-demo",
        "c1",
        "other",
        "spoke-other",
        "spoke-c1",
        "demo-c1",
        "c1-demo",
        "spoke",
    ];
    for (annotation, agent, granted) in [
        (json!(null), &own, "demo"),
        (json!(""), &own, "demo"),
        (json!("c1"), &own, "c1"),
        (json!(null), &remote, "spoke-demo"),
        (json!("c1"), &remote, "c1"),
    ] {
        let object = hosted("demo", &annotation);
        let data = TemplateData {
            object: &object,
            agent,
        };
        for cluster in candidates {
            let expected = (cluster != granted).then(|| "WriteNotGranted".to_owned());
            assert_eq!(
                refused(&data, cluster),
                expected,
                "{annotation} {agent:?}: {cluster}"
            );
        }
    }
}

#[test]
fn no_value_of_the_annotation_extends_the_grant() {
    let agent = AgentFacts::new("local-cluster", None);
    let long = "a".repeat(300);
    for annotation in [
        "*",
        "**",
        "../x",
        "a/b",
        "c1*",
        "c1 ",
        " ",
        "{primary.name}",
        "C1",
        "-a",
        "a-",
        &long,
    ] {
        let object = hosted("demo", &json!(annotation));
        let data = TemplateData {
            object: &object,
            agent: &agent,
        };
        for cluster in ["demo", "other", "c1", "x", "a", "b", annotation] {
            assert!(
                refused(&data, cluster).is_some(),
                "{annotation:?} reaches {cluster}"
            );
        }
    }
}

#[test]
fn a_refusal_names_what_is_granted() {
    let agent = AgentFacts::new("local-cluster", None);
    let object = hosted("demo", &json!("c1"));
    let data = TemplateData {
        object: &object,
        agent: &agent,
    };
    let end = |target, needs| {
        let end = Rounds::default().answer(
            &shipped(),
            &data,
            Requirement {
                target: Some(target),
                targets: Vec::new(),
                needs,
            },
        );
        end.err().map(|failure| failure.message).unwrap_or_default()
    };
    assert_eq!(
        end(target("other"), vec![]),
        "the policy does not grant writing Secret klusterlet-other/external-managed-kubeconfig; \
         granted: Secret klusterlet-c1/external-managed-kubeconfig"
    );
    let need = |role: &str, reference| Need {
        role: role.to_owned(),
        reference,
        form: Form::Presence,
        absence: Absence::Fine,
        wake: Wake::Change,
    };
    let service =
        |namespace: &str| ObjectRef::local("v1", "Service", Some(namespace), "kube-apiserver");
    assert_eq!(
        end(target("c1"), vec![need("svc", service("clusters-demo"))]),
        "the policy does not grant reading Service clusters-demo/kube-apiserver as `svc`; its roles are source, \
         service, home, klusterlet"
    );
    assert_eq!(
        end(
            target("c1"),
            vec![need("service", service("clusters-other"))]
        ),
        "the policy does not grant reading Service clusters-other/kube-apiserver as `service`; granted: Service \
         clusters-demo/kube-apiserver"
    );
}

/// Objects created for an earlier value of the annotation are still found, and so are the objects that they are
/// retained for.
#[test]
fn objects_created_under_an_earlier_name_are_still_managed() {
    let policy = shipped();
    let key = Key::new(
        &"external-managed-kubeconfig".into(),
        &hosted("demo", &json!(null)).reference,
    );
    for cluster in ["demo", "c1", "spoke-demo"] {
        assert!(
            policy.made(&target(cluster), &key.primary).is_some(),
            "{cluster}"
        );
        let dependents = prune::dependents(&policy, &key, &target(cluster));
        let names: Vec<_> = dependents
            .iter()
            .map(|keeper| keeper.name.clone())
            .collect();
        assert_eq!(names, [format!("klusterlet-{cluster}")]);
    }
    let elsewhere = ObjectRef {
        namespace: Some("kube-system".to_owned()),
        ..target("demo")
    };
    assert!(
        policy.made(&elsewhere, &key.primary).is_none()
            && prune::dependents(&policy, &key, &elsewhere).is_empty()
    );
}
