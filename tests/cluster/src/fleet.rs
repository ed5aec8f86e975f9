//! The generated fleet on a real API server. Never as in the files where the server decides: it gives identifiers,
//! versions, cluster addresses and node ports itself.

use crate::cluster::Cluster;
use crate::objects::{Objects, documents};
use anyhow::{Context as _, Result};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use serde_json::{Value, json};
use transom_support::fleet::Fleet;

/// The namespace of the HostedClusters.
const NAMESPACE: &str = "clusters";
/// Files on their way at the same time.
const PARALLEL: usize = 16;
/// What the server sets in the metadata of an object.
const SET_BY_SERVER: [&str; 5] = ["uid", "resourceVersion", "generation", "creationTimestamp", "managedFields"];

/// What came of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Installed {
    /// Objects that were created, the namespace of the HostedClusters aside.
    pub objects: usize,
}

impl Cluster {
    /// Creates every object of a fleet with its status; needs the CRDs of HostedCluster and ManagedCluster.
    pub async fn install_fleet(&self, fleet: Fleet) -> Result<Installed> {
        let objects = self.objects();
        objects.namespace(NAMESPACE).await?;
        let files = fleet.files().context("failed to make a fleet")?;
        let created = stream::iter(files).map(|file| install(objects, file.text)).buffer_unordered(PARALLEL);
        let objects = created.try_fold(0, async |sum, count| Ok(sum + count)).await?;
        Ok(Installed { objects })
    }
}

/// Creates the objects of one file in order; who names an owner by the identifier in the file gets its real one.
async fn install(objects: &Objects, text: String) -> Result<usize> {
    let mut identifiers: Vec<(Value, String)> = Vec::new();
    let documents = documents(&text)?;
    let count = documents.len();
    for mut object in documents {
        let written = object["metadata"]["uid"].take();
        prepare(&mut object, &identifiers);
        let created = objects.create(object).await?;
        identifiers.push((written, created.metadata.uid.unwrap_or_default()));
    }
    Ok(count)
}

fn prepare(object: &mut Value, identifiers: &[(Value, String)]) {
    if let Some(metadata) = object["metadata"].as_object_mut() {
        for key in SET_BY_SERVER {
            metadata.remove(key);
        }
    }
    for owner in object["metadata"]["ownerReferences"].as_array_mut().into_iter().flatten() {
        if let Some((_, real)) = identifiers.iter().find(|(written, _)| *written == owner["uid"]) {
            owner["uid"] = json!(real);
        }
    }
    if object["kind"] == "Service" {
        prepare_service(&mut object["spec"]);
    }
}

/// Addresses and node ports are the server's to give; node ports are fewer than a fleet has Services, so there are none.
fn prepare_service(spec: &mut Value) {
    let Some(fields) = spec.as_object_mut() else { return };
    fields.remove("clusterIP");
    fields.remove("clusterIPs");
    fields.insert("allocateLoadBalancerNodePorts".to_owned(), json!(false));
    for port in spec["ports"].as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut) {
        port.remove("nodePort");
    }
}
