//! `cargo xtask`: the tasks of the workspace, each in a file of its own. Nothing of it ships.

mod args;
mod bench;
mod check;
mod cluster;
mod component;
mod demo;
mod deploy;
mod fleet;
mod fuzz;
mod guests;
mod process;
mod programs;
mod progress;
mod servers;
mod soak;
mod wasm_std;
mod workspace;

fn main() -> std::process::ExitCode {
    match args::parse().run() {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            progress::say(&format!("error: {error:#}"));
            std::process::ExitCode::FAILURE
        }
    }
}
