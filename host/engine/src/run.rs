//! One call: arguments in, a fresh instance, its answer out, all within the limits; and why it failed if it did.
//! Never keeps an instance: nothing that a guest does in one call is seen by another.

use crate::call::CallState;
use crate::compile::Compiled;
use crate::engine::Inner;
use crate::failure::CallFailure;
use crate::limits::Limits;
use crate::measure::{Lift, Lower};
use crate::receipt::{Receipt, printable};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;
use wasmtime::component::{Instance, InstancePre};
use wasmtime::{Store, Trap, WasmBacktrace};

/// What became of a call: an answer or a failure, and in both cases what was used.
#[derive(Clone, Debug, PartialEq)]
pub struct Call<T> {
    /// The answer, as the guest gave it, or why there is none.
    pub result: Result<T, CallFailure>,
    /// What was used, and what was logged.
    pub receipt: Receipt,
}

/// Linked code, ready to be instantiated.
pub(crate) struct Runnable {
    pub(crate) engine: Arc<Inner>,
    pub(crate) compiled: Arc<Compiled>,
    pub(crate) pre: InstancePre<CallState>,
}

impl Runnable {
    /// Makes the arguments, asks, and takes the answer apart; `declared` are the reasons that an answer may give.
    pub(crate) fn call<'d, A, R, T>(
        &self,
        limits: &Limits,
        declared: Option<&'d BTreeSet<String>>,
        lower: impl FnOnce(&mut Lower) -> A,
        ask: impl FnOnce(&mut Store<CallState>, &Instance, A) -> wasmtime::Result<R>,
        lift: impl FnOnce(&mut Lift<'d>, R) -> T,
    ) -> Call<T> {
        let limits = self.within_engine(limits);
        let mut arguments = Lower::new(limits.argument_bytes);
        let lowered = lower(&mut arguments);
        let mut receipt = Receipt { argument_bytes: arguments.bytes, ..Receipt::default() };
        if !arguments.fits() {
            let failure = CallFailure::ArgumentTooLarge { wanted: arguments.bytes, allowed: limits.argument_bytes };
            return Call { result: Err(failure), receipt };
        }
        let answer = self.run(&limits, &mut receipt, |store, instance| ask(store, instance, lowered));
        let result = answer.and_then(|answer| take(&limits, &mut receipt, declared, |lifted| lift(lifted, answer)));
        Call { result, receipt }
    }

    /// A call can be allowed less than the engine, never more.
    fn within_engine(&self, limits: &Limits) -> Limits {
        let options = &self.engine.options;
        let mut limits = limits.clone();
        limits.memory_bytes = limits.memory_bytes.min(options.max_memory_bytes);
        limits.table_elements = limits.table_elements.min(options.max_table_elements);
        limits.log_bytes = limits.log_bytes.min(LARGEST_LOG);
        limits
    }

    /// Runs the guest in an instance of its own.
    fn run<R>(
        &self,
        limits: &Limits,
        receipt: &mut Receipt,
        ask: impl FnOnce(&mut Store<CallState>, &Instance) -> wasmtime::Result<R>,
    ) -> Result<R, CallFailure> {
        let Some(_permit) = self.engine.gate.enter(limits.time_ms) else {
            return Err(CallFailure::Busy { allowed_ms: limits.time_ms });
        };
        let started = Instant::now();
        let mut store = Store::new(&self.engine.wasm, CallState::new(limits.clone(), std::mem::take(receipt)));
        store.limiter(|state| state);
        store.set_epoch_deadline(limits.time_ms.min(FOR_EVER));
        // One bound for everything that a guest can make the host copy at once; which budget it broke is sorted out below.
        store.set_hostcall_fuel(usize::try_from(limits.answer_bytes.max(limits.log_bytes)).unwrap_or(usize::MAX));
        let instance =
            self.pre.instantiate(&mut store).map_err(|error| classify(&error, limits, CallFailure::Unstartable));
        let answer = instance.and_then(|instance| {
            ask(&mut store, &instance).map_err(|error| classify(&error, limits, CallFailure::ContractBroken))
        });
        *receipt = store.into_data().receipt;
        receipt.micros = u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX);
        receipt.stack_overflowed = matches!(answer, Err(CallFailure::StackOverflowed));
        answer
    }
}

/// Bytes of log that a call can be allowed at most: one line crosses whole before it is cut.
const LARGEST_LOG: u64 = 1 << 20;

/// Ticks that no engine lives to see, and that can be added to the ticks so far.
const FOR_EVER: u64 = u64::MAX / 2;

/// Takes an answer apart, measures it and checks what a type cannot say.
fn take<'d, T>(
    limits: &Limits,
    receipt: &mut Receipt,
    declared: Option<&'d BTreeSet<String>>,
    lift: impl FnOnce(&mut Lift<'d>) -> T,
) -> Result<T, CallFailure> {
    let mut lifted = Lift::new(declared);
    let answer = lift(&mut lifted);
    receipt.answer_bytes = lifted.bytes;
    if lifted.bytes > limits.answer_bytes {
        return Err(CallFailure::AnswerTooLarge { allowed: limits.answer_bytes });
    }
    match lifted.broken {
        Some(how) => Err(CallFailure::ContractBroken(how)),
        None => Ok(answer),
    }
}

/// What wasmtime says when a guest makes the host copy more than it may; it gives this error no type.
const COPIED_TOO_MUCH: &str = "fuel allocated for hostcalls has been exhausted";

/// Which limit fired, from what wasmtime returned; `other` where none did.
fn classify(error: &wasmtime::Error, limits: &Limits, other: fn(String) -> CallFailure) -> CallFailure {
    if let Some(failure) = error.downcast_ref::<CallFailure>() {
        return failure.clone();
    }
    match error.downcast_ref::<Trap>() {
        Some(Trap::Interrupt) => return CallFailure::TimedOut { allowed_ms: limits.time_ms },
        Some(Trap::StackOverflow) => return CallFailure::StackOverflowed,
        Some(trap) => return CallFailure::Trapped(printable(&format!("{trap}{}", place(error)))),
        None => {}
    }
    let text = format!("{:#}", error.root_cause());
    if text.contains(COPIED_TOO_MUCH) {
        // The guest's frames are on the stack only while it calls the host, and it has nothing to call but the log.
        return match error.downcast_ref::<WasmBacktrace>() {
            Some(_) => CallFailure::LogBytesExceeded { allowed: limits.log_bytes },
            None => CallFailure::AnswerTooLarge { allowed: limits.answer_bytes },
        };
    }
    if error.is::<wasmtime::PoolConcurrencyLimitError>() || error.root_cause().is::<std::io::Error>() {
        return CallFailure::NoRoom(text);
    }
    other(printable(&text))
}

/// ` in outer <- inner`: the functions in which a trap happened, as far as the binary names them.
fn place(error: &wasmtime::Error) -> String {
    let Some(backtrace) = error.downcast_ref::<WasmBacktrace>() else { return String::new() };
    let names: Vec<_> = backtrace.frames().iter().filter_map(wasmtime::FrameInfo::func_name).take(4).collect();
    if names.is_empty() { String::new() } else { format!(" in {}", names.join(" < ")) }
}
