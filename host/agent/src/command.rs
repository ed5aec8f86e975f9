//! From the command line to an exit code: 0 success, 1 something failed, 2 wrong use, 3 something would change, where
//! that is asked for.

mod build;
mod case;
mod cases;
mod child;
mod component;
mod connect;
pub(crate) mod engine;
mod explain;
mod new;
mod place;
mod plan;
mod policy;
mod rbac;
mod registry;
mod render;
mod revisions;
mod run;
pub(crate) mod session;
mod status;
mod summary;
mod validate;
mod verify;
mod would;

use crate::args::run::LogFormat;
use crate::args::{Cli, Command, PolicyCommand};
use crate::output::{CommandEnd, Screen};
use crate::telemetry;
use anyhow::Context as _;
use clap::{CommandFactory as _, Parser as _};
use std::fs::{self, File};
use std::hash::{BuildHasher as _, RandomState};
use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;
use transom_core::document::emit::to_yaml_in_order;

/// The exit code for wrong use.
const WRONG_USE: u8 = 2;

/// Runs the command of this process. An error is printed as one line with its chain of causes.
pub(crate) fn main() -> ExitCode {
    let screen = Screen::new();
    let command = Cli::parse().command;
    // Without this, the message of a panic would be printed, which may quote a value.
    match command {
        // It has flags for its log lines.
        Command::Run(_) => {}
        Command::Render(_) | Command::Test(_) | Command::Bench(_) => {
            telemetry::start(LogFormat::Text, telemetry::USUAL_ONCE);
        }
        _ => telemetry::start(LogFormat::Text, telemetry::USUAL_ERRORS),
    }
    match dispatch(command, &screen) {
        Ok(ending) => match screen.lost() {
            None => ending.into(),
            Some(error) => {
                screen.note(format_args!("failed to write to standard output: {error}"));
                CommandEnd::Failed.into()
            }
        },
        Err(error) => {
            screen.note(format_args!("{error:#}"));
            ExitCode::from(WRONG_USE)
        }
    }
}

/// Runs the work of a command on a runtime with several threads.
///
/// # Errors
/// When the runtime cannot be started.
fn block_on<T>(work: impl Future<Output = T>) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build();
    let runtime = runtime.context("failed to start the runtime")?;
    let done = runtime.block_on(work);
    // The process ends next, and with it the tasks that still wait. Dropping the runtime first would remove their
    // timers, and they would panic.
    std::mem::forget(runtime);
    Ok(done)
}

fn dispatch(command: Command, screen: &Screen) -> anyhow::Result<CommandEnd> {
    match command {
        Command::Run(args) => run::run(&args, screen),
        Command::Inspect(args) => component::inspect(&args, screen),
        Command::New(args) => new::new(&args, screen),
        Command::Policy {
            command: PolicyCommand::Init(args),
        } => policy::init(&args, screen),
        Command::Build(args) => build::build(&args, screen),
        Command::Componentize(args) => component::componentize(&args, screen),
        Command::Completion { shell } => Ok(completion(shell, screen)),
        Command::Version => {
            screen.text(&Cli::command().render_version());
            Ok(CommandEnd::Right)
        }
        Command::History(args) => done(revisions::history(&args, screen), screen),
        Command::Rollback(args) => done(revisions::rollback(&args, screen), screen),
        Command::Approve(args) => done(revisions::approve(&args, screen), screen),
        Command::Explain(args) => explain::explain(&args, screen),
        Command::Child { parent, words } => child::become_program(parent, &words),
        Command::Compile { allocation } => {
            transom_engine::compile(
                allocation.as_str(),
                std::io::stdin(),
                std::io::stdout().lock(),
            )
            .context("failed to compile")?;
            Ok(CommandEnd::Right)
        }
        Command::Crd => {
            screen.text(&format!("{}\n", crd().trim_end()));
            Ok(CommandEnd::Right)
        }
        Command::Push(args) => done(registry::push(&args, screen), screen),
        Command::Pull(args) => done(registry::pull(&args, screen), screen),
        Command::Digest(args) => done(registry::digest(&args, screen), screen),
        Command::Fetch(args) => registry::fetch(&args),
        Command::Rbac(args) => rbac::rbac(&args, screen),
        Command::Render(args) => render::render(&args, screen),
        Command::Plan(args) => plan::plan(&args, screen),
        Command::Status(args) => status::status(&args, screen),
        Command::Bench(args) => cases::bench(&args, screen),
        Command::Test(args) => cases::test(&args, screen),
        Command::Validate(args) => validate::validate(&args, screen),
        Command::Verify(args) => verify::verify(&args, screen),
    }
}

/// For a command that does one thing in a registry or cluster: its error is a failure, not wrong use.
fn done(ending: anyhow::Result<CommandEnd>, screen: &Screen) -> anyhow::Result<CommandEnd> {
    ending.or_else(|error| {
        screen.note(format_args!("{error:#}"));
        Ok(CommandEnd::Failed)
    })
}

/// Writes a whole file or nothing: another process may be reading it. The draft is a new file with a name that nobody
/// knows before, because somebody else may put links into the folder.
fn replace_file(path: &Path, content: impl AsRef<[u8]>) -> std::io::Result<()> {
    let draft = path.with_extension(format!("{:016x}.tmp", RandomState::new().hash_one(0_u8)));
    let mut file = File::create_new(&draft)?;
    let written = file.write_all(content.as_ref());
    let written = written.and_then(|()| fs::rename(&draft, path));
    written.inspect_err(|_| drop(fs::remove_file(&draft)))
}

/// Prints the completion script of a shell, without the commands that only the agent itself runs: the scripts would
/// offer hidden ones, too.
fn completion(shell: clap_complete::Shell, screen: &Screen) -> CommandEnd {
    let mut script = Vec::new();
    let all = Cli::command();
    let shown = all
        .get_subcommands()
        .filter(|command| !command.is_hide_set());
    let mut shown = clap::Command::new("transom")
        .version("")
        .subcommands(shown.cloned());
    clap_complete::generate(shell, &mut shown, "transom", &mut script);
    screen.script(&script);
    CommandEnd::Right
}

/// The CustomResourceDefinition of the kind `FleetPolicy`, as it lies in `host/deploy/base/crd.yaml`.
fn crd() -> String {
    let order = ["apiVersion", "kind", "metadata", "spec"];
    let definition = to_yaml_in_order(&transom_api::crd::policy(), &order);
    format!("# The kind FleetPolicy. Generated by `transom crd`; do not edit.\n{definition}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_draft_is_written_through_no_link() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("other"), "other").unwrap();
        fs::write(at("file.yaml"), "before").unwrap();
        // What a guess from the name of the file and the process would be.
        let guess = format!("file.{}.tmp", std::process::id());
        symlink("other", at(&guess)).unwrap();
        replace_file(&at("file.yaml"), "after").unwrap();
        let text = |name: &str| fs::read_to_string(at(name)).unwrap();
        assert_eq!([text("file.yaml"), text("other")], ["after", "other"]);
        assert!(at(&guess).is_symlink());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3);
    }

    #[test]
    fn the_committed_crd_matches_the_generated_one() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/base/crd.yaml");
        let committed = std::fs::read_to_string(path).unwrap();
        assert!(committed == super::crd(), "run `cargo xtask deploy`");
    }
}
