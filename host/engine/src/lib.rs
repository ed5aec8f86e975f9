//! Compiles, limits and calls guests; the only crate that uses wasmtime. Does not print: log lines and receipts are
//! returned.

mod bindings;
mod call;
mod case;
mod compile;
mod compiled;
mod compiler;
mod config;
mod description;
mod engine;
mod failure;
mod function;
mod gate;
mod guest;
mod imports;
mod inspect;
mod limits;
mod load;
mod measure;
mod receipt;
#[cfg(feature = "recorder")]
mod recorder;
mod run;
mod vet;

pub use compile::digest;
pub use compiler::{COMPILATION_BYTES, COMPILING_BYTES, Compiler, compile};
pub use engine::{Allocate, Allocation, Engine, EngineOptions, Ticker};
pub use failure::{CallFailure, EngineError, LoadError};
pub use guest::{Decided, Guest, Question};
pub use imports::{Capabilities, Capability};
pub use inspect::Inspection;
pub use limits::Limits;
pub use receipt::{LINE_CHARS, LogLevel, LogLine, Receipt};
#[cfg(feature = "recorder")]
pub use recorder::MemoryRecorder;
pub use run::Call;
