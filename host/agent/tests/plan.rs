//! What `transom plan` and `transom render` say of policies in a folder: of others, and of modes. Needs built guests
//! (`cargo xtask guests`).
#![cfg(test)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A ManagedCluster that the policy taints.
const UNAVAILABLE: &str = r#"
apiVersion: cluster.open-cluster-management.io/v1
kind: ManagedCluster
metadata: {name: one, uid: u}
spec: {hubAcceptsClient: true}
status:
  conditions:
  - {type: HubAcceptedManagedCluster, status: "True", reason: R, message: m, lastTransitionTime: "2026-01-01T00:00:00Z"}
  - {type: ManagedClusterJoined, status: "True", reason: R, message: m, lastTransitionTime: "2026-01-01T00:00:00Z"}
  - {type: ManagedClusterConditionAvailable, status: "False", reason: R, message: m,
     lastTransitionTime: "2026-01-01T00:00:00Z"}
"#;
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
        let [fleet, policies] = [&self.fleet, &self.policies].map(|path| path.to_str().unwrap());
        let places = ["--dir", fleet, "--policies", policies];
        let (code, _, told) = transom(&[words, &places].concat());
        (code, told)
    }
}

/// The exit code of a command, and both outputs.
fn transom(words: &[&str]) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_transom"));
    let output = command.args(words).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (
        output.status.code(),
        text(&output.stdout),
        text(&output.stderr),
    )
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

#[test]
fn what_a_mode_keeps_from_being_written_is_told() {
    let folders = Folders::new();
    fs::write(folders.fleet.join("one.yaml"), UNAVAILABLE).unwrap();
    let path = folders.policies.join("policy.yaml");
    let policy = fs::read_to_string(&path).unwrap();
    let fleet = folders.fleet.to_str().unwrap();
    let policies = folders.policies.to_str().unwrap();
    let render = ["render", fleet, "--policies", policies, "--exit-code"];
    for (mode, code, note) in [
        ("Automatic", 3, ""),
        (
            "Preview",
            3,
            "built-in-taints: ApprovalRequired: in the mode Preview",
        ),
        (
            "Shadow",
            0,
            "built-in-taints: Shadowing: in the mode Shadow",
        ),
    ] {
        let with = format!("\nspec:\n  rollout: {{mode: {mode}}}\n");
        fs::write(&path, policy.replace("\nspec:\n", &with)).unwrap();
        let (ended, shown, told) = transom(&render);
        assert_eq!(ended, Some(code), "{mode}: {told}");
        assert!(shown.contains("taints:"), "{mode}: {shown}");
        assert!(told.contains(note), "{mode}: {told}");
        assert_eq!(told.contains("in the mode"), !note.is_empty(), "{told}");
        let (ended, told) = folders.told(&["plan", POLICY, "--exit-code"]);
        assert_eq!(ended, Some(3), "{mode}: {told}");
        assert_eq!(
            told.contains("in the mode Shadow"),
            mode == "Shadow",
            "{told}"
        );
    }
}

#[test]
fn a_comparison_with_a_manifest_that_is_not_active_says_so() {
    let folders = Folders::new();
    fs::write(folders.fleet.join("one.yaml"), UNAVAILABLE).unwrap();
    let settings = folders.policies.with_file_name("settings.yaml");
    fs::write(&settings, "unavailable: {effect: PreferNoSelect}\n").unwrap();
    let (fleet, policies) = (&folders.fleet, &folders.policies);
    let [fleet, policies, settings] =
        [fleet, policies, &settings].map(|path| path.to_str().unwrap());
    let places = ["--dir", fleet, "--policies", policies];
    let active = || {
        let plan = ["plan", POLICY, "--settings", settings];
        let (_, shown, told) = transom(&[&plan[..], &places].concat());
        let line = shown.lines().find(|line| line.starts_with("active "));
        line.unwrap_or_else(|| panic!("{shown} {told}")).to_owned()
    };
    let (code, told) = folders.told(&["run", "--once"]);
    assert_eq!(code, Some(0), "{told}");
    let line = active();
    assert!(
        line.contains("the active revision would write nothing"),
        "{line}"
    );
    // A newer manifest waits for an approval.
    let path = folders.policies.join("policy.yaml");
    let with = "\nspec:\n  rollout: {mode: Preview}\n  budget: {logLines: 7}\n";
    let policy = fs::read_to_string(&path).unwrap();
    fs::write(&path, policy.replace("\nspec:\n", with)).unwrap();
    let (code, told) = folders.told(&["run", "--once"]);
    assert!(
        code == Some(0) && told.contains("ApprovalRequired"),
        "{told}"
    );
    let line = active();
    assert!(
        line.contains("which is not active (the revision "),
        "{line}"
    );
}
