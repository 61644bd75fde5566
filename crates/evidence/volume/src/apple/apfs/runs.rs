//! The blocks of a volume that are encrypted, and the numbers that they are encrypted with.

use std::cmp::Ordering;

use cheetah_device::le::{u32_at, u64_at};
use cheetah_device::{ByteRange, Device};
use futures::future::try_join_all;

use super::super::part::Part;
use super::super::{Flaw, Result};
use super::blocks::{Blocks, kind};
use super::container::Container;
use super::node::Node;
use super::object_map::{Limits, Mapping, ObjectMap, flag};
use super::superblock::{CONVERSION, Volume};

/// The kind of the tree of files, in the second type of its nodes.
const FILES: u32 = 0xe;
const TREE: [u32; 2] = [2, 3];
/// The kind of a record, in the highest bits of its key: a part of a file.
const EXTENT: u64 = 8;
const KIND_SHIFT: u32 = 60;
const LENGTH_MASK: u64 = (1 << 56) - 1;
/// The most of the map of a volume: that of some hundred million files.
const MAP_LIMITS: Limits = Limits { nodes: 256 << 10, mappings: 8 << 20 };
/// The size of the largest node, in bytes.
const NODE_BYTES_MAX: u64 = 1 << 20;
/// The size of one read, in bytes.
const READ_BYTES: u64 = 1 << 20;
/// Reads at the same time.
const AT_ONCE: usize = 8;
/// Runs that are kept before those that touch are joined, and the most that may be left then.
const RUNS_KEPT: usize = 2 << 20;
const RUNS_MAX: usize = 1 << 20;

/// Decrypts bytes of a volume in place. The number is what comes before them in the count of sectors, in bytes.
pub type Decrypt<'a> = &'a (dyn Fn(u64, &mut [u8]) + Sync);

/// Blocks beside each other that are encrypted with numbers beside each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// Where they lie, in bytes from the start of the container.
    pub range: ByteRange,
    /// What comes before them in the count of sectors, in bytes.
    pub counted: u64,
}

/// Finds the blocks of a volume that are encrypted: in order, and apart. Reads all of its metadata.
///
/// # Errors
///
/// If a part of its metadata is damaged or cannot be read, since then what belongs to it is not known; if they are in too many pieces.
pub async fn encrypted_runs(
    device: &dyn Device,
    range: ByteRange,
    container: &Container,
    volume: &Volume,
    decrypt: Decrypt<'_>,
) -> Result<Vec<Run>> {
    let blocks = container.blocks_of(Part { device, range });
    let map = ObjectMap::read(&blocks, volume.object_map, MAP_LIMITS).await?;
    if map.is_converting {
        return Err(Flaw::Unsupported(CONVERSION.to_owned()));
    }
    let is_encrypted = |one: &Mapping| one.flags & flag::ENCRYPTED != 0 && one.flags & flag::DELETED == 0;
    let mut nodes: Vec<_> = map.mappings.into_iter().filter(is_encrypted).collect();
    nodes.sort_unstable_by_key(|one| one.block);
    nodes.dedup_by_key(|one| one.block);
    let mut runs = Runs { block_bytes: container.block_bytes, blocks: container.blocks, runs: Vec::new() };
    let groups = groups(&nodes, container.block_bytes)?;
    for some in groups.chunks(AT_ONCE) {
        let reads: Vec<_> = some.iter().map(|group| read_group(&blocks, group)).collect();
        for (group, bytes) in some.iter().zip(try_join_all(reads).await?) {
            runs.add_nodes(&blocks, group, bytes, decrypt)?;
        }
    }
    runs.finish()
}

/// Divides nodes, which are in order, into groups that lie beside each other.
fn groups(nodes: &[Mapping], block_bytes: u64) -> Result<Vec<&[Mapping]>> {
    let is_right = |one: &Mapping| {
        let bytes = u64::from(one.bytes);
        (1..=NODE_BYTES_MAX).contains(&bytes) && bytes.is_multiple_of(block_bytes)
    };
    if !nodes.iter().all(is_right) {
        return Err(Flaw::Damaged("the size of a node of its files is wrong"));
    }
    let (mut groups, mut start) = (Vec::new(), 0);
    for end in 1..=nodes.len() {
        let is_beside = nodes.get(end).is_some_and(|next| {
            let (first, last) = (&nodes[start], &nodes[end - 1]);
            let blocks = u64::from(last.bytes) / block_bytes;
            last.block.checked_add(blocks) == Some(next.block) && (next.block - first.block) * block_bytes < READ_BYTES
        });
        if !is_beside {
            groups.push(&nodes[start..end]);
            start = end;
        }
    }
    Ok(groups)
}

async fn read_group(blocks: &Blocks<'_>, group: &[Mapping]) -> Result<Vec<u8>> {
    let count: u64 = group.iter().map(|one| u64::from(one.bytes) / blocks.block_bytes).sum();
    blocks.read(group.first().map_or(0, |one| one.block), count).await
}

/// Runs of blocks: the first, how many, and the number of the first.
struct Runs {
    block_bytes: u64,
    blocks: u64,
    runs: Vec<(u64, u64, u64)>,
}

impl Runs {
    /// Adds nodes that lie beside each other, and the parts of files that they name.
    fn add_nodes(
        &mut self,
        blocks: &Blocks<'_>,
        group: &[Mapping],
        mut bytes: Vec<u8>,
        decrypt: Decrypt<'_>,
    ) -> Result<()> {
        let mut rest = &mut bytes[..];
        for node in group {
            let Some((one, others)) = std::mem::take(&mut rest).split_at_mut_checked(node.bytes as usize) else {
                break;
            };
            rest = others;
            let counted = node.block.checked_mul(self.block_bytes).ok_or(OUTSIDE)?;
            decrypt(counted, one);
            if !blocks.is_whole(one) {
                return Err(Flaw::Damaged("a node of its files has a wrong checksum"));
            }
            self.add(node.block, u64::from(node.bytes) / self.block_bytes, node.block)?;
            if TREE.contains(&kind(one)) && u32_at(one, 28) == FILES {
                self.add_extents(&Node::new(one))?;
            }
        }
        Ok(())
    }

    fn add_extents(&mut self, node: &Node<'_>) -> Result<()> {
        if !node.is_leaf() {
            return Ok(());
        }
        let records = node.entries(0, 0).ok_or(Flaw::Damaged("a node of its files is damaged"))?;
        for (key, value) in records {
            if u64_at(key, 0) >> KIND_SHIFT != EXTENT {
                continue;
            }
            let (bytes, block, number) = (u64_at(value, 0) & LENGTH_MASK, u64_at(value, 8), u64_at(value, 16));
            // What has no blocks is zeros.
            if block > 0 {
                self.add(block, bytes.div_ceil(self.block_bytes), number)?;
            }
        }
        Ok(())
    }

    fn add(&mut self, block: u64, count: u64, number: u64) -> Result<()> {
        let is_inside = block.checked_add(count).is_some_and(|end| end <= self.blocks);
        // So that neither a place nor a number in bytes overflows.
        let fits = |end: Option<u64>| end.and_then(|end| end.checked_mul(self.block_bytes)).is_some();
        if !is_inside || !fits(block.checked_add(count)) || !fits(number.checked_add(count)) {
            return Err(OUTSIDE);
        }
        if count > 0 {
            self.runs.push((block, count, number));
        }
        if self.runs.len() >= RUNS_KEPT {
            self.join()?;
        }
        Ok(())
    }

    /// Joins runs that touch, and are numbered on. A block that has two numbers is a contradiction.
    fn join(&mut self) -> Result<()> {
        self.runs.sort_unstable();
        let mut joined: Vec<(u64, u64, u64)> = Vec::new();
        for (block, count, number) in self.runs.drain(..) {
            let Some((first, before, first_number)) = joined.last_mut() else {
                joined.push((block, count, number));
                continue;
            };
            let gap = block - *first;
            let is_numbered_on = first_number.checked_add(gap) == Some(number);
            match (gap.cmp(before), is_numbered_on) {
                (Ordering::Less, false) => {
                    return Err(Flaw::Damaged("a block of its files has two numbers"));
                }
                (Ordering::Less | Ordering::Equal, true) => *before = (*before).max(gap + count),
                _ => joined.push((block, count, number)),
            }
        }
        self.runs = joined;
        match self.runs.len() {
            0..=RUNS_MAX => Ok(()),
            _ => Err(Flaw::Unsupported(format!("a volume in more than {RUNS_MAX} pieces"))),
        }
    }

    fn finish(mut self) -> Result<Vec<Run>> {
        self.join()?;
        let run = |(block, count, number): (u64, u64, u64)| Run {
            range: ByteRange::new(block * self.block_bytes, count * self.block_bytes),
            counted: number * self.block_bytes,
        };
        Ok(self.runs.into_iter().map(run).collect())
    }
}

const OUTSIDE: Flaw = Flaw::Damaged("it names a place beyond its end");
