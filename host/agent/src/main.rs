//! The binary `transom`. Never does more than hand the command line over and end with its code.

mod admin;
mod agent;
mod args;
mod command;
mod metrics;
mod output;
mod policies;
mod telemetry;

/// Decoded objects are many small pieces that come and go on several threads.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    command::main()
}
