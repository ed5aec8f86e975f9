//! The allocator of a component whose instance lives for one call: it hands out memory in order and frees only the last
//! block. An instance that is used again would run into its memory limit.
//!
//! It starts with memory that the module has from the beginning, because a first `memory.grow` costs more than a call.

/// The place of a block of `size` bytes: its start and the next cursor. `None` if it would not end before `end`.
fn place(cursor: usize, end: usize, size: usize, align: usize) -> Option<(usize, usize)> {
    let start = cursor.checked_next_multiple_of(align)?;
    let next = start.checked_add(size)?;
    (next <= end).then_some((start, next))
}

#[cfg(target_arch = "wasm32")]
pub use wasm::Arena;

#[cfg(target_arch = "wasm32")]
#[expect(
    unsafe_code,
    reason = "an allocator is unsafe by its trait; wasm32 without threads has one thread"
)]
mod wasm {
    use super::place;
    use core::alloc::{GlobalAlloc, Layout};
    use core::arch::wasm32::memory_grow;
    use core::cell::{Cell, UnsafeCell};
    use core::ptr;

    /// Bytes that are available without growing the memory.
    const READY: usize = 384 << 10;
    const PAGE: usize = 64 << 10;
    /// The least bytes by which the memory grows.
    const STEP: usize = 1 << 20;

    /// The allocator; see the module. It is all zero at the start, so that it takes no room in the binary. The counters
    /// lie before the region, on a page that every call writes anyway, so that one page less must be cleaned after the
    /// call.
    #[repr(C, align(16))]
    pub struct Arena {
        cursor: Cell<usize>,
        end: Cell<usize>,
        region: UnsafeCell<[u8; READY]>,
    }

    // SAFETY: wasm32 without threads runs one thread.
    unsafe impl Sync for Arena {}

    impl Arena {
        /// An arena that has handed out nothing.
        #[expect(
            clippy::new_without_default,
            reason = "only the register macro makes one, in a static"
        )]
        pub const fn new() -> Self {
            Self {
                cursor: Cell::new(0),
                end: Cell::new(0),
                region: UnsafeCell::new([0; READY]),
            }
        }

        /// Makes room for a block that does not fit: takes the region first, and grows the memory later.
        #[cold]
        fn extend(&self, layout: Layout) -> bool {
            if self.end.get() == 0 {
                let start = self.region.get() as usize;
                self.cursor.set(start);
                self.end.set(start + READY);
                if place(start, start + READY, layout.size(), layout.align()).is_some() {
                    return true;
                }
            }
            let Some(bytes) = layout.size().checked_add(layout.align()) else {
                return false;
            };
            let pages = bytes.max(STEP).div_ceil(PAGE);
            let before = memory_grow::<0>(pages);
            if before == usize::MAX {
                return false;
            }
            let start = before * PAGE;
            if start != self.end.get() {
                self.cursor.set(start);
            }
            self.end.set(start.saturating_add(pages * PAGE));
            true
        }
    }

    // SAFETY: blocks never overlap: the cursor only moves back over the block that was handed out last.
    unsafe impl GlobalAlloc for Arena {
        unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
            loop {
                if let Some((start, next)) = place(
                    self.cursor.get(),
                    self.end.get(),
                    layout.size(),
                    layout.align(),
                ) {
                    self.cursor.set(next);
                    return start as *mut u8;
                }
                if !self.extend(layout) {
                    return ptr::null_mut();
                }
            }
        }

        unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
            if block as usize + layout.size() == self.cursor.get() {
                self.cursor.set(block as usize);
            }
        }

        unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
            let start = block as usize;
            let is_last = start + layout.size() == self.cursor.get();
            if is_last
                && start
                    .checked_add(size)
                    .is_some_and(|next| next <= self.end.get())
            {
                self.cursor.set(start + size);
                return block;
            }
            if size <= layout.size() {
                return block;
            }
            // SAFETY: the caller keeps `size` within what a layout may have, and `align` is as before.
            let moved =
                unsafe { self.alloc(Layout::from_size_align_unchecked(size, layout.align())) };
            if !moved.is_null() {
                // SAFETY: both blocks are at least that long, and they do not overlap.
                unsafe { ptr::copy_nonoverlapping(block, moved, layout.size()) };
            }
            moved
        }
    }
}

#[cfg(test)]
mod tests {
    use super::place;

    #[test]
    fn a_block_starts_at_its_alignment_and_ends_before_the_end() {
        assert_eq!(place(3, 64, 8, 8), Some((8, 16)));
        assert_eq!(place(16, 64, 48, 16), Some((16, 64)));
        assert_eq!(place(16, 63, 48, 16), None);
        assert_eq!(place(0, 0, 1, 1), None);
    }

    #[test]
    fn sizes_near_the_end_of_the_address_space_do_not_overflow() {
        assert_eq!(place(usize::MAX - 3, usize::MAX, 1, 8), None);
        assert_eq!(place(8, usize::MAX, usize::MAX, 8), None);
    }
}
