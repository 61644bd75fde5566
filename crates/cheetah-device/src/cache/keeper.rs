//! The thread that writes the cache's file, one thing after the other.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak, mpsc};

use super::shelf::FetchId;
use super::shell::Shared;
use super::store::Store;
use crate::{ByteRange, Data, Error, Result};

/// Bytes that may wait to be written. What comes while there are more is not kept.
const WAITING_BYTES_MAX: u64 = 64 << 20;

/// What to do with the file, in order.
enum Order {
    Keep(Weak<Shared>, FetchId, ByteRange, Data),
    Drop(ByteRange),
}

/// The file and its thread, which ends with this.
pub(super) struct Keeper {
    store: Arc<Store>,
    orders: mpsc::Sender<Order>,
    waiting: Arc<AtomicU64>,
}

impl Keeper {
    pub(super) fn start(dir: &Path) -> Result<Self> {
        let store = Arc::new(Store::new(dir)?);
        let (orders, received) = mpsc::channel();
        let waiting = Arc::new(AtomicU64::new(0));
        let (file, count) = (Arc::clone(&store), Arc::clone(&waiting));
        std::thread::Builder::new()
            .name("cache-file".into())
            .spawn(move || received.into_iter().for_each(|order| follow(order, &file, &count)))
            .map_err(|error| Error::io("cannot start a thread for the cache's file", &error))?;
        Ok(Self { store, orders, waiting })
    }

    pub(super) fn store(&self) -> Arc<Store> {
        Arc::clone(&self.store)
    }

    /// Writes what a fetch brought, then says so; false if it does not.
    pub(super) fn keep(&self, shared: Weak<Shared>, id: FetchId, range: ByteRange, data: Data) -> bool {
        if self.waiting.load(Ordering::Relaxed).saturating_add(range.len) > WAITING_BYTES_MAX {
            return false;
        }
        self.waiting.fetch_add(range.len, Ordering::Relaxed);
        self.orders.send(Order::Keep(shared, id, range, data)).is_ok()
    }

    /// What lies there is of no use any more.
    pub(super) fn drop(&self, range: ByteRange) {
        let _ = self.orders.send(Order::Drop(range));
    }
}

fn follow(order: Order, store: &Store, waiting: &AtomicU64) {
    match order {
        Order::Drop(range) => {
            if let Err(error) = store.punch(range) {
                tracing::warn!("the cache's file cannot be made smaller: {error}");
            }
        }
        Order::Keep(shared, id, range, data) => {
            let written = store.write(range.offset, &data);
            waiting.fetch_sub(range.len, Ordering::Relaxed);
            if let Err(error) = &written {
                tracing::warn!("the cache's file cannot be written: {error}; what came is not kept");
            }
            if let Some(shared) = shared.upgrade() {
                shared.stored(id, range, written.ok());
            }
        }
    }
}
