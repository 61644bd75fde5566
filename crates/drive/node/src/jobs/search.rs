//! Searching units, each alone: the hits that its own bytes decide, and its edges, with which the client searches the rest.
//!
//! Patterns and hits are data of a case, and are wiped, those that the engine keeps as it frees them. The engine is that of the client, within limits; it knows no formats of
//! evidence.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use cheetah_control::jobs::{JobHit, JobLine, Units, hits_bytes_max};
use cheetah_device::{ByteRange, Error};
use cheetah_seal::Stamp;
use cheetah_search::{Hit, Search};
use zeroize::{Zeroize as _, Zeroizing};

use super::content::{Content, Unit};
use super::output::Cancelled;
use super::units::Stopped;

/// Searches the units, whose content is given, and has `emit` take the lines. Returns the number of units.
pub(super) fn run(
    search: &Search,
    units: &Units,
    mut content: Content<impl Fn(ByteRange, &mut [u8]) -> Result<(), Error>>,
    mut emit: impl FnMut(&JobLine) -> Result<(), Cancelled>,
) -> Result<u64, Stopped> {
    let mut count = 0;
    for (unit, place) in (0..).zip(units.places()) {
        let mut line = match content.unit(place) {
            Ok(Unit::Plain(bytes)) => searched(search, (unit, place.text), bytes, None),
            Ok(Unit::Opened(bytes, stamp)) => searched(search, (unit, place.text), bytes, Some(stamp)),
            Ok(Unit::Unopened) => JobLine::Unopened { unit },
            Err(error @ Error::Corrupt { .. }) => JobLine::Unreadable { unit, why: error.to_string() },
            Err(error) => return Err(Stopped::Failed(error.to_string())),
        };
        let sent = emit(&line);
        wipe(&mut line);
        sent?;
        count = unit + 1;
    }
    Ok(count)
}

/// Searches a unit that begins at `offset` of the text.
fn searched(search: &Search, (unit, offset): (u64, u64), bytes: &[u8], stamp: Option<Stamp>) -> JobLine {
    // It can only fail because of the number of hits.
    let Ok(hits) = search.scan_alone(offset, bytes, hits_bytes_max(bytes.len() as u64)) else {
        return JobLine::TooManyHits { unit };
    };
    let edge = search.overlap().edge().min(bytes.len());
    let (head, tail) = (bytes.get(..edge), bytes.get(bytes.len() - edge..));
    let encode = |edge: Option<&[u8]>| STANDARD.encode(edge.unwrap_or_default());
    let hits = hits.into_iter().map(of).collect();
    JobLine::Searched { unit, head: encode(head), tail: encode(tail), hits, stamp: stamp.map(Stamp::to_hex) }
}

/// A hit, as it is sent.
fn of(mut hit: Hit) -> JobHit {
    let mut around = Zeroizing::new(Vec::with_capacity(hit.room_bytes()));
    for part in [&mut hit.before, &mut hit.bytes, &mut hit.after] {
        around.extend_from_slice(part);
        part.as_mut_slice().zeroize();
    }
    JobHit {
        at: hit.offset,
        len: hit.bytes.len(),
        pattern: hit.pattern,
        encoding: hit.encoding.name(),
        before: hit.before.len(),
        base64: STANDARD.encode(&around),
    }
}

/// Wipes a line that was sent.
fn wipe(line: &mut JobLine) {
    if let JobLine::Searched { head, tail, hits, .. } = line {
        [head, tail].into_iter().chain(hits.iter_mut().map(|hit| &mut hit.base64)).for_each(|text| text.zeroize());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use cheetah_search::Order;

    use super::super::content::tests::reading;
    use super::super::units::tests::{stretch, units};
    use super::*;

    const UNIT: u64 = 4 << 10;

    type Reading<'a> = &'a dyn Fn(ByteRange, &mut [u8]) -> Result<(), Error>;

    fn content(read: Reading<'_>) -> Content<Reading<'_>> {
        Content::new(read, UNIT, None).unwrap()
    }

    fn search(word: &str, context_bytes: usize) -> Search {
        let encodings = vec!["utf-8".parse().unwrap()];
        Search::new(&Order { words: vec![word.into()], encodings, context_bytes, ..Order::default() }).unwrap()
    }

    /// The lines of a search of these bytes, whose second half is the first of the text.
    fn lines(search: &Search, bytes: &[u8]) -> Vec<JobLine> {
        let half = bytes.len() as u64 / 2;
        let units = units(half, vec![stretch(1, &[(0, half)], 0, 0), stretch(1, &[(half, 0)], 0, 0)]);
        let mut lines = Vec::new();
        let take = |line: &JobLine| {
            lines.push(line.clone());
            Ok(())
        };
        let content = Content::new(reading(bytes), half, None).unwrap();
        assert_eq!(run(search, &units, content, take).unwrap(), 2);
        lines
    }

    #[test]
    fn hits_are_told_by_their_place_in_the_text_and_those_at_an_edge_are_left_to_the_client() {
        let mut bytes = vec![b'.'; 2 * UNIT as usize];
        for at in [0, 100, UNIT as usize - 3, 2 * UNIT as usize - 100] {
            bytes[at..at + 6].copy_from_slice(b"secret");
        }
        let search = search("secret", 4);
        let lines = lines(&search, &bytes);
        let [
            JobLine::Searched { unit: 0, head, tail, hits, stamp: None },
            JobLine::Searched { unit: 1, hits: second, .. },
        ] = &lines[..]
        else {
            panic!("{lines:?}")
        };
        let edge = search.overlap().edge();
        assert_eq!(STANDARD.decode(head).unwrap(), bytes[..edge]);
        assert_eq!(STANDARD.decode(tail).unwrap(), bytes[UNIT as usize - edge..UNIT as usize]);
        let hit = |at| JobHit {
            at,
            len: 6,
            pattern: 0,
            encoding: "utf-8".into(),
            before: 4,
            base64: STANDARD.encode(b"....secret...."),
        };
        assert_eq!((&hits[..], &second[..]), (&[hit(UNIT + 100)][..], &[hit(UNIT - 100)][..]));
    }

    #[test]
    fn a_unit_whose_hits_would_take_more_than_the_unit_is_left_to_the_client() {
        let bytes = [vec![b'x'; UNIT as usize], vec![b'.'; UNIT as usize]].concat();
        let lines = lines(&search("x", 0), &bytes);
        assert!(
            matches!(lines[..], [JobLine::TooManyHits { unit: 0 }, JobLine::Searched { unit: 1, .. }]),
            "{lines:?}"
        );
    }

    #[test]
    fn a_damaged_unit_is_a_line_of_its_own_and_a_lost_export_ends_the_job() {
        let (search, units) = (search("x", 0), units(UNIT, vec![stretch(3, &[(0, 0)], UNIT, UNIT)]));
        let read = |range: ByteRange, _: &mut [u8]| match range.offset / UNIT {
            1 => Err(Error::Corrupt { device: Arc::from("e"), range }),
            _ => Ok(()),
        };
        let mut unreadable = Vec::new();
        let take = |line: &JobLine| {
            unreadable.push(matches!(line, JobLine::Unreadable { unit: 1, .. }));
            Ok(())
        };
        assert_eq!(run(&search, &units, content(&read), take).unwrap(), 3);
        assert_eq!(unreadable, [false, true, false]);
        let why = "the export was deleted";
        let gone = |range, _: &mut [u8]| Err(Error::Lost { device: Arc::from("e"), range, why: why.into() });
        assert!(matches!(run(&search, &units, content(&gone), |_| Ok(())), Err(Stopped::Failed(_))));
        assert!(matches!(run(&search, &units, content(&read), |_| Err(Cancelled)), Err(Stopped::Cancelled)));
    }
}
