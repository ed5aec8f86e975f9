//! Components for tests: hostile ones from text under `tests/fixtures/hostile`, built ones from `target/guests`.
//! Never builds a guest: that is `cargo xtask guests`.

use anyhow::{Context as _, Result};
use std::path::{Path, PathBuf};
use std::{env, fs};
use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
use wit_parser::Resolve;

/// The root of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A component that was built from Rust.
///
/// # Errors
/// When it has not been built; the message says how.
pub fn built(name: &str) -> Result<Vec<u8>> {
    let target = env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
    let path = target.join("guests").join(name).with_extension("wasm");
    fs::read(&path).with_context(|| format!("guest `{name}` is not built: run `cargo xtask guests`"))
}

/// A fixture in text form as a component of its world, `taints-guest` unless its first line says `;; world: ...`.
///
/// The text holds what is special about the fixture; what every guest has (self-description, allocator, an empty
/// answer at 1024) comes from `common.wat`. A fixture that declares its own memory starts it with `(memory`.
///
/// # Errors
/// When there is no such fixture, or its text is no module of its world.
pub fn hostile(name: &str) -> Result<Vec<u8>> {
    let folder = root().join("tests/fixtures/hostile");
    let read = |name: &str| {
        let path = folder.join(name).with_extension("wat");
        fs::read_to_string(&path).with_context(|| format!("failed to read fixture `{}`", path.display()))
    };
    let special = read(name)?;
    let memory = if special.contains("(memory ") { "" } else { "(memory (export \"memory\") 1)" };
    let world = special.lines().next().and_then(|line| line.strip_prefix(";; world: ")).unwrap_or("taints-guest");
    component(&format!("(module\n{special}\n{memory}\n{})", read("common")?), world)
        .with_context(|| format!("failed to encode fixture `{name}`"))
}

/// A core module in text form as a component of a world.
///
/// # Errors
/// When the text is no module of that world.
pub fn component(text: &str, world: &str) -> Result<Vec<u8>> {
    let mut module = wat::parse_str(text)?;
    let mut resolve = Resolve::default();
    let (package, _) = resolve.push_path(root().join("wit"))?;
    let world = resolve.select_world(&[package], Some(world))?;
    embed_component_metadata(&mut module, &resolve, world, StringEncoding::UTF8, false)?;
    ComponentEncoder::default().validate(true).module(&module)?.encode()
}

/// A component with one more core module, instantiated after the first. The component has `modules` of them already.
///
/// # Errors
/// When the text is no module.
pub fn with_module(mut component: Vec<u8>, modules: u8, text: &str) -> Result<Vec<u8>> {
    let module = wat::parse_str(text)?;
    section(&mut component, 1, &module);
    // One core instance: of that module, with no arguments.
    section(&mut component, 2, &[1, 0, modules, 0]);
    Ok(component)
}

/// Appends a section: its id, its length as LEB128, its content.
fn section(component: &mut Vec<u8>, id: u8, content: &[u8]) {
    component.push(id);
    let mut length = content.len();
    while length >= 0x80 {
        component.push((length & 0x7f) as u8 | 0x80);
        length >>= 7;
    }
    component.push(length as u8);
    component.extend_from_slice(content);
}
