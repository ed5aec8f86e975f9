//! From the command line to an exit code: 0 success, 1 something failed, 2 wrong use, 3 something would change, where
//! that is asked for.

mod builtin;
mod case;
mod cases;
mod child;
mod componentize;
mod connect;
mod crd;
mod explain;
mod inspect;
mod rbac;
mod render;
mod run;
pub(crate) mod session;
mod status;
mod summary;
mod validate;
mod would;

use crate::args::{Cli, Command};
use crate::output::{Ending, Screen};
use anyhow::Context as _;
use clap::{CommandFactory as _, Parser as _};
use std::process::ExitCode;

/// The exit code for wrong use.
const WRONG_USE: u8 = 2;

/// Runs the command of this process. An error is printed as one line with its chain of causes.
pub(crate) fn main() -> ExitCode {
    let screen = Screen::new();
    match dispatch(Cli::parse().command, &screen) {
        Ok(ending) => match screen.lost() {
            None => ending.into(),
            Some(error) => {
                screen.note(format_args!("failed to write to standard output: {error}"));
                Ending::Failed.into()
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

fn dispatch(command: Command, screen: &Screen) -> anyhow::Result<Ending> {
    match command {
        Command::Run(args) => run::run(&args, screen),
        Command::Inspect(args) => inspect::inspect(&args, screen),
        Command::Componentize(args) => componentize::componentize(&args, screen),
        Command::Completion { shell } => Ok(completion(shell, screen)),
        Command::Version => {
            screen.text(&Cli::command().render_version());
            Ok(Ending::Right)
        }
        Command::Explain(args) => explain::explain(&args, screen),
        Command::Child { parent, words } => child::become_program(parent, &words),
        Command::Compile { allocation } => {
            transom_engine::compile(
                allocation.as_str(),
                std::io::stdin(),
                std::io::stdout().lock(),
            )
            .context("failed to compile")?;
            Ok(Ending::Right)
        }
        Command::Crd => Ok(crd::crd(screen)),
        Command::Rbac(args) => rbac::rbac(&args, screen),
        Command::Render(args) => render::render(&args, screen),
        Command::Status(args) => status::status(&args, screen),
        Command::Test(args) => cases::test(&args, screen),
        Command::Validate(args) => validate::validate(&args, screen),
    }
}

/// Prints the completion script of a shell.
fn completion(shell: clap_complete::Shell, screen: &Screen) -> Ending {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "transom", &mut script);
    screen.script(&script);
    Ending::Right
}
