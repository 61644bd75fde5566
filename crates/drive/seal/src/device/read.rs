//! Reading: fetching units, and opening them.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use cheetah_device::error::Withheld;
use cheetah_device::{ByteRange, Data, Error, Result};
use futures::future::try_join_all;

use super::received::Received;
use super::{Inner, load, position};
use crate::stamp::Stamp;
use crate::unit::{EpochKey, stamp_of};
use crate::units::TRAILER_BYTES;

impl Inner {
    /// Reads a range that begins in unit `first`; `stamps` are those of the units that it touches.
    pub(super) async fn read(&self, range: ByteRange, first: u64, mut stamps: Vec<Stamp>) -> Result<Data> {
        let end = first + stamps.len() as u64;
        if stamps.iter().any(|stamp| stamp.is_hole()) {
            self.follow().await?;
            stamps = self.stamps(first, end);
        }
        let units = match self.fetch(first, &stamps, Effort::Once).await {
            Ok(units) => units,
            // The units were written meanwhile, by this process or by another; or a member is wrong.
            Err(Refusal::NotRight(_)) => {
                let _turn = self.turns.take(first..end).await;
                if let Err(error) = self.follow().await {
                    tracing::warn!("{error}");
                }
                self.read_units(first, end).await?
            }
            Err(Refusal::Failed(error)) => return Err(error),
        };
        let start = self.units.content_range(first, end).offset;
        Ok(units.slice(range.offset - start, range.len))
    }

    /// Reads whole units, from `first`, in a turn that the caller has.
    pub(super) async fn read_units(&self, first: u64, end: u64) -> Result<Data> {
        let units = self.fetch(first, &self.stamps(first, end), Effort::Recover).await;
        units.map_err(|refusal| self.note(refusal))
    }

    /// Fetches the units from `first` that have `stamps`, and opens them.
    async fn fetch(&self, first: u64, stamps: &[Stamp], effort: Effort) -> std::result::Result<Data, Refusal> {
        let accepts = self.accepts();
        let mut at = first;
        let runs = stamps.chunk_by(|one, next| accepts || one.is_hole() == next.is_hole()).map(|run| {
            let start = at;
            at += run.len() as u64;
            self.fetch_run(start, run, effort)
        });
        let mut whole = Data::new();
        for data in try_join_all(runs).await? {
            whole.append(data);
        }
        Ok(whole)
    }

    /// The same for units all of which are holes, or none, unless what is newer than the record is accepted.
    async fn fetch_run(&self, first: u64, stamps: &[Stamp], effort: Effort) -> std::result::Result<Data, Refusal> {
        let end = first + stamps.len() as u64;
        if stamps.iter().all(|stamp| stamp.is_hole()) && !self.accepts() {
            return Ok(Data::zeros(self.units.content_range(first, end).len));
        }
        let range = self.units.sealed_range(first, end);
        let sealed = self.below.read(range).await.map_err(Refusal::Failed)?;
        if sealed.len() != range.len {
            return Err(Refusal::Failed(Error::Invalid("a reply to a read has the wrong length".into())));
        }
        let unit = position(self.units.bytes());
        let mut received = Received::new(sealed, position(self.units.stride()));
        let mut key = None;
        for ((index, expected), place) in (first..).zip(stamps).zip(received.units()) {
            let (out, trailer) = place.split_at_mut(unit);
            match (self.open(index, *expected, out, trailer, &mut key), effort) {
                (Ok(()), _) => {}
                (Err(refused), Effort::Once) => return Err(Refusal::NotRight(refused.error)),
                (Err(refused), Effort::Recover) => {
                    self.recover(index, *expected, refused, out).await.map_err(Refusal::NotRight)?;
                }
            }
        }
        Ok(received.into_content(unit))
    }

    /// Opens a unit that was read elsewhere, into `out`; otherwise as [`open`](Self::open).
    pub(super) fn open_copy(
        &self,
        index: u64,
        expected: Stamp,
        sealed: &Data,
        out: &mut [u8],
        key: &mut Option<(u32, Arc<EpochKey>)>,
    ) -> std::result::Result<(), Refused> {
        sealed.slice(0, self.units.bytes()).copy_to(out);
        let trailer = sealed.slice(self.units.bytes(), TRAILER_BYTES).into_bytes();
        self.open(index, expected, out, &trailer, key)
    }

    /// Opens a unit in place; what `out` holds is unusable if that fails. `key` is a cache: neighbours mostly have one epoch.
    fn open(
        &self,
        index: u64,
        expected: Stamp,
        out: &mut [u8],
        trailer: &[u8],
        key: &mut Option<(u32, Arc<EpochKey>)>,
    ) -> std::result::Result<(), Refused> {
        let stamp = stamp_of(trailer);
        let right = stamp.filter(|stamp| !expected.is_hole() && (*stamp == expected || self.may_be(index, *stamp)));
        let newer = stamp.filter(|stamp| right.is_none() && self.accepts() && self.is_unverified(*stamp, expected));
        let Some(stamp) = right.or(newer) else {
            if expected.is_hole() {
                out.fill(0);
                return Ok(());
            }
            return Err(self.explain(index, expected, out, trailer));
        };
        if key.as_ref().is_none_or(|(epoch, _)| *epoch != stamp.epoch()) {
            *key = self.epoch_key(stamp.epoch()).map(|key| (stamp.epoch(), key));
        }
        if !key.as_ref().is_some_and(|(_, key)| key.open(index, out, trailer)) {
            return Err(Refused { error: self.withheld(index, Withheld::NotAuthentic), is_unverified: false });
        }
        self.accepted.fetch_add(u64::from(newer.is_some()), Ordering::Relaxed);
        Ok(())
    }

    /// Whether a unit may have this stamp because a write failed.
    fn may_be(&self, index: u64, stamp: Stamp) -> bool {
        self.state.read().doubtful.get(&index).is_some_and(|stamps| stamps.contains(&stamp))
    }

    /// Whether a unit is newer than the record, and its writer never closed the drive.
    pub(super) fn is_unverified(&self, stamp: Stamp, expected: Stamp) -> bool {
        self.state.read().is_unverified(stamp, expected, self.own_epoch())
    }

    /// Says why a unit with another stamp than expected is refused.
    fn explain(&self, index: u64, expected: Stamp, content: &mut [u8], trailer: &[u8]) -> Refused {
        let refused =
            |reason| Refused { error: self.withheld(index, reason), is_unverified: reason == Withheld::Unverified };
        let Some(stamp) = stamp_of(trailer) else { return refused(Withheld::NotAuthentic) };
        let Some(epoch) = self.epoch(stamp.epoch()) else { return refused(Withheld::UnknownWriter) };
        let authentic = self.epoch_key(stamp.epoch()).is_some_and(|key| key.open(index, content, trailer));
        // The plaintext of a version that is not the right one goes nowhere.
        content.fill(0);
        match (authentic, stamp < expected) {
            (false, _) => refused(Withheld::NotAuthentic),
            (true, true) => refused(Withheld::OldVersion),
            (true, false) if epoch.open => refused(Withheld::Unverified),
            (true, false) => refused(Withheld::NewerThanRecord),
        }
    }

    /// Takes over the record that another process has stored since; for readers. A unit with another stamp shows that there
    /// is one. A hole does not, so nothing is said of a hole before this.
    ///
    /// # Errors
    ///
    /// If the record cannot be read.
    pub(super) async fn follow(&self) -> Result<()> {
        if self.writer.is_some() {
            return Ok(());
        }
        let mut stored = self.stored.lock().await;
        let version = self.store.version();
        if version.is_some() && version == stored.version {
            return Ok(());
        }
        let mut loaded =
            load(&self.store, &self.key, self.binding).await.map_err(|error| self.record_failed(&error))?;
        // The record may be older than the drive's size, and the drive may have been enlarged since it was opened.
        let size = self.units.size().max(loaded.record.units.size());
        let fits = loaded.record.enlarge(size).is_ok();
        let mut state = self.state.write();
        // A record never becomes older, and the device never another one.
        state.copies = loaded.copies;
        if fits && loaded.record.sequence > state.record.sequence {
            state.record = loaded.record;
            // A number may be that of another epoch by now.
            self.keys.write().clear();
        }
        stored.version = version;
        Ok(())
    }

    /// Logs the first refused unit.
    fn note(&self, refusal: Refusal) -> Error {
        let error = match refusal {
            Refusal::NotRight(error) => error,
            Refusal::Failed(error) => return error,
        };
        let mut first = self.refused.lock();
        if first.is_none() {
            tracing::warn!("{error}");
            *first = Some(error.to_string());
        }
        error
    }
}

/// How far a read goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Effort {
    /// A unit that is not right ends it.
    Once,
    /// What is not right is looked for elsewhere.
    Recover,
}

/// A unit that was not opened.
pub(super) struct Refused {
    pub error: Error,
    /// Whether it is authentic, and newer than the record.
    pub is_unverified: bool,
}

/// A reason for which units are not handed out.
pub(super) enum Refusal {
    /// The device below failed.
    Failed(Error),
    /// What it returned is not the right version of the unit.
    NotRight(Error),
}
