//! What is between the source and the drive just now.

use std::collections::BTreeMap;

use super::copy_pacer::PacedRequest;
use crate::{ByteRange, Data};

/// Names a flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct FlightId(pub(super) u64);

/// A range on its way, from the asking of the source until the drive has it.
#[derive(Debug)]
pub(super) struct Flight {
    pub(super) id: FlightId,
    pub(super) range: ByteRange,
    /// The pieces it was to be read in, if something near it could not be read.
    pub(super) unit: Option<u64>,
    pub(super) stage: Stage,
}

#[derive(Debug)]
pub(super) enum Stage {
    /// The source was asked.
    Fetching(PacedRequest),
    /// This came, and the drive is being given it. Readers are given it at once.
    Writing(Data),
}

/// All flights; no two have a byte in common.
#[derive(Debug, Default)]
pub(super) struct Flights {
    by_start: BTreeMap<u64, Flight>,
    starts: BTreeMap<FlightId, u64>,
    bytes: u64,
}

/// What a part of a range is doing.
#[derive(Debug)]
pub(super) enum Aloft {
    Fetching,
    Writing(Data),
}

impl Flights {
    pub(super) fn insert(&mut self, flight: Flight) {
        self.bytes += flight.range.len;
        self.starts.insert(flight.id, flight.range.offset);
        self.by_start.insert(flight.range.offset, flight);
    }

    pub(super) fn get_mut(&mut self, id: FlightId) -> Option<&mut Flight> {
        self.by_start.get_mut(self.starts.get(&id)?)
    }

    pub(super) fn remove(&mut self, id: FlightId) -> Option<Flight> {
        let flight = self.by_start.remove(&self.starts.remove(&id)?)?;
        self.bytes -= flight.range.len;
        Some(flight)
    }

    /// Bytes of all flights: what they take of memory, now or soon.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether the drive is being given something.
    pub(super) fn writes(&self) -> bool {
        self.by_start.values().any(|flight| matches!(flight.stage, Stage::Writing(_)))
    }

    /// The parts of `range` that are on their way, in order.
    pub(super) fn within(&self, range: ByteRange) -> impl Iterator<Item = (ByteRange, Aloft)> {
        let before = self.by_start.range(..range.offset).next_back().map(|(_, flight)| flight);
        let flights =
            before.into_iter().chain(self.by_start.range(range.offset..range.end()).map(|(_, flight)| flight));
        flights.filter_map(move |flight| {
            let part = flight.range.intersection(range)?;
            let aloft = match &flight.stage {
                Stage::Fetching(_) => Aloft::Fetching,
                Stage::Writing(data) => Aloft::Writing(data.slice(part.offset - flight.range.offset, part.len)),
            };
            Some((part, aloft))
        })
    }
}
