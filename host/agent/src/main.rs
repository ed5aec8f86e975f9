//! The binary `transom`: runs the command line and ends with its exit code.

mod admin;
mod args;
mod clock;
mod command;
mod controller;
mod input;
mod metrics;
mod output;
mod policies;
mod telemetry;

/// Decoded objects are many small allocations, made and freed on several threads.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    command::main()
}
