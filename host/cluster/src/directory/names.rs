//! Paths of the agent's own files, from the names of objects. Different names have different paths.

use super::own::STATUS;
use std::path::{Path, PathBuf};
use transom_core::digest::Digest;
use transom_core::redact::visible::visible;
use transom_core::reference::ObjectRef;

/// The longest part of a file name that one name may fill unchanged, in bytes.
const NAME: usize = 180;
/// The longest file name without its extension, in bytes.
const FILE: usize = 245;

/// A path for messages: invisible characters are escaped, and bytes that are no text.
pub(super) fn shown(path: &Path) -> String {
    let mut shown = String::new();
    for chunk in path.as_os_str().as_encoded_bytes().utf8_chunks() {
        shown.push_str(&visible(chunk.valid()));
        shown.extend(chunk.invalid().iter().map(|byte| format!("\\x{byte:02x}")));
    }
    shown
}

/// The file of an object below `objects` or `patches`: `<namespace or _cluster>/<Kind>.<name>.yaml`, and
/// `<Kind>.<name>_<group>.yaml` if its kind has a group. No other part of a name contains a `_`.
pub(super) fn object_file(reference: &ObjectRef) -> PathBuf {
    let folder = reference
        .namespace
        .as_deref()
        .map_or("_cluster".to_owned(), segment);
    let mut file = format!("{}.{}", segment(&reference.kind), segment(&reference.name));
    if let Some((group, _)) = reference.api_version.split_once('/') {
        file = format!("{file}_{}", segment(group));
    }
    if file.len() > FILE {
        let start = file.get(..FILE - 40).unwrap_or_default();
        file = format!("{start}~{}", digest(file.as_bytes()));
    }
    Path::new(&folder).join(format!("{file}.yaml"))
}

/// The file of a primary object's status below `status`: `<policy>/<namespace>.<name>.yaml`. The folder of the policy
/// `a.yaml` is not named as the file of the policy `a`.
pub(super) fn status_file(policy: &str, primary: &ObjectRef) -> PathBuf {
    let namespace = primary
        .namespace
        .as_deref()
        .map_or("_cluster".to_owned(), |name| {
            segment(name).replace('.', "%2E")
        });
    let name = format!("{namespace}.{}.yaml", segment(&primary.name));
    status_folder(policy).join(name)
}

/// The folder of the statuses of a policy's primaries.
pub(super) fn status_folder(policy: &str) -> PathBuf {
    let mut folder = segment(policy);
    if let Some(start) = folder.strip_suffix(".yaml") {
        folder = format!("{start}%2Eyaml");
    }
    Path::new(STATUS).join(folder)
}

/// The file of a policy's own status.
pub(super) fn policy_file(policy: &str) -> PathBuf {
    Path::new(STATUS).join(format!("{}.yaml", segment(policy)))
}

/// A name as part of a path: keeps what Kubernetes allows, writes other bytes as `%XX`, and ends a long name in a
/// digest. Different names stay different.
pub(super) fn segment(name: &str) -> String {
    let mut safe = String::with_capacity(name.len());
    for (index, byte) in name.bytes().enumerate() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' => safe.push(char::from(byte)),
            b'.' if index > 0 => safe.push('.'),
            _ => safe.push_str(&format!("%{byte:02X}")),
        }
    }
    if safe.len() <= NAME {
        return safe;
    }
    let start = safe.get(..NAME - 40).unwrap_or_default();
    format!("{start}~{}", digest(name.as_bytes()))
}

/// The first 16 bytes of SHA-256, as hex.
pub(super) fn digest(bytes: &[u8]) -> String {
    let mut hex = Digest::of_bytes(bytes).hex();
    hex.truncate(32);
    hex
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn object_names_become_file_names() {
        let file =
            |namespace, name| object_file(&ObjectRef::local("v1", "Secret", namespace, name));
        assert_eq!(
            file(Some("klusterlet-a"), "x.y"),
            Path::new("klusterlet-a/Secret.x.y.yaml")
        );
        assert_eq!(file(None, "a"), Path::new("_cluster/Secret.a.yaml"));
        assert_eq!(
            file(Some("_cluster"), "a"),
            Path::new("%5Fcluster/Secret.a.yaml")
        );
        assert_eq!(
            file(Some(".."), "../../etc"),
            Path::new("%2E./Secret.%2E.%2F..%2Fetc.yaml")
        );
        let cluster = |group: &str| object_file(&ObjectRef::local(group, "Cluster", None, "a.b"));
        assert_eq!(
            cluster("cluster.x-k8s.io/v1"),
            Path::new("_cluster/Cluster.a.b_cluster.x-k8s.io.yaml")
        );
        assert_ne!(
            cluster("cluster.x-k8s.io/v1"),
            cluster("other.example.com/v1")
        );
        let primary =
            |namespace, name| status_file("p", &ObjectRef::local("v1", "A", namespace, name));
        assert_eq!(
            primary(Some("clusters"), "a.b"),
            Path::new("status/p/clusters.a.b.yaml")
        );
        assert_ne!(primary(Some("a"), "b.c"), primary(Some("a.b"), "c"));
        assert_eq!(policy_file("p"), Path::new("status/p.yaml"));
        let dotted = |policy| status_file(policy, &ObjectRef::local("v1", "A", None, "a"));
        assert_eq!(dotted("p.q"), Path::new("status/p.q/_cluster.a.yaml"));
        assert!(!dotted("p.yaml").starts_with(policy_file("p")));
    }

    #[test]
    fn long_names_stay_unique_and_short_enough() {
        let long = "a".repeat(253);
        let other = format!("{}b", "a".repeat(252));
        assert_ne!(segment(&long), segment(&other));
        assert!(segment(&long).len() <= NAME);
        let file = |name: &str, group: &str| {
            let file = object_file(&ObjectRef::local(
                &format!("{group}/v1"),
                &"K".repeat(63),
                None,
                name,
            ));
            file.file_name().unwrap().to_str().unwrap().to_owned()
        };
        assert!(file(&long, &long).len() <= 255);
        assert_ne!(file(&long, &long), file(&long, &other));
        assert_ne!(file(&long, &long), file(&other, &long));
    }
}
