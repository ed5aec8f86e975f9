//! `transom render`: what would be written, computed by the same code that writes. Writes nothing, and shows a
//! credential only when asked to.

mod changes;
pub(crate) mod difference;
mod form;

use crate::args::{ReconcileArgs, RenderArgs, Reveal};
use crate::clock::Clock;
use crate::command::block_on;
use crate::command::case::{self, GivenFile, settings};
use crate::command::session::Session;
use crate::command::summary::WrittenTo;
use crate::command::{connect, engine, run, summary};
use crate::controller::Controller;
use crate::input;
use crate::output::{CommandEnd, Screen};
use crate::policies::PolicySource;
use crate::policies::first_load::FirstLoad;
use anyhow::bail;
use changes::RenderedChanges;
use serde_json::Value;
use std::fs;
use std::hash::{BuildHasher as _, RandomState};
use std::path::{Path, PathBuf};
use transom_cluster::directory::{Directory, DirectoryOptions, SizeLimits};
use transom_core::contract::AgentFacts;
use transom_core::object::Object;
use transom_core::redact::{Marks, redact};
use transom_core::reference::{LOCAL, ObjectRef};
use transom_core::time::parse_rfc3339;

/// One object before and after.
pub(crate) struct Rendered {
    /// Which object.
    pub(crate) reference: ObjectRef,
    /// The policies that write it.
    pub(crate) policies: Vec<String>,
    /// As it is.
    pub(crate) before: Option<Object>,
    /// As it would be.
    pub(crate) after: Option<Object>,
}

/// Prints what would be written.
///
/// # Errors
/// When the path, the policies or the engine cannot be used at all.
pub(crate) fn render(args: &RenderArgs, screen: &Screen) -> anyhow::Result<CommandEnd> {
    let (changes, failed) = block_on(work(args, screen))??;
    if args.diff {
        difference::print(&changes, args.reveal, screen);
    } else {
        form::print(&changes, args.output, args.reveal, screen)?;
        // An object that is gone is in no list.
        let gone = changes.show(|one| one.after.is_none().then_some(one.reference));
        for gone in gone.into_iter().flatten() {
            screen.note(format_args!("would delete {gone}"));
        }
    }
    let would_change = !failed && args.exit_code && changes.would_be_written();
    // The process ends now, and the system frees its memory at once.
    std::mem::forget(changes);
    Ok(match would_change {
        true => CommandEnd::WouldChange,
        false => CommandEnd::failed_if(failed),
    })
}

async fn work(args: &RenderArgs, screen: &Screen) -> anyhow::Result<(RenderedChanges, bool)> {
    run::check_policies(&args.reconcile)?;
    let (path, given) = given(&args.path)?;
    let (clock, facts) = circumstances(given.as_ref(), path, &args.reconcile)?;
    let mut source = PolicySource::new(
        args.reconcile.policies.as_deref(),
        args.reconcile.components.as_deref(),
    )?;
    if let Some(case) = given.as_ref().and_then(|given| given.case.as_ref()) {
        source = settings::laid(source, case, path)?;
    }
    let controller = |connections| {
        let controller = Controller::new(connections, clock, facts);
        let controller = controller.limited(args.reconcile.max_kubeconfig_bytes);
        // As a single run, it follows what it removes: nothing else tells of that.
        controller.ending(true)
    };
    let loading = FirstLoad::start(
        engine::engine(args.reconcile.calls.limits())?,
        source,
        [LOCAL.to_owned()].into(),
        args.reconcile.reading_without_files(),
        false,
    );
    let limits = connect::limits(args.reconcile.max_object_bytes);
    let directory = open(path, given, limits, clock)?;
    let before = directory.copy();
    let session = Session::start(loading, directory, controller).await?;
    run::check_found(&session.active, &args.reconcile)?;
    let failed = summary::tell(
        &session.controller,
        &session.active,
        WrittenTo::InMemory,
        screen,
    ) == CommandEnd::Failed;
    for loaded in session.active.loaded() {
        summary::mode(&loaded.revision.policy, screen);
    }
    let changes = RenderedChanges {
        before,
        written: session.take_written(),
        session,
    };
    Ok((changes, failed))
}

/// The one path, with the case in it if there is one. For several files, and for standard input: all objects.
fn given(paths: &[PathBuf]) -> anyhow::Result<(&Path, Option<GivenFile>)> {
    if let [path] = paths
        && !input::is_meant(path)
    {
        // A pipe can be read only once.
        let given = match fs::metadata(path) {
            Ok(found) if !found.is_file() && !found.is_dir() => Some(GivenFile::read(path)?),
            _ => GivenFile::with_case(path)?,
        };
        return Ok((path, given));
    }
    let mut all = GivenFile::default();
    for path in paths {
        let one = match input::is_meant(path) {
            true => GivenFile::from_input()?,
            false if path.is_dir() => bail!(
                "failed to read `{}`: a folder must be the only path",
                path.display()
            ),
            false => GivenFile::read(path)?,
        };
        if one.case.is_some() {
            bail!(
                "failed to read `{}`: a case must be the only path",
                path.display()
            );
        }
        all.objects.extend(one.objects);
    }
    Ok((Path::new("-"), Some(all)))
}

/// An object, redacted unless everything is to be revealed.
fn shown(object: Object, reveal: Option<Reveal>, marks: &Marks) -> Value {
    if reveal == Some(Reveal::All) {
        object.body
    } else {
        redact(object.body, marks)
    }
}

/// The marks of this output; they show names if those are to be revealed.
fn marks_for(reveal: Option<Reveal>) -> Marks {
    if reveal == Some(Reveal::Names) {
        marks().showing_names()
    } else {
        marks()
    }
}

/// Marks with a random key, so that those of two runs cannot be compared.
pub(crate) fn marks() -> Marks {
    let mut key = [0; 32];
    for chunk in key.chunks_mut(8) {
        chunk.copy_from_slice(&RandomState::new().hash_one(0_u8).to_le_bytes());
    }
    Marks::new(key)
}

/// Opens a folder, or a file with all objects; a case in it is not an object.
fn open(
    path: &Path,
    given: Option<GivenFile>,
    limits: SizeLimits,
    clock: Clock,
) -> anyhow::Result<Directory> {
    if let Some(GivenFile { objects, .. }) = given {
        let directory = Directory::from_bytes(LOCAL, "given.json", b"", limits);
        case::put(&directory, &objects, |object| object.place.clone());
        return Ok(directory);
    }
    let options = DirectoryOptions {
        writable: false,
        watch: false,
        limits,
        now: Some(clock.now_seconds()),
        ..DirectoryOptions::new(LOCAL, path)
    };
    Ok(Directory::open(options)?)
}

/// The clock and the facts. `--now` overrides the time of a case; the names of a case override those of the command
/// line.
fn circumstances(
    given: Option<&GivenFile>,
    path: &Path,
    args: &ReconcileArgs,
) -> anyhow::Result<(Clock, AgentFacts)> {
    let case = given.and_then(|given| given.case.as_ref());
    let of_case = case.map(|case| case.now.as_deref().unwrap_or(case::NOW));
    let now = match (args.now, of_case) {
        (Some(now), _) => Some(now),
        (None, Some(text)) => match parse_rfc3339(text) {
            Some(now) => Some(now),
            None => bail!(
                "failed to read the case in `{}`: spec.now is not a time",
                path.display()
            ),
        },
        (None, None) => None,
    };
    let name = case
        .and_then(|case| case.agent.cluster_name.as_deref())
        .unwrap_or(&args.cluster_name);
    let own = case.and_then(|case| case.agent.self_managed_cluster.as_deref());
    let own = own.or(args.self_managed_cluster.as_deref());
    Ok((Clock::new(now), AgentFacts::new(name, own)))
}
