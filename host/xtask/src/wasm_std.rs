//! Finds or fetches the wasm standard library, and returns the cargo that builds guests with it. Changes nothing but
//! installed toolchain parts.

use crate::{process, progress, workspace};
use anyhow::{Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The target of every guest.
pub(crate) const TARGET: &str = "wasm32-unknown-unknown";

/// Debian's second, newer Rust: it can build the standard library from source.
const PACKAGES: [&str; 5] = [
    "rustc-web",
    "cargo-web",
    "rust-web-src",
    "lld-22",
    "rust-web-llvm",
];

/// The compiler of guests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Compiler {
    /// The Rust that runs this program; it has the standard library of the target.
    Ours,
    /// Debian's packages, with the standard library built from source.
    Debian,
}

impl Compiler {
    /// `cargo build` for the target, with what differs between compilers.
    pub(crate) fn build(self) -> Command {
        let mut cargo = match self {
            Self::Ours => workspace::cargo(),
            Self::Debian => debian_cargo(),
        };
        cargo.arg("build");
        if self == Self::Debian {
            cargo.args(["-Z", "build-std=std,panic_abort"]);
        }
        cargo.args(["--target", TARGET]);
        cargo
    }
}

/// A setting of cargo that keeps the folders of this machine out of a component, because they would change its digest.
pub(crate) fn reproducible(root: &Path) -> String {
    let home = std::env::home_dir().unwrap_or_default();
    let registry =
        std::env::var_os("CARGO_HOME").map_or_else(|| home.join(".cargo"), PathBuf::from);
    let flags = [(registry.as_path(), "/cargo"), (root, "/transom")]
        .map(|(folder, name)| format!("--remap-path-prefix={}={name}", folder.display()));
    format!("target.{TARGET}.rustflags={flags:?}")
}

/// Looks for the library, cheapest way first, and installs it if it is missing.
pub(crate) fn ensure() -> Result<Compiler> {
    if ours_has_library() {
        return Ok(Compiler::Ours);
    }
    progress::step(&format!(
        "installing the standard library of {TARGET} (rustup target add)"
    ));
    if process::probe(
        Command::new("rustup")
            .args(["target", "add", TARGET])
            .env("RUSTUP_MAX_RETRIES", "0"),
    )
    .is_some()
        && ours_has_library()
    {
        return Ok(Compiler::Ours);
    }
    progress::say("    rustup failed; trying Debian's packages, which build it from source");
    ensure_debian()?;
    Ok(Compiler::Debian)
}

/// Whether the compiler on the path has the library.
fn ours_has_library() -> bool {
    process::probe(Command::new("rustc").args(["--print", "target-libdir", "--target", TARGET]))
        .is_some_and(|folder| Path::new(folder.trim()).is_dir())
}

fn ensure_debian() -> Result<()> {
    let missing = missing_packages();
    if missing.is_empty() {
        return Ok(());
    }
    let install = format!("apt-get update && apt-get install -y {}", missing.join(" "));
    let wanted =
        format!("guests need the standard library of {TARGET}: run `rustup target add {TARGET}`");
    if process::probe(Command::new("apt-get").arg("--version")).is_none() {
        bail!("{wanted}");
    }
    if process::probe(Command::new("id").arg("-u")).is_none_or(|id| id.trim() != "0") {
        bail!("{wanted}, or as root `{install}`");
    }
    progress::step(&format!("installing {}", missing.join(" ")));
    let apt = || {
        let mut apt = Command::new("apt-get");
        apt.env("DEBIAN_FRONTEND", "noninteractive")
            .args(["-q", "-y"]);
        apt
    };
    process::run(apt().arg("update"))?;
    process::run(
        apt()
            .args(["install", "--no-install-recommends"])
            .args(&missing),
    )
    .map_err(|error| error.context(wanted))
}

fn missing_packages() -> Vec<&'static str> {
    let installed = |package: &str| {
        process::probe(Command::new("dpkg-query").args([
            "-W",
            "-f",
            "${db:Status-Status}",
            package,
        ]))
        .is_some_and(|status| status == "installed")
    };
    PACKAGES
        .into_iter()
        .filter(|package| !installed(package))
        .collect()
}

/// Debian's cargo, without the variables that rustup's cargo has set: their paths would load the wrong compiler.
fn debian_cargo() -> Command {
    let mut cargo = Command::new("/usr/bin/cargo");
    for name in [
        "CARGO",
        "RUSTC",
        "RUSTUP_TOOLCHAIN",
        "LD_LIBRARY_PATH",
        "RUST_RECURSION_COUNT",
    ] {
        cargo.env_remove(name);
    }
    cargo
        .env("PATH", "/usr/bin:/bin")
        .env("RUSTC_BOOTSTRAP", "1");
    cargo
}
