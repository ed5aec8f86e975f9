//! Linear memory that a test owns, so that it can search everything that a guest saw. Only with the feature
//! `recorder`, and only on demand.

use std::ptr::{NonNull, slice_from_raw_parts_mut};
use std::sync::{Arc, Mutex};
use transom_core::share::lock::MutexExt as _;
use wasmtime::{LinearMemory, MemoryCreator, MemoryType};

/// Keeps what every linear memory held when its instance was dropped.
#[derive(Clone, Default)]
pub struct MemoryRecorder {
    kept: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl MemoryRecorder {
    /// The memories of all calls since the last `take`, each whole.
    pub fn take(&self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.kept.locked())
    }
}

impl std::fmt::Debug for MemoryRecorder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("MemoryRecorder(..)")
    }
}

/// One linear memory: allocated with its largest size, of which the first `size` bytes are in use.
struct Recorded {
    base: NonNull<u8>,
    capacity: usize,
    size: usize,
    recorder: MemoryRecorder,
}

/// Bytes of the largest memory; the budget of a call is smaller.
const CAPACITY: usize = 64 << 20;

#[expect(
    unsafe_code,
    reason = "a memory of one's own is unsafe by its traits; it never moves and is freed once"
)]
mod owned {
    use super::*;

    // SAFETY: the bytes belong to this value alone until it is dropped.
    unsafe impl Send for Recorded {}
    // SAFETY: nothing here writes through a shared reference.
    unsafe impl Sync for Recorded {}

    // SAFETY: the memory is zeroed, has the size that is asked for, and is asked for without reservation or guard.
    unsafe impl MemoryCreator for MemoryRecorder {
        fn new_memory(
            &self,
            _type: MemoryType,
            minimum: usize,
            _maximum: Option<usize>,
            reserved: Option<usize>,
            guard: usize,
        ) -> Result<Box<dyn LinearMemory>, String> {
            if minimum > CAPACITY || guard != 0 || reserved.is_some_and(|bytes| bytes > CAPACITY) {
                return Err("more memory than a recorder has".to_owned());
            }
            let bytes = Box::leak(vec![0; CAPACITY].into_boxed_slice());
            let base = NonNull::from(bytes).cast();
            Ok(Box::new(Recorded {
                base,
                capacity: CAPACITY,
                size: minimum,
                recorder: self.clone(),
            }))
        }
    }

    // SAFETY: the base never moves, and the size never exceeds the capacity.
    unsafe impl LinearMemory for Recorded {
        fn byte_size(&self) -> usize {
            self.size
        }

        fn byte_capacity(&self) -> usize {
            self.capacity
        }

        fn grow_to(&mut self, size: usize) -> wasmtime::Result<()> {
            if size > self.capacity {
                return Err(wasmtime::Error::msg("more memory than a recorder has"));
            }
            self.size = size;
            Ok(())
        }

        fn as_ptr(&self) -> *mut u8 {
            self.base.as_ptr()
        }
    }

    impl Drop for Recorded {
        fn drop(&mut self) {
            // SAFETY: these are the base and the length that `Box::leak` gave, and the guest is gone.
            let bytes = unsafe {
                Box::from_raw(slice_from_raw_parts_mut(self.base.as_ptr(), self.capacity))
            };
            let seen = bytes.get(..self.size).unwrap_or_default().to_vec();
            self.recorder.kept.locked().push(seen);
        }
    }
}
