//! The redundancy of a group, and the digests of its data.

use bytes::{Bytes, BytesMut};
use cheetah_device::{Error, Result};
use cheetah_kit::page_digest;
use smallvec::SmallVec;

use crate::geometry::{DIGEST_BYTES, PAGE_BYTES};

/// Computes `count` redundancy units of the data units, which are equally long. A copy costs nothing.
pub(crate) fn encode(data: &[Bytes], count: usize) -> Result<Vec<Bytes>> {
    if let [only] = data {
        return Ok(vec![only.clone(); count]);
    }
    let len = data.first().map_or(0, Bytes::len);
    let mut units = vec![BytesMut::zeroed(len); count];
    {
        let data: Vec<&[u8]> = data.iter().map(|unit| &unit[..]).collect();
        let mut parity: Vec<&mut [u8]> = units.iter_mut().map(|unit| &mut unit[..]).collect();
        cheetah_parity::encode(&data, &mut parity).map_err(invalid)?;
    }
    Ok(units.into_iter().map(BytesMut::freeze).collect())
}

/// Computes the missing data units `wanted`, in that order. Further units may be missing; they are not computed.
pub(crate) fn decode(
    data: &[Option<Bytes>],
    redundancy: &[Option<Bytes>],
    wanted: &[usize],
) -> Result<SmallVec<[Bytes; 2]>> {
    if data.len() == 1 {
        return Ok(wanted.iter().filter_map(|_| redundancy.iter().flatten().next().cloned()).collect());
    }
    let len = data.iter().chain(redundancy).flatten().next().map_or(0, Bytes::len);
    let mut restored: SmallVec<[BytesMut; 2]> = wanted.iter().map(|_| BytesMut::zeroed(len)).collect();
    {
        let data: SmallVec<[Option<&[u8]>; 8]> = data.iter().map(|unit| unit.as_deref()).collect();
        let parity: SmallVec<[Option<&[u8]>; 2]> = redundancy.iter().map(|unit| unit.as_deref()).collect();
        let outputs = wanted.iter().copied().zip(restored.iter_mut().map(|unit| &mut unit[..]));
        let mut outputs: SmallVec<[(usize, &mut [u8]); 2]> = outputs.collect();
        cheetah_parity::reconstruct(&data, &parity, &mut outputs).map_err(invalid)?;
    }
    Ok(restored.into_iter().map(BytesMut::freeze).collect())
}

/// Updates redundancy units for a change of a data unit. All slices are of the same rows.
pub(crate) fn update(redundancy: &[Bytes], index: usize, old: &[u8], new: &[u8]) -> Result<Vec<Bytes>> {
    let changed = redundancy.iter().enumerate().map(|(parity, unit)| {
        let mut unit = BytesMut::from(&unit[..]);
        cheetah_parity::update(parity, index, old, new, &mut unit).map_err(invalid)?;
        Ok(unit.freeze())
    });
    changed.collect()
}

/// The digests of a data unit's pages, one after the other.
pub(crate) fn digests_of_unit(unit: &Bytes) -> impl Iterator<Item = Bytes> + '_ {
    unit.chunks_exact(PAGE_BYTES as usize).map(|page| Bytes::copy_from_slice(&page_digest(page).to_le_bytes()))
}

fn invalid(error: cheetah_parity::ParityError) -> Error {
    Error::Invalid(error.to_string().into())
}

/// Replaces the digest of a bad page. The zeros that stand for the page in redundancy do not match this value.
const BAD_PAGE: u64 = u64::MAX;

/// The digests of rows of pages of the data units, in the order of a digest cell: for each page the digests of all
/// units. `bad` says, in the same order, which pages are bad; it may be empty.
pub(crate) fn digests(data: &[Bytes], bad: &[bool]) -> Bytes {
    let pages = data.first().map_or(0, |unit| unit.len() / PAGE_BYTES as usize);
    let mut out = BytesMut::with_capacity(pages * data.len() * DIGEST_BYTES as usize);
    for page in 0..pages {
        for (index, unit) in data.iter().enumerate() {
            let is_bad = bad.get(page * data.len() + index) == Some(&true);
            let digest = if is_bad { BAD_PAGE } else { page_digest(page_of(unit, page)) };
            out.extend_from_slice(&digest.to_le_bytes());
        }
    }
    out.freeze()
}

/// Whether every page of data unit `index` matches its digest in `cell`, which holds those of `units` units.
pub(crate) fn matches(unit: &[u8], cell: &[u8], index: usize, units: usize) -> bool {
    let digests = cell.chunks_exact(DIGEST_BYTES as usize);
    let own = digests.skip(index).step_by(units);
    let pages = unit.chunks_exact(PAGE_BYTES as usize);
    pages.len() == own.len() && pages.zip(own).all(|(page, expected)| page_digest(page).to_le_bytes() == *expected)
}

fn page_of(unit: &[u8], page: usize) -> &[u8] {
    &unit[page * PAGE_BYTES as usize..][..PAGE_BYTES as usize]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unit(seed: u8) -> Bytes {
        (0..2 * PAGE_BYTES).map(|at| (at as u8).wrapping_mul(seed) ^ seed).collect::<Vec<u8>>().into()
    }

    #[test]
    fn digests_of_zeros_are_zeros() {
        let zeros = Bytes::from(vec![0; 2 * PAGE_BYTES as usize]);
        assert!(digests(&[zeros.clone(), zeros], &[]).iter().all(|byte| *byte == 0));
    }

    #[test]
    fn a_page_that_is_not_the_one_written_does_not_match() {
        let data = [unit(3), unit(5), unit(7)];
        let cell = digests(&data, &[]);
        for (index, unit) in data.iter().enumerate() {
            assert!(matches(unit, &cell, index, 3));
            assert!(!matches(unit, &cell, (index + 1) % 3, 3));
            let mut changed = unit.to_vec();
            changed[5000] ^= 1;
            assert!(!matches(&changed, &cell, index, 3));
        }
    }

    #[test]
    fn nothing_matches_the_digest_of_a_bad_page() {
        let data = [Bytes::from(vec![0; PAGE_BYTES as usize]), unit(5).slice(..PAGE_BYTES as usize)];
        let cell = digests(&data, &[true, false]);
        assert!(!matches(&data[0], &cell, 0, 2) && matches(&data[1], &cell, 1, 2));
    }

    #[test]
    fn missing_units_are_computed_from_the_others() {
        for (units, count) in [(1, 1), (1, 3), (2, 1), (3, 2)] {
            let data: Vec<Bytes> = (0..units).map(|index| unit(2 * index as u8 + 3)).collect();
            let redundancy = encode(&data, count).unwrap();
            let mut held: Vec<Option<Bytes>> = data.iter().cloned().map(Some).collect();
            held[0] = None;
            let redundancy: Vec<Option<Bytes>> = redundancy.into_iter().map(Some).collect();
            assert_eq!(decode(&held, &redundancy, &[0]).unwrap()[..], data[..1]);
        }
    }

    #[test]
    fn redundancy_that_is_updated_is_that_of_the_new_data() {
        for (units, count) in [(2, 1), (4, 1), (5, 2)] {
            let mut data: Vec<Bytes> = (0..units).map(|index| unit(2 * index as u8 + 3)).collect();
            let before = encode(&data, count).unwrap();
            let old = std::mem::replace(&mut data[1], unit(77));
            assert!(update(&before, 1, &old, &data[1]).unwrap() == encode(&data, count).unwrap());
            let all = digests(&data, &[]);
            for (page, digest) in digests_of_unit(&data[1]).enumerate() {
                assert_eq!(digest, all.slice((page * units + 1) * 8..(page * units + 2) * 8));
            }
        }
    }
}
