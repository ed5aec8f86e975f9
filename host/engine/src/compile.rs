//! Compiles component bytes to code, once per digest, and bounds what all code takes that is loaded.

mod remembered;
mod vet;

pub use vet::is_component;

use crate::compiled::{self, LoadedCode};
use crate::compiler::{self, CompileLimits, Compiler};
use crate::config::{MEMORIES, TABLES};
use crate::engine::{EngineOptions, Inner};
use crate::failure::LoadError;
use crate::limits::printable;
pub(crate) use remembered::Remembered;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use transom_core::digest::Digest;
use transom_core::share::lock::MutexExt as _;
use wasmtime::component::Component;

/// Bytes of a page of linear memory.
const PAGE: u64 = 64 << 10;

/// What code takes, in errors.
const COMPILED: &str = "its compiled code in bytes of memory";

/// A component's code, shared by all guests that were loaded from the same bytes.
pub(crate) struct Compiled {
    pub(crate) component: Component,
    pub(crate) digest: String,
    pub(crate) size: u64,
    /// Bytes of its code that count towards the limit for all code.
    counted: u64,
}

impl Inner {
    /// The code of these bytes: at once when a guest already runs it, else compiled after those before it. In haste
    /// only what is cheap to compile is compiled.
    pub(crate) fn compiled(&self, bytes: &[u8], hasty: bool) -> Result<Arc<Compiled>, LoadError> {
        let size = bytes.len() as u64;
        at_most("its size in bytes", size, self.options.max_component_bytes)?;
        let digest = Digest::of_bytes(bytes).to_string();
        if let Some(known) = self.known(&digest) {
            return known;
        }
        let trusted = self.options.trusted.contains(&digest);
        let most = match trusted {
            true => u64::MAX,
            false => self.options.max_code_bytes,
        };
        if !trusted {
            vet::vet(bytes)?;
        }
        // Code that an earlier engine kept on disk.
        let kept = self
            .cache
            .as_ref()
            .and_then(|cache| cache.read(&self.wasm, &digest, most));
        // Held until other threads can find the code; a thread that waited for it looks again.
        let _turn;
        // Code from the cache waits for no compilation, nor does a trusted component, which we compiled before it was
        // shipped.
        let code = match kept {
            Some(code) => code,
            None if trusted => self.code(bytes, &digest, None, most)?,
            None if hasty && self.slow.locked().get(&digest).is_some() => {
                return Err(LoadError::Slow);
            }
            None => {
                _turn = match hasty {
                    true => self.compiling_hastily.locked(),
                    false => self.compiling.locked(),
                };
                if let Some(known) = self.known(&digest) {
                    return known;
                }
                let patient = self.options.compiler.as_ref().map(Compiler::patient);
                let allowed = patient.map(|patient| if hasty { compiler::HASTY } else { patient });
                self.code(bytes, &digest, allowed, most)
                    .map_err(|error| self.refuse(&digest, error, hasty))?
            }
        };
        within_pool(&code.component, &self.options)?;
        let compiled = Arc::new(Compiled {
            component: code.component,
            digest: digest.clone(),
            size,
            counted: if trusted { 0 } else { code.bytes },
        });
        self.take(compiled)
    }

    /// Registers code for others to find, if there is room for it. Of code that two threads read at once, one copy
    /// stays.
    fn take(&self, compiled: Arc<Compiled>) -> Result<Arc<Compiled>, LoadError> {
        let mut all = self.compiled.locked();
        if let Some(first) = all.get(&compiled.digest).and_then(Weak::upgrade) {
            return Ok(first);
        }
        all.retain(|_, code| code.strong_count() > 0);
        let used: u64 = all
            .values()
            .filter_map(Weak::upgrade)
            .map(|code| code.counted)
            .sum();
        let (wanted, allowed) = (compiled.counted, self.options.max_code_bytes);
        let left = allowed.saturating_sub(used);
        if wanted > left {
            return Err(LoadError::NoRoom {
                wanted,
                left,
                allowed,
            });
        }
        all.insert(compiled.digest.clone(), Arc::downgrade(&compiled));
        Ok(compiled)
    }

    /// Remembers a component that took too much: another try would take as much. One that took too much in haste is
    /// slow.
    fn refuse(&self, digest: &str, error: LoadError, hasty: bool) -> LoadError {
        match error {
            // A patient compilation gives the same code.
            LoadError::TooLarge { what, .. } if hasty && what != COMPILED => {
                self.slow.locked().insert(digest, ());
                LoadError::Slow
            }
            LoadError::TooLarge { .. } => {
                self.refused.locked().insert(digest, error.clone());
                error
            }
            error => error,
        }
    }

    /// Compiles code, and keeps it for later engines; in a separate process where `allowed` sets its limits.
    fn code(
        &self,
        bytes: &[u8],
        digest: &str,
        allowed: Option<CompileLimits>,
        most: u64,
    ) -> Result<LoadedCode, LoadError> {
        let failed = |error: wasmtime::Error| invalid(&format!("{error:#}"));
        let code = match self.options.compiler.as_ref().zip(allowed) {
            Some((compiler, allowed)) => compiler.code(bytes, self.allocation, allowed)?,
            None => self.wasm.precompile_component(bytes).map_err(failed)?,
        };
        at_most(COMPILED, compiled::held(&code), most)?;
        let loaded = compiled::believe(&self.wasm, &code).map_err(failed)?;
        self.compilations.fetch_add(1, Ordering::Relaxed);
        if let Some(cache) = &self.cache {
            cache.write(&self.wasm, digest, &code);
        }
        Ok(loaded)
    }

    /// The code that a guest already runs, or why it was refused before.
    fn known(&self, digest: &str) -> Option<Result<Arc<Compiled>, LoadError>> {
        let found = self.compiled.locked().get(digest).and_then(Weak::upgrade);
        let refused = || self.refused.locked().get(digest).cloned();
        found.map(Ok).or_else(|| refused().map(Err))
    }
}

fn at_most(what: &'static str, found: u64, allowed: u64) -> Result<(), LoadError> {
    if found > allowed {
        return Err(LoadError::TooLarge {
            what,
            found,
            allowed,
        });
    }
    Ok(())
}

/// Checks the pool's bounds on every engine, also on one without a pool.
fn within_pool(component: &Component, options: &EngineOptions) -> Result<(), LoadError> {
    let Some(required) = component.resources_required() else {
        return Err(invalid("it imports a core module"));
    };
    at_most(
        "its number of memories",
        required.num_memories.into(),
        MEMORIES.into(),
    )?;
    at_most(
        "its number of tables",
        required.num_tables.into(),
        TABLES.into(),
    )?;
    let memory = required
        .max_initial_memory_size
        .unwrap_or(0)
        .saturating_mul(PAGE);
    at_most(
        "its initial memory in bytes",
        memory,
        options.limits.memory_bytes,
    )?;
    let table = required.max_initial_table_size.unwrap_or(0);
    if table > options.limits.table_elements {
        return Err(invalid(&format!("its initial table has {table} elements")));
    }
    Ok(())
}

/// The error for bytes that cannot be compiled, in one line.
fn invalid(text: &str) -> LoadError {
    LoadError::Invalid(printable(text))
}
