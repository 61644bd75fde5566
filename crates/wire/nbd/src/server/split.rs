//! Reads that are answered in parts.
//!
//! A structured reply may come in chunks, in any order. So a large read is carried out as several smaller ones, as many
//! at a time as the connection's share of the memory allows, and each is sent as soon as it is ready. For any length of
//! the read and any amount of free memory, the connection's own share suffices to continue. The parts of packed reads
//! are packed, too.

use std::sync::Arc;

use cheetah_device::{ByteRange, Data, Device};

use super::outbox::Outbox;
use super::packed::ReplyPacking;
use super::split_state::SplitReadState;
use super::terms::Terms;
use super::work::Work;
use crate::proto::packed::CONTENT_LEN_MAX;
use crate::proto::{Command, CommandFlags, Request};

/// The size of a part, and what parts are aligned to.
pub(super) const PART_BYTES: u64 = CONTENT_LEN_MAX as u64;
/// The same while memory is short: two of these fit in what every connection may hold.
pub(super) const PART_BYTES_MIN: u64 = 128 << 10;

/// A read, some of whose parts have been started.
pub(super) struct SplitRead {
    request: Request,
    /// Bytes in parts that have been started.
    started: u64,
    whole: Arc<SplitReadState>,
}

impl SplitRead {
    /// Whether a read may be answered in parts.
    pub(super) fn may(request: &Request, terms: &Terms) -> bool {
        request.command == Command::Read && request.len > 0 && terms.structured && !request.flags.has(CommandFlags::DF)
    }

    /// Whether it must be, however much memory is free.
    pub(super) fn must(request: &Request, terms: &Terms) -> bool {
        Self::may(request, terms) && (terms.packs.is_some() || u64::from(request.len) > PART_BYTES)
    }

    /// Starts nothing yet.
    pub(super) fn new(request: Request) -> Self {
        let whole = Arc::new(SplitReadState::new(request.len.into()));
        Self { request, started: 0, whole }
    }

    /// The length of the next part, if memory is not short; 0 if all have been started.
    pub(super) fn next_len(&self) -> u64 {
        let offset = self.request.offset + self.started;
        (PART_BYTES - offset % PART_BYTES).min(self.rest())
    }

    /// Starts a part of `len` bytes. Returns it as a request of its own.
    pub(super) fn start<'d>(
        &mut self,
        len: u64,
        device: &'d dyn Device,
        packs: Option<&ReplyPacking>,
    ) -> (Request, Work<'d>) {
        let range = ByteRange::new(self.request.offset + self.started, len);
        self.started += len;
        // Not truncated: a part of a request.
        let part = Request { offset: range.offset, len: len as u32, ..self.request };
        let whole = Arc::clone(&self.whole);
        let work = match packs {
            Some(packs) => Work::Packed(packs.clone().part(device, range, Arc::clone(&whole)), whole),
            None => Work::Part(device.read(range), whole),
        };
        (part, work)
    }

    /// Starts no further part if one has failed. True if there is nothing left to start.
    pub(super) fn is_over(&mut self, terms: &Terms, out: &mut Outbox) -> bool {
        let rest = self.rest();
        if rest > 0 && self.whole.has_failed() {
            self.started += rest;
            // Not truncated: the rest of a request.
            let rest = Request { offset: self.request.offset, len: rest as u32, ..self.request };
            terms.part(out, &rest, Ok(Data::zeros(rest.len.into())), &self.whole);
        }
        self.rest() == 0
    }

    fn rest(&self) -> u64 {
        u64::from(self.request.len) - self.started
    }
}
