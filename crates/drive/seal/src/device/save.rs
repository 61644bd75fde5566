//! Storing the record.

use std::sync::atomic::Ordering;

use bytes::Bytes;
use cheetah_device::{Error, Result};

use super::{Inner, RecordStore, State, Stored, Version, position};
use crate::error::SealError;
use crate::log;
use crate::record::{Record, root};
use crate::stamp::Stamp;
use crate::unit::stamp_of;
use crate::units::TRAILER_BYTES;

impl Inner {
    /// Finishes when everything written is on stable storage below, and its stamps are in the record.
    pub(super) async fn flush(&self) -> Result<()> {
        self.below.flush().await?;
        self.save().await.map_err(|error| self.record_failed(&error))
    }

    /// Stores the stamps that have changed since the record was stored: behind the record, or with a new record where
    /// the log would become longer than the record.
    pub(super) async fn save(&self) -> std::result::Result<(), SealError> {
        let saved = self.save_as(&mut *self.stored.lock().await).await;
        self.is_stuck.store(saved.is_err(), Ordering::Relaxed);
        saved
    }

    /// Before a write: stores the record if that failed last time. A write is refused as long as its stamps could not be
    /// stored, since it would be lost with this process.
    pub(super) async fn unstick(&self) -> Result<()> {
        if !self.is_stuck.load(Ordering::Relaxed) {
            return Ok(());
        }
        // What it would record must be on stable storage first.
        self.flush().await
    }

    /// The same, by the holder of the lock.
    async fn save_as(&self, stored: &mut Stored) -> std::result::Result<(), SealError> {
        let changes = self.changes.load(Ordering::Acquire);
        if changes == stored.changes {
            return Ok(());
        }
        // A writer that was taken over must not undo what the next one has stored.
        if self.store.version() != stored.version {
            return Err(SealError::TakenOver);
        }
        // Until it is known that this was stored, nothing can be appended to it.
        let whole = std::mem::replace(&mut stored.whole, true);
        let (entry, root, copies_bytes, changed) = {
            let mut state = self.state.write();
            state.record.sequence += 1;
            let changed = std::mem::take(&mut state.changed);
            let kept = changed.clone();
            let log_max = log::stamps_bytes_max(Record::bytes_max(&self.units));
            let entry = match whole {
                true => None,
                false => Some(log::stamps(&stored.root, &self.key, &state.record, changed.into_units())?),
            };
            match entry.filter(|(entry, _)| stored.log_bytes + entry.len() as u64 <= log_max) {
                Some((entry, root)) => (entry, root, None, kept),
                None => {
                    let mut encoded = state.record.encode(&self.key)?;
                    let begins = encoded.len();
                    let root = root(&encoded).unwrap_or_default();
                    let root = self.keep_copies(&state, root, &mut encoded)?;
                    let copies_bytes = encoded.len() - begins;
                    (encoded, root, Some(copies_bytes as u64), kept)
                }
            }
        };
        let (len, is_whole) = (entry.len() as u64, copies_bytes.is_some());
        let put =
            self.in_store(move |store| if is_whole { store.store(&entry) } else { store.append(&entry, true) }).await;
        let version = match put {
            Ok(version) => version,
            Err(error) => {
                {
                    let mut state = self.state.write();
                    state.record.sequence -= 1;
                    state.changed.add_all(changed);
                }
                if !is_whole {
                    self.undo_append(stored).await;
                }
                return Err(error);
            }
        };
        let log_bytes = copies_bytes.unwrap_or(stored.log_bytes + len);
        *stored = Stored { changes, version: Some(version), root, log_bytes, whole: false };
        Ok(())
    }

    /// Appends the copies of units that are torn to a record with this root. Returns the root of the last.
    fn keep_copies(
        &self,
        state: &State,
        mut root: log::Root,
        encoded: &mut Vec<u8>,
    ) -> std::result::Result<log::Root, SealError> {
        let mut copies: Vec<_> = state.copies.iter().collect();
        copies.sort_unstable_by_key(|(index, _)| **index);
        let stored_max = log::COPIES_BYTES_MAX / (self.units.stride() + log::ENTRY_BYTES);
        for (index, sealed) in copies.into_iter().take(position(stored_max)) {
            let (entry, next) = log::unit(&root, &self.key, &state.record, *index, sealed)?;
            encoded.extend_from_slice(&entry);
            root = next;
        }
        Ok(root)
    }

    /// Stores copies of units that are about to be overwritten in two parts. They outlive this process, and are not
    /// waited for until they would outlive the machine.
    pub(super) async fn store_copies(&self, copies: &[(u64, Bytes)]) -> std::result::Result<(), SealError> {
        if copies.is_empty() {
            return Ok(());
        }
        let mut stored = self.stored.lock().await;
        let log_max = log::bytes_max(Record::bytes_max(&self.units));
        let len = copies.iter().map(|(_, sealed)| sealed.len() as u64 + log::ENTRY_BYTES).sum::<u64>();
        if stored.log_bytes + len > log_max {
            // What was written before needs no copies once it is flushed.
            self.below.flush().await.map_err(|error| SealError::System(error.to_string()))?;
            stored.whole = true;
            self.changed();
            self.save_as(&mut stored).await?;
        }
        if stored.whole {
            return Err(SealError::System("its seal record could not be stored".into()));
        }
        let (mut entries, mut root) = (Vec::new(), stored.root);
        {
            let state = self.state.read();
            for (index, sealed) in copies {
                let (entry, next) = log::unit(&root, &self.key, &state.record, *index, sealed)?;
                entries.extend_from_slice(&entry);
                root = next;
            }
        }
        stored.whole = true;
        let version = match self.in_store(move |store| store.append(&entries, false)).await {
            Ok(version) => version,
            Err(error) => {
                self.is_stuck.store(true, Ordering::Relaxed);
                self.undo_append(&mut stored).await;
                return Err(error);
            }
        };
        stored.log_bytes += len;
        (stored.version, stored.root, stored.whole) = (Some(version), root, false);
        Ok(())
    }

    /// After an append that failed: the stored record is as it was, and can be appended to, or must be stored as a whole.
    async fn undo_append(&self, stored: &mut Stored) {
        let store = self.store.clone();
        let undone = tokio::task::spawn_blocking(move || store.undo_append()).await.ok().flatten();
        if let Some(version) = undone {
            (stored.version, stored.whole) = (Some(version), false);
        }
    }

    async fn in_store(
        &self,
        work: impl FnOnce(&dyn RecordStore) -> std::io::Result<Version> + Send + 'static,
    ) -> std::result::Result<Version, SealError> {
        let store = self.store.clone();
        let task = tokio::task::spawn_blocking(move || {
            work(&*store).map_err(|error| SealError::system("its seal record cannot be stored", &error))
        });
        task.await.map_err(|_| SealError::System("storing its seal record broke off".into()))?
    }

    pub(super) fn record_failed(&self, error: &SealError) -> Error {
        if let SealError::NoSpace(why) = error {
            return Error::NoSpace(format!("{}: {why}", self.name).into());
        }
        Error::Io { context: self.name.clone(), why: error.to_string().into(), errno: cheetah_device::error::EIO }
    }

    /// Ends the epoch. See [`Sealed::close`](super::Sealed::close).
    pub(super) async fn close(&self) -> Result<()> {
        let Some(writer) = &self.writer else { return Ok(()) };
        // No write is in flight from here on, and none can begin.
        let _turn = self.turns.take(0..self.units.count()).await;
        writer.counter.store(crate::stamp::COUNTER_MAX, Ordering::Relaxed);
        self.settle().await;
        // Where there is no space for a whole record, there may be for what has changed: that is verified then.
        self.save().await.map_err(|error| self.record_failed(&error))?;
        // The log cannot end an epoch.
        self.stored.lock().await.whole = true;
        {
            let mut state = self.state.write();
            // Once every unit has been written again, nothing of former writers is left.
            let all = state.record.stamps.iter().all(|stamp| stamp.epoch() == writer.epoch);
            for epoch in &mut state.record.epochs {
                epoch.open &= !all && epoch.number != writer.epoch;
            }
            state.record.prune();
        }
        self.changed();
        self.save().await.map_err(|error| self.record_failed(&error))
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
                self.state.write().set(index, &[stamp]);
            }
        }
    }
}
