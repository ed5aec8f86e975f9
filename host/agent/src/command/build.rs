//! `transom build`: has cargo compile the crate of a guest, and makes its component.

use crate::args::BuildArgs;
use crate::command::{cases, component};
use crate::output::{CommandEnd, Screen};
use anyhow::{Context as _, bail};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{env, fs};

/// What guests are compiled for.
const TARGET: &str = "wasm32-unknown-unknown";

/// What cargo made of a crate.
struct Built {
    package: String,
    module: PathBuf,
}

/// Compiles the crate, writes its component with the cases of the crate in it, and prints what it is.
///
/// # Errors
/// When the folder holds no crate of a guest, when it cannot be compiled, when a case cannot be read, and as
/// `componentize`.
pub(crate) fn build(args: &BuildArgs, screen: &Screen) -> anyhow::Result<CommandEnd> {
    let folder = args.folder.display();
    let Built { package, module } = compile(&args.folder)
        .with_context(|| format!("failed to build the guest in `{folder}`"))?;
    let output = match &args.output {
        Some(output) => output.clone(),
        None => place(&module, &package)?,
    };
    let travelling = cases::of_crate(&args.folder, screen)
        .with_context(|| format!("failed to read the cases of the guest in `{folder}`"))?;
    component::make(&module, &output, travelling, screen)
}

/// Where `transom test` looks for the component of a crate: below the target folder.
fn place(module: &Path, package: &str) -> anyhow::Result<PathBuf> {
    // <target folder>/wasm32-unknown-unknown/release/<module>
    let target = module.ancestors().nth(3);
    let target = target.context("cargo wrote the module to no target folder")?;
    let here = env::current_dir().unwrap_or_default();
    let target = target.strip_prefix(here).unwrap_or(target);
    Ok(target.join("guests").join(format!("{package}.wasm")))
}

fn compile(folder: &Path) -> anyhow::Result<Built> {
    let manifest = folder.join("Cargo.toml");
    let manifest = fs::canonicalize(&manifest)
        .with_context(|| format!("failed to find `{}`", manifest.display()))?;
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(&cargo)
        .args(["build", "--release", "--target", TARGET])
        .arg("--message-format=json-render-diagnostics")
        // So that settings of cargo and of the toolchain count that lie there.
        .current_dir(folder)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("failed to start `{}`; is Rust installed?", cargo.display()))?;
    if !output.status.success() {
        bail!(
            "cargo ended with {}; if the target is missing, `rustup target add {TARGET}` installs it",
            output.status
        );
    }
    let messages = String::from_utf8_lossy(&output.stdout);
    let mut built = messages
        .lines()
        .filter_map(|line| artifact(line, &manifest));
    built.next().with_context(|| {
        format!(
            "`{}` gives no WebAssembly module; a guest has `crate-type = [\"cdylib\"]` under `[lib]`",
            manifest.display()
        )
    })
}

/// The module of the crate with this manifest, if a message of cargo names it.
fn artifact(line: &str, manifest: &Path) -> Option<Built> {
    let message: Value = serde_json::from_str(line).ok()?;
    let text = |pointer: &str| message.pointer(pointer)?.as_str();
    let is_ours = Path::new(text("/manifest_path")?) == manifest;
    let mut files = message.get("filenames")?.as_array()?.iter();
    let module = files.find_map(|file| Some(file.as_str()?).filter(|file| file.ends_with(".wasm")));
    // <name>#<version> behind the place, or only <version> where the place ends with the name.
    let (place, version) = text("/package_id")?.rsplit_once('#')?;
    let name = version.split_once('@').map(|(name, _)| name);
    let package = name.or_else(|| place.rsplit('/').next())?;
    Some(Built {
        package: package.to_owned(),
        module: PathBuf::from(module?),
    })
    .filter(|_| is_ours)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_message_of_cargo_names_the_package_and_its_module() {
        let manifest = Path::new("/g/my-guest/Cargo.toml");
        let found = |id: &str, files: Value| {
            let message = json!({
                "reason": "compiler-artifact",
                "manifest_path": manifest,
                "package_id": id,
                "filenames": files,
            });
            let built = artifact(&message.to_string(), manifest)?;
            Some((built.package, built.module))
        };
        let module = "/g/target/wasm32-unknown-unknown/release/my_guest.wasm";
        let expected = Some(("my-guest".to_owned(), PathBuf::from(module)));
        let id = "path+file:///g/my-guest#0.1.0";
        assert_eq!(found(id, json!(["/g/my_guest.rlib", module])), expected);
        let id = "path+file:///g/folder#my-guest@0.1.0";
        assert_eq!(found(id, json!([module])), expected);
        assert_eq!(found(id, json!(["/g/my_guest.rlib"])), None);
        let other = Path::new("/g/other/Cargo.toml");
        let message = json!({"manifest_path": manifest, "package_id": id, "filenames": [module]});
        assert!(artifact(&message.to_string(), other).is_none());
        assert_eq!(
            place(Path::new(module), "my-guest").unwrap(),
            Path::new("/g/target/guests/my-guest.wasm")
        );
    }
}
