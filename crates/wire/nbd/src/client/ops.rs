//! A device's operations as requests: split to the server's limits, with fallbacks for operations that it does not support.

use cheetah_device::data::Part;
use cheetah_device::{ByteRange, Data, Error, Extent, Result, Zeroing};
use futures::stream::{self, StreamExt, TryStreamExt};

use super::Shared;
use super::inflight::Answer;
use super::recover::ClientRequest;
use crate::proto::{Command, CommandFlags, TransmissionFlags};

/// The most in-flight requests of one operation.
const IN_FLIGHT_MAX: usize = 4;
/// The longest range of a request without a payload. Modest, because some servers then write zeros block by block.
const BARE_LEN_MAX: u64 = 128 << 20;
/// Runs of zeros of at least this length within a write become WRITE_ZEROES requests.
const ZEROS_LEN_MIN: u64 = 64 << 10;

impl Shared {
    pub async fn read(&self, range: ByteRange) -> Result<Data> {
        let wide = self.widened(range);
        let data = if wide.len <= self.payload_len_max {
            self.read_piece(wide).await?
        } else {
            stream::iter(wide.split_at_multiples(self.payload_len_max))
                .map(|piece| self.read_piece(piece))
                .buffered(IN_FLIGHT_MAX)
                .try_fold(Data::new(), |mut all, piece| async move {
                    all.append(piece);
                    Ok(all)
                })
                .await?
        };
        Ok(if wide == range { data } else { data.slice(range.offset - wide.offset, range.len) })
    }

    async fn read_piece(&self, range: ByteRange) -> Result<Data> {
        let request = ClientRequest { command: Command::Read, flags: CommandFlags::NONE, range, payload: None };
        let data = match self.call(request).await? {
            Answer::Data(data) => data,
            Answer::Packed(pieces) => self.unpack(pieces).await?,
            _ => return Err(mismatch()),
        };
        if data.len() != range.len {
            return Err(mismatch());
        }
        self.counters.read(range.len);
        Ok(data)
    }

    pub async fn write(&self, offset: u64, data: Data, fua: bool) -> Result<()> {
        let range = ByteRange::new(offset, data.len());
        let wide = self.widened(range);
        if wide == range {
            let _shared = self.shared_blocks().await;
            self.write_aligned(offset, data, fua).await
        } else {
            let _alone = self.blocks.write().await;
            let old = self.read(wide).await?;
            let mut new = old.slice(0, offset - wide.offset);
            new.append(data);
            new.append(old.slice(new.len(), wide.len));
            self.write_aligned(wide.offset, new, fua).await
        }
    }

    /// Holds off replacements of parts of blocks; needed only where blocks are larger than a byte.
    async fn shared_blocks(&self) -> Option<tokio::sync::RwLockReadGuard<'_, ()>> {
        if self.block_min > 1 { Some(self.blocks.read().await) } else { None }
    }

    async fn write_aligned(&self, offset: u64, data: Data, fua: bool) -> Result<()> {
        let flags = self.fua_flag(fua);
        let whole = [WritePart::Data(ByteRange::new(offset, data.len()))];
        let zeros_apart = self.offers(TransmissionFlags::SEND_WRITE_ZEROES);
        let pieces = if data.len() <= self.payload_len_max && data.parts().iter().all(|part| !is_long_run(part)) {
            smallvec::SmallVec::from_iter(whole)
        } else {
            self.pieces(offset, &data, zeros_apart)
        };
        match pieces[..] {
            [WritePart::Data(range)] => self.write_piece(range, &data, flags).await?,
            _ => {
                stream::iter(pieces)
                    .map(|piece| {
                        let data = &data;
                        async move {
                            match piece {
                                WritePart::Zeros(range) => self.bare(Command::WriteZeroes, flags, range).await,
                                WritePart::Data(range) => {
                                    let part = data.slice(range.offset - offset, range.len);
                                    self.write_piece(range, &part, flags).await
                                }
                            }
                        }
                    })
                    .buffer_unordered(IN_FLIGHT_MAX)
                    .try_collect::<()>()
                    .await?;
            }
        }
        self.flush_for(fua).await
    }

    async fn write_piece(&self, range: ByteRange, data: &Data, flags: CommandFlags) -> Result<()> {
        self.call(ClientRequest { command: Command::Write, flags, range, payload: Some(data) }).await.map(drop)
    }

    /// Cuts a write into requests the server takes.
    fn pieces(&self, offset: u64, data: &Data, zeros_apart: bool) -> smallvec::SmallVec<[WritePart; 1]> {
        let mut pieces = smallvec::SmallVec::new();
        let mut pending = ByteRange::new(offset, 0);
        for part in data.parts() {
            let range = ByteRange::new(pending.end(), part.len());
            // Only whole blocks can be zeroed; the rest of the run is sent as data.
            let inner = self.narrowed(range);
            if zeros_apart && is_long_run(part) && inner.len >= ZEROS_LEN_MIN {
                let before = ByteRange::between(pending.offset, inner.offset);
                pieces.extend(before.split_at_multiples(self.payload_len_max).map(WritePart::Data));
                pieces.extend(inner.split_at_multiples(BARE_LEN_MAX).map(WritePart::Zeros));
                pending = ByteRange::between(inner.end(), range.end());
            } else {
                pending.len += range.len;
            }
            if pending.is_empty() {
                pending.offset = range.end();
            }
        }
        pieces.extend(pending.split_at_multiples(self.payload_len_max).map(WritePart::Data));
        pieces
    }

    pub async fn zero(&self, range: ByteRange, how: Zeroing) -> Result<()> {
        use TransmissionFlags as T;
        let fast = self.offers(T::SEND_FAST_ZERO);
        let whole_blocks = self.narrowed(range) == range;
        if how.fast_only && !(fast && whole_blocks) {
            return Err(Error::Unsupported("the NBD server has no fast way to write zeros"));
        }
        if !self.offers(T::SEND_WRITE_ZEROES) || !whole_blocks {
            return self.write(range.offset, Data::zeros(range.len), how.fua).await;
        }
        let flags = self
            .fua_flag(how.fua)
            .with_if(how.keep_allocated, CommandFlags::NO_HOLE)
            .with_if(how.fast_only, CommandFlags::FAST_ZERO);
        let _shared = self.shared_blocks().await;
        self.bare(Command::WriteZeroes, flags, range).await?;
        self.flush_for(how.fua).await
    }

    pub async fn trim(&self, range: ByteRange) -> Result<()> {
        if !self.offers(TransmissionFlags::SEND_TRIM) {
            return Ok(());
        }
        // Partial blocks at the ends keep their content.
        let _shared = self.shared_blocks().await;
        self.bare(Command::Trim, CommandFlags::NONE, self.narrowed(range)).await
    }

    pub async fn cache(&self, range: ByteRange) -> Result<()> {
        if !self.offers(TransmissionFlags::SEND_CACHE) {
            return Ok(());
        }
        match self.bare(Command::Cache, CommandFlags::NONE, self.widened(range)).await {
            Err(lost @ (Error::Lost { .. } | Error::Fenced(_))) => Err(lost),
            // This is only a hint, so its failure is ignored.
            _ => Ok(()),
        }
    }

    pub async fn flush(&self) -> Result<()> {
        if !self.offers(TransmissionFlags::SEND_FLUSH) {
            // Without this flag, the server has no cache to flush.
            return Ok(());
        }
        let range = ByteRange::new(0, 0);
        let request = ClientRequest { command: Command::Flush, flags: CommandFlags::NONE, range, payload: None };
        self.call(request).await.map(drop)
    }

    pub async fn extents(&self, range: ByteRange) -> Result<Vec<Extent>> {
        if !self.has_status {
            return Ok(vec![Extent::data(range.len)]);
        }
        let mut extents = Vec::new();
        let mut at = range.offset;
        while at < range.end() {
            let here = ByteRange::between(at, range.end().min(at.saturating_add(BARE_LEN_MAX)));
            let asked = self.widened(here);
            let request =
                ClientRequest { command: Command::BlockStatus, flags: CommandFlags::NONE, range: asked, payload: None };
            let Answer::Extents(found) = self.call(request).await? else { return Err(mismatch()) };
            // The request may start before the range, and the extents may end before or after its end.
            let mut start = asked.offset;
            for extent in found {
                let known = ByteRange::new(start, extent.len);
                if let Some(part) = known.intersection(ByteRange::between(at, range.end())) {
                    Extent { len: part.len, ..extent }.push(&mut extents);
                    at = part.end();
                }
                start = known.end();
            }
            // Refuses replies without progress, and floods of tiny extents.
            if start <= here.offset || extents.len() as u64 > range.len / 512 + 16 {
                return Err(mismatch());
            }
        }
        Ok(extents)
    }

    /// Sends a request without a payload, split to the limit.
    async fn bare(&self, command: Command, flags: CommandFlags, range: ByteRange) -> Result<()> {
        stream::iter(range.split_at_multiples(BARE_LEN_MAX))
            .map(|range| self.call(ClientRequest { command, flags, range, payload: None }))
            .buffer_unordered(IN_FLIGHT_MAX)
            .try_for_each(|_| async { Ok(()) })
            .await
    }

    fn fua_flag(&self, fua: bool) -> CommandFlags {
        CommandFlags::NONE.with_if(fua && self.offers(TransmissionFlags::SEND_FUA), CommandFlags::FUA)
    }

    /// Flushes, if the server does not support FUA.
    async fn flush_for(&self, fua: bool) -> Result<()> {
        if fua && !self.offers(TransmissionFlags::SEND_FUA) { self.flush().await } else { Ok(()) }
    }

    fn offers(&self, flag: TransmissionFlags) -> bool {
        self.flags.has(flag)
    }

    /// The range, widened to whole blocks.
    fn widened(&self, range: ByteRange) -> ByteRange {
        let wide = range.aligned_to(self.block_min);
        // The last block may be cut short by the end of the export.
        ByteRange::between(wide.offset, wide.end().min(self.size))
    }

    /// The range, narrowed to whole blocks.
    fn narrowed(&self, range: ByteRange) -> ByteRange {
        let end = if range.end() == self.size { self.size } else { range.end() - range.end() % self.block_min };
        ByteRange::between(range.offset.next_multiple_of(self.block_min), end)
    }
}

/// A part of a write that becomes one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WritePart {
    Data(ByteRange),
    Zeros(ByteRange),
}

fn is_long_run(part: &Part) -> bool {
    matches!(part, Part::Zeros(len) if *len >= ZEROS_LEN_MIN)
}

fn mismatch() -> Error {
    Error::Invalid("the NBD server's answer does not fit the request".into())
}
