//! Units that the device below returned wrong: a stored copy, or what the other members have.

use bytes::Bytes;
use cheetah_device::{Data, Error, Result};
use cheetah_error::Next;
use cheetah_error::next::Drive;
use futures::{StreamExt as _, stream};

use super::read::Refused;
use super::{Inner, position};
use crate::error::SealError;
use crate::stamp::Stamp;
use crate::unit::stamp_of;

/// Copies of units that are put back at the same time.
const COPIES_AT_ONCE: usize = 32;

impl Inner {
    /// Opens a unit that was refused from elsewhere, into `out`. The caller has a turn for it.
    ///
    /// # Errors
    ///
    /// The reason for which it was refused, if it is right nowhere else.
    pub(super) async fn recover(
        &self,
        index: u64,
        expected: Stamp,
        refused: Refused,
        out: &mut [u8],
    ) -> std::result::Result<(), Error> {
        let mut key = None;
        let copy = self.state.read().copies.get(&index).cloned();
        let mut error = refused.error;
        if let Some(copy) = copy.filter(|copy| copy.len() as u64 == self.units.stride()) {
            match self.open_copy(index, expected, &Data::from(copy), out, &mut key) {
                Ok(()) => return Ok(()),
                // A torn unit whose copy is unverified is unverified.
                Err(of_copy) if of_copy.is_unverified => error = of_copy.error,
                Err(_) => {}
            }
        }
        if expected.is_hole() {
            // A first write that was cut off, or whatever a node puts there: the unit is what it was.
            out.fill(0);
            return Ok(());
        }
        let Some(alternatives) = &self.alternatives else { return Err(error) };
        let range = self.units.sealed_range(index, index + 1);
        for alternative in alternatives.read(range).await {
            if alternative.data.len() != range.len
                || self.open_copy(index, expected, &alternative.data, out, &mut key).is_err()
            {
                continue;
            }
            // After a crash, members may have different versions of a unit, without any fault of theirs.
            if !refused.is_unverified {
                self.blame(&alternative.name, &error);
            }
            if self.writer.is_some()
                && let Err(error) = alternatives.restore(range, alternative.data, alternative.without).await
            {
                tracing::warn!("{}: a unit cannot be put back on node {}: {error}", self.name, alternative.name);
            }
            return Ok(());
        }
        Err(error)
    }

    /// Counts a unit that a member returned wrong.
    fn blame(&self, member: &std::sync::Arc<str>, error: &Error) {
        let mut altered = self.altered.lock();
        let count = altered.entry(member.clone()).or_default();
        *count += 1;
        if *count == 1 {
            tracing::warn!(
                next = %Next::from(Drive::SeeVerify).record(),
                "{}: node {member} returned a unit wrong, and it was read without that node: {error}; others follow without \
                 a message",
                self.name
            );
        }
    }

    /// Writes the copies of torn units to their places; before anything else is written. A copy whose place takes no write is
    /// kept: the drive must be open for its redundancy to return.
    pub(super) async fn restore_copies(&self) -> std::result::Result<(), SealError> {
        let copies = std::mem::take(&mut self.state.write().copies);
        // A place that cannot be read or written takes seconds to say so.
        let restoring = stream::iter(copies).map(|(index, copy)| self.restore_copy(index, copy));
        let restored: Vec<bool> = restoring.buffer_unordered(COPIES_AT_ONCE).collect().await;
        if restored.contains(&true) {
            let flushed: Result<()> = self.below.flush().await;
            flushed.map_err(|error| SealError::System(error.to_string()))?;
        }
        Ok(())
    }

    /// Writes a copy to its place if what is there is torn. Returns whether it did.
    async fn restore_copy(&self, index: u64, copy: Bytes) -> bool {
        if index >= self.units.count() || copy.len() as u64 != self.units.stride() {
            return false;
        }
        let expected = self.state.read().record.stamps[position(index)];
        let range = self.units.sealed_range(index, index + 1);
        let found = self.below.read(range).await;
        let is_whole = found.is_ok_and(|found| self.version(index, &found).is_some());
        if is_whole || self.version(index, &Data::from(copy.clone())).is_none_or(|stamp| stamp < expected) {
            return false;
        }
        let written = self.below.write(range.offset, Data::from(copy.clone()), false).await;
        if let Err(error) = &written {
            tracing::warn!("{}: a unit that was cut off cannot be put back: {error}", self.name);
            self.state.write().copies.insert(index, copy);
        }
        written.is_ok()
    }

    /// The version of a sealed unit; `None` if it is not authentic.
    pub(super) fn version(&self, index: u64, sealed: &Data) -> Option<Stamp> {
        let sealed = sealed.clone().into_bytes();
        let (content, trailer) = sealed.split_at_checked(position(self.units.bytes()))?;
        let stamp = stamp_of(trailer)?;
        let key = self.epoch_key(stamp.epoch())?;
        key.open(index, &mut content.to_vec(), trailer).then_some(stamp)
    }
}
