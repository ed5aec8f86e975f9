//! The binary `transom`. Never does more than hand the command line over and end with its code.

mod args;
mod queue;

fn main() {
}
