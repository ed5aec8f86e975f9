//! The state of the call that runs in a store: its budget, what it used, its log. Checks every limit that a guest can
//! hit while it runs, except time and stack.

use crate::bindings::v0_1::{log, panic};
use crate::config::{CORE_INSTANCES, LARGEST_MEMORY};
use crate::failure::CallFailure;
use crate::limits::{CallLimits, LogLevel, LogLine, Receipt, printable};
use crate::time::Time;
use wasmtime::ResourceLimiter;

/// The data of one store.
pub(crate) struct CallState {
    limits: CallLimits,
    pub(crate) receipt: Receipt,
    pub(crate) time: Time,
    /// The guest's panic message.
    pub(crate) panicked: Option<String>,
}

impl CallState {
    pub(crate) fn new(limits: CallLimits, receipt: Receipt) -> Self {
        Self {
            limits,
            receipt,
            time: Time::start(),
            panicked: None,
        }
    }
}

impl ResourceLimiter for CallState {
    fn memory_growing(
        &mut self,
        current: usize,
        desired: usize,
        maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        let (total, allowed) = (&mut self.receipt.memory_bytes, self.limits.memory_bytes);
        match grown(*total, current, desired) {
            wanted if wanted > allowed => {
                Err(CallFailure::MemoryExceeded { wanted, allowed }.into())
            }
            // Growth beyond the module's own maximum returns -1, on every engine and under every budget.
            _ if maximum.is_some_and(|maximum| desired > maximum) => Ok(false),
            wanted => {
                *total = wanted;
                Ok(true)
            }
        }
    }

    fn memory_grow_failed(&mut self, error: wasmtime::Error) -> wasmtime::Result<()> {
        // Do not return -1 here: the guest's answer would depend on what memory the machine had left.
        let text = error.to_string();
        if text.contains(BEYOND_ANY_MEMORY) {
            let (wanted, allowed) = (
                self.receipt
                    .memory_bytes
                    .saturating_add(LARGEST_MEMORY as u64),
                self.limits.memory_bytes,
            );
            return Err(CallFailure::MemoryExceeded { wanted, allowed }.into());
        }
        Err(CallFailure::NoRoom(text).into())
    }

    fn table_growing(
        &mut self,
        current: usize,
        desired: usize,
        maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        let (total, allowed) = (&mut self.receipt.table_elements, self.limits.table_elements);
        match grown(*total, current, desired) {
            wanted if wanted > allowed => {
                Err(CallFailure::TablesExceeded { wanted, allowed }.into())
            }
            _ if maximum.is_some_and(|maximum| desired > maximum) => Ok(false),
            wanted => {
                *total = wanted;
                Ok(true)
            }
        }
    }

    fn table_grow_failed(&mut self, error: wasmtime::Error) -> wasmtime::Result<()> {
        Err(CallFailure::NoRoom(error.to_string()).into())
    }

    fn instances(&self) -> usize {
        CORE_INSTANCES as usize
    }
}

/// wasmtime's error for growth that no 32-bit memory could have; it does not ask the limiter first.
const BEYOND_ANY_MEMORY: &str = "exceeds memory type's limits";

/// The sum over all memories (or tables) after one of them has grown.
fn grown(total: u64, current: usize, desired: usize) -> u64 {
    total.saturating_add(desired.saturating_sub(current) as u64)
}

impl log::Host for CallState {
    fn log(&mut self, level: log::Level, message: String) -> wasmtime::Result<()> {
        let (limits, used) = (&self.limits, &mut self.receipt);
        let bytes = used.log_bytes.saturating_add(message.len() as u64);
        if used.host_calls >= limits.host_calls {
            return Err(CallFailure::HostCallsExceeded {
                allowed: limits.host_calls,
            }
            .into());
        }
        if used.log_lines >= limits.log_lines {
            return Err(CallFailure::LogLinesExceeded {
                allowed: limits.log_lines,
            }
            .into());
        }
        if bytes > limits.log_bytes {
            return Err(CallFailure::LogBytesExceeded {
                allowed: limits.log_bytes,
            }
            .into());
        }
        used.host_calls += 1;
        used.log_lines += 1;
        used.log_bytes = bytes;
        used.log.push(LogLine {
            level: level.into(),
            text: printable(&message),
        });
        Ok(())
    }
}

impl panic::Host for CallState {
    fn panicked(&mut self, message: String) -> wasmtime::Result<()> {
        if self.receipt.host_calls >= self.limits.host_calls {
            return Err(CallFailure::HostCallsExceeded {
                allowed: self.limits.host_calls,
            }
            .into());
        }
        self.receipt.host_calls += 1;
        self.panicked.get_or_insert_with(|| printable(&message));
        Ok(())
    }
}

impl From<log::Level> for LogLevel {
    fn from(level: log::Level) -> Self {
        match level {
            log::Level::Debug => Self::Debug,
            log::Level::Info => Self::Info,
            log::Level::Warn => Self::Warn,
        }
    }
}
