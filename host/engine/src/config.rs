//! How wasmtime is set up: deterministic, interruptible, and without features that guests do not need.

use crate::engine::{Allocation, EngineOptions};
use crate::run::FRAMES;
use std::num::NonZeroUsize;
use wasmtime::{
    Config, Enabled, InstanceAllocationStrategy, OptLevel, PoolingAllocationConfig, Strategy,
};

/// Linear memories that one component may have.
pub(crate) const MEMORIES: u32 = 2;
/// Tables that one component may have.
pub(crate) const TABLES: u32 = 8;
/// Core instances that one component may have.
pub(crate) const CORE_INSTANCES: u32 = 16;
/// The address space that every slot of the pool reserves anyway, to spare bounds checks.
pub(crate) const LARGEST_MEMORY: usize = 4 << 30;
/// Bytes of a memory that stay resident between calls, where the kernel can tell which pages were written.
const KEEP_RESIDENT: usize = 1 << 20;
/// Address space per memory where it is scarce: more bounds checks, same answers.
const SMALL_RESERVATION: u64 = 1 << 20;

/// The configuration for one way of allocating instances.
pub(crate) fn config(options: &EngineOptions, allocation: Allocation) -> Config {
    let mut config = deterministic();
    config.max_wasm_stack(options.stack_bytes);
    match allocation {
        Allocation::Pool => {
            config.allocation_strategy(InstanceAllocationStrategy::Pooling(pool(options)));
        }
        Allocation::OnDemand => {}
        Allocation::SmallOnDemand => {
            config
                .memory_reservation(SMALL_RESERVATION)
                .memory_reservation_for_growth(SMALL_RESERVATION)
                .memory_guard_size(64 << 10);
        }
    }
    config
}

/// The configuration for memories that a test owns: every access checked, nothing shared with an image.
#[cfg(feature = "recorder")]
pub(crate) fn recorded(options: &EngineOptions, recorder: crate::MemoryRecorder) -> Config {
    let mut config = deterministic();
    config
        .max_wasm_stack(options.stack_bytes)
        .memory_reservation(0)
        .memory_guard_size(0)
        .memory_init_cow(false);
    config.with_host_memory(std::sync::Arc::new(recorder));
    config
}

/// Everything but the allocation. A feature that could make two runs differ is off or canonical.
fn deterministic() -> Config {
    let mut config = Config::new();
    config
        .strategy(Strategy::Cranelift)
        .cranelift_opt_level(OptLevel::Speed)
        .cranelift_nan_canonicalization(true)
        .epoch_interruption(true)
        .wasm_backtrace_max_frames(NonZeroUsize::new(FRAMES))
        .memory_init_cow(true)
        .concurrency_support(false)
        .relaxed_simd_deterministic(true)
        .wasm_relaxed_simd(false)
        .wasm_memory64(false)
        .wasm_multi_memory(false)
        .wasm_tail_call(false)
        .wasm_custom_page_sizes(false)
        .wasm_wide_arithmetic(false)
        .shared_memory(false);
    config
}

/// Slots for as many concurrent calls as the gate admits, each with everything that one component may have. Those
/// bounds are checked elsewhere, so that they are the same without a pool.
fn pool(options: &EngineOptions) -> PoolingAllocationConfig {
    let calls = options.concurrency;
    let mut pool = PoolingAllocationConfig::new();
    pool.total_component_instances(calls)
        .total_core_instances(calls.saturating_mul(CORE_INSTANCES))
        .total_memories(calls.saturating_mul(MEMORIES))
        .total_tables(calls.saturating_mul(TABLES))
        .max_tables_per_module(TABLES)
        .max_memory_size(LARGEST_MEMORY)
        .table_elements(usize::try_from(options.limits.table_elements).unwrap_or(usize::MAX))
        .max_unused_warm_slots(calls);
    if PoolingAllocationConfig::is_pagemap_scan_available() {
        // Without the scan the kernel cannot say which pages were written, and keeping them costs more than it saves.
        pool.pagemap_scan(Enabled::Yes)
            .linear_memory_keep_resident(KEEP_RESIDENT)
            .table_keep_resident(KEEP_RESIDENT);
    }
    pool
}
