//! An allocator that counts the memory of each thread.
#![expect(
    unsafe_code,
    reason = "a global allocator is an unsafe trait; this one only counts and forwards each call"
)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static NOW: Cell<isize> = const { Cell::new(0) };
    static MOST: Cell<isize> = const { Cell::new(0) };
}

/// The system's allocator, with a count for each thread.
#[derive(Debug)]
pub struct Counting;

fn count(bytes: isize) {
    let now = NOW.get() + bytes;
    NOW.set(now);
    MOST.set(MOST.get().max(now));
}

/// Runs `act`; returns the largest growth of this thread's allocations during it. The result is 0 in a program with another allocator.
pub fn most<T>(act: impl FnOnce() -> T) -> (T, usize) {
    let before = NOW.get();
    MOST.set(before);
    let result = act();
    (result, usize::try_from(MOST.get() - before).unwrap_or(0))
}

// SAFETY: every call is forwarded to the system's allocator unchanged. The counting touches two cells of the thread, which need no initialisation and
// no destructor, and it allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size().cast_signed());
        // SAFETY: the caller keeps the contract of this same function.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size().cast_signed());
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        count(-layout.size().cast_signed());
        // SAFETY: as above.
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size.cast_signed() - layout.size().cast_signed());
        // SAFETY: as above.
        unsafe { System.realloc(block, layout, size) }
    }
}
