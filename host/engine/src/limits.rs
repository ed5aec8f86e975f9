//! What one call may use. Limits belong to the call, not to the compiled code.

/// The budget of one call. Each limit stops a guest that exceeds it with its own [`CallFailure`](crate::CallFailure).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Milliseconds (ticks of the engine) until the guest is stopped; waiting for a free instance does not count.
    pub time_ms: u64,
    /// Bytes of all linear memories together; growth beyond stops the guest instead of returning -1.
    pub memory_bytes: u64,
    /// Elements of all tables together.
    pub table_elements: u64,
    /// Bytes of the guest's arguments: their texts and list entries.
    pub argument_bytes: u64,
    /// Bytes of the guest's answer, counted like the arguments.
    pub answer_bytes: u64,
    /// Log lines, cut or not.
    pub log_lines: u64,
    /// Bytes of all log lines before they are cut.
    pub log_bytes: u64,
    /// Calls of functions of the host.
    pub host_calls: u64,
}

/// The default memory of a call, in bytes. Of the agent's budget of 256 MiB, compiling has 128 and documents with
/// credentials have 32. Four calls have 24 each; four is the fewest with which guests of two policies work while
/// another is loaded and one hangs. Of the 24, 16 are memory, the rest is for arguments and answer
/// ([`Limits::bytes`]). Guests written in Rust take one or two.
pub(crate) const MEMORY_BYTES: u64 = 16 << 20;

impl Default for Limits {
    /// Ample for a guest that reads a few objects, and small enough that a hostile one does not disturb others.
    fn default() -> Self {
        Self {
            time_ms: 250,
            memory_bytes: MEMORY_BYTES,
            table_elements: 10_000,
            argument_bytes: 4 << 20,
            answer_bytes: 1 << 20,
            log_lines: 100,
            log_bytes: 64 << 10,
            host_calls: 1000,
        }
    }
}

impl Limits {
    /// The most bytes that a call takes: its memories, its arguments, its answer (once as received and once
    /// converted), and its log.
    pub fn bytes(&self) -> u64 {
        let answer = self.answer_bytes.saturating_mul(2);
        [self.argument_bytes, answer, self.log_bytes]
            .into_iter()
            .fold(self.memory_bytes, u64::saturating_add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_guest_author_page_names_the_limits() {
        let page = include_str!("../../../guest/README.md");
        let limits = Limits::default();
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
}
