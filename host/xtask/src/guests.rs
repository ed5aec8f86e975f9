//! `cargo xtask guests`: builds guests and fixtures and encodes them as components. Rebuilds only what changed: cargo
//! decides about modules, and a component is written only when its bytes differ.

use crate::wasm_std::{self, Compiler};
use crate::workspace::{self, Guest, Workspace};
use crate::{files, process, progress};
use anyhow::{Context as _, Result};
use serde_json::Value;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use wit_component::ComponentEncoder;

/// What to build.
#[derive(clap::Args, Default)]
pub(crate) struct Args {
    /// Build only these, by component or package name
    #[arg(long, value_delimiter = ',')]
    names: Vec<String>,
    /// Build only the guests that ship, no fixtures of tests
    #[arg(long, conflicts_with = "names")]
    shipped: bool,
}

impl Args {
    /// All guests that ship, and one fixture.
    pub(crate) fn shipped_and(workspace: &Workspace, fixture: &str) -> Self {
        let wanted = workspace
            .guests
            .iter()
            .filter(|guest| !guest.fixture || guest.name() == fixture);
        Self {
            names: wanted.map(|guest| guest.package.clone()).collect(),
            shipped: false,
        }
    }
}

/// Builds the chosen guests; prints one line for each.
pub(crate) fn run(args: &Args) -> Result<()> {
    let workspace = workspace::read()?;
    let wanted = chosen(&workspace.guests, args)?;
    if wanted.is_empty() {
        progress::say(
            "no guest to build: no package under guest/ or tests/fixtures/ has crate type cdylib",
        );
        return Ok(());
    }
    let compiler = wasm_std::ensure()?;
    if compiler == Compiler::Debian && !workspace.target.join("wasm").is_dir() {
        progress::say(
            "    building the standard library from source; this takes about two minutes, once",
        );
    }
    // Not together: dependencies would share the features that fixtures turn on, and that would change digests. Guests
    // that ship turn none on, which a test of tidy checks.
    let (fixtures, shipped): (Vec<&Guest>, Vec<&Guest>) =
        wanted.into_iter().partition(|guest| guest.fixture);
    for together in [shipped, fixtures] {
        if !together.is_empty() {
            build(&workspace, compiler, &together)?;
        }
    }
    Ok(())
}

/// The guests of these names, or those that ship; all of them when nothing is chosen.
fn chosen<'a>(guests: &'a [Guest], args: &Args) -> Result<Vec<&'a Guest>> {
    if args.names.is_empty() {
        let wanted = guests
            .iter()
            .filter(|guest| !(args.shipped && guest.fixture));
        return Ok(wanted.collect());
    }
    args.names.iter().map(|name| find(guests, name)).collect()
}

fn find<'a>(guests: &'a [Guest], name: &str) -> Result<&'a Guest> {
    guests
        .iter()
        .find(|guest| guest.name() == name || guest.package == name)
        .with_context(|| {
            let known: Vec<&str> = guests.iter().map(Guest::name).collect();
            format!("no guest `{name}`; known guests: {}", known.join(", "))
        })
}

fn build(workspace: &Workspace, compiler: Compiler, guests: &[&Guest]) -> Result<()> {
    let mut cargo = compiler.build();
    cargo
        .current_dir(&workspace.root)
        .args([
            "--lib",
            "--profile",
            "guest",
            "--config",
            &wasm_std::reproducible(&workspace.root),
        ])
        .args(["--message-format=json-render-diagnostics", "--target-dir"])
        .arg(workspace.target.join("wasm"));
    for guest in guests {
        cargo.args(["--package", &guest.package]);
    }
    let modules = modules_of(&process::output(&mut cargo)?);
    for guest in guests {
        let (_, module) = modules
            .iter()
            .find(|(package, _)| *package == guest.package)
            .with_context(|| format!("cargo built no module for `{}`", guest.package))?;
        encode(workspace, guest, module)?;
    }
    Ok(())
}

/// Makes a component of a core module with its embedded world, and validates it.
fn encode(workspace: &Workspace, guest: &Guest, module: &Path) -> Result<()> {
    let name = guest.name();
    let component = component(&files::read(module)?)
        .with_context(|| format!("failed to encode guest `{name}` as a component"))?;
    let path = workspace.target.join("guests").join(format!("{name}.wasm"));
    let state = if files::write(&path, &component)? {
        "new"
    } else {
        refresh(&path, module)
            .with_context(|| format!("failed to set the time of `{}`", path.display()))?;
        "unchanged"
    };
    let shown = path
        .strip_prefix(&workspace.root)
        .unwrap_or(&path)
        .display();
    progress::say(&format!("{shown}  {} bytes, {state}", component.len()));
    Ok(())
}

fn component(module: &[u8]) -> Result<Vec<u8>> {
    ComponentEncoder::default()
        .validate(true)
        .module(module)?
        .encode()
}

/// Gives a component that stayed the same the time of its newly built module: `transom test` warns of components that
/// are older than their sources.
fn refresh(path: &Path, module: &Path) -> Result<()> {
    let of = |path: &Path| fs::metadata(path).and_then(|found| found.modified());
    let built = of(module)?;
    if built > of(path)? {
        File::open(path)?.set_modified(built)?;
    }
    Ok(())
}

/// Package and file of every module in cargo's messages.
fn modules_of(messages: &str) -> Vec<(String, PathBuf)> {
    messages
        .lines()
        .filter_map(|line| module_of(&serde_json::from_str(line).ok()?))
        .collect()
}

fn module_of(message: &Value) -> Option<(String, PathBuf)> {
    if message["reason"] != "compiler-artifact" {
        return None;
    }
    let module = message["filenames"]
        .as_array()?
        .iter()
        .filter_map(Value::as_str)
        .find(|file| {
            Path::new(file)
                .extension()
                .is_some_and(|extension| extension == "wasm")
        })?;
    Some((
        package_of(message["package_id"].as_str()?)?,
        PathBuf::from(module),
    ))
}

/// The name in a package id: `path+file:///w/guest/taints#transom-taints@0.1.0`, or `path+file:///w/loops#0.1.0`.
fn package_of(id: &str) -> Option<String> {
    let (path, fragment) = id.rsplit_once('#')?;
    match fragment.split_once('@') {
        Some((name, _)) => Some(name.to_owned()),
        None => path.rsplit('/').next().map(str::to_owned),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser as _;
    use std::collections::BTreeSet;
    use std::time::{Duration, SystemTime};

    /// The words after `cargo xtask guests`.
    #[derive(clap::Parser)]
    #[command(no_binary_name = true)]
    struct Words {
        #[command(flatten)]
        args: Args,
    }

    fn parsed<'a>(words: impl IntoIterator<Item = &'a str>) -> Args {
        Words::try_parse_from(words).unwrap().args
    }

    fn guests() -> Vec<Guest> {
        vec![
            Guest {
                package: "transom-taints".into(),
                fixture: false,
            },
            Guest {
                package: "loops".into(),
                fixture: true,
            },
        ]
    }

    #[test]
    fn a_name_selects_by_component_or_package() {
        let guests = guests();
        let names = |words: &[&str]| -> Result<Vec<String>> {
            Ok(chosen(&guests, &parsed(words.iter().copied()))?
                .iter()
                .map(|guest| guest.name().to_owned())
                .collect())
        };
        assert_eq!(names(&[]).unwrap(), ["taints", "loops"]);
        assert_eq!(names(&["--shipped"]).unwrap(), ["taints"]);
        assert_eq!(names(&["--names", "transom-taints"]).unwrap(), ["taints"]);
        let both = names(&["--names", "loops,taints"]).unwrap();
        assert_eq!(both, ["loops", "taints"]);
        let error = names(&["--names", "nope"]).unwrap_err().to_string();
        assert_eq!(error, "no guest `nope`; known guests: taints, loops");
    }

    /// `transom validate policies` ends the build of the image when a guest is missing.
    #[test]
    fn the_image_is_built_with_the_guests_that_are_built_in() {
        let dockerfile = include_str!("../../deploy/Dockerfile");
        let (_, words) = dockerfile.split_once("cargo xtask guests").unwrap();
        let args = parsed(words.lines().next().unwrap().split_whitespace());
        let guests = workspace::read().unwrap().guests;
        let built = chosen(&guests, &args).unwrap();
        let built: BTreeSet<&str> = built.iter().map(|guest| guest.name()).collect();
        let (_, table) = include_str!("../../artifacts/build.rs")
            .split_once("const BUILTIN")
            .and_then(|(_, rest)| rest.split_once('='))
            .unwrap();
        let table = table.split_once("];").unwrap().0;
        let built_in: BTreeSet<&str> = table.split('"').skip(1).step_by(2).collect();
        assert!(built_in.contains("taints"), "{built_in:?}");
        assert_eq!(built, built_in);
    }

    #[test]
    fn reads_modules_from_cargo_messages() {
        let messages = r#"{"reason":"compiler-artifact","package_id":"path+file:///w/guest/sdk#transom-guest@0.1.0","filenames":["/t/libx.rlib"]}
{"reason":"compiler-artifact","package_id":"path+file:///w/guest/taints#transom-taints@0.1.0","filenames":["/t/transom_taints.wasm","/t/libtransom_taints.rlib"]}
{"reason":"compiler-artifact","package_id":"path+file:///w/loops#0.1.0","filenames":["/t/loops.wasm"]}
{"reason":"build-finished","success":true}"#;
        let found = modules_of(messages);
        assert_eq!(
            found,
            [
                (
                    "transom-taints".to_owned(),
                    PathBuf::from("/t/transom_taints.wasm")
                ),
                ("loops".to_owned(), PathBuf::from("/t/loops.wasm")),
            ]
        );
    }
    #[test]
    fn an_unchanged_component_is_at_least_as_new_as_its_module() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.component");
        let module = folder.path().join("a.wasm");
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let set = |path: &Path, time| {
            File::options()
                .append(true)
                .create(true)
                .open(path)?
                .set_modified(time)
        };
        let changed = || fs::metadata(&path).unwrap().modified().unwrap();
        fs::write(&path, b"one").unwrap();
        for (of_module, expected) in [(20, 20), (5, 10)] {
            set(&path, at(10)).unwrap();
            set(&module, at(of_module)).unwrap();
            refresh(&path, &module).unwrap();
            assert_eq!(changed(), at(expected));
        }
    }

    #[test]
    fn refuses_what_is_not_a_module() {
        assert!(component(b"not wasm").is_err());
    }
}
