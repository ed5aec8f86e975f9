//! The binary `transom`. Never does more than hand the command line over and end with its code.

mod agent;
mod args;
mod builtin;
mod case;
mod cases;
mod clock;
mod command;
mod connections;
mod explain;
mod inspect;
mod invoke;
mod known;
mod lane;
mod load;
mod output;
mod pipeline;
mod policies;
mod queue;
mod render;
mod run;
mod session;
mod summary;
mod swap;
mod telemetry;
mod validate;
mod watch;
mod workers;

fn main() -> std::process::ExitCode {
    command::main()
}
