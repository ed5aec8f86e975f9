//! What `transom plan` says of one policy beside others, on a folder. Needs built guests (`cargo xtask guests`).
#![cfg(test)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const POLICY: &str = "built-in-taints";

/// A folder with manifests and one with policies, both in a temporary folder.
struct Folders {
    _folder: tempfile::TempDir,
    fleet: PathBuf,
    policies: PathBuf,
}

impl Folders {
    /// No manifest, and the one policy.
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let [fleet, policies] = ["fleet", "policies"].map(|name| folder.path().join(name));
        fs::create_dir(&fleet).unwrap();
        fs::create_dir(&policies).unwrap();
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../policies");
        let policy = root.join(POLICY).join("policy.yaml");
        fs::copy(policy, policies.join("policy.yaml")).unwrap();
        Self {
            _folder: folder,
            fleet,
            policies,
        }
    }

    /// The exit code of a command about them, and what it tells.
    fn told(&self, words: &[&str]) -> (Option<i32>, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_transom"));
        command.args(words).arg("--policies").arg(&self.policies);
        let output = command.arg("--dir").arg(&self.fleet).output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code(), told)
    }
}

#[test]
fn only_what_the_planned_policy_lacks_counts() {
    let folders = Folders::new();
    let put = |name: &str, text: &str| fs::write(folders.policies.join(name), text).unwrap();
    let (code, told) = folders.told(&["plan", POLICY]);
    assert_eq!(code, Some(0), "{told}");
    put("broken.yaml", "a: [");
    let other = "apiVersion: transom.dev/v1alpha1\nkind: FleetPolicy\nmetadata: {name: other}\n";
    put("other.yaml", other);
    let (code, told) = folders.told(&["plan", POLICY]);
    assert_eq!(code, Some(0), "{told}");
    assert!(
        told.contains("broken.yaml") && told.contains("policy other: PolicyInvalid"),
        "{told}"
    );
    // A file of the fleet may hold what the policy reads.
    fs::write(folders.fleet.join("unread.yaml"), "a: [").unwrap();
    let (code, told) = folders.told(&["plan", POLICY]);
    assert_eq!(code, Some(1), "{told}");
}
