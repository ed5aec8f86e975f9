//! How a command ended: helpers to read its output.

use std::process::Output;

/// Its exit code.
pub(crate) fn code(output: &Output) -> Option<i32> {
    output.status.code()
}

/// Its standard error.
pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}
