//! `transom policy init`: the manifest of a policy for a component.

use crate::args::PolicyInitArgs;
use crate::command::component::needs;
use crate::command::{engine, place};
use crate::output::{CommandEnd, Screen};
use anyhow::Context as _;
use std::env;
use std::path::Path;
use transom_artifacts::Location;
use transom_core::policy::suggest;
use transom_engine::CallLimits;

/// Prints the manifest.
///
/// # Errors
/// When the component cannot be read or loaded, or asks for nothing that a policy can grant.
pub(crate) fn init(args: &PolicyInitArgs, screen: &Screen) -> anyhow::Result<CommandEnd> {
    let place::ReadComponent {
        location, artifact, ..
    } = place::find(&args.component, &args.from, false)?;
    let failed = || format!("failed to write a policy for `{location}`");
    let found = engine::engine(CallLimits::LARGEST)?
        .inspect(&artifact.bytes)
        .with_context(failed)?;
    let needs = needs(&found);
    let capabilities: Vec<_> = needs.iter().map(String::as_str).collect();
    let world = found
        .world
        .context("it matches no world")
        .with_context(failed)?;
    let description = found.description.with_context(failed)?;
    let name = args.name.as_deref().unwrap_or(&description.name);
    let component = component(&args.component, &location);
    let role = (world, capabilities.as_slice());
    let text = suggest::manifest(name, &component, &description, role).with_context(failed)?;
    if Path::new(&component).is_absolute() || component.starts_with("..") {
        screen.note(format_args!(
            "a policy names a file in its own folder or below: put `{component}` there, and change the path"
        ));
    }
    screen.text(&text);
    Ok(CommandEnd::Right)
}

/// The component as a policy in the current folder names it.
fn component(text: &str, location: &Location) -> String {
    let here = env::current_dir().unwrap_or_default();
    let below = Path::new(text).strip_prefix(here).ok();
    let below = below.filter(|_| location.file().is_some());
    below.map_or_else(|| text.to_owned(), |path| path.display().to_string())
}
