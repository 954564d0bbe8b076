//! Memory that is overwritten when it is freed: plaintexts, keys and frames leave nothing behind, whoever held them.

#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout};

/// An allocator that overwrites each block with zeros before it frees it. A block that grows or shrinks moves, and
/// the old one is overwritten.
pub struct Wiping<A>(pub A);

// SAFETY: every block is one of the inner allocator's, with the same layout.
unsafe impl<A: GlobalAlloc> GlobalAlloc for Wiping<A> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promises are the same.
        unsafe { self.0.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        unsafe { self.0.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the block has so many bytes and belongs to nobody else. They need not be initialised to be written.
        unsafe { block.write_bytes(0, layout.size()) };
        // Else the compiler may leave out what it takes for a write that nobody reads.
        zeroize::optimization_barrier(&block);
        // SAFETY: as above.
        unsafe { self.0.dealloc(block, layout) }
    }
}

#[cfg(test)]
mod tests {
    use std::alloc::System;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// Counts the bytes that are not zero when they are freed.
    #[derive(Default)]
    struct Counting(AtomicUsize);

    // SAFETY: the system's.
    unsafe impl GlobalAlloc for Counting {
        unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
            // SAFETY: the caller's promises are the same.
            unsafe { System.alloc_zeroed(layout) }
        }

        unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
            // SAFETY: `alloc` has initialised the whole block.
            let bytes = unsafe { std::slice::from_raw_parts(block, layout.size()) };
            let left = bytes.iter().filter(|byte| **byte != 0).count();
            self.0.fetch_add(left, Ordering::Relaxed);
            // SAFETY: as above.
            unsafe { System.dealloc(block, layout) }
        }
    }

    /// Fills a block, lets it grow and frees it.
    fn use_up(allocator: &impl GlobalAlloc, size: usize) {
        let layout = Layout::array::<u8>(size).unwrap();
        // SAFETY: the blocks are written within their sizes, and freed with their layouts.
        unsafe {
            let block = allocator.alloc(layout);
            block.write_bytes(7, size);
            let longer = allocator.realloc(block, layout, 2 * size);
            assert_eq!(*longer.add(size - 1), 7);
            allocator.dealloc(longer, Layout::array::<u8>(2 * size).unwrap());
        }
    }

    #[test]
    fn what_is_freed_is_zero() {
        for size in [1, 100, 1024, 5000, 1 << 20] {
            let plain = Counting::default();
            use_up(&plain, size);
            assert_eq!(
                plain.0.load(Ordering::Relaxed),
                2 * size,
                "the test sees it"
            );
            let wiping = Wiping(Counting::default());
            use_up(&wiping, size);
            assert_eq!(wiping.0.0.load(Ordering::Relaxed), 0);
        }
    }
}
