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
mod gate;
mod guest;
mod imports;
mod limits;
mod load;
mod measure;
mod private;
#[cfg(feature = "recorder")]
mod recorder;
mod run;
mod self_check;
mod time;
mod travelling;

pub use compile::is_component;
pub use compiler::{
    COMPILATION_BYTES, COMPILING_BYTES, Compiler, anonymous_bytes, compile, memory_is_told,
};
pub use engine::{Allocate, Allocation, Engine, EngineOptions, Ticker};
pub use failure::{CallFailure, EngineError, LoadError};
pub use guest::{Decided, Guest, Question};
pub use imports::{Capabilities, Capability};
pub use limits::{CallLimits, LINE_CHARS, LogLevel, LogLine, Receipt};
pub use load::Inspection;
pub use private::PrivateFolder;
#[cfg(feature = "recorder")]
pub use recorder::MemoryRecorder;
pub use run::Call;
pub use self_check::SelfCheckError;
pub use travelling::{travelling_cases, with_cases};
