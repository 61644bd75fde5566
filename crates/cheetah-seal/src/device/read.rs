//! Reading: fetching units, and opening them.

use bytes::BytesMut;
use cheetah_device::{ByteRange, Data, Error, Result};
use futures::future::try_join_all;

use super::{Inner, load, position};
use crate::stamp::Stamp;
use crate::unit::stamp_of;
use crate::units::TRAILER_BYTES;

const TRAILER: usize = TRAILER_BYTES as usize;

impl Inner {
    /// Reads a range that begins in unit `first`; `stamps` are those of the units that it touches.
    pub(super) async fn read(&self, range: ByteRange, first: u64, stamps: Vec<Stamp>) -> Result<Data> {
        let end = first + stamps.len() as u64;
        let units = match self.fetch(first, &stamps).await {
            Ok(units) => units,
            // The units were written meanwhile, by this process or by another.
            Err(Refusal::NotRight(_)) => {
                let _turn = self.turns.take(first..end).await;
                self.reload().await;
                self.fetch(first, &self.stamps(first, end)).await.map_err(|refusal| self.note(refusal))?
            }
            Err(Refusal::Failed(error)) => return Err(error),
        };
        let start = self.units.content_range(first, end).offset;
        Ok(units.slice(range.offset - start, range.len))
    }

    /// Reads whole units, from `first`, in a turn that the caller has.
    pub(super) async fn read_units(&self, first: u64, end: u64) -> Result<Data> {
        self.fetch(first, &self.stamps(first, end)).await.map_err(|refusal| self.note(refusal))
    }

    /// Fetches the units from `first` that have `stamps`, and opens them.
    async fn fetch(&self, first: u64, stamps: &[Stamp]) -> std::result::Result<Data, Refusal> {
        let mut at = first;
        let runs = stamps.chunk_by(|one, next| one.is_hole() == next.is_hole()).map(|run| {
            let start = at;
            at += run.len() as u64;
            self.fetch_run(start, run)
        });
        let mut whole = Data::new();
        for data in try_join_all(runs).await? {
            whole.append(data);
        }
        Ok(whole)
    }

    /// The same for units all of which are holes, or none.
    async fn fetch_run(&self, first: u64, stamps: &[Stamp]) -> std::result::Result<Data, Refusal> {
        let end = first + stamps.len() as u64;
        if stamps.first().is_none_or(|stamp| stamp.is_hole()) {
            return Ok(Data::zeros(self.units.content_range(first, end).len));
        }
        let range = self.units.sealed_range(first, end);
        let sealed = self.below.read(range).await.map_err(Refusal::Failed)?;
        if sealed.len() != range.len {
            return Err(Refusal::Failed(Error::Invalid("a reply to a read has the wrong length".into())));
        }
        self.open(first, stamps, &sealed).map(|content| Data::from(content.freeze()))
    }

    /// Opens units that were fetched.
    fn open(&self, first: u64, stamps: &[Stamp], sealed: &Data) -> std::result::Result<BytesMut, Refusal> {
        let (unit, stride) = (position(self.units.bytes()), self.units.stride());
        let mut content = BytesMut::zeroed(unit * stamps.len());
        let mut key = None;
        for (n, (out, expected)) in content.chunks_exact_mut(unit).zip(stamps).enumerate() {
            let index = first + n as u64;
            let at = n as u64 * stride;
            sealed.slice(at, self.units.bytes()).copy_to(out);
            let mut trailer = [0; TRAILER];
            sealed.slice(at + self.units.bytes(), TRAILER_BYTES).copy_to(&mut trailer);
            let right = stamp_of(&trailer).filter(|stamp| stamp == expected || self.may_be(index, *stamp));
            let Some(stamp) = right else {
                return Err(Refusal::NotRight(self.explain(index, *expected, out, &trailer)));
            };
            // Neighbours mostly have one epoch.
            let same = key.take().filter(|(epoch, _)| *epoch == stamp.epoch());
            key = same.or_else(|| self.epoch_key(stamp.epoch()).map(|key| (stamp.epoch(), key)));
            let opened = key.as_ref().is_some_and(|(_, key)| key.open(index, out, &trailer));
            if !opened {
                return Err(Refusal::NotRight(self.unreadable(index, NOT_AUTHENTIC)));
            }
        }
        Ok(content)
    }

    /// Whether a unit may have this stamp because a write failed.
    fn may_be(&self, index: u64, stamp: Stamp) -> bool {
        self.state.read().doubtful.get(&index).is_some_and(|stamps| stamps.contains(&stamp))
    }

    /// Says why a unit with another stamp than expected is refused.
    fn explain(&self, index: u64, expected: Stamp, content: &mut [u8], trailer: &[u8]) -> Error {
        let Some(stamp) = stamp_of(trailer) else { return self.unreadable(index, NOT_AUTHENTIC) };
        let Some(epoch) = self.epoch(stamp.epoch()) else { return self.unreadable(index, UNKNOWN_EPOCH) };
        let authentic = self.epoch_key(stamp.epoch()).is_some_and(|key| key.open(index, content, trailer));
        // The plaintext of a version that is not the right one goes nowhere.
        content.fill(0);
        self.unreadable(
            index,
            match (authentic, stamp < expected) {
                (false, _) => NOT_AUTHENTIC,
                (true, true) => OLD,
                (true, false) if epoch.open => UNVERIFIED,
                (true, false) => NEWER,
            },
        )
    }

    /// Takes over the record that another process has stored since; for readers.
    async fn reload(&self) {
        if self.writer.is_some() {
            return;
        }
        let mut stored = self.stored.lock().await;
        let version = self.store.version();
        if version.is_some() && version == stored.version {
            return;
        }
        match load(&self.store, &self.key, self.binding).await {
            Ok(record) => {
                let mut state = self.state.write();
                // A record never becomes older, and the device never another one.
                if record.units == self.units && record.sequence > state.record.sequence {
                    state.record = record;
                    // A number may be that of another epoch by now.
                    self.keys.write().clear();
                }
                stored.version = version;
            }
            Err(error) => tracing::warn!("{}: {error}", self.name),
        }
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

/// A reason for which units are not handed out.
pub(super) enum Refusal {
    /// The device below failed.
    Failed(Error),
    /// What it returned is not the right version of the unit.
    NotRight(Error),
}

const NOT_AUTHENTIC: &str =
    "its seal is broken: a node altered, moved, zeroed or lost it, or a write was cut off; another copy may be intact";
const UNKNOWN_EPOCH: &str = "its seal is that of a writer that the seal record does not list: a node returned an older version \
    or altered it, or the record is older than the drive";
const OLD: &str = "it is an older version of this unit: a node returned what was overwritten since";
const UNVERIFIED: &str =
    "it is newer than the last root, and its writer has not closed the drive, so it cannot be verified";
const NEWER: &str = "it is newer than this drive's seal record: use the newest .seal file of the drive";
