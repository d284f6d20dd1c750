//! The floors for which there is no safe interface, and the counting allocator.
#![expect(
    unsafe_code,
    reason = "raw signal actions, `atexit`, `posix_spawn` and the counting allocator have no safe interface; all unsafe code of the benches is here"
)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::ffi::CString;
use std::os::fd::{IntoRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicIsize, Ordering::Relaxed};

/// Resets `SIGINT`, which may have been ignored when the bench was started, as in a shell's background job.
pub(crate) fn reset_sigint() {
    // SAFETY: the default action calls no code of this program.
    unsafe { libc::signal(libc::SIGINT, libc::SIG_DFL) };
}

static WAKE: AtomicI32 = AtomicI32::new(-1);

/// Catches `SIGINT` in the simplest way: the handler writes eight bytes to `wake`, an eventfd or a pipe.
pub(crate) fn catch_sigint_into(wake: OwnedFd) -> std::io::Result<()> {
    WAKE.store(wake.into_raw_fd(), Relaxed);
    // SAFETY: an all-zero `sigaction` is a valid one, and its fields are then set; the handler below is async-signal-safe. The pointers
    // are to live locals.
    let caught = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_sigint as *const () as usize;
        action.sa_flags = libc::SA_RESTART;
        libc::sigaction(libc::SIGINT, &action, std::ptr::null_mut())
    };
    if caught == 0 {
        Ok(())
    } else {
        Err(std::io::Error::last_os_error())
    }
}

extern "C" fn on_sigint(_: libc::c_int) {
    let one: u64 = 1;
    // SAFETY: `write` is async-signal-safe, and the pointer is to a live local of eight bytes. The descriptor was given away above, so it is never
    // closed. A write that succeeds does not change `errno`, and this one succeeds: an eventfd
    // adds the numbers, and the sum stays below its limit of 2^64 - 1.
    unsafe { libc::write(WAKE.load(Relaxed), (&raw const one).cast(), 8) };
}

/// Registers an `atexit` handler that never returns.
pub(crate) fn hang_at_exit() {
    extern "C" fn hang() {
        loop {
            // SAFETY: `pause` has no preconditions.
            unsafe { libc::pause() };
        }
    }
    // SAFETY: the handler is a function, so it exists as long as the program, and it does not unwind.
    unsafe { libc::atexit(hang) };
}

/// Ends this process now, even where `exit` would hang.
pub(crate) fn exit_now() -> ! {
    // SAFETY: `_exit` has no preconditions, and may be called at any time in any thread.
    unsafe { libc::_exit(0) }
}

unsafe extern "C" {
    /// The environment of this process, as `posix_spawn` takes it.
    static environ: *const *mut libc::c_char;
}

/// Starts a program in the simplest way that does not copy this process, with the environment of this process, and waits for its end.
pub(crate) fn spawn_and_wait(words: &[&str]) -> std::io::Result<()> {
    let words: Result<Vec<CString>, _> = words.iter().copied().map(CString::new).collect();
    let words = words?;
    let arguments = words.iter().map(|word| word.as_ptr().cast_mut());
    let arguments: Vec<_> = arguments.chain([std::ptr::null_mut()]).collect();
    let mut pid = 0;
    // SAFETY: the lists end with a null, everything that they point to lives until the call returns, and null stands for no
    // attributes and no actions. No code of this program changes the environment.
    let failed = unsafe {
        libc::posix_spawn(
            &raw mut pid,
            words[0].as_ptr(),
            std::ptr::null(),
            std::ptr::null(),
            arguments.as_ptr(),
            environ,
        )
    };
    if failed != 0 {
        return Err(std::io::Error::from_raw_os_error(failed));
    }
    let mut status = 0;
    // SAFETY: the pointer is to a live local; the child is ours, and no other code reaps it.
    match unsafe { libc::waitpid(pid, &raw mut status, 0) } {
        ended if ended == pid && status == 0 => Ok(()),
        _ => Err(std::io::Error::other("the program did not exit with 0")),
    }
}

/// The system's allocator, which counts the bytes in use when counting is on.
pub(crate) struct CountingAllocator;

static COUNTS: AtomicBool = AtomicBool::new(false);
static IN_USE: AtomicIsize = AtomicIsize::new(0);

impl CountingAllocator {
    /// Starts to count from zero. Memory that was allocated before and is freed later makes the count too small.
    pub(crate) fn start() {
        IN_USE.store(0, Relaxed);
        COUNTS.store(true, Relaxed);
    }

    /// Returns the bytes in use that were allocated since the start.
    pub(crate) fn in_use() -> isize {
        IN_USE.load(Relaxed)
    }

    fn count(bytes: isize) {
        // Counting is off while times are measured: two workers would compete for this cache line.
        if COUNTS.load(Relaxed) {
            IN_USE.fetch_add(bytes, Relaxed);
        }
    }
}

// SAFETY: every call goes to the system's allocator with unchanged arguments, and its result is returned unchanged.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        Self::count(layout.size().cast_signed());
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        Self::count(-layout.size().cast_signed());
        // SAFETY: the caller keeps the contract of `dealloc`, and the pointer came from the system's allocator.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        Self::count(layout.size().cast_signed());
        // SAFETY: the caller keeps the contract of `alloc_zeroed`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        Self::count(size.cast_signed() - layout.size().cast_signed());
        // SAFETY: the caller keeps the contract of `realloc`, and the pointer came from the system's allocator.
        unsafe { System.realloc(pointer, layout, size) }
    }
}
