//! The chaining values of the units of a part of a drive: from the nodes that hold them, and from bytes that this process reads
//! where that is not possible.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use blake3::hazmat::ChainingValue;
use cheetah_control::jobs::{Digest, JobLine, VALUE_BYTES, Work};
use cheetah_device::{ByteRange, DynDevice};
use cheetah_seal::{Record, Stamp};
use futures::{FutureExt as _, StreamExt as _, stream};

use super::lending::{is_of_record, other_version};
use super::node_work::{NodeWork, Results};
use super::not_done::NotDone;
use super::tree;
use super::units::Nodes;
use super::work_done::DoneBy;
use crate::copy::read_exactly;

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
    pub by: DoneBy,
}

/// Hashing units, as work for nodes.
struct Hashing<'a> {
    /// The bytes of a text; `None`: the drive is one.
    text_bytes: Option<u64>,
    /// The seal record, if nodes open the units.
    seal: Option<&'a Record>,
}

impl NodeWork for Hashing<'_> {
    type Found = ChainingValue;

    fn work(&self) -> Work {
        Work::Digest(Digest { text_bytes: self.text_bytes })
    }

    fn read(&self, line: JobLine, ranges: &[ByteRange]) -> Result<(u64, Results<ChainingValue>), NotDone> {
        let JobLine::Values { from, base64, stamps } = line else { return Err(NotDone::Malformed) };
        let bytes = STANDARD.decode(base64).map_err(|_| NotDone::Malformed)?;
        let (values, []) = bytes.as_chunks::<VALUE_BYTES>() else { return Err(NotDone::Malformed) };
        let first = usize::try_from(from).map_err(|_| NotDone::Malformed)?;
        let ranges = ranges.get(first..).and_then(|rest| rest.get(..values.len())).ok_or(NotDone::Malformed)?;
        let stamps = stamps.map(|text| STANDARD.decode(text)).transpose().map_err(|_| NotDone::Malformed)?;
        let stamps = stamps.as_deref().map(<[u8]>::as_chunks::<8>);
        if stamps.is_some_and(|(stamps, rest)| stamps.len() != values.len() || !rest.is_empty()) {
            return Err(NotDone::Malformed);
        }
        let value = |(number, (value, range)): (usize, (&ChainingValue, &ByteRange))| {
            let stamp = stamps.and_then(|(stamps, _)| stamps.get(number)).map(|bytes| Stamp::from_bytes(*bytes));
            is_of_record(self.seal, *range, stamp).then_some(*value).ok_or_else(other_version)
        };
        Ok((from, values.iter().zip(ranges).enumerate().map(value).collect()))
    }
}

/// The values of the units with these ranges, in ascending order. Their texts have `text_bytes`; `None`: the drive is one.
pub(crate) async fn values(
    nodes: &Nodes,
    device: &DynDevice,
    ranges: &[ByteRange],
    text_bytes: Option<u64>,
) -> Vec<Unit> {
    let found = nodes.run(ranges, &Hashing { text_bytes, seal: nodes.seal.as_deref() }).await;
    let unit = |(range, found): (&ByteRange, _)| match found {
        Ok((name, value)) => Unit { range: *range, value: Some(value), by: DoneBy::Node(name) },
        Err(why) => Unit { range: *range, value: None, by: DoneBy::Here(why) },
    };
    let mut units: Vec<Unit> = ranges.iter().zip(found).map(unit).collect();
    read_rest(nodes, device, &mut units, text_bytes).await;
    units
}

/// Reads and hashes what no node has hashed.
async fn read_rest(nodes: &Nodes, device: &DynDevice, units: &mut [Unit], text_bytes: Option<u64>) {
    let mut reads = Vec::new();
    for (number, unit) in units.iter().enumerate().filter(|(_, unit)| unit.value.is_none()) {
        let (device, range) = (device.clone(), unit.range);
        // One that begins elsewhere lies behind the image: it need only be readable, and at no other place has it a value.
        let is_of_text = range.offset.is_multiple_of(nodes.unit_bytes);
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

#[cfg(test)]
mod tests {
    use super::super::job::tests::noted;
    use super::*;

    #[test]
    fn results_that_are_none_are_refused() {
        let ranges = [ByteRange::new(0, 1); 3];
        let noted = |line| noted([line], &ranges, &Hashing { text_bytes: None, seal: None });
        let line = |from, bytes: &[u8]| JobLine::Values { from, base64: STANDARD.encode(bytes), stamps: None };
        let values: Vec<_> = noted(line(1, &[7; 64])).unwrap().into_iter().map(Result::ok).collect();
        assert_eq!(values, [None, Some([7; 32]), Some([7; 32])]);
        for hostile in [
            line(2, &[0; 64]),
            line(0, &[0; 128]),
            line(u64::MAX, &[0; 32]),
            line(0, &[0; 33]),
            JobLine::Values { from: 0, base64: "?".into(), stamps: None },
            JobLine::Values { from: 0, base64: STANDARD.encode([0; 32]), stamps: Some("?".into()) },
            JobLine::Values { from: 0, base64: STANDARD.encode([0; 32]), stamps: Some(STANDARD.encode([0; 16])) },
            JobLine::Unreadable { unit: 3, why: String::new() },
            JobLine::Searched { unit: 0, head: String::new(), tail: String::new(), hits: Vec::new(), stamp: None },
            JobLine::Failed { why: "the export was deleted".into() },
        ] {
            noted(hostile).unwrap_err();
        }
    }
}
