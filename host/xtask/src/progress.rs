//! Prints the progress of a task; the only place that does.

/// One line on standard error.
#[expect(
    clippy::print_stderr,
    reason = "the progress of a task is what its user came to see"
)]
pub(crate) fn say(line: &str) {
    eprintln!("{line}");
}

/// The heading of a step of a task.
pub(crate) fn step(what: &str) {
    say(&format!("==> {what}"));
}
