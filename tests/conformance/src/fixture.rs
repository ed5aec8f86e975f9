//! Components for tests: hostile ones from text under `tests/fixtures/hostile`, built ones from `target/guests`, which
//! `cargo xtask guests` builds.

use anyhow::{Context as _, Error, Result};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::{env, fs};
use transom_core::cases::{GuestCase, SECTION};
use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
use wit_parser::Resolve;

/// The root of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A component built from Rust.
///
/// # Errors
/// When it has not been built; the message says how.
pub fn built(name: &str) -> Result<Vec<u8>> {
    let target =
        env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
    let path = target.join("guests").join(name).with_extension("wasm");
    fs::read(&path)
        .with_context(|| format!("guest `{name}` is not built: run `cargo xtask guests`"))
}

/// A fixture in text form as a component of its world, `taints-guest` unless its first line says `;; world: ...`.
///
/// The text contains the special part of the fixture; the part that every guest has (self-description, allocator, an
/// empty answer at 1024) comes from `common.wat`. A fixture that declares its own memory starts it with `(memory`.
///
/// # Errors
/// When there is no such fixture, or its text is not a module of its world.
pub fn hostile(name: &str) -> Result<Vec<u8>> {
    hostile_of(name, "0.1.0")
}

/// The same as a guest of another version of the contract.
///
/// # Errors
/// As for [`hostile`].
pub fn hostile_of(name: &str, version: &str) -> Result<Vec<u8>> {
    let folder = root().join("tests/fixtures/hostile");
    let read = |name: &str| {
        let path = folder.join(name).with_extension("wat");
        let text = fs::read_to_string(&path)
            .with_context(|| format!("failed to read fixture `{}`", path.display()))?;
        anyhow::Ok(text.replace("@0.1.0", &format!("@{version}")))
    };
    complete(&read(name)?, &read("common")?)
        .with_context(|| format!("failed to encode fixture `{name}`"))
}

/// A guest that answers correctly and contains this text in addition; the world is `taints-guest`.
///
/// # Errors
/// When the text is not part of a module.
pub fn good_with(text: &str) -> Result<Vec<u8>> {
    let read = |name: &str| {
        fs::read_to_string(
            root()
                .join("tests/fixtures/hostile")
                .join(name)
                .with_extension("wat"),
        )
    };
    complete(&format!("{}\n{text}", read("good")?), &read("common")?)
}

/// A guest that wants no taints, and traps for a cluster whose name has more bytes than this.
///
/// # Errors
/// When the component cannot be made.
pub fn trapping(longest: usize) -> Result<Vec<u8>> {
    changing(longest, "(unreachable)")
}

/// A guest that wants no taints, and first runs this text for a cluster whose name has more bytes than this.
///
/// # Errors
/// When the text is not part of a function.
pub fn changing(longest: usize, text: &str) -> Result<Vec<u8>> {
    taints_component(&format!(
        r#"(memory (export "memory") 64)
        (func (export "transom:policy/guest@0.1.0#validate") (param i32 i32) (result i32) (i32.const 1024))
        (func (export "transom:policy/taints@0.1.0#compute") (param i32) (result i32)
          (if (i32.gt_u (i32.load offset=72 (local.get 0)) (i32.const {longest})) (then {text}))
          (i32.const 1024))"#
    ))
}

/// A guest of the world `taints-guest` from its special part.
///
/// # Errors
/// When the text is not part of a module.
pub fn taints_component(special: &str) -> Result<Vec<u8>> {
    let common = fs::read_to_string(root().join("tests/fixtures/hostile/common.wat"))?;
    complete(special, &common)
}

/// A guest of the world `taints-guest` as a compiler outputs it, a core module, from its special part.
///
/// # Errors
/// When the text is not part of a module.
pub fn taints_module(special: &str) -> Result<Vec<u8>> {
    let common = fs::read_to_string(root().join("tests/fixtures/hostile/common.wat"))?;
    module(&whole(special, &common), "taints-guest")
}

/// A component with a case that travels with it: the settings `{}` are valid, unless `fails`, which expects a problem.
///
/// # Errors
/// When the bytes are not a component.
pub fn with_case(component: Vec<u8>, fails: bool) -> Result<Vec<u8>> {
    let expected = if fails {
        json!([{"reason": "Never"}])
    } else {
        json!([])
    };
    let case = GuestCase {
        name: "settings/none".to_owned(),
        given: json!({"validate": {}}),
        expected,
    };
    transom_engine::with_cases(component, vec![case]).map_err(Error::msg)
}

/// A component whose section of cases has this content.
///
/// # Errors
/// When the bytes are not a component.
pub fn with_section(component: Vec<u8>, content: &[u8]) -> Result<Vec<u8>> {
    let mut all = component;
    let name = SECTION.as_bytes();
    let length = u32::try_from(1 + name.len() + content.len())?;
    all.push(0);
    // LEB128 in five bytes.
    for part in 0..5 {
        let more = if part < 4 { 0x80 } else { 0 };
        all.push(u8::try_from((length >> (7 * part)) & 0x7f)? | more);
    }
    all.push(u8::try_from(name.len())?);
    all.extend_from_slice(name);
    all.extend_from_slice(content);
    Ok(all)
}

fn complete(special: &str, common: &str) -> Result<Vec<u8>> {
    let world = special
        .lines()
        .next()
        .and_then(|line| line.strip_prefix(";; world: "))
        .unwrap_or("taints-guest");
    component(&whole(special, common), world)
}

/// The text of a module: its special part, and the part that every guest has.
fn whole(special: &str, common: &str) -> String {
    let memory = if special.contains("(memory ") {
        ""
    } else {
        "(memory (export \"memory\") 1)"
    };
    format!("(module\n{special}\n{memory}\n{common})")
}

/// A guest that suspends every primary for one reason, which its description declares. The reason has at most 64 bytes.
///
/// # Errors
/// When its text is not a module of its world.
pub fn holding_for(word: &str) -> Result<Vec<u8>> {
    let path = root().join("tests/fixtures/hostile/common.wat");
    let common = fs::read_to_string(&path)
        .with_context(|| format!("failed to read `{}`", path.display()))?;
    // The reason "Seen" is at 544, and its length is where the description points.
    let length = format!("\\20\\02\\00\\00\\{:02x}\\00\\00\\00", word.len());
    let common = common
        .replacen(r"\20\02\00\00\04\00\00\00", &length, 1)
        .replace("\"Seen\"", &format!("\"{word}\""));
    let special = format!(
        r#"(memory (export "memory") 1)
        (func (export "transom:policy/guest@0.1.0#validate") (param i32 i32) (result i32) (i32.const 1024))
        (func (export "transom:policy/taints@0.1.0#compute") (param i32) (result i32)
          (i32.store8 (i32.const 1032) (i32.const 1))
          (i32.store (i32.const 1036) (i32.const 544)) (i32.store (i32.const 1040) (i32.const {}))
          (i32.store (i32.const 1044) (i32.const 512)) (i32.store (i32.const 1048) (i32.const 7))
          (i32.const 1024))"#,
        word.len()
    );
    component(&format!("(module {special} {common})"), "taints-guest")
        .with_context(|| format!("failed to encode a guest that says `{word}`"))
}

/// A core module in text form as a component of a world.
///
/// # Errors
/// When the text is not a module of that world.
pub fn component(text: &str, world: &str) -> Result<Vec<u8>> {
    ComponentEncoder::default()
        .validate(true)
        .module(&module(text, world)?)?
        .encode()
}

/// The same as a compiler outputs it: a core module that names its world.
///
/// # Errors
/// When the text is not a module.
pub fn module(text: &str, world: &str) -> Result<Vec<u8>> {
    let mut module = wat::parse_str(text)?;
    let mut resolve = Resolve::default();
    let (package, _) = resolve.push_path(wit_of(text))?;
    let world = resolve.select_world(&[package], Some(world))?;
    embed_component_metadata(&mut module, &resolve, world, StringEncoding::UTF8)?;
    Ok(module)
}

/// The contract of the generation that a text names: the fixtures stay as they were when 0.1 was released.
fn wit_of(text: &str) -> PathBuf {
    root().join(match text.contains("@0.1.0") {
        true => "wit/released/0.1.0",
        false => "wit",
    })
}

/// A component with one more core module, instantiated after the first. The component has `modules` of them already.
///
/// # Errors
/// When the text is not a module.
pub fn with_module(mut component: Vec<u8>, modules: u8, text: &str) -> Result<Vec<u8>> {
    let module = wat::parse_str(text)?;
    section(&mut component, 1, &module);
    // One core instance of that module, without arguments.
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
