//! One engine for all guests: instances from a pool where address space allows, a tick every millisecond. The caller
//! that loads a guest keeps it alive; the engine does not.

use crate::bindings;
use crate::call::CallState;
use crate::compile::{Compiled, Remembered};
use crate::compiled::CodeCache;
use crate::compiler::Compiler;
use crate::config::config;
use crate::failure::{EngineError, LoadError};
use crate::gate::CallGate;
use crate::limits::CallLimits;
use crate::self_check::HOSTILE;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;
use transom_core::digest::Digest;
use wasmtime::component::Linker;

/// How an engine is made.
#[derive(Clone, Debug)]
pub struct EngineOptions {
    /// Concurrent calls; further ones wait.
    pub concurrency: u32,
    /// How instances get their memory.
    pub allocate: Allocate,
    /// What drives the ticks that deadlines count.
    pub ticker: Ticker,
    /// Bytes of stack for one call, an eighth of a usual thread's.
    pub stack_bytes: usize,
    /// The most that the limits of a call can allow.
    pub limits: CallLimits,
    /// The most bytes of a component.
    pub max_component_bytes: u64,
    /// The most bytes of code of all components that guests use at a time, without trusted ones.
    pub max_code_bytes: u64,
    /// Folder in which compiled code is kept for the next engine; used only when it belongs to this user alone.
    pub code_cache: Option<PathBuf>,
    /// Is told why the folder cannot be used, and why some code cannot be kept, once each.
    pub tell_unkept: fn(&str),
    /// Compiles in a separate process; without it this process compiles, without limits of memory and time.
    pub compiler: Option<Compiler>,
    /// Digests of components that are compiled in this process all the same, because they were shipped with it.
    pub trusted: Vec<String>,
}

impl Default for EngineOptions {
    fn default() -> Self {
        Self {
            concurrency: 64,
            allocate: Allocate::PoolIfPossible,
            ticker: Ticker::EveryMillisecond,
            stack_bytes: 256 << 10,
            limits: CallLimits {
                time_ms: u64::MAX,
                argument_bytes: u64::MAX,
                answer_bytes: u64::MAX,
                log_lines: u64::MAX,
                host_calls: u64::MAX,
                ..CallLimits::LARGEST
            },
            max_component_bytes: 8 << 20,
            max_code_bytes: 64 << 20,
            code_cache: None,
            tell_unkept: |_| {},
            compiler: None,
            trusted: Vec::new(),
        }
    }
}

/// How instances get their memory; answers do not depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allocate {
    /// From a pool, or on demand where there is no address space for one.
    PoolIfPossible,
    /// On demand.
    OnDemand,
}

/// What drives the ticks that deadlines count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ticker {
    /// A thread of the engine, which ends with it. At a tick the processor time of a call is looked at.
    EveryMillisecond,
    /// [`Engine::tick`], which counts as a millisecond of every call; for tests that prove which limit fired.
    Manual,
    /// [`Engine::tick`], at which the processor time of a call is looked at; for tests of a machine that is so busy
    /// that much time passes in which a call gets none.
    ManualOfProcessor,
}

/// The way of allocating that was possible when the engine was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allocation {
    /// A pool.
    Pool,
    /// On demand, with a reservation that spares bounds checks.
    OnDemand,
    /// On demand, with as little address space as possible.
    SmallOnDemand,
}

impl Allocation {
    pub(crate) const ALL: [Self; 3] = [Self::Pool, Self::OnDemand, Self::SmallOnDemand];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Pool => "pool",
            Self::OnDemand => "on-demand",
            Self::SmallOnDemand => "small-on-demand",
        }
    }
}

/// Compiles, limits and calls guests. Cheap to clone, to be used from many threads at once.
#[derive(Clone)]
pub struct Engine {
    pub(crate) inner: Arc<Inner>,
    /// Whether other work waits for what it loads.
    pub(crate) hasty: bool,
}

pub(crate) struct Inner {
    pub(crate) wasm: wasmtime::Engine,
    pub(crate) gate: Arc<CallGate>,
    pub(crate) options: EngineOptions,
    pub(crate) allocation: Allocation,
    pub(crate) without_log: Linker<CallState>,
    pub(crate) with_log: Linker<CallState>,
    /// Code by digest, while a guest uses it.
    pub(crate) compiled: Mutex<BTreeMap<String, Weak<Compiled>>>,
    /// Components that took too much to compile.
    pub(crate) refused: Mutex<Remembered<LoadError>>,
    /// Components that took too much to compile while others waited.
    pub(crate) slow: Mutex<Remembered<()>>,
    /// One compilation at a time, and a hasty one beside it: nothing else here takes so much time and memory.
    pub(crate) compiling: Mutex<()>,
    pub(crate) compiling_hastily: Mutex<()>,
    pub(crate) compilations: AtomicU64,
    /// Code that earlier engines kept on disk.
    pub(crate) cache: Option<CodeCache>,
}

impl Engine {
    /// Makes an engine and starts its ticker.
    ///
    /// # Errors
    /// When this machine allows no instance, or no thread.
    pub fn new(options: EngineOptions) -> Result<Self, EngineError> {
        let (wasm, allocation) = probe(&options)?;
        Self::assemble(wasm, allocation, options)
    }

    /// Makes an engine whose linear memories are kept for the test that owns the recorder.
    ///
    /// # Errors
    /// As for [`Engine::new`].
    #[cfg(feature = "recorder")]
    pub fn recorded(
        options: EngineOptions,
        recorder: crate::MemoryRecorder,
    ) -> Result<Self, EngineError> {
        let config = crate::config::recorded(&options, recorder);
        let wasm = wasmtime::Engine::new(&config)
            .map_err(|error| EngineError::Setup(error.to_string()))?;
        Self::assemble(wasm, Allocation::SmallOnDemand, options)
    }

    fn assemble(
        wasm: wasmtime::Engine,
        allocation: Allocation,
        mut options: EngineOptions,
    ) -> Result<Self, EngineError> {
        options.trusted.push(Digest::of_bytes(HOSTILE).to_string());
        let setup = |error: wasmtime::Error| EngineError::Setup(error.to_string());
        let mut without_log = Linker::new(&wasm);
        bindings::offer_panic(&mut without_log).map_err(setup)?;
        let mut with_log = without_log.clone();
        bindings::offer_log(&mut with_log).map_err(setup)?;
        let gate = Arc::new(CallGate::new(
            usize::try_from(options.concurrency).unwrap_or(usize::MAX),
        ));
        let ticker = options.ticker;
        let cache = options.code_cache.as_deref();
        let cache = cache.and_then(|folder| CodeCache::open(folder, options.tell_unkept));
        let inner = Arc::new(Inner {
            wasm,
            gate,
            options,
            allocation,
            without_log,
            with_log,
            compiled: Mutex::default(),
            refused: Mutex::default(),
            slow: Mutex::default(),
            compiling: Mutex::default(),
            compiling_hastily: Mutex::default(),
            compilations: AtomicU64::default(),
            cache,
        });
        if ticker == Ticker::EveryMillisecond {
            start_ticker(&inner)?;
        }
        Ok(Self {
            inner,
            hasty: false,
        })
    }

    /// The same engine for loads that other work waits for: a component that takes long to compile gives
    /// [`LoadError::Slow`].
    #[must_use]
    pub fn hasty(&self) -> Self {
        Self {
            inner: Arc::clone(&self.inner),
            hasty: true,
        }
    }

    /// Whether other work waits for what it loads.
    pub fn is_hasty(&self) -> bool {
        self.hasty
    }

    /// Advances time by one tick. Only needed with a manual ticker.
    pub fn tick(&self) {
        self.inner.tick();
    }

    /// The most that the limits of a call can allow.
    pub fn limits(&self) -> &CallLimits {
        &self.inner.options.limits
    }

    /// How instances get their memory on this machine.
    pub fn allocation(&self) -> Allocation {
        self.inner.allocation
    }

    /// Compilations so far, of components that no guest was using and that were not kept on disk.
    pub fn compilations(&self) -> u64 {
        self.inner.compilations.load(Ordering::Relaxed)
    }

    /// Calls that wait for a free instance.
    pub fn waiting(&self) -> usize {
        self.inner.gate.waiting()
    }
}

impl Inner {
    pub(crate) fn tick(&self) {
        self.wasm.increment_epoch();
        self.gate.tick();
    }
}

/// Stops the ticker.
impl Drop for Inner {
    fn drop(&mut self) {
        self.gate.close();
    }
}

/// Counts time while the engine lives and a call runs; holds a reference to the engine only during a tick.
fn start_ticker(inner: &Arc<Inner>) -> Result<(), EngineError> {
    let (weak, gate) = (Arc::downgrade(inner), Arc::clone(&inner.gate));
    let run = move || {
        while gate.called() {
            std::thread::sleep(Duration::from_millis(1));
            weak.upgrade().iter().for_each(|inner| inner.tick());
        }
    };
    std::thread::Builder::new()
        .name("transom-ticker".to_owned())
        .spawn(run)
        .map_err(EngineError::Ticker)?;
    Ok(())
}

/// Tries the best way first: address space may be scarce (`ulimit -v`, gVisor), kernels may be old.
fn probe(options: &EngineOptions) -> Result<(wasmtime::Engine, Allocation), EngineError> {
    let ways: &[Allocation] = match options.allocate {
        Allocate::PoolIfPossible => &[
            Allocation::Pool,
            Allocation::OnDemand,
            Allocation::SmallOnDemand,
        ],
        Allocate::OnDemand => &[Allocation::OnDemand, Allocation::SmallOnDemand],
    };
    let mut last = String::new();
    for &way in ways {
        match wasmtime::Engine::new(&config(options, way))
            .and_then(|wasm| fits(&wasm, way).map(|()| wasm))
        {
            Ok(wasm) => return Ok((wasm, way)),
            Err(error) => last = format!("{error:#}"),
        }
    }
    Err(EngineError::Setup(last))
}

/// Address space that must be left for compiling and for everything else.
const HEADROOM: usize = 256 << 20;

/// Whether an engine that was made can also be used.
fn fits(wasm: &wasmtime::Engine, way: Allocation) -> wasmtime::Result<()> {
    if way == Allocation::OnDemand {
        let mut store = wasmtime::Store::new(wasm, ());
        wasmtime::Memory::new(&mut store, wasmtime::MemoryType::new(1, None))?;
    }
    Vec::<u8>::new().try_reserve_exact(HEADROOM)?;
    Ok(())
}
