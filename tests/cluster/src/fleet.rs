//! The generated fleet on a real API server. The server assigns identifiers, versions, cluster addresses and node ports
//! itself, so these differ from the files.

use crate::cluster::Cluster;
use crate::objects::{Objects, documents};
use anyhow::{Context as _, Result};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use serde_json::{Value, json};
use transom_support::fleet::Fleet;

/// The namespace of the HostedClusters.
const NAMESPACE: &str = "clusters";
/// Files that are uploaded concurrently.
const PARALLEL: usize = 16;
/// What the server sets in the metadata of an object.
pub const SET_BY_SERVER: [&str; 5] = [
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "managedFields",
];

/// What was installed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Installed {
    /// Created objects, without the namespace of the HostedClusters.
    pub objects: usize,
}

impl Cluster {
    /// Creates every object of a fleet with its status; needs the CRDs of HostedCluster and ManagedCluster.
    pub async fn install_fleet(&self, fleet: Fleet) -> Result<Installed> {
        self.install_changed(fleet, &|_| (), &mut |_| Ok(())).await
    }

    /// The same after a change of the objects of each file, which may be more or fewer then; `told` is given the number
    /// of files that are installed so far.
    pub async fn install_changed(
        &self,
        fleet: Fleet,
        change: &(dyn Fn(&mut Vec<Value>) + Sync),
        told: &mut (dyn FnMut(usize) -> Result<()> + Send),
    ) -> Result<Installed> {
        let objects = self.objects();
        objects.namespace(NAMESPACE).await?;
        let files = fleet.files().context("failed to make a fleet")?;
        let mut created = stream::iter(files)
            .map(|file| install(objects, file.text, change))
            .buffer_unordered(PARALLEL);
        let (mut installed, mut files) = (Installed::default(), 0);
        while let Some(count) = created.try_next().await? {
            installed.objects += count;
            files += 1;
            told(files)?;
        }
        Ok(installed)
    }
}

/// Creates the objects of one file in order; owner references by an identifier from the file get the real identifier.
async fn install(
    objects: &Objects,
    text: String,
    change: &(dyn Fn(&mut Vec<Value>) + Sync),
) -> Result<usize> {
    let mut identifiers: Vec<(Value, String)> = Vec::new();
    let mut documents = documents(&text)?;
    change(&mut documents);
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
    for owner in object["metadata"]["ownerReferences"]
        .as_array_mut()
        .into_iter()
        .flatten()
    {
        if let Some((_, real)) = identifiers
            .iter()
            .find(|(written, _)| *written == owner["uid"])
        {
            owner["uid"] = json!(real);
        }
    }
    if object["kind"] == "Service" {
        prepare_service(&mut object["spec"]);
    }
}

/// The server assigns addresses and node ports. A fleet has more Services than there are node ports, so none are
/// requested.
fn prepare_service(spec: &mut Value) {
    let Some(fields) = spec.as_object_mut() else {
        return;
    };
    fields.remove("clusterIP");
    fields.remove("clusterIPs");
    fields.insert("allocateLoadBalancerNodePorts".to_owned(), json!(false));
    for port in spec["ports"]
        .as_array_mut()
        .into_iter()
        .flatten()
        .filter_map(Value::as_object_mut)
    {
        port.remove("nodePort");
    }
}
