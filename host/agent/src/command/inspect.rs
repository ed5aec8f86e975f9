//! `transom inspect`: what a component is, and which capabilities it would need.

use crate::args::TableFormat;
use crate::args::InspectArgs;
use crate::output::{Ending, Screen};
use anyhow::{Context as _, anyhow};
use serde_json::{Value, json};
use transom_artifacts::{Location, builtin_names};
use transom_core::contract::description::Description;
use transom_engine::{Capability, Engine, EngineOptions, Inspection};

/// Prints what a component is.
///
/// # Errors
/// When it cannot be read or compiled.
pub(crate) fn inspect(args: &InspectArgs, screen: &Screen) -> anyhow::Result<Ending> {
    let location = Location::anywhere(&args.component);
    let artifact = location.fetch(None).map_err(|error| {
        match builtin_names().any(|name| name == args.component) {
            true => anyhow!("{error}; the builtin guest is `builtin:{}`", args.component),
            false => error.into(),
        }
    })?;
    let engine = Engine::new(EngineOptions::default())?;
    let found = engine
        .inspect(&artifact.bytes)
        .with_context(|| format!("failed to inspect `{location}`"))?;
    match args.output {
        TableFormat::Json => screen.json(&as_json(&location, &found)),
        TableFormat::Table => tell(&location, &found, screen),
    }
    Ok(if found.description.is_ok() {
        Ending::Right
    } else {
        Ending::Failed
    })
}

/// The names of the capabilities that it would need.
fn needs(found: &Inspection) -> Vec<&'static str> {
    Capability::ALL
        .iter()
        .filter(|capability| found.needs.has(**capability))
        .map(|capability| capability.name())
        .collect()
}

fn tell(location: &Location, found: &Inspection, screen: &Screen) {
    let list = |items: &[String]| {
        if items.is_empty() {
            "none".to_owned()
        } else {
            items.join(", ")
        }
    };
    let needs: Vec<String> = needs(found).iter().map(ToString::to_string).collect();
    screen.line(format_args!("component   {location}"));
    screen.line(format_args!("digest      {}", found.digest));
    screen.line(format_args!("size        {} bytes", found.size));
    screen.line(format_args!(
        "world       {}",
        found.world.map_or("unknown", |world| world.name())
    ));
    screen.line(format_args!("imports     {}", list(&found.imports)));
    screen.line(format_args!("exports     {}", list(&found.exports)));
    screen.line(format_args!("needs       {}", list(&needs)));
    if !found.ungrantable.is_empty() {
        screen.line(format_args!("not grantable: {}", list(&found.ungrantable)));
    }
    match &found.description {
        Ok(description) => describe(description, screen),
        Err(error) => screen.line(format_args!(
            "cannot be loaded: {}: {error}",
            error.reason()
        )),
    }
}

fn describe(description: &Description, screen: &Screen) {
    screen.line(format_args!(
        "name        {} {}",
        description.name, description.version
    ));
    for read in &description.reads {
        screen.line(format_args!(
            "reads       {} {}",
            read.api_version, read.kind
        ));
        read.fields
            .iter()
            .for_each(|path| screen.line(format_args!("  value     {path}")));
        read.changes
            .iter()
            .for_each(|path| screen.line(format_args!("  change    {path}")));
    }
    for reason in &description.reasons {
        screen.line(format_args!(
            "reason      {}: {}",
            reason.name, reason.meaning
        ));
        screen.line(format_args!("  to do     {}", reason.remedy));
    }
    screen.text(&format!(
        "settings    {}\n",
        description.settings_schema.trim()
    ));
}

fn as_json(location: &Location, found: &Inspection) -> Value {
    let description = match &found.description {
        Ok(description) => json!({
            "name": description.name,
            "version": description.version,
            "reads": description.reads.iter().map(|read| json!({
                "apiVersion": read.api_version, "kind": read.kind, "fields": read.fields, "changes": read.changes,
            })).collect::<Vec<_>>(),
            "reasons": description.reasons.iter().map(|reason| json!({
                "name": reason.name, "meaning": reason.meaning, "remedy": reason.remedy,
            })).collect::<Vec<_>>(),
            "settingsSchema": serde_json::from_str(&description.settings_schema).unwrap_or(Value::Null),
        }),
        Err(error) => json!({"reason": error.reason(), "message": error.to_string()}),
    };
    json!({
        "component": location.to_string(),
        "digest": found.digest,
        "size": found.size,
        "world": found.world.map(transom_core::contract::description::Role::name),
        "imports": found.imports,
        "exports": found.exports,
        "needs": needs(found),
        "ungrantable": found.ungrantable,
        "description": description,
    })
}
