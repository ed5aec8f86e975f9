//! `transom inspect` and `transom componentize`: what a component is, and how a core module becomes one.

mod grant;

use crate::args::{ComponentizeArgs, InspectArgs, TableFormat};
use crate::command::{done, engine, place, replace_file};
use crate::input;
use crate::output::{CommandEnd, Screen};
use crate::policies::cases::{CaseFailure, check};
use anyhow::{Context as _, anyhow, bail};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use transom_artifacts::Location;
use transom_core::cases::GuestCase;
use transom_core::contract::description::{Description, Role};
use transom_engine::{CallLimits, Capability, Inspection, with_cases};
use wit_component::ComponentEncoder;

/// Maximum size of a module in bytes: one with debug information is ten times as large as its component.
const MAX_BYTES: usize = 64 << 20;
/// How a core module begins: the magic number of WebAssembly, then version and layer.
const MODULE: &[u8] = b"\0asm\x01\0\0\0";
/// How a component begins.
const COMPONENT: &[u8] = b"\0asm\x0d\0\x01\0";

/// Prints what a component is.
///
/// # Errors
/// When it cannot be read or compiled.
pub(crate) fn inspect(args: &InspectArgs, screen: &Screen) -> anyhow::Result<CommandEnd> {
    let place::ReadComponent {
        location, artifact, ..
    } = place::find(&args.component, &args.from, false)?;
    let engine = engine::engine(CallLimits::LARGEST)?;
    let found = engine
        .inspect(&artifact.bytes)
        .with_context(|| format!("failed to inspect `{location}`"))?;
    match args.output {
        TableFormat::Json => screen.json(&as_json(&location, &found)),
        TableFormat::Table => print(&location, &found, screen),
    }
    let failed = found.description.is_err() || found.cases.is_err();
    Ok(CommandEnd::failed_if(failed))
}

/// The names of the capabilities that it would need.
pub(crate) fn needs(found: &Inspection) -> Vec<String> {
    let needed = Capability::ALL.iter().filter(|one| found.needs.has(**one));
    needed.map(|one| one.name().to_owned()).collect()
}

fn world(found: &Inspection) -> Option<&'static str> {
    found.world.map(Role::name)
}

fn print(location: &Location, found: &Inspection, screen: &Screen) {
    let line = |label: &str, text: &str| screen.line(format_args!("{label:<11} {text}"));
    let list = |label: &str, items: &[String]| match items {
        [] => line(label, "none"),
        items => line(label, &items.join(", ")),
    };
    line("component", &location.to_string());
    line("digest", &found.digest);
    line("size", &format!("{} bytes", found.size));
    line("world", world(found).unwrap_or("unknown"));
    list("imports", &found.imports);
    list("exports", &found.exports);
    list("needs", &needs(found));
    match &found.cases {
        Ok(count) => line("cases", &count.to_string()),
        Err(error) => line("cases", &format!("{}: {error}", error.reason())),
    }
    if !found.ungrantable.is_empty() {
        line("not grantable:", &found.ungrantable.join(", "));
    }
    let description = match &found.description {
        Ok(description) => description,
        Err(error) => {
            return line("cannot be loaded:", &format!("{}: {error}", error.reason()));
        }
    };
    let Description { name, version, .. } = description;
    line("name", &format!("{name} {version}"));
    for read in &description.reads {
        line("reads", &format!("{} {}", read.api_version, read.kind));
        read.fields.iter().for_each(|path| line("  value", path));
        read.changes.iter().for_each(|path| line("  change", path));
    }
    grant::print(&description.grant, &line);
    for reason in &description.reasons {
        line("reason", &format!("{}: {}", reason.name, reason.meaning));
        line("  to do", &reason.remedy);
    }
    let schema = description.settings_schema.trim();
    screen.text(&format!("settings    {schema}\n"));
}

fn as_json(location: &Location, found: &Inspection) -> Value {
    let description = match &found.description {
        Ok(description) => json!(description),
        Err(error) => json!({"reason": error.reason(), "message": error.to_string()}),
    };
    let cases = match &found.cases {
        Ok(count) => json!(count),
        Err(error) => json!({"reason": error.reason(), "message": error.to_string()}),
    };
    json!({
        "component": location.to_string(),
        "digest": found.digest,
        "size": found.size,
        "world": world(found),
        "imports": found.imports,
        "exports": found.exports,
        "needs": needs(found),
        "ungrantable": found.ungrantable,
        "cases": cases,
        "description": description,
    })
}

/// Writes the component of a module, and prints what it is.
///
/// # Errors
/// As for [`make`].
pub(crate) fn componentize(args: &ComponentizeArgs, screen: &Screen) -> anyhow::Result<CommandEnd> {
    make(&args.module, &args.output, Vec::new(), screen)
}

/// Writes the component of a module with the cases that travel with it, and prints what it is. A component that the
/// agent would not load is not written; one whose cases fail is, because `transom test` needs it to show the
/// difference.
///
/// # Errors
/// When the module cannot be read, when the cases exceed a limit, and when the component cannot be written.
pub(super) fn make(
    module: &Path,
    output: &Path,
    cases: Vec<GuestCase>,
    screen: &Screen,
) -> anyhow::Result<CommandEnd> {
    let (from, to) = (module.display(), output.display());
    let module = read(module).with_context(|| format!("failed to read `{from}`"))?;
    let component =
        encode(&module).with_context(|| format!("failed to turn `{from}` into a component"));
    let component = match component {
        Ok(component) => component,
        Err(error) => return done(Err(error), screen),
    };
    let count = cases.len();
    let component = with_cases(component, cases)
        .map_err(|why| anyhow!("failed to put the cases into the component of `{from}`: {why}"))?;
    let engine = engine::engine(CallLimits::LARGEST)?;
    let found = engine.inspect(&component);
    let found = found.with_context(|| format!("failed to inspect the component of `{from}`"))?;
    if let Err(error) = &found.description {
        let reason = error.reason();
        screen.note(format_args!(
            "{from}: no component was written, because the agent would not load it: {reason}: {error}"
        ));
        return Ok(CommandEnd::Failed);
    }
    write(output, &component).with_context(|| format!("failed to write `{to}`"))?;
    let (bytes, world) = (component.len(), world(&found).unwrap_or("unknown world"));
    let cases = match count {
        0 => String::new(),
        1 => ", 1 case".to_owned(),
        count => format!(", {count} cases"),
    };
    screen.line(format_args!(
        "{to}  {bytes} bytes, {world}{cases}, {}",
        found.digest
    ));
    if let Some(role) = found.world {
        let guest = engine.load(&component, role, &found.needs)?;
        if let Err(CaseFailure::Refused(reason, why)) = check(&engine, &guest, &component) {
            let reason = reason.as_str();
            screen.warn(format_args!(
                "no policy would begin to use this component: {reason}: {why}"
            ));
        }
    }
    Ok(CommandEnd::Right)
}

fn read(path: &Path) -> anyhow::Result<Vec<u8>> {
    if !fs::metadata(path)?.is_file() {
        bail!("it is not a regular file");
    }
    input::file(path, MAX_BYTES)
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
    Ok(replace_file(path, bytes)?)
}
