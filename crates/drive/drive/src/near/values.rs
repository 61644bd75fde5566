//! The chaining values of the units of a part of a drive: from the nodes that hold them, and from bytes that this process reads
//! where that is not possible.

use std::sync::Arc;

use blake3::hazmat::ChainingValue;
use cheetah_control::jobs::{Digest, Stretch, UnitPlace};
use cheetah_device::{ByteRange, DynDevice};
use futures::future::join_all;
use futures::{FutureExt as _, StreamExt as _, stream};

use super::lenders::Lenders;
use super::locate::Locator;
use super::stretches::stretches;
use super::{job, tree};
use crate::copy::read_exactly;

/// The places that the request for a job names at most: it is then below the limit of a body.
const PLACES_MAX: usize = 1000;
/// Reads in flight.
const READS: usize = 8;

/// A unit, and its chaining value.
#[derive(Debug, Clone)]
pub(crate) struct Unit {
    /// Its range of the drive.
    pub range: ByteRange,
    /// Its value; `None` if it cannot be read at once.
    pub value: Option<ChainingValue>,
    /// Where it was hashed.
    pub by: HashedBy,
}

/// Where a unit was hashed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum HashedBy {
    /// By the node of this name.
    Node(Arc<str>),
    /// By this process, for this reason.
    Here(Arc<str>),
}

/// Collects the chaining values of units.
pub(crate) struct Collector {
    /// Where they lie.
    pub locator: Locator,
    /// The nodes that hash them.
    pub lenders: Lenders,
    /// The drive, to read the others.
    pub device: DynDevice,
    /// Bytes of a unit, but for the last one of a text.
    pub unit_bytes: u64,
}

/// The units of a node, by their number in the part.
struct Share {
    node: usize,
    units: Vec<usize>,
}

impl Collector {
    /// The values of the units with these ranges, in ascending order. Their texts have `text_bytes`; `None`: the drive is one.
    pub async fn collect(&self, ranges: &[ByteRange], text_bytes: Option<u64>) -> Vec<Unit> {
        let unit = |range: &ByteRange| Unit { range: *range, value: None, by: HashedBy::Here(Arc::default()) };
        let mut units: Vec<Unit> = ranges.iter().map(unit).collect();
        let mut open: Vec<usize> = (0..units.len()).collect();
        // A node that fails leaves its units to those that have copies. It gets no more work, so this ends.
        while !open.is_empty() {
            let shares = self.share(&open, &mut units);
            let mut at_work = Vec::with_capacity(shares.len());
            for share in &shares {
                at_work.push(self.at_node(share, &units, text_bytes).boxed());
            }
            let done = join_all(at_work).await;
            open.clear();
            for (share, values) in shares.into_iter().zip(done) {
                let Ok((name, values)) = values else {
                    open.extend(share.units);
                    continue;
                };
                for (number, value) in share.units.into_iter().zip(values) {
                    let Some(unit) = units.get_mut(number) else { continue };
                    unit.by = match value {
                        Some(_) => HashedBy::Node(name.clone()),
                        None => HashedBy::Here(format!("the memory of node {name} is damaged").into()),
                    };
                    unit.value = value;
                }
            }
            open.sort_unstable();
        }
        self.read_rest(&mut units, text_bytes).await;
        units
    }

    /// Shares units out over the nodes that hold them. Notes why others are left.
    fn share(&self, open: &[usize], units: &mut [Unit]) -> Vec<Share> {
        let mut shares: Vec<Share> = Vec::new();
        for number in open {
            let Some(unit) = units.get_mut(*number) else { continue };
            match self.node_of(unit.range) {
                Ok(node) => match shares.iter_mut().find(|share| share.node == node) {
                    Some(share) => share.units.push(*number),
                    None => shares.push(Share { node, units: vec![*number] }),
                },
                Err(why) => unit.by = HashedBy::Here(why),
            }
        }
        shares
    }

    /// The node that hashes a unit.
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

    /// Has a node hash its share. Returns its name and the values. Notes a failure.
    async fn at_node(
        &self,
        share: &Share,
        units: &[Unit],
        text_bytes: Option<u64>,
    ) -> Result<(Arc<str>, job::Values), ()> {
        let lender = self.lenders.get(share.node).map_err(drop)?;
        let place = |number: &usize| {
            let range = units.get(*number)?.range;
            let place = self.locator.places(range).into_iter().find(|place| place.node == share.node)?;
            Some(UnitPlace { export: place.offset, text: range.offset })
        };
        let places: Vec<UnitPlace> = share.units.iter().filter_map(place).collect();
        let mut values = Vec::with_capacity(places.len());
        for stretches in requests(stretches(&places)) {
            let work = Digest { unit_bytes: self.unit_bytes, text_bytes, stretches };
            match job::digest(&lender, work).await {
                Ok(more) => values.extend(more),
                Err(why) => {
                    self.lenders.fail(share.node, &why);
                    return Err(());
                }
            }
        }
        Ok((lender.name.clone(), values))
    }

    /// Reads and hashes what no node has hashed.
    async fn read_rest(&self, units: &mut [Unit], text_bytes: Option<u64>) {
        let mut reads = Vec::new();
        for (number, unit) in units.iter().enumerate().filter(|(_, unit)| unit.value.is_none()) {
            let (device, range) = (self.device.clone(), unit.range);
            // One that begins elsewhere lies behind the image: it need only be readable, and at no other place has it a value.
            let is_of_text = range.offset.is_multiple_of(self.unit_bytes);
            let offset = text_bytes.map_or(range.offset, |bytes| range.offset % bytes) * u64::from(is_of_text);
            let read = async move { Some(tree::value(offset, &read_exactly(&device, range).await.ok()?)) };
            // In a task, so that hashing takes more than one processor.
            reads.push(async move { (number, tokio::spawn(read).await.ok().flatten()) }.boxed());
        }
        let mut done = stream::iter(reads).buffer_unordered(READS);
        while let Some((number, value)) = done.next().await {
            units.get_mut(number).into_iter().for_each(|unit| unit.value = value);
        }
    }
}

/// Divides stretches over requests, each of which names few enough places.
fn requests(stretches: Vec<Stretch>) -> Vec<Vec<Stretch>> {
    let mut requests: Vec<Vec<Stretch>> = Vec::new();
    let mut places = 0;
    for stretch in stretches {
        places += stretch.units.len();
        match requests.last_mut() {
            Some(last) if places <= PLACES_MAX => last.push(stretch),
            _ => {
                places = stretch.units.len();
                requests.push(vec![stretch]);
            }
        }
    }
    requests
}
