//! Faulting in the lent memory ahead of its use.
//!
//! The first touch of memory is slow: seconds a GiB on a virtual machine. So background threads walk the memory in the order
//! in which slots are allocated. The node is usable meanwhile: a writer that overtakes them faults in its own pages.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::thread;

use crate::arena::Arena;

/// Bytes faulted in by one call: enough to amortise it, few enough to stop soon when the node ends.
const STEP_BYTES: usize = 16 << 20;

/// The most threads: two saturate the kernel's zeroing of pages, and leave processors for the clients.
const THREADS_MAX: usize = 2;

/// Starts background threads that fault in `arena`. They end when they are done, or with the arena.
pub(crate) fn start(arena: &Arc<Arena>) -> std::io::Result<()> {
    let next = Arc::new(AtomicUsize::new(0));
    let cores = thread::available_parallelism().map_or(1, usize::from);
    for _ in 0..cores.div_ceil(2).min(THREADS_MAX) {
        let (arena, next) = (Arc::downgrade(arena), Arc::clone(&next));
        thread::Builder::new().name("fault-in".into()).spawn(move || walk(&arena, &next))?;
    }
    Ok(())
}

fn walk(arena: &Weak<Arena>, next: &AtomicUsize) {
    while let Some(arena) = arena.upgrade() {
        let offset = next.fetch_add(1, Ordering::Relaxed).saturating_mul(STEP_BYTES);
        if offset as u64 >= arena.lent_bytes() {
            return;
        }
        if let Err(error) = arena.fault_in(offset, STEP_BYTES) {
            tracing::warn!(%error, "memory cannot be faulted in ahead of use: the first writes will be slower");
            return;
        }
    }
}
