//! Units of a drive, and what the nodes that hold them find in them.

use std::sync::Arc;
use std::time::Duration;

use cheetah_control::jobs::{JOB_PLACES_MAX, NewJob, Stretch, UnitPlace, Units};
use cheetah_device::ByteRange;
use cheetah_seal::Record;
use futures::FutureExt as _;
use futures::future::join_all;

use super::job;
use super::lenders::Lenders;
use super::locate::Locator;
use super::node_work::NodeWork;
use super::stretches::stretches;

/// The most parts of a drive in work at once, so that each thread of a node has work.
const PARTS_MAX: usize = 8;

/// What the node of this name found in a unit; or why no node worked on it.
pub(crate) type Found<F> = Result<(Arc<str>, F), Arc<str>>;

/// The nodes of a drive, at work.
pub(crate) struct Nodes {
    /// Where units lie.
    pub locator: Locator,
    /// The nodes that work.
    pub lenders: Lenders,
    /// Bytes of a unit, but for the last one of a text.
    pub unit_bytes: u64,
    /// The seal record of a sealed drive, whose units they open.
    pub seal: Option<Arc<Record>>,
    /// How long a node may take until its next result.
    pub patience: Duration,
}

/// The units of a node, by their number.
struct Share {
    node: usize,
    units: Vec<usize>,
}

impl Nodes {
    /// Has the nodes work on the units with these ranges, in ascending order.
    pub async fn run<W: NodeWork>(&self, ranges: &[ByteRange], work: &W) -> Vec<Found<W::Found>> {
        let mut found: Vec<Found<W::Found>> = ranges.iter().map(|_| Err(Arc::default())).collect();
        let mut open: Vec<usize> = (0..ranges.len()).collect();
        // A node that fails leaves its units to those that have copies. It gets no more work, so this ends.
        while !open.is_empty() {
            let shares = self.share(&open, ranges, &mut found);
            let mut at_work = Vec::with_capacity(shares.len());
            for share in &shares {
                at_work.push(self.at_node(share, ranges, work).boxed());
            }
            let done = join_all(at_work).await;
            open.clear();
            for (share, done) in shares.into_iter().zip(done) {
                let Ok(done) = done else {
                    open.extend(share.units);
                    continue;
                };
                for (number, done) in share.units.into_iter().zip(done) {
                    if let Some(place) = found.get_mut(number) {
                        *place = done;
                    }
                }
            }
            open.sort_unstable();
        }
        found
    }

    /// The number of parts of a drive that are best in work at once.
    pub fn parts(&self) -> usize {
        self.lenders.extent().1.clamp(2, PARTS_MAX)
    }

    /// The size of a part of the drive that has this much of each node.
    pub fn part_bytes(&self, of_node: u64) -> u64 {
        of_node * self.lenders.extent().0.max(1) as u64
    }

    /// Shares units out over the nodes that hold them. Notes why others are left.
    fn share<F>(&self, open: &[usize], ranges: &[ByteRange], found: &mut [Found<F>]) -> Vec<Share> {
        let mut shares: Vec<Share> = Vec::new();
        for number in open {
            let Some((range, place)) = ranges.get(*number).zip(found.get_mut(*number)) else { continue };
            match self.node_of(*range) {
                Ok(node) => match shares.iter_mut().find(|share| share.node == node) {
                    Some(share) => share.units.push(*number),
                    None => shares.push(Share { node, units: vec![*number] }),
                },
                Err(why) => *place = Err(why),
            }
        }
        shares
    }

    /// The node that works on a unit.
    fn node_of(&self, range: ByteRange) -> Result<usize, Arc<str>> {
        if range.len != self.unit_bytes || !range.offset.is_multiple_of(self.unit_bytes) {
            return Err("it is smaller than a unit".into());
        }
        let mut why = None;
        for place in self.locator.places(range) {
            match self.lenders.get(place.node) {
                Ok(_) => return Ok(place.node),
                Err(reason) => why = why.or(Some(reason)),
            }
        }
        Err(why.unwrap_or_else(|| "it lies on two nodes, or its content is lost".into()))
    }

    /// Has a node work on its share. Notes a failure.
    async fn at_node<W: NodeWork>(
        &self,
        share: &Share,
        ranges: &[ByteRange],
        work: &W,
    ) -> Result<Vec<Found<W::Found>>, ()> {
        let lender = self.lenders.get(share.node).map_err(drop)?;
        let own: Vec<ByteRange> = share.units.iter().filter_map(|number| ranges.get(*number).copied()).collect();
        let place = |range: &ByteRange| {
            let place = self.locator.places(*range).into_iter().find(|place| place.node == share.node)?;
            Some(UnitPlace { export: place.offset, text: range.offset })
        };
        let places: Vec<UnitPlace> = own.iter().filter_map(place).collect();
        let (mut found, mut rest) = (Vec::with_capacity(own.len()), &own[..]);
        for stretches in requests(stretches(&places)) {
            let units = Units { unit_bytes: self.unit_bytes, stretches };
            let count = units.count().and_then(|count| usize::try_from(count).ok()).unwrap_or(0);
            let (these, others) = rest.split_at_checked(count).unwrap_or((rest, &[]));
            rest = others;
            let (instance, export) = (lender.instance.clone(), lender.export.clone());
            let job = NewJob { instance, export, units, work: work.work(), key: lender.key.clone() };
            match job::run((&lender, self.patience), &job, these, work).await {
                Ok(more) => {
                    let by_node = |found: Result<_, _>| found.map(|found| (lender.name.clone(), found));
                    found.extend(more.into_iter().map(by_node));
                }
                Err(why) => {
                    self.lenders.fail(share.node, &why);
                    return Err(());
                }
            }
        }
        Ok(found)
    }
}

/// Divides stretches over requests, each of which names no more places than a node takes.
fn requests(stretches: Vec<Stretch>) -> Vec<Vec<Stretch>> {
    let mut requests: Vec<Vec<Stretch>> = Vec::new();
    let mut places = 0;
    for stretch in stretches {
        places += stretch.units.len();
        match requests.last_mut() {
            Some(last) if places <= JOB_PLACES_MAX => last.push(stretch),
            _ => {
                places = stretch.units.len();
                requests.push(vec![stretch]);
            }
        }
    }
    requests
}
