//! Components that a person names: in the binary, a file, a registry, or ConfigMaps of a cluster.

use crate::args::{ClusterArgs, PlaceArgs};
use crate::command::{block_on, child};
use crate::policies::{Written, objects};
use anyhow::Context as _;
use std::collections::BTreeSet;
use transom_artifacts::{Artifact, Base, Contents, GatheredComponents, Location, MAX_BYTES};
use transom_cluster::kubernetes::{Kubernetes, KubernetesOptions};
use transom_core::reference::{LOCAL, ObjectRef};

/// A component that was read.
pub(crate) struct ReadComponent {
    pub(crate) location: Location,
    pub(crate) artifact: Artifact,
    /// What was read for it, with its signatures if they were wanted.
    pub(crate) gathered: GatheredComponents,
}

/// Reads a component from any place.
///
/// # Errors
/// When it cannot be read or pulled.
pub(crate) fn find(text: &str, from: &PlaceArgs, signed: bool) -> anyhow::Result<ReadComponent> {
    let location = Location::anywhere(text).map_err(anyhow::Error::msg)?;
    read(location, from, signed)
}

/// Reads the component at a location.
///
/// # Errors
/// When it cannot be read or pulled.
pub(crate) fn read(
    location: Location,
    from: &PlaceArgs,
    signed: bool,
) -> anyhow::Result<ReadComponent> {
    let mut gathered = GatheredComponents::default();
    if let Some(image) = location.image() {
        let images = from.registry.images();
        let pulled = block_on(async { images.pull(image, signed).await })?;
        gathered.images.insert(image.clone(), pulled);
    }
    if !location.parts().is_empty() {
        block_on(read_parts(&location, &from.cluster, &mut gathered))?
            .with_context(|| format!("failed to read `{location}`"))?;
    }
    let artifact = location.fetch(None, &gathered)?;
    Ok(ReadComponent {
        location,
        artifact,
        gathered,
    })
}

/// Connects to the API server that a person names. It is only read.
async fn connect(args: &ClusterArgs) -> anyhow::Result<Kubernetes> {
    let options = KubernetesOptions {
        name: LOCAL.to_owned(),
        kubeconfig: args.kubeconfig.clone(),
        context: args.context.clone(),
        read_only: true,
        guard: child::guard(),
    };
    Ok(Kubernetes::connect(options).await?)
}

/// The `FleetPolicy` objects of the API server.
///
/// # Errors
/// When the server cannot be reached, or does not let them be listed.
pub(crate) fn policies(args: &ClusterArgs) -> anyhow::Result<Vec<Written>> {
    let listed = async {
        let cluster = connect(args).await?;
        let like = ObjectRef::local(transom_api::API_VERSION, transom_api::KIND, None, "");
        let listed = cluster.list_whole(&like, None).await;
        listed.map_err(|failure| anyhow::anyhow!(failure.message))
    };
    let objects = block_on(listed)?.context("failed to list the FleetPolicy objects")?;
    Ok(objects::written(&objects, &Base::Nowhere))
}

/// Reads the ConfigMaps of a component.
async fn read_parts(
    location: &Location,
    args: &ClusterArgs,
    gathered: &mut GatheredComponents,
) -> anyhow::Result<()> {
    let cluster = connect(args).await?;
    let beside = location.signature();
    let all = [Some(location), beside.as_ref()];
    let parts: Vec<_> = all
        .into_iter()
        .flatten()
        .flat_map(Location::parts)
        .collect();
    for object in location.objects() {
        let parts = parts.iter().filter(|part| part.object == *object);
        let keys: BTreeSet<_> = parts.map(|part| part.key.as_str()).collect();
        let read = cluster.read_whole(object).await;
        let read = read.map_err(|failure| anyhow::anyhow!(failure.message))?;
        let contents = read.map(|read| Contents::of(&read, &keys, MAX_BYTES));
        gathered.objects.insert(object.clone(), Ok(contents));
    }
    Ok(())
}
