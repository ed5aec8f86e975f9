//! What one call used, with the log lines that it wrote. Its limits belong to the call, not to the compiled code; each
//! stops a guest that exceeds it with its own [`CallFailure`](crate::CallFailure).

use transom_core::policy::budget::Budgeted;
pub use transom_core::policy::budget::CallLimits;
use transom_core::redact::visible::visible;

/// What a call used of each budget. All but `micros` is the same for the same call on any engine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Receipt {
    /// Microseconds from making the instance to having its answer; of a call that took long, without the time for which
    /// its thread had no processor.
    pub micros: u64,
    /// Peak bytes of all linear memories together.
    pub memory_bytes: u64,
    /// Elements of all tables together.
    pub table_elements: u64,
    /// Bytes of the arguments.
    pub argument_bytes: u64,
    /// Bytes of the answer.
    pub answer_bytes: u64,
    /// Log lines that were kept.
    pub log_lines: u64,
    /// Bytes of these lines before they were cut.
    pub log_bytes: u64,
    /// Calls of functions of the host that were served.
    pub host_calls: u64,
    /// Whether the stack overflowed, whose limit the agent sets.
    pub stack_overflowed: bool,
    /// The lines themselves.
    pub log: Vec<LogLine>,
}

impl Receipt {
    /// What was used of a budget, and the budget, in the same unit.
    pub fn used(&self, what: Budgeted, limits: &CallLimits) -> (u64, u64) {
        let used = match what {
            Budgeted::TimeMilliseconds => {
                return (self.micros, limits.time_ms.saturating_mul(1_000));
            }
            Budgeted::MemoryBytes => self.memory_bytes,
            Budgeted::TableElements => self.table_elements,
            Budgeted::ArgumentBytes => self.argument_bytes,
            Budgeted::AnswerBytes => self.answer_bytes,
            Budgeted::LogLines => self.log_lines,
            Budgeted::LogBytes => self.log_bytes,
            Budgeted::HostCalls => self.host_calls,
        };
        (used, limits.of(what))
    }
}

/// One captured line: at most [`LINE_CHARS`] characters, control characters escaped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLine {
    /// Its level.
    pub level: LogLevel,
    /// The text, safe to print.
    pub text: String,
}

/// The level of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    /// For the guest's author.
    Debug,
    /// For the operator.
    Info,
    /// For the operator, at once.
    Warn,
}

/// Characters of a guest's text that are kept, in log lines and in messages.
pub const LINE_CHARS: usize = 1024;

/// A guest's text as it may be printed: cut, and with escapes for letters that move a cursor or change the direction
/// of text.
pub(crate) fn printable(text: &str) -> String {
    match text.char_indices().nth(LINE_CHARS) {
        Some((end, _)) => format!("{}…", visible(text.get(..end).unwrap_or_default())),
        None => visible(text).into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_guest_author_page_names_the_limits() {
        let page = include_str!("../../../guest/README.md");
        let limits = CallLimits::default();
        for (limit, most) in [
            ("milliseconds of one call", limits.time_ms),
            ("bytes of memory", limits.memory_bytes),
            ("elements of tables", limits.table_elements),
            ("bytes of the arguments", limits.argument_bytes),
            ("bytes of the answer", limits.answer_bytes),
            ("log lines of one call", limits.log_lines),
            ("bytes of log of one call", limits.log_bytes),
            ("calls of the host", limits.host_calls),
        ] {
            assert!(
                page.contains(&format!("\n| {limit} | {most} |\n")),
                "{limit}: {most}"
            );
        }
    }

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(
            printable("a\nb\u{1b}[31m\u{202e}ü"),
            "a\\nb\\u001b[31m\\u202eü"
        );
    }

    #[test]
    fn long_lines_are_cut() {
        let cut = printable(&"é".repeat(LINE_CHARS + 1));
        assert_eq!(cut.chars().count(), LINE_CHARS + 1);
        assert!(cut.ends_with("é…"));
        let whole = "x".repeat(LINE_CHARS);
        assert_eq!(printable(&whole), whole);
    }
}
