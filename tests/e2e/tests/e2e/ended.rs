//! How a command ended. Never judges it.

use std::process::Output;

/// Its exit code.
pub(crate) fn code(output: &Output) -> Option<i32> {
    output.status.code()
}

/// What it said on standard error.
pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}
