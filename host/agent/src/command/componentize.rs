//! `transom componentize`: makes a component of the core module that the compiler made of a guest. Runs neither.

use crate::args::ComponentizeArgs;
use crate::output::{Ending, Screen};
use anyhow::{Context as _, bail};
use std::fs::{self, File};
use std::io::Read as _;
use std::path::Path;
use transom_engine::{Engine, EngineOptions};
use wit_component::ComponentEncoder;

/// Maximum size of a module in bytes: one with debug information is ten times as large as its component.
const MAX_BYTES: u64 = 64 << 20;
/// How a core module begins: the magic number of WebAssembly, then version and layer.
const MODULE: &[u8] = b"\0asm\x01\0\0\0";
/// How a component begins.
const COMPONENT: &[u8] = b"\0asm\x0d\0\x01\0";

/// Writes the component, and prints what it is. A component that the agent would not load is not written.
///
/// # Errors
/// When the module cannot be read, is none, or names no world; and when the component cannot be written.
pub(crate) fn componentize(args: &ComponentizeArgs, screen: &Screen) -> anyhow::Result<Ending> {
    let (from, to) = (args.module.display(), args.output.display());
    let module = read(&args.module).with_context(|| format!("failed to read `{from}`"))?;
    let component =
        encode(&module).with_context(|| format!("failed to turn `{from}` into a component"))?;
    let found = Engine::new(EngineOptions::default())?.inspect(&component);
    let found = found.with_context(|| format!("failed to inspect the component of `{from}`"))?;
    if let Err(error) = found.description {
        let reason = error.reason();
        screen.note(format_args!(
            "{from}: no component was written, because the agent would not load it: {reason}: {error}"
        ));
        return Ok(Ending::Failed);
    }
    write(&args.output, &component).with_context(|| format!("failed to write `{to}`"))?;
    let world = found.world.map_or("unknown world", |world| world.name());
    screen.line(format_args!(
        "{to}  {} bytes, {world}, {}",
        component.len(),
        found.digest
    ));
    Ok(Ending::Right)
}

fn read(path: &Path) -> anyhow::Result<Vec<u8>> {
    if !fs::metadata(path)?.is_file() {
        bail!("it is not a regular file");
    }
    let mut bytes = Vec::new();
    File::open(path)?
        .take(MAX_BYTES + 1)
        .read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_BYTES {
        bail!("it is larger than {MAX_BYTES} bytes");
    }
    Ok(bytes)
}

/// Makes a component of a core module with its embedded world.
fn encode(module: &[u8]) -> anyhow::Result<Vec<u8>> {
    if module.starts_with(COMPONENT) {
        bail!("it is already a component");
    }
    if !module.starts_with(MODULE) {
        bail!(
            "not a WebAssembly module; expected the `cdylib` that `cargo build --target wasm32-unknown-unknown` builds"
        );
    }
    let mut encoder = ComponentEncoder::default().validate(true).module(module)?;
    encoder
        .encode()
        .context("the module needs the exports of the SDK's `register!`, and must not import WASI")
}

/// Writes the whole file or nothing: an agent may be watching it.
fn write(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    if path.is_dir() {
        bail!("it is a directory");
    }
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)
            .with_context(|| format!("failed to create the folder `{}`", folder.display()))?;
    }
    let draft = path.with_extension(format!("{}.tmp", std::process::id()));
    let written = fs::write(&draft, bytes).and_then(|()| fs::rename(&draft, path));
    written.inspect_err(|_| drop(fs::remove_file(&draft)))?;
    Ok(())
}
