//! A HostedCluster with its admin kubeconfig, Service and namespaces. Most are ready; by index, some are suspended (not
//! available), wait (no klusterlet namespace), have a dotted name or another form of Service.

use super::{File, environment, fill, minute, region};
use crate::identity::Identity;
use crate::numbers::Numbers;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

const OBJECTS: &str = include_str!("../templates/hosted-cluster.yaml");
const HOME: &str = include_str!("../templates/klusterlet-namespace.yaml");
const KUBECONFIG: &str = include_str!("../templates/kubeconfig.yaml");

/// Every 20th is not available.
fn is_available(index: usize) -> bool {
    index % 20 != 3
}

/// Every 40th has no klusterlet namespace yet.
fn has_home(index: usize) -> bool {
    index % 40 != 5
}

/// Every 10th has dots in its name, and an annotation that names its managed cluster without dots.
fn is_dotted(index: usize) -> bool {
    index % 10 == 8
}

pub(super) fn name(index: usize) -> String {
    if is_dotted(index) {
        format!("hosted-{index:05}.{}", region(index))
    } else {
        format!("hosted-{index:05}")
    }
}

pub(super) fn managed_name(index: usize) -> String {
    name(index).replace('.', "-")
}

pub(super) fn file(index: usize, identity: &Identity, numbers: &mut Numbers) -> File {
    let host = format!("a{:016x}.elb.{}.example.com", numbers.take(), region(index));
    let name = name(index);
    let managed = managed_name(index);
    let (available, reason, message) = availability(index);
    let uids: [String; 5] = std::array::from_fn(|_| numbers.uuid());
    let values = [
        ("name", name.as_str()),
        ("namespace", "clusters"),
        ("control_plane", &format!("clusters-{managed}")),
        ("managed", &managed),
        ("override", &override_of(index, &managed)),
        (
            "infra",
            &format!("hosted-{index:05}-{:05x}", numbers.take() >> 44),
        ),
        ("host", &host),
        ("kubeconfig", &kubeconfig(&host, identity)),
        ("ports", ports(index)),
        (
            "cluster_ip",
            &format!("172.30.{}.{}", index / 250 % 250, index % 250 + 1),
        ),
        ("region", region(index)),
        ("environment", environment(index)),
        ("patch", &(index % 12).to_string()),
        ("version", &(100_000 + index).to_string()),
        ("created", &minute(index)),
        ("ready", &minute(index + 17)),
        ("available", available),
        ("available_reason", reason),
        ("available_message", message),
        ("cluster_id", &numbers.uuid()),
        ("uid", &uids[0]),
        ("uid_namespace", &uids[1]),
        ("uid_secret", &uids[2]),
        ("uid_service", &uids[3]),
        ("uid_home", &uids[4]),
    ];
    let mut text = fill(OBJECTS, &values);
    if has_home(index) {
        text.push_str(&fill(HOME, &values));
    }
    File {
        path: format!("hosted/{name}.yaml"),
        text,
        objects: if has_home(index) { 5 } else { 4 },
    }
}

fn availability(index: usize) -> (&'static str, &'static str, &'static str) {
    if is_available(index) {
        (
            "True",
            "AsExpected",
            "The hosted control plane is available",
        )
    } else {
        (
            "False",
            "WaitingForAvailable",
            "Waiting for hosted control plane to be healthy",
        )
    }
}

fn override_of(index: usize, managed: &str) -> String {
    if is_dotted(index) {
        format!("\n    cluster.open-cluster-management.io/managedcluster-name: {managed}")
    } else {
        String::new()
    }
}

/// The port for clients, in the forms found in practice: unnamed, IBM's number, named beside another.
fn ports(index: usize) -> &'static str {
    match index % 7 {
        1 => "\n  - port: 2040\n    protocol: TCP\n    targetPort: client",
        4 => {
            "\n  - name: metrics\n    port: 9090\n    protocol: TCP\n    targetPort: metrics\n  - name: client\n    port: 6443\n    protocol: TCP\n    targetPort: client"
        }
        _ => "\n  - nodePort: 31443\n    port: 6443\n    protocol: TCP\n    targetPort: client",
    }
}

/// A kubeconfig in base64.
fn kubeconfig(host: &str, identity: &Identity) -> String {
    let [ca, certificate, key] =
        [&identity.ca, &identity.certificate, &identity.key].map(|pem| STANDARD.encode(pem));
    let values = [
        ("host", host),
        ("ca", &ca),
        ("certificate", &certificate),
        ("key", &key),
    ];
    let text = fill(KUBECONFIG, &values);
    // The first line of a template is a comment for its reader.
    let document = text
        .split_once('\n')
        .map_or(text.as_str(), |(_, document)| document);
    STANDARD.encode(document)
}
