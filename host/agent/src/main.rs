//! The binary `transom`. Never does more than hand the command line over and end with its code.

mod admin;
mod agent;
mod args;
mod command;
mod metrics;
mod output;
mod policies;
mod telemetry;

fn main() -> std::process::ExitCode {
    command::main()
}
