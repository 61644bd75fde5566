//! Ranges in transit from the source to the drive.

use std::collections::BTreeMap;

use super::copy_pacer::PacedRequest;
use crate::{ByteRange, Data};

/// Names a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct TransferId(pub(super) u64);

/// A range in transit, from the request to the source until the drive has it.
#[derive(Debug)]
pub(super) struct CopyTransfer {
    pub(super) id: TransferId,
    pub(super) range: ByteRange,
    /// The unit in which it is read, if something near it could not be read.
    pub(super) unit: Option<u64>,
    pub(super) stage: TransferStage,
}

#[derive(Debug)]
pub(super) enum TransferStage {
    /// The source has been asked.
    Fetching(PacedRequest),
    /// The data has arrived and is being written to the drive. Readers get it from here.
    Writing(Data),
}

/// All transfers; they never overlap.
#[derive(Debug, Default)]
pub(super) struct CopyTransfers {
    by_start: BTreeMap<u64, CopyTransfer>,
    starts: BTreeMap<TransferId, u64>,
    bytes: u64,
}

/// The state of a part of a range.
#[derive(Debug)]
pub(super) enum InTransit {
    Fetching,
    Writing(Data),
}

impl CopyTransfers {
    pub(super) fn insert(&mut self, transfer: CopyTransfer) {
        debug_assert!(self.within(transfer.range).next().is_none(), "{} is in transit already", transfer.range);
        self.bytes += transfer.range.len;
        self.starts.insert(transfer.id, transfer.range.offset);
        self.by_start.insert(transfer.range.offset, transfer);
    }

    pub(super) fn get_mut(&mut self, id: TransferId) -> Option<&mut CopyTransfer> {
        self.by_start.get_mut(self.starts.get(&id)?)
    }

    pub(super) fn remove(&mut self, id: TransferId) -> Option<CopyTransfer> {
        let transfer = self.by_start.remove(&self.starts.remove(&id)?)?;
        self.bytes -= transfer.range.len;
        Some(transfer)
    }

    /// Returns the bytes of all transfers: the memory they take, now or soon.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether data is being written to the drive.
    pub(super) fn writes(&self) -> bool {
        self.by_start.values().any(|transfer| matches!(transfer.stage, TransferStage::Writing(_)))
    }

    /// Returns the parts of `range` that are in transit, in order.
    pub(super) fn within(&self, range: ByteRange) -> impl Iterator<Item = (ByteRange, InTransit)> {
        let before = self.by_start.range(..range.offset).next_back().map(|(_, transfer)| transfer);
        let transfers =
            before.into_iter().chain(self.by_start.range(range.offset..range.end()).map(|(_, transfer)| transfer));
        transfers.filter_map(move |transfer| {
            let part = transfer.range.intersection(range)?;
            let in_transit = match &transfer.stage {
                TransferStage::Fetching(_) => InTransit::Fetching,
                TransferStage::Writing(data) => {
                    InTransit::Writing(data.slice(part.offset - transfer.range.offset, part.len))
                }
            };
            Some((part, in_transit))
        })
    }
}
