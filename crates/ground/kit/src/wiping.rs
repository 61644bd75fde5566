//! An allocator that wipes what it frees, while something asks for that.
//!
//! Libraries free their memory as it is: the automata of a search, the text of a request. A program whose global allocator is a
//! [`WipingAllocator`] overwrites every block with zeros before it is freed, on every thread, as long as a [`Wiping`] is alive. While
//! none is, the allocator only reads a counter for each block. In programs with another allocator, a [`Wiping`] does nothing.
//!
//! A block is wiped if it is freed while a [`Wiping`] is alive, also if it was allocated before. So hold one from before the
//! secret is allocated until after the last copy of it is freed: as the last field of the value that owns it, as fields are dropped
//! in the order of their declaration. What is copied onto a stack is not wiped: see
//! [`with_stack_wiped`](crate::locked::with_stack_wiped).

use std::alloc::{GlobalAlloc, Layout};
use std::pin::Pin;
use std::ptr;
use std::slice;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use zeroize::optimization_barrier;

/// The number of [`Wiping`]s that are alive.
///
/// Relaxed operations are enough: a secret reaches another thread by something that orders its reads after the increment, and the
/// owner of a secret learns in the same way that the other thread has freed it before the decrement.
static ALIVE: AtomicUsize = AtomicUsize::new(0);

/// Has the blocks that are freed be wiped, until this is dropped.
#[derive(Debug)]
#[must_use = "what is freed is wiped only until this is dropped"]
pub struct Wiping(());

impl Wiping {
    /// Begins.
    pub fn begin() -> Self {
        ALIVE.fetch_add(1, Ordering::Relaxed);
        Self(())
    }
}

impl Drop for Wiping {
    fn drop(&mut self) {
        ALIVE.fetch_sub(1, Ordering::Relaxed);
    }
}

/// An allocator that wipes blocks before `A` frees them, while a [`Wiping`] is alive.
pub struct WipingAllocator<A>(A);

impl<A> WipingAllocator<A> {
    /// Over another allocator.
    pub const fn over(allocator: A) -> Self {
        Self(allocator)
    }
}

// SAFETY: every block is allocated by `A` with the layout with which it is freed there, and what callers promise is passed on.
unsafe impl<A: GlobalAlloc> GlobalAlloc for WipingAllocator<A> {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller promises what `A` requires.
        unsafe { self.0.alloc(layout) }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        unsafe { self.0.alloc_zeroed(layout) }
    }

    #[inline]
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        if is_asked_for() {
            // SAFETY: the caller gives up the block, which has this many bytes.
            unsafe { wipe(at, layout.size()) };
        }
        // SAFETY: as above.
        unsafe { self.0.dealloc(at, layout) };
    }

    #[inline]
    unsafe fn realloc(&self, at: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        if is_asked_for() {
            // SAFETY: the caller promises the same.
            unsafe { self.move_and_wipe(at, layout, bytes) }
        } else {
            // SAFETY: as above.
            unsafe { self.0.realloc(at, layout, bytes) }
        }
    }
}

impl<A: GlobalAlloc> WipingAllocator<A> {
    /// Reallocates a block, and wipes the old one. It always moves: where `A` moves it, the old block is freed before it could be
    /// wiped, and where `A` leaves a smaller one in its place, what is cut off is no part of the block that is freed later.
    ///
    /// # Safety
    ///
    /// As [`realloc`](GlobalAlloc::realloc).
    #[cold]
    unsafe fn move_and_wipe(&self, at: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        // SAFETY: the caller promises that this many bytes are a layout with the same alignment.
        let moved_layout = unsafe { Layout::from_size_align_unchecked(bytes, layout.align()) };
        // SAFETY: the caller promises that the size is not zero.
        let moved = unsafe { self.0.alloc(moved_layout) };
        // Otherwise there is no memory, and the block stays as it is.
        if !moved.is_null() {
            // SAFETY: both blocks have this many bytes, and a new block does not overlap one that is in use.
            unsafe { ptr::copy_nonoverlapping(at, moved, layout.size().min(bytes)) };
            // SAFETY: the caller gives up the old block, which has this many bytes.
            unsafe { wipe(at, layout.size()) };
            // SAFETY: as above; it was allocated with this layout.
            unsafe { self.0.dealloc(at, layout) };
        }
        moved
    }
}

#[inline]
fn is_asked_for() -> bool {
    ALIVE.load(Ordering::Relaxed) != 0
}

/// Overwrites a block with zeros, also where the compiler sees that it is freed next. As fast as memory is: a write by volatile
/// bytes takes several times as long, and whole images pass through the blocks of a node.
///
/// # Safety
///
/// The block has this many bytes, and nothing refers to it.
#[cold]
unsafe fn wipe(at: *mut u8, bytes: usize) {
    // SAFETY: as the caller promises.
    unsafe { at.write_bytes(0, bytes) };
    // SAFETY: as above, and every byte of it has just been written.
    optimization_barrier(unsafe { slice::from_raw_parts(at, bytes) });
}

/// Has the blocks be wiped that are freed while a future is polled, and when it is dropped. Nothing is wiped for it while it waits.
pub fn while_polled<F: Future>(future: F) -> WhilePolled<F> {
    WhilePolled(Some(Box::pin(future)))
}

/// See [`while_polled`].
#[must_use = "futures do nothing unless they are polled"]
pub struct WhilePolled<F>(Option<Pin<Box<F>>>);

impl<F: Future> Future for WhilePolled<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let _wiping = Wiping::begin();
        // One that has ended is not polled again.
        let Some(future) = self.0.as_mut() else { return Poll::Pending };
        let answer = future.as_mut().poll(context);
        if answer.is_ready() {
            self.0 = None;
        }
        answer
    }
}

impl<F> Drop for WhilePolled<F> {
    fn drop(&mut self) {
        let _wiping = Wiping::begin();
        self.0 = None;
    }
}
