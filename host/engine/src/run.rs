//! One call: arguments in, a fresh instance, its answer out, all within the limits; and why it failed if it did.
//! Instances are not reused, so that no call sees what another one did.

use crate::call::CallState;
use crate::compile::Compiled;
use crate::engine::{Inner, Ticker};
use crate::failure::CallFailure;
use crate::limits::{CallLimits, Receipt, printable};
use crate::measure::{Lift, Lower};
use crate::time;
use std::collections::BTreeSet;
use std::fmt::{self, Write as _};
use std::sync::Arc;
use wasmtime::component::{Instance, InstancePre};
use wasmtime::{Store, Trap, WasmBacktrace};

/// The result of a call: an answer or a failure, and in both cases what was used.
#[derive(Clone, Debug, PartialEq)]
pub struct Call<T> {
    /// The answer, as the guest gave it, or why there is none.
    pub result: Result<T, CallFailure>,
    /// What was used, and what was logged.
    pub receipt: Receipt,
}

impl<T> Call<T> {
    /// The same call with another form of its answer.
    pub(crate) fn map<U>(self, answer: impl FnOnce(T) -> U) -> Call<U> {
        Call {
            result: self.result.map(answer),
            receipt: self.receipt,
        }
    }
}

/// Linked code, ready to be instantiated.
pub(crate) struct Runnable {
    pub(crate) engine: Arc<Inner>,
    pub(crate) compiled: Arc<Compiled>,
    pub(crate) pre: InstancePre<CallState>,
}

impl Runnable {
    /// Makes the arguments, calls the guest, and converts the answer; `declared` are the reasons that an answer may
    /// give.
    pub(crate) fn call<'d, A, R, T>(
        &self,
        limits: &CallLimits,
        declared: Option<&'d BTreeSet<String>>,
        lower: impl FnOnce(&mut Lower) -> A,
        ask: impl FnOnce(&mut Store<CallState>, &Instance, A) -> wasmtime::Result<R>,
        lift: impl FnOnce(&mut Lift<'d>, R) -> T,
    ) -> Call<T> {
        let limits = limits.and(&self.engine.options.limits);
        let mut arguments = Lower::new(limits.argument_bytes);
        let lowered = lower(&mut arguments);
        let mut receipt = Receipt {
            argument_bytes: arguments.bytes,
            ..Receipt::default()
        };
        if !arguments.fits() {
            let failure = CallFailure::ArgumentTooLarge {
                wanted: arguments.bytes,
                allowed: limits.argument_bytes,
            };
            return Call {
                result: Err(failure),
                receipt,
            };
        }
        let answer = self.run(&limits, &mut receipt, |store, instance| {
            ask(store, instance, lowered)
        });
        let result = answer.and_then(|answer| {
            take(&limits, &mut receipt, declared, |lifted| {
                lift(lifted, answer)
            })
        });
        Call { result, receipt }
    }

    /// Runs the guest in an instance of its own.
    fn run<R>(
        &self,
        limits: &CallLimits,
        receipt: &mut Receipt,
        ask: impl FnOnce(&mut Store<CallState>, &Instance) -> wasmtime::Result<R>,
    ) -> Result<R, CallFailure> {
        let patience = limits.time_ms.saturating_mul(PATIENCE);
        let Some(_permit) = self.engine.gate.enter(patience) else {
            return Err(CallFailure::Busy {
                allowed_ms: patience,
            });
        };
        let mut store = Store::new(
            &self.engine.wasm,
            CallState::new(limits.clone(), std::mem::take(receipt)),
        );
        store.limiter(|state| state);
        let of_processor = self.engine.options.ticker != Ticker::Manual;
        time::limit(&mut store, limits.time_ms, of_processor);
        // One bound for everything that a guest can make the host copy at once; `classify` finds out which budget it
        // broke.
        store.set_hostcall_fuel(
            usize::try_from(limits.answer_bytes.max(limits.log_bytes)).unwrap_or(usize::MAX),
        );
        let instance = self
            .pre
            .instantiate(&mut store)
            .map_err(|error| (error, CallFailure::Unstartable as Other));
        let answer = instance.and_then(|instance| {
            ask(&mut store, &instance)
                .map_err(|error| (error, CallFailure::ContractBroken as Other))
        });
        let CallState {
            receipt: used,
            time,
            panicked,
            ..
        } = store.into_data();
        *receipt = used;
        let answer =
            answer.map_err(|(error, other)| classify(&error, limits, panicked.as_deref(), other));
        receipt.micros = u64::try_from(time.used().as_micros()).unwrap_or(u64::MAX);
        receipt.stack_overflowed = matches!(answer, Err(CallFailure::StackOverflowed));
        answer
    }
}

/// A call waits for a free instance for so many times its own time limit.
const PATIENCE: u64 = 40;

/// Converts an answer, measures it, and checks what a type cannot express.
fn take<'d, T>(
    limits: &CallLimits,
    receipt: &mut Receipt,
    declared: Option<&'d BTreeSet<String>>,
    lift: impl FnOnce(&mut Lift<'d>) -> T,
) -> Result<T, CallFailure> {
    let mut lifted = Lift::new(declared);
    let answer = lift(&mut lifted);
    receipt.answer_bytes = lifted.bytes;
    if lifted.bytes > limits.answer_bytes {
        return Err(CallFailure::AnswerTooLarge {
            allowed: limits.answer_bytes,
        });
    }
    match lifted.broken {
        Some(how) => Err(CallFailure::ContractBroken(how)),
        None => Ok(answer),
    }
}

/// wasmtime's error when a guest makes the host copy more than it may; it has no type of its own.
const COPIED_TOO_MUCH: &str = "fuel allocated for hostcalls has been exhausted";

/// Frames of a trap that are kept.
pub(crate) const FRAMES: usize = 32;

/// Makes the failure for an error that no limit explains.
type Other = fn(String) -> CallFailure;

/// Which limit fired, from wasmtime's error and the guest's panic message; `other` where none did.
fn classify(
    error: &wasmtime::Error,
    limits: &CallLimits,
    panicked: Option<&str>,
    other: Other,
) -> CallFailure {
    if let Some(failure) = error.downcast_ref::<CallFailure>() {
        return failure.clone();
    }
    let frames = error
        .downcast_ref::<WasmBacktrace>()
        .map_or(&[][..], WasmBacktrace::frames);
    match error.downcast_ref::<Trap>() {
        Some(Trap::MemoryOutOfBounds) if recursed(frames) => return CallFailure::StackOverflowed,
        Some(Trap::Interrupt) => {
            return CallFailure::TimedOut {
                allowed_ms: limits.time_ms,
            };
        }
        Some(Trap::StackOverflow) => return CallFailure::StackOverflowed,
        Some(trap) => {
            let what =
                panicked.map_or_else(|| trap.to_string(), |said| format!("it panicked: {said}"));
            return CallFailure::Trapped(printable(&format!("{what}{}", place(frames))));
        }
        None => {}
    }
    let text = format!("{:#}", error.root_cause());
    if text.contains(COPIED_TOO_MUCH) {
        // The guest's frames are on the stack only while it calls the host, and it calls the host only to pass text.
        return match error.downcast_ref::<WasmBacktrace>() {
            Some(_) => CallFailure::LogBytesExceeded {
                allowed: limits.log_bytes,
            },
            None => CallFailure::AnswerTooLarge {
                allowed: limits.answer_bytes,
            },
        };
    }
    if error.is::<wasmtime::PoolConcurrencyLimitError>()
        || error.root_cause().is::<std::io::Error>()
    {
        return CallFailure::NoRoom(text);
    }
    other(printable(&text))
}

/// ` in inner < outer`: the functions in which a trap happened, as far as the binary names them. Functions by which
/// Rust panics are left out.
fn place(frames: &[wasmtime::FrameInfo]) -> String {
    let names = frames.iter().filter_map(wasmtime::FrameInfo::func_name);
    let names = names.map(demangled);
    let names: Vec<_> = names
        .filter(|name| !PANICKING.iter().any(|part| name.contains(part)))
        .take(4)
        .collect();
    if names.is_empty() {
        String::new()
    } else {
        format!(" in {}", names.join(" < "))
    }
}

/// The most bytes of one name in a message.
const NAME: usize = 256;

/// A name as it is in the source, or the beginning of it: a short name may stand for a very long one.
fn demangled(name: &str) -> String {
    let mut beginning = Beginning(String::new());
    // Fails when there is no more room.
    let _ = write!(beginning, "{:#}", rustc_demangle::demangle(name));
    beginning.0
}

/// Takes the first bytes of a text.
struct Beginning(String);

impl fmt::Write for Beginning {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let left = NAME - self.0.len();
        let end = text.floor_char_boundary(left);
        self.0.push_str(text.get(..end).unwrap_or_default());
        if text.len() > left {
            return Err(fmt::Error);
        }
        Ok(())
    }
}

/// Parts of the names of functions that only lead from a panic to the trap.
const PANICKING: [&str; 8] = [
    "__rust_",
    "rust_begin_unwind",
    "rust_panic",
    "core::panicking",
    "std::panicking",
    "std::process::abort",
    "std::sys",
    "transom_guest::panic",
];

/// How often a function must be among the kept frames to count as endless recursion.
const RECURSING: usize = 4;

/// Whether an out-of-bounds access comes from an overflow of Rust's own stack, which lies at the beginning of the
/// memory with nothing below it. Then some function called itself, directly or not, up to the last kept frame.
fn recursed(frames: &[wasmtime::FrameInfo]) -> bool {
    frames.len() >= FRAMES
        && frames.iter().any(|frame| {
            frames
                .iter()
                .filter(|other| other.func_index() == frame.func_index())
                .count()
                >= RECURSING
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_demangled_and_cut() {
        let module = "m".repeat(200);
        let mangled = |names: usize| {
            let names = format!("200{module}").repeat(names);
            format!("_ZN{names}17h0123456789abcdefE")
        };
        assert_eq!(demangled(&mangled(1)), module);
        assert_eq!(demangled(&mangled(4)).len(), NAME);
        assert_eq!(demangled(&"é".repeat(NAME)), "é".repeat(NAME / 2));
        assert_eq!(demangled(&format!("a{}", "é".repeat(NAME))).len(), NAME - 1);
    }
}
