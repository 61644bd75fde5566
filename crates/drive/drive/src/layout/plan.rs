//! The memory that a drive takes from each node, in proportion to the nodes' free memory. Does no I/O.

use cheetah_device::Size;
use cheetah_redundancy::geometry::MEMBERS_MAX;
use cheetah_redundancy::{SetGeometry, zones};

use super::kind::Layout;
use cheetah_error::{Error, Result, list, next};

/// The granularity of shares, in bytes: nodes hold memory in chunks of this size.
pub const GRANULE_BYTES: u64 = 64 << 10;

/// The wanted size of a drive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DriveSize {
    /// At least this many bytes.
    Bytes(u64),
    /// All free memory of the nodes.
    All,
}

impl DriveSize {
    /// Whether nodes with this much free memory can hold it.
    pub const fn is_within(self, free_bytes: u64) -> bool {
        match self {
            Self::Bytes(bytes) => bytes <= free_bytes,
            Self::All => true,
        }
    }
}

/// The memory that a node offers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeMemory {
    /// The node's name, as the user wrote it.
    pub name: String,
    /// Bytes that it can lend.
    pub bytes: u64,
    /// Whether its share may be larger: the node then lends memory as it is written, and may run out.
    pub overcommits: bool,
}

/// Returns the bytes to take from each node, in the same order: multiples of the granule, in proportion to the nodes'
/// free memory, and never more than a node has unless it overcommits. They add up to the wanted size, rounded up to the
/// granule, plus the redundancy if the layout has any. A share may be 0.
pub fn plan(wanted: DriveSize, layout: Layout, nodes: &[NodeMemory]) -> Result<Vec<u64>> {
    layout.check().map_err(|error| Error::misuse(error.to_string()))?;
    if let DriveSize::Bytes(0) = wanted {
        return Err(Error::misuse("a drive of 0 bytes is of no use; ask for a size, or load an image that has bytes"));
    }
    if layout.redundancy().is_some() {
        return plan_redundant(wanted, layout, nodes);
    }
    let granule = layout.unit().unwrap_or(GRANULE_BYTES).max(GRANULE_BYTES);
    let capacities: Vec<u64> = nodes.iter().map(|node| node.bytes / granule).collect();
    let capacity = capacities.iter().fold(0, |sum: u64, capacity| sum.saturating_add(*capacity));
    let units = match wanted {
        DriveSize::All => capacity,
        DriveSize::Bytes(bytes) => bytes.div_ceil(granule),
    };
    let in_bytes = |shares: Vec<u64>| shares.into_iter().map(|share| share.saturating_mul(granule)).collect();
    if (1..=capacity).contains(&units) {
        return Ok(in_bytes(deal(units, &capacities)));
    }
    let of_nodes = |overcommit: bool| -> Vec<u64> {
        nodes.iter().zip(&capacities).map(|(node, own)| if node.overcommits == overcommit { *own } else { 0 }).collect()
    };
    let (fixed, elastic) = (of_nodes(false), of_nodes(true));
    if units == 0 || elastic.iter().all(|own| *own == 0) {
        return Err(no_space(wanted, capacity.saturating_mul(granule), nodes));
    }
    let rest = units.saturating_sub(fixed.iter().fold(0, |sum: u64, own| sum.saturating_add(*own)));
    Ok(in_bytes(deal(rest, &elastic).into_iter().zip(fixed).map(|(share, own)| share.saturating_add(own)).collect()))
}

/// The same for a layout with redundancy. No node may overcommit.
fn plan_redundant(wanted: DriveSize, layout: Layout, nodes: &[NodeMemory]) -> Result<Vec<u64>> {
    let Some((redundancy, unit)) = layout.redundancy() else { return Ok(Vec::new()) };
    let least = redundancy.members_min();
    if !(least..=MEMBERS_MAX).contains(&nodes.len()) {
        let (what, have) = (layout.describe(), nodes.len());
        return Err(Error::misuse(format!("a {what} needs {least} to {MEMBERS_MAX} nodes, not {have}"))
            .next(next::Layout::ChooseLayout));
    }
    let free: Vec<u64> = nodes.iter().map(|node| node.bytes).collect();
    let bytes = match wanted {
        DriveSize::Bytes(bytes) => Some(bytes),
        DriveSize::All => None,
    };
    zones::plan(bytes, redundancy, unit, &free).ok_or_else(|| {
        let all = zones::plan(None, redundancy, unit, &free);
        let set = all.and_then(|shares| SetGeometry::new(redundancy, unit, &shares).ok());
        no_space(wanted, set.map_or(0, |set| set.size()), nodes)
    })
}

/// Deals `units` in proportion to `weights`, by largest remainder. A share exceeds its weight only if `units` exceed
/// their sum.
fn deal(units: u64, weights: &[u64]) -> Vec<u64> {
    let all: u128 = weights.iter().map(|own| u128::from(*own)).sum::<u128>().max(1);
    let exact = |own: u64| u128::from(units) * u128::from(own);
    let mut shares: Vec<u64> = weights.iter().map(|own| u64::try_from(exact(*own) / all).unwrap_or(units)).collect();
    let mut left = units.saturating_sub(shares.iter().sum());
    let mut by_remainder: Vec<usize> = (0..weights.len()).collect();
    by_remainder.sort_by_key(|node| std::cmp::Reverse(exact(weights[*node]) % all));
    for node in by_remainder {
        if left > 0 {
            shares[node] += 1;
            left -= 1;
        }
    }
    shares
}

fn no_space(wanted: DriveSize, have: u64, nodes: &[NodeMemory]) -> Error {
    let each: Vec<_> = nodes.iter().map(|node| format!("{} has {}", node.name, Size(node.bytes))).collect();
    let each = list(&each);
    let wanted = match wanted {
        DriveSize::Bytes(bytes) => bytes,
        DriveSize::All => GRANULE_BYTES,
    };
    Error::failed(format!(
        "not enough memory: {} wanted, {} usable, {} missing ({})",
        Size(wanted),
        Size(have),
        Size(wanted.saturating_sub(have)),
        if each.is_empty() { "no nodes" } else { &each },
    ))
    .next(next::Layout::AddMemory)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn free(sizes: &[u64]) -> Vec<NodeMemory> {
        let free = |(n, bytes): (usize, &u64)| NodeMemory { name: format!("n{n}"), bytes: *bytes, overcommits: false };
        sizes.iter().enumerate().map(free).collect()
    }

    #[test]
    fn overcommitting_nodes_share_the_excess() {
        let mut nodes = free(&[1 << 20, 2 << 20, 4 << 20]);
        assert!(plan(DriveSize::Bytes(32 << 20), Layout::Linear, &nodes).is_err());
        nodes[0].overcommits = true;
        nodes[1].overcommits = true;
        let shares = plan(DriveSize::Bytes(34 << 20), Layout::Linear, &nodes).unwrap();
        assert_eq!(shares, [10 << 20, 20 << 20, 4 << 20]);
        let fitting = plan(DriveSize::Bytes(7 << 19), Layout::Linear, &nodes).unwrap();
        assert_eq!(fitting, [1 << 19, 1 << 20, 2 << 20], "in proportion to all of them");
        let full: Vec<_> = nodes.into_iter().map(|node| NodeMemory { bytes: 0, ..node }).collect();
        assert!(plan(DriveSize::Bytes(1 << 20), Layout::Linear, &full).is_err());
    }

    #[test]
    fn unequal_nodes_get_proportional_shares() {
        let nodes = free(&[1 << 30, 2 << 30, 3 << 30]);
        let shares = plan(DriveSize::Bytes(3 << 30), Layout::Stripe { unit: 64 << 10 }, &nodes).unwrap();
        assert_eq!(shares, [1 << 29, 1 << 30, 3 << 29]);
        assert_eq!(plan(DriveSize::All, Layout::Linear, &nodes).unwrap(), [1 << 30, 2 << 30, 3 << 30]);
    }

    #[test]
    fn too_little_memory_is_an_error_that_lists_every_node() {
        let error = plan(DriveSize::Bytes(4 << 20), Layout::Linear, &free(&[1 << 20, 2 << 20])).unwrap_err();
        let text = error.to_string();
        for part in ["4MiB wanted", "1MiB missing", "n0 has 1MiB and n1 has 2MiB"] {
            assert!(text.contains(part), "{text}");
        }
    }

    #[test]
    fn redundancy_takes_its_share_of_every_node() {
        let nodes = free(&[1 << 30, 1 << 30, 1 << 30]);
        let parity = Layout::Parity { unit: 64 << 10, parities: 1 };
        let shares = plan(DriveSize::Bytes(1 << 30), parity, &nodes).unwrap();
        assert!(shares.iter().all(|share| (512 << 20..520 << 20).contains(share)), "{shares:?}");
        let mirror = Layout::Mirror { unit: 64 << 10, copies: 3 };
        assert_eq!(
            plan(DriveSize::All, mirror, &nodes).unwrap(),
            [(1 << 30) / (192 << 10) * (192 << 10) / 65536 * 65536; 3]
        );
        let error = plan(DriveSize::Bytes(2 << 30), mirror, &nodes).unwrap_err();
        assert!(error.has_next(next::Layout::AddMemory), "{error}");
        let error = plan(DriveSize::All, parity, &nodes[..1]).unwrap_err();
        assert!(error.is_misuse() && error.has_next(next::Layout::ChooseLayout), "{error}");
    }

    #[test]
    fn an_invalid_unit_is_misuse() {
        for unit in [0, 1, 2048, 12288, 8 << 20] {
            let error = plan(DriveSize::All, Layout::Stripe { unit }, &free(&[1 << 30])).unwrap_err();
            assert_eq!(error.exit_code(), 2, "{unit}");
        }
    }

    proptest! {
        #[test]
        fn shares_add_up_and_fit_their_nodes(
            sizes in prop::collection::vec(0u64..1 << 44, 1..9),
            wanted in 1u64..1 << 46,
            unit in prop_oneof![Just(None), (12u32..=22).prop_map(|bits| Some(1u64 << bits))],
        ) {
            let layout = unit.map_or(Layout::Linear, |unit| Layout::Stripe { unit });
            let granule = unit.unwrap_or(0).max(GRANULE_BYTES);
            let usable: u64 = sizes.iter().map(|bytes| bytes / granule * granule).sum();
            let rounded = wanted.next_multiple_of(granule);
            match plan(DriveSize::Bytes(wanted), layout, &free(&sizes)) {
                Err(_) => prop_assert!(rounded > usable),
                Ok(shares) => {
                    prop_assert_eq!(shares.iter().sum::<u64>(), rounded);
                    for (share, bytes) in shares.iter().zip(&sizes) {
                        prop_assert!(share <= bytes && share % granule == 0);
                        let fair = u128::from(rounded) * u128::from(bytes / granule * granule) / u128::from(usable);
                        prop_assert!(u128::from(*share).abs_diff(fair) <= u128::from(granule), "{} of {}", share, fair);
                    }
                }
            }
        }
    }
}
