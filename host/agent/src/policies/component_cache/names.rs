//! What kept components, and what is known of them, are called on disk.

use super::ComponentRequest;
use transom_artifacts::Location;
use transom_core::digest::Digest;
use transom_core::policy::component::Image;

/// The cache key of a component; `None` if it would be ambiguous. An artifact has one key for all policies, without a
/// tag if it has a digest. A ConfigMap belongs to one policy, because other clusters may have one of the same name.
pub(super) fn key(
    component: &Location,
    ComponentRequest { uid, digest, .. }: ComponentRequest<'_>,
) -> Option<String> {
    match component.image() {
        Some(image) => {
            let tag = image.tag.clone().filter(|_| image.digest.is_none());
            let image = Image {
                tag,
                ..image.clone()
            };
            Some(format!("{image} {}", digest.unwrap_or("first pulled")))
        }
        None => Some(format!("{component} of {}", uid?)),
    }
}

/// From where a component is loaded, as precisely as its source is allowed: the repository, the keys of ConfigMaps of
/// the policy's cluster, the file below its folder. `None` for one that cannot be loaded from a file.
pub(super) fn origin(component: &Location, asker: ComponentRequest<'_>) -> Option<String> {
    match component {
        Location::Builtin(_) => None,
        Location::Image(image) => Some(format!("oci:{}", image.name())),
        Location::ConfigMap(_) => {
            let uid = asker.uid.unwrap_or_default();
            Some(format!("{component} of {uid}"))
        }
        Location::File(..) => {
            let (root, path) = component.file()?;
            Some(format!("file {} in {}", path.display(), root.display()))
        }
    }
}

/// The file of something about a component with a digest; its name begins with the digest.
pub(super) fn beside(digest: &str, what: &str) -> String {
    let digest = digest.trim_start_matches("sha256:");
    format!("{digest}-{}", file(what, "json"))
}

/// The digest of the component that a file is about.
pub(super) fn digest_beside(name: &str) -> String {
    let digest = name.split('-').next().unwrap_or_default();
    format!("sha256:{digest}")
}

/// The files with the evidence for a component: one for this policy, because others may demand other signatures, and
/// one that every load from this place overwrites.
pub(super) fn verified(
    digest: &str,
    component: &Location,
    asker: ComponentRequest<'_>,
) -> Option<[String; 2]> {
    let (policy, uid) = (asker.policy, asker.uid.unwrap_or_default());
    let origin = origin(component, asker)?;
    let own = beside(digest, &format!("{origin} for {policy} {uid}"));
    Some([own, beside(digest, &origin)])
}

/// The files that may hold what verifies a component for a policy, the best first. The last one is what earlier
/// versions of the agent wrote.
pub(super) fn evidence_names(
    digest: &str,
    component: &Location,
    asker: ComponentRequest<'_>,
) -> impl Iterator<Item = String> {
    let names = verified(digest, component, asker).into_iter().flatten();
    names.chain([file(digest, "json")])
}

/// The file of a component.
pub(super) fn name(digest: &str) -> String {
    format!("{}.wasm", digest.trim_start_matches("sha256:"))
}

/// The digest of the component in a file.
pub(super) fn digest_of(name: &str) -> Option<String> {
    Some(format!("sha256:{}", name.strip_suffix(".wasm")?))
}

/// The file of a record.
pub(super) fn file(key: &str, form: &str) -> String {
    let digest = Digest::of_bytes(key.as_bytes()).to_string();
    format!("{}.{form}", digest.trim_start_matches("sha256:"))
}
