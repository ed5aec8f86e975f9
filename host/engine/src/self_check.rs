//! The self-check: a small hostile guest, part of this program, runs against every limit of a call before any other
//! guest does. Where a limit does not stop it, no guest is safe to run.

use crate::engine::Engine;
use crate::failure::{CallFailure, LoadError};
use crate::guest::Guest;
use crate::imports::{Capabilities, Capability};
use crate::limits::CallLimits;
use transom_core::contract::description::Role;
use transom_core::world::TAINTS;

/// The guest, made from `tests/fixtures/hostile/self-check.wat`.
pub(crate) const HOSTILE: &[u8] = include_bytes!("self_check.wasm");

/// Why guests cannot be run safely.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SelfCheckError {
    /// The guest of the check cannot be loaded.
    #[error("failed to check the limits of guests")]
    Unloaded(#[source] LoadError),
    /// A limit let it pass.
    #[error("the limit of {limit} does not stop a guest: {instead}")]
    NotStopped {
        /// What is limited.
        limit: &'static str,
        /// What happened instead.
        instead: String,
    },
}

/// How long a guest may take to reach another limit than that of time, in milliseconds.
const PATIENT_MS: u64 = 10_000;

/// One limit: what the guest is told to do, how it is limited, and what has to stop it.
struct Probe {
    limit: &'static str,
    letter: &'static str,
    limits: fn(&mut CallLimits, &CallLimits),
    fires: fn(&CallFailure) -> bool,
}

/// Every limit of a call.
const PROBES: [Probe; 9] = [
    Probe {
        limit: "arguments",
        letter: "x, and so many more letters that they are beyond the limit of the arguments",
        limits: |limits, strict| limits.argument_bytes = strict.argument_bytes,
        fires: |failure| matches!(failure, CallFailure::ArgumentTooLarge { .. }),
    },
    Probe {
        limit: "time",
        letter: "t",
        limits: |limits, strict| limits.time_ms = strict.time_ms,
        fires: |failure| matches!(failure, CallFailure::TimedOut { .. }),
    },
    Probe {
        limit: "memory",
        letter: "m",
        limits: |limits, strict| limits.memory_bytes = strict.memory_bytes,
        fires: |failure| matches!(failure, CallFailure::MemoryExceeded { .. }),
    },
    Probe {
        limit: "table elements",
        letter: "e",
        limits: |limits, strict| limits.table_elements = strict.table_elements,
        fires: |failure| matches!(failure, CallFailure::TablesExceeded { .. }),
    },
    Probe {
        limit: "stack",
        letter: "s",
        limits: |_, _| {},
        fires: |failure| matches!(failure, CallFailure::StackOverflowed),
    },
    Probe {
        limit: "answers",
        letter: "a",
        limits: |limits, strict| limits.answer_bytes = strict.answer_bytes,
        fires: |failure| matches!(failure, CallFailure::AnswerTooLarge { .. }),
    },
    Probe {
        limit: "log lines",
        letter: "l",
        limits: |limits, strict| limits.log_lines = strict.log_lines,
        fires: |failure| matches!(failure, CallFailure::LogLinesExceeded { .. }),
    },
    Probe {
        limit: "bytes of log",
        letter: "b",
        limits: |limits, strict| limits.log_bytes = strict.log_bytes,
        fires: |failure| matches!(failure, CallFailure::LogBytesExceeded { .. }),
    },
    Probe {
        limit: "host calls",
        letter: "l",
        limits: |limits, strict| limits.host_calls = strict.host_calls,
        fires: |failure| matches!(failure, CallFailure::HostCallsExceeded { .. }),
    },
];

impl Engine {
    /// Limits that the guest of the check exceeds, each by far.
    pub const STRICT: CallLimits = CallLimits {
        time_ms: 1,
        memory_bytes: 128 << 10,
        table_elements: 10,
        argument_bytes: 16,
        answer_bytes: 100,
        log_lines: 0,
        log_bytes: 100,
        host_calls: 0,
    };

    /// Runs the hostile guest against every limit, one at a time at its strict value: [`Engine::STRICT`], or more for a
    /// test of the check itself. Takes some milliseconds.
    ///
    /// # Errors
    /// The first limit that does not stop it.
    pub fn self_check(&self, strict: &CallLimits) -> Result<(), SelfCheckError> {
        let log = Capabilities::of([Capability::Log]);
        let loaded = self.load(HOSTILE, Role::Decide(TAINTS), &log);
        let guest = loaded.map_err(SelfCheckError::Unloaded)?;
        let mut probes = PROBES.iter();
        probes.try_for_each(|probe| probe.check(&guest, self.limits(), strict))
    }
}

impl Probe {
    fn check(
        &self,
        guest: &Guest,
        allowed: &CallLimits,
        strict: &CallLimits,
    ) -> Result<(), SelfCheckError> {
        // On a busy machine another limit may need longer than a call may take.
        let mut limits = CallLimits {
            time_ms: PATIENT_MS,
            ..allowed.clone()
        };
        (self.limits)(&mut limits, strict);
        let instead = match guest.validate(&limits, self.letter).result {
            Err(failure) if (self.fires)(&failure) => return Ok(()),
            Err(failure) => failure.to_string(),
            Ok(_) => "it answered".to_owned(),
        };
        Err(SelfCheckError::NotStopped {
            limit: self.limit,
            instead,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Allocate, EngineOptions};
    use transom_core::policy::budget::MEMORY_BYTES;

    fn engine(options: EngineOptions) -> Engine {
        Engine::new(options).unwrap()
    }

    #[test]
    fn every_limit_of_every_engine_stops_the_guest() {
        for allocate in [Allocate::PoolIfPossible, Allocate::OnDemand] {
            let options = EngineOptions {
                allocate,
                ..EngineOptions::default()
            };
            assert_eq!(engine(options).self_check(&Engine::STRICT), Ok(()));
        }
        // Also under an agent that allows next to nothing.
        let limits = CallLimits {
            time_ms: 100,
            memory_bytes: 128 << 10,
            table_elements: 5,
            argument_bytes: 16,
            answer_bytes: 1_000,
            log_lines: 1,
            log_bytes: 1,
            host_calls: 1,
        };
        let options = EngineOptions {
            limits,
            ..EngineOptions::default()
        };
        assert_eq!(engine(options).self_check(&Engine::STRICT), Ok(()));
    }

    #[test]
    fn a_limit_that_does_not_stop_the_guest_is_named() {
        let engine = engine(EngineOptions::default());
        type Loosen = fn(&mut CallLimits);
        let loosened: [(&str, Loosen); 8] = [
            ("arguments", |limits| limits.argument_bytes = 1_000),
            ("time", |limits| limits.time_ms = 600_000),
            ("memory", |limits| limits.memory_bytes = MEMORY_BYTES),
            ("table elements", |limits| limits.table_elements = 1_000),
            ("answers", |limits| limits.answer_bytes = 10_000),
            ("log lines", |limits| limits.log_lines = 1),
            ("bytes of log", |limits| limits.log_bytes = 10_000),
            ("host calls", |limits| limits.host_calls = 1),
        ];
        for (limit, loosen) in loosened {
            let mut loose = Engine::STRICT;
            loosen(&mut loose);
            let expected = SelfCheckError::NotStopped {
                limit,
                instead: "it answered".to_owned(),
            };
            assert_eq!(engine.self_check(&loose), Err(expected));
        }
    }

    #[test]
    fn a_stack_that_holds_the_recursion_is_found() {
        let options = EngineOptions {
            stack_bytes: 2 << 20,
            ..EngineOptions::default()
        };
        let checked = std::thread::Builder::new()
            .stack_size(8 << 20)
            .spawn(|| engine(options).self_check(&Engine::STRICT))
            .unwrap();
        let error = checked.join().unwrap().unwrap_err();
        assert!(
            error.to_string().starts_with("the limit of stack"),
            "{error}"
        );
    }
}
