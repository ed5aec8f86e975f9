//! Puts the components under `target/guests` into the binary as `builtin:<name>`, with their digests: a start needs all
//! of these, and hashing some megabytes takes longer than what else it does. Never builds one: without them the table
//! is empty, and `builtin:` answers with the command that makes them. Warns when only some of them are there.

use sha2::{Digest as _, Sha256};
use std::fmt::Write as _;
use std::path::PathBuf;
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
    let folder = guests_folder()?;
    let mut table = String::from("&[");
    let mut missing = Vec::new();
    for name in BUILTIN {
        let file = folder.join(format!("{name}.wasm"));
        println!("cargo::rerun-if-changed={}", file.display());
        if !file.is_file() {
            missing.push(name);
            continue;
        }
        let digest = Sha256::digest(fs::read(&file)?);
        let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        // A newline keeps the generated table readable in an editor.
        let _ = write!(
            table,
            "\n    ({name:?}, \"sha256:{digest}\", include_bytes!({:?})),",
            file.display().to_string()
        );
    }
    table.push_str("\n]");
    // None at all is how tests are built that need none.
    if !missing.is_empty() && missing.len() < BUILTIN.len() {
        println!(
            "cargo::warning=this binary lacks the guests {}: run `cargo xtask guests`",
            missing.join(", ")
        );
    }
    println!("cargo::rerun-if-env-changed=CARGO_TARGET_DIR");
    fs::write(set("OUT_DIR")?.join("builtin.rs"), table)
}

/// `guests` in the target folder of the workspace, where `cargo xtask guests` puts them. Asks where the workspace is
/// when it runs: a target folder may be that of another work tree, where this program was compiled.
fn guests_folder() -> io::Result<PathBuf> {
    let target = match env::var_os("CARGO_TARGET_DIR") {
        Some(target) => PathBuf::from(target),
        None => set("CARGO_MANIFEST_DIR")?.join("../../target"),
    };
    Ok(target.join("guests"))
}

/// A folder that cargo names.
fn set(name: &str) -> io::Result<PathBuf> {
    let folder = env::var_os(name).map(PathBuf::from);
    folder.ok_or_else(|| io::Error::other(format!("cargo sets no {name}")))
}
