//! A drive in parts, each with the hosts that hold it: for programs that work where the bytes lie.

use std::collections::BTreeMap;
use std::str::FromStr as _;

use cheetah_device::ByteRange;
use cheetah_error::{Error, Result};
use cheetah_nbd::uri::{Address, NbdUri};

use super::locate::Locator;
use crate::file::DriveFile;
use crate::file::units::sealed_bytes;
use crate::session::Session;
use crate::set::newest::refresh;

/// The places of a part that are looked up to find its hosts.
const PLACES: u64 = 64;
/// The maximum number of parts.
const PARTS_MAX: u64 = 1 << 20;

/// A part of a drive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// Its range.
    pub range: ByteRange,
    /// The hosts that hold bytes of it, as the drive file names them, those with the most first; none if its content is lost.
    pub hosts: Vec<String>,
}

impl Part {
    /// Divides `size` bytes into parts of `part_bytes`, of which nobody knows the hosts; the last one may be smaller.
    ///
    /// # Errors
    ///
    /// If the parts would be too many.
    pub fn divide(size: u64, part_bytes: u64) -> Result<Vec<Self>> {
        if part_bytes == 0 || size.div_ceil(part_bytes) > PARTS_MAX {
            let why = format!("parts of {part_bytes} bytes are too small: {size} bytes would be more than {PARTS_MAX}");
            return Err(Error::misuse(why));
        }
        let ranges = ByteRange::new(0, size).split_at_multiples(part_bytes);
        Ok(ranges.map(|range| Self { range, hosts: Vec::new() }).collect())
    }
}

/// Divides the drive that `file` describes into parts of `part_bytes`, each with its hosts.
///
/// # Errors
///
/// If the parts would be too many, or the drive's newest maps cannot be had.
pub async fn parts(file: &DriveFile, part_bytes: u64, session: &Session) -> Result<Vec<Part>> {
    parts_of(&refresh(file, session).await?, part_bytes)
}

fn parts_of(file: &DriveFile, part_bytes: u64) -> Result<Vec<Part>> {
    let mut parts = Part::divide(file.size, part_bytes)?;
    let locator = Locator::new(file)?;
    let hosts: Vec<Option<String>> = file.nodes().map(|node| host(&node.nbd)).collect();
    for part in &mut parts {
        part.hosts = hosts_of(file, part.range, &locator, &hosts)?;
    }
    Ok(parts)
}

/// The hosts of a range, those with the most of it first.
fn hosts_of(file: &DriveFile, range: ByteRange, locator: &Locator, hosts: &[Option<String>]) -> Result<Vec<String>> {
    let step = range.len.div_ceil(PLACES).max(1);
    let mut found: BTreeMap<&str, u64> = BTreeMap::new();
    for offset in (range.offset..range.end()).step_by(usize::try_from(step).unwrap_or(usize::MAX)) {
        if locator.has_gap(ByteRange::new(offset, 1)) {
            continue;
        }
        for place in locator.places_of_stored(ByteRange::new(stored(file, offset)?, 1)) {
            if let Some(Some(host)) = hosts.get(place.node) {
                *found.entry(host).or_default() += 1;
            }
        }
    }
    let mut found: Vec<_> = found.into_iter().collect();
    found.sort_by_key(|(_, places)| std::cmp::Reverse(*places));
    Ok(found.into_iter().map(|(host, _)| host.to_owned()).collect())
}

/// Where nodes store the byte at an offset of the drive, or near it.
fn stored(file: &DriveFile, offset: u64) -> Result<u64> {
    file.sealed.as_ref().map_or(Ok(offset), |seal| sealed_bytes(seal.unit, offset))
}

fn host(uri: &str) -> Option<String> {
    match NbdUri::from_str(uri).ok()?.address {
        Address::Tcp { host, .. } => Some(host),
        Address::Unix(_) | Address::Inbound(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::tests::example;
    use crate::file::{Set, SetNode, places};
    use crate::layout::kind::Layout;

    const MIB: u64 = 1 << 20;

    /// A drive over nodes at hosts `a`, `b` … of these sizes, in MiB.
    fn drive(layout: Layout, sizes: &[u64]) -> DriveFile {
        let node = |(index, size): (usize, &u64)| SetNode {
            nbd: format!("nbd://{}:10809/x", ["a", "b", "c", "d"][index]),
            size: size * MIB,
            ..example().sets[0].nodes[0].clone()
        };
        let sets = vec![Set::new(layout, sizes.iter().enumerate().map(node).collect())];
        DriveFile { size: places::capacity(&sets), sets, sealed: None, image: None, ..example() }
    }

    fn hosts(file: &DriveFile, part_bytes: u64) -> Vec<String> {
        parts_of(file, part_bytes).unwrap().into_iter().map(|part| part.hosts.concat()).collect()
    }

    #[test]
    fn parts_follow_each_other_and_name_the_hosts_with_most_of_them_first() {
        let linear = drive(Layout::Linear, &[3, 2]);
        assert_eq!(hosts(&linear, MIB), ["a", "a", "a", "b", "b"]);
        assert_eq!(hosts(&linear, 4 * MIB), ["ab", "b"]);
        let ranges: Vec<_> = parts_of(&linear, 4 * MIB).unwrap().iter().map(|part| part.range).collect();
        assert_eq!(ranges, [ByteRange::new(0, 4 * MIB), ByteRange::new(4 * MIB, MIB)]);
    }

    #[test]
    fn a_part_of_a_stripe_is_on_all_nodes_and_one_of_a_mirror_on_each_copy() {
        assert_eq!(hosts(&drive(Layout::Stripe { unit: MIB }, &[2, 2]), MIB), ["a", "b", "a", "b"]);
        assert_eq!(hosts(&drive(Layout::Stripe { unit: MIB }, &[2, 2]), 4 * MIB), ["ab"]);
        assert_eq!(hosts(&drive(Layout::Mirror { unit: MIB, copies: 2 }, &[2, 2]), 2 * MIB), ["ab"]);
    }

    #[test]
    fn parts_of_no_bytes_or_too_many_are_refused() {
        let file = drive(Layout::Linear, &[3]);
        assert!(parts_of(&file, 0).unwrap_err().is_misuse());
        assert!(parts_of(&file, 1).unwrap_err().is_misuse());
    }
}
