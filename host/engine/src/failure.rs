//! Why an engine, a component or a call failed, with one reason each. A guest's text is made printable first.

use crate::limits::printable;
use transom_core::contract::description::Role;

/// Why no engine could be made.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// Neither a pool nor memory on demand could be set up.
    #[error("failed to set up the engine: {0}")]
    Setup(String),
    /// The ticker thread could not be started.
    #[error("failed to start the engine's ticker")]
    Ticker(#[source] std::io::Error),
}

/// Why a component was not loaded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// More bytes, memories, tables or instances than any guest may have.
    #[error("failed to load component: {what} is {found}; the limit is {allowed}")]
    TooLarge {
        /// The quantity that is too large.
        what: &'static str,
        /// Its value.
        found: u64,
        /// Its limit.
        allowed: u64,
    },
    /// The compiled code of other components takes the room. Their code may go.
    #[error(
        "failed to load component: its compiled code takes {wanted} bytes, and that of other components leaves {left} of {allowed}"
    )]
    NoRoom {
        /// Bytes of its code.
        wanted: u64,
        /// Bytes that are free.
        left: u64,
        /// Bytes of the code of all components.
        allowed: u64,
    },
    /// Compiling it takes more time or memory than other work should wait for: load it again with an engine that is
    /// not hasty.
    #[error("failed to load component: it takes long to compile")]
    Slow,
    /// The compiler could not run, or the machine ended it: the component is not to blame.
    #[error("failed to run the compiler: {0}")]
    Compiler(String),
    /// The bytes are not a component that can be compiled.
    #[error("failed to compile component: {0}")]
    Invalid(String),
    /// It imports something that is not granted.
    #[error("failed to load component: it imports {}, which is not granted", printable(&.0.join(", ")))]
    ImportNotGranted(Vec<String>),
    /// It is of a generation of the contract that is not served, whatever it imports.
    #[error("failed to load component: {0}")]
    GenerationNotServed(String),
    /// An export that its role demands is missing or has other types.
    #[error("failed to load component as {}: {detail}{}", .expected.name(), found_text(*.found))]
    WorldMismatch {
        /// The role that was asked for.
        expected: Role,
        /// The role that it would fit.
        found: Option<Role>,
        /// What is missing or different.
        detail: String,
    },
    /// Its self-description breaks the contract.
    #[error("the component's description is invalid: {0}")]
    DescriptionInvalid(String),
    /// The cases that travel with it cannot be read.
    #[error("the component's cases are invalid: {0}")]
    CasesInvalid(String),
    /// It failed to describe itself.
    #[error("failed to get the component's description: {0}")]
    Describe(CallFailure),
}

/// `; it has the exports of taints-guest`.
fn found_text(found: Option<Role>) -> String {
    found.map_or_else(String::new, |role| {
        format!("; it has the exports of {}", role.name())
    })
}

impl LoadError {
    /// The word for conditions, Events and metrics.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::TooLarge { .. } | Self::Slow => "ComponentTooLarge",
            Self::NoRoom { .. } | Self::Compiler(_) => "EngineBusy",
            Self::Invalid(_) => "ComponentInvalid",
            Self::ImportNotGranted(_) => "ImportNotGranted",
            Self::GenerationNotServed(_) | Self::WorldMismatch { .. } => "WorldMismatch",
            Self::DescriptionInvalid(_) => "DescriptionInvalid",
            Self::CasesInvalid(_) => "CasesInvalid",
            Self::Describe(failure) => failure.reason(),
        }
    }
}

/// Why a call gave no answer: which budget stopped it, or what it broke.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallFailure {
    /// It used more processor time than it has.
    #[error("the guest did not answer within {allowed_ms} ms of processor time")]
    TimedOut {
        /// Its time in milliseconds.
        allowed_ms: u64,
    },
    /// It wanted more memory.
    #[error("the guest tried to use {wanted} bytes of memory; the limit is {allowed}")]
    MemoryExceeded {
        /// Bytes of all memories together, had it been allowed.
        wanted: u64,
        /// Its budget.
        allowed: u64,
    },
    /// It wanted larger tables.
    #[error("the guest tried to use {wanted} table elements; the limit is {allowed}")]
    TablesExceeded {
        /// Elements of all tables together, had it been allowed.
        wanted: u64,
        /// Its budget.
        allowed: u64,
    },
    /// It recursed too deeply.
    #[error("the guest's stack overflowed")]
    StackOverflowed,
    /// Its answer is too large.
    #[error("the guest's answer is larger than {allowed} bytes")]
    AnswerTooLarge {
        /// Its budget.
        allowed: u64,
    },
    /// Its arguments are too large; it was not called.
    #[error("the guest's input has at least {wanted} bytes; the limit is {allowed}")]
    ArgumentTooLarge {
        /// Bytes counted until the limit was passed.
        wanted: u64,
        /// The limit.
        allowed: u64,
    },
    /// It wrote too many log lines.
    #[error("the guest wrote more than {allowed} log lines")]
    LogLinesExceeded {
        /// Its budget.
        allowed: u64,
    },
    /// It wrote too much log.
    #[error("the guest wrote more than {allowed} bytes of log")]
    LogBytesExceeded {
        /// Its budget.
        allowed: u64,
    },
    /// It called the host too often.
    #[error("the guest called the host more than {allowed} times")]
    HostCallsExceeded {
        /// Its budget.
        allowed: u64,
    },
    /// It stopped with a trap.
    #[error("the guest stopped with a trap: {0}")]
    Trapped(String),
    /// Its answer is malformed, or says what it may not say.
    #[error("the guest broke the contract: {0}")]
    ContractBroken(String),
    /// No instance can be made of it, on any machine.
    #[error("the guest cannot be started: {0}")]
    Unstartable(String),
    /// It was asked a question of another world.
    #[error("a guest of the world {} does not have this function", .0.name())]
    WrongWorld(Role),
    /// No instance was free in time.
    #[error("no instance was free within {allowed_ms} ms")]
    Busy {
        /// How long was waited.
        allowed_ms: u64,
    },
    /// The thread of the call got too little processor time.
    #[error(
        "the guest had {used_ms} ms of processor time within {passed_ms} ms, and had not answered"
    )]
    NoProcessor {
        /// What it got.
        used_ms: u64,
        /// How long it took.
        passed_ms: u64,
    },
    /// The machine had no memory left for an instance.
    #[error("failed to create an instance: {0}")]
    NoRoom(String),
}

impl CallFailure {
    /// The word for conditions, Events and metrics.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::TimedOut { .. } => "GuestTimedOut",
            Self::MemoryExceeded { .. } => "GuestMemoryExceeded",
            Self::TablesExceeded { .. } => "GuestTablesExceeded",
            Self::StackOverflowed => "GuestStackOverflowed",
            Self::AnswerTooLarge { .. } => "AnswerTooLarge",
            Self::ArgumentTooLarge { .. } => "ArgumentTooLarge",
            Self::LogLinesExceeded { .. } | Self::LogBytesExceeded { .. } => "LogFlooded",
            Self::HostCallsExceeded { .. } => "HostCallsExceeded",
            Self::Trapped(_) => "GuestTrapped",
            Self::ContractBroken(_) | Self::Unstartable(_) => "ContractBroken",
            Self::WrongWorld(_) => "WorldMismatch",
            Self::Busy { .. } | Self::NoProcessor { .. } | Self::NoRoom(_) => "EngineBusy",
        }
    }
}
