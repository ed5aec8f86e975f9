//! `cargo xtask`: the tasks of the workspace. Nothing of it ships.

mod args;
mod check;
mod demo;
mod files;
mod fleet;
mod guests;
mod long;
mod process;
mod programs;
mod progress;
mod servers;
mod start;
mod wasm_std;
mod workspace;

use clap::Parser as _;

fn main() -> std::process::ExitCode {
    match args::Args::parse().run() {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            progress::say(&format!("error: {error:#}"));
            std::process::ExitCode::FAILURE
        }
    }
}
