//! Storing the record.

use std::sync::atomic::Ordering;

use cheetah_device::{Error, Result};

use super::{Inner, position};
use crate::error::SealError;
use crate::stamp::Stamp;
use crate::unit::stamp_of;
use crate::units::TRAILER_BYTES;

impl Inner {
    /// Finishes when everything written is on stable storage below, and its stamps are in the record.
    pub(super) async fn flush(&self) -> Result<()> {
        self.below.flush().await?;
        self.save().await.map_err(|error| self.not_saved(&error))
    }

    /// Stores the record if stamps have changed since it was stored.
    pub(super) async fn save(&self) -> std::result::Result<(), SealError> {
        let mut stored = self.stored.lock().await;
        let changes = self.changes.load(Ordering::Acquire);
        if changes == stored.changes {
            return Ok(());
        }
        // A writer that was taken over must not undo what the next one has stored.
        if self.store.version() != stored.version {
            return Err(SealError::System(
                "another process has stored its seal record, and has taken the drive over; close it and open it again"
                    .into(),
            ));
        }
        let encoded = {
            let mut state = self.state.write();
            state.record.sequence += 1;
            state.record.encode(&self.key)?
        };
        let store = self.store.clone();
        let task = tokio::task::spawn_blocking(move || {
            store.store(&encoded).map_err(|error| SealError::system("its seal record cannot be stored", &error))
        });
        task.await.map_err(|_| SealError::System("storing its seal record broke off".into()))??;
        *stored = super::Stored { changes, version: self.store.version() };
        Ok(())
    }

    pub(super) fn not_saved(&self, error: &SealError) -> Error {
        Error::Io { context: self.name.clone(), why: error.to_string().into(), errno: cheetah_device::error::EIO }
    }

    /// Ends the epoch. See [`Sealed::close`](super::Sealed::close).
    pub(super) async fn close(&self) -> Result<()> {
        let Some(writer) = &self.writer else { return Ok(()) };
        // No write is in flight from here on, and none can begin.
        let _turn = self.turns.take(0..self.units.count()).await;
        writer.counter.store(crate::stamp::COUNTER_MAX, Ordering::Relaxed);
        self.settle().await;
        {
            let mut state = self.state.write();
            for epoch in &mut state.record.epochs {
                epoch.open &= epoch.number != writer.epoch;
            }
            state.record.prune();
        }
        self.changed();
        self.save().await.map_err(|error| self.not_saved(&error))
    }

    /// Finds out which version a unit has whose last write failed.
    async fn settle(&self) {
        let doubtful: Vec<(u64, Vec<Stamp>)> = self.state.write().doubtful.drain().collect();
        for (index, candidates) in doubtful {
            let Ok(sealed) = self.below.read(self.units.sealed_range(index, index + 1)).await else { continue };
            let sealed = sealed.into_bytes();
            let Some((content, trailer)) = sealed.split_at_checked(position(self.units.bytes())) else { continue };
            let stamp = stamp_of(trailer).filter(|_| trailer.len() as u64 == TRAILER_BYTES);
            let Some(stamp) = stamp.filter(|stamp| candidates.contains(stamp)) else { continue };
            let mut content = content.to_vec();
            if self.epoch_key(stamp.epoch()).is_some_and(|key| key.open(index, &mut content, trailer)) {
                self.state.write().record.stamps[position(index)] = stamp;
            }
        }
    }
}
