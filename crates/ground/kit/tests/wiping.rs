//! The allocator that wipes, as that of a program: here, over one that looks at a block before it frees it.

use std::alloc::{GlobalAlloc, Layout, System};
use std::future::pending;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Waker};
use std::thread;

use cheetah_kit::wiping::{Wiping, WipingAllocator, while_polled};

#[global_allocator]
static ALLOCATOR: WipingAllocator<Observer> = WipingAllocator::over(Observer);

/// The system's allocator, which looks at the block that is watched before it frees it.
struct Observer;

/// The address of the block that is watched.
static WATCHED: AtomicUsize = AtomicUsize::new(0);
/// The number of its bytes that were not zero when it was freed.
static LEFT: AtomicUsize = AtomicUsize::new(NOT_FREED);
const NOT_FREED: usize = usize::MAX;

/// What is wiped is a matter of the whole process.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

// SAFETY: the system's allocator does all the work.
unsafe impl GlobalAlloc for Observer {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller promises the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        look(at, layout.size());
        // SAFETY: as above.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        look(at, layout.size());
        // SAFETY: as above.
        unsafe { System.realloc(at, layout, bytes) }
    }
}

/// Looks at a block that is about to be freed.
fn look(at: *const u8, bytes: usize) {
    if WATCHED.compare_exchange(at.addr(), 0, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
        // SAFETY: the block is still allocated, and only blocks are watched all of whose bytes were written.
        let block = unsafe { std::slice::from_raw_parts(at, bytes) };
        LEFT.store(block.iter().filter(|byte| **byte != 0).count(), Ordering::SeqCst);
    }
}

fn turn() -> MutexGuard<'static, ()> {
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A block of this size, which is watched.
fn watched(bytes: usize) -> Vec<u8> {
    let block = vec![7; bytes];
    assert_eq!(block.capacity(), bytes);
    LEFT.store(NOT_FREED, Ordering::SeqCst);
    WATCHED.store(block.as_ptr().addr(), Ordering::SeqCst);
    block
}

/// The number of bytes of the watched block that were not zero when it was freed; `None` if it was not.
fn left() -> Option<usize> {
    Some(LEFT.load(Ordering::SeqCst)).filter(|left| *left != NOT_FREED)
}

#[test]
fn a_block_of_any_size_that_is_freed_while_something_asks_for_it_is_zero_and_keeps_its_bytes_otherwise() {
    let _turn = turn();
    for bytes in [1, 7, 8, 100, 4 * KIB, 4 * KIB + 1, MIB, 5 * MIB + 3] {
        drop(watched(bytes));
        assert_eq!(left(), Some(bytes));
        let before = watched(bytes);
        let wiping = Wiping::begin();
        drop(before);
        assert_eq!(left(), Some(0), "{bytes}");
        drop(watched(bytes));
        assert_eq!(left(), Some(0), "{bytes}");
        drop(wiping);
        drop(watched(bytes));
        assert_eq!(left(), Some(bytes));
    }
}

#[test]
fn a_block_that_grows_or_shrinks_is_zero_where_it_was_and_has_its_bytes_where_it_is() {
    let _turn = turn();
    let _wiping = Wiping::begin();
    for bytes in [16, 100, 4 * KIB, MIB] {
        for to in [1, bytes / 2, bytes - 1, bytes + 1, 3 * bytes, 40 * bytes] {
            let mut block = watched(bytes);
            block.truncate(to);
            if to > bytes {
                block.reserve_exact(to - bytes);
            } else {
                block.shrink_to_fit();
            }
            assert_eq!((left(), block.capacity()), (Some(0), to), "{bytes}");
            assert!(block.len() == to.min(bytes) && block.iter().all(|byte| *byte == 7), "{bytes} {to}");
        }
    }
}

#[test]
fn a_block_that_another_thread_frees_is_zero_as_long_as_one_of_several_asks_for_it() {
    let _turn = turn();
    let [first, second] = [Wiping::begin(), Wiping::begin()];
    let free = |block: Vec<u8>| thread::spawn(move || drop(block)).join().unwrap();
    free(watched(KIB));
    assert_eq!(left(), Some(0));
    drop(first);
    free(watched(KIB));
    assert_eq!(left(), Some(0));
    drop(second);
    free(watched(KIB));
    assert_eq!(left(), Some(KIB));
}

#[test]
fn what_a_future_frees_while_it_is_polled_or_when_it_is_dropped_is_zero_and_what_others_free_is_not() {
    let _turn = turn();
    let mut context = Context::from_waker(Waker::noop());
    let mut done = Box::pin(while_polled(async { drop(watched(KIB)) }));
    assert!(done.as_mut().poll(&mut context).is_ready());
    assert_eq!(left(), Some(0));

    let mut waits = Box::pin(while_polled(async {
        let block = watched(KIB);
        pending::<()>().await;
        drop(block);
    }));
    assert!(waits.as_mut().poll(&mut context).is_pending());
    assert_eq!(left(), None);
    drop(waits);
    assert_eq!(left(), Some(0));

    let waits = Box::pin(while_polled(pending::<()>()));
    drop(watched(KIB));
    assert_eq!(left(), Some(KIB));
    drop(waits);
}
