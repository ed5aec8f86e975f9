//! Puts the components under `target/guests` into the binary as `builtin:<name>`. Never builds one:
//! without them the table is empty, and `builtin:` answers with the command that makes them.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

/// The guests that ship with the agent.
const BUILTIN: [&str; 18] = [
    "addon-health",
    "auto-import",
    "availability",
    "cleanup",
    "client-certificates",
    "cluster-acceptance",
    "cluster-access",
    "cluster-sets",
    "default-sets",
    "detach",
    "hub-copies",
    "kubeconfig",
    "managed-namespaces",
    "set-bindings",
    "set-members",
    "taint-times",
    "taints",
    "trigger",
];

fn main() -> io::Result<()> {
    let folder = guests_folder();
    let mut table = String::from("&[");
    for name in BUILTIN {
        let file = folder.join(format!("{name}.wasm"));
        println!("cargo::rerun-if-changed={}", file.display());
        if file.is_file() {
            // A newline keeps the generated table readable in an editor.
            let _ = write!(
                table,
                "\n    ({name:?}, include_bytes!({:?})),",
                file.display().to_string()
            );
        }
    }
    table.push_str("\n]");
    println!("cargo::rerun-if-env-changed=CARGO_TARGET_DIR");
    let out = env::var_os("OUT_DIR").ok_or_else(|| io::Error::other("cargo sets no OUT_DIR"))?;
    fs::write(Path::new(&out).join("builtin.rs"), table)
}

/// `guests` in the target folder of the workspace, where `cargo xtask guests` puts them.
fn guests_folder() -> PathBuf {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| workspace.join("target"), PathBuf::from)
        .join("guests")
}
