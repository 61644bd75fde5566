//! Object maps: where the versions of objects lie.

use std::collections::HashSet;

use cheetah_device::le::{u32_at, u64_at};
use futures::future::try_join_all;

use super::super::{Flaw, Result};
use super::blocks::Blocks;
use super::node::Node;

/// Kinds of objects.
const MAP: u32 = 0xb;
const TREE: [u32; 2] = [2, 3];
const KEY_BYTES: usize = 16;
const VALUE_BYTES: usize = 16;
const CHILD_BYTES: usize = 8;
/// A conversion of a volume: encrypting, decrypting, or with a new key.
const CONVERTING: u32 = 0x2 | 0x4 | 0x8;
/// Nodes that are read at once.
const AT_ONCE: usize = 64;

/// The most that a map may have.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    pub nodes: usize,
    pub mappings: usize,
}

/// Flags of a mapping.
pub(super) mod flag {
    pub const DELETED: u32 = 1;
    pub const ENCRYPTED: u32 = 4;
}

/// Where a version of an object lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Mapping {
    pub id: u64,
    pub transaction: u64,
    pub flags: u32,
    pub bytes: u32,
    pub block: u64,
}

/// A map.
pub(super) struct ObjectMap {
    pub is_converting: bool,
    /// In any order.
    pub mappings: Vec<Mapping>,
}

impl ObjectMap {
    /// Reads the map whose object is at `at`. A map of more than the limits is refused, and one that names a node twice.
    pub async fn read(blocks: &Blocks<'_>, at: u64, limits: Limits) -> Result<Self> {
        let wrong = || Flaw::Damaged("a map of its objects is damaged");
        let object = blocks.object(at, &[MAP]).await?;
        let mut map = Self { is_converting: u32_at(&object, 32) & CONVERTING != 0, mappings: Vec::new() };
        let (mut level, mut nodes) = (vec![u64_at(&object, 48)], 1);
        let mut height: Option<u16> = None;
        let mut seen: HashSet<u64> = level.iter().copied().collect();
        while !level.is_empty() {
            let mut below = Vec::new();
            for some in level.chunks(AT_ONCE) {
                let reads: Vec<_> = some.iter().map(|at| blocks.object(*at, &TREE)).collect();
                for bytes in try_join_all(reads).await? {
                    let node = Node::new(&bytes);
                    let expected = *height.get_or_insert(node.level);
                    if expected != node.level || node.is_leaf() != (node.level == 0) {
                        return Err(wrong());
                    }
                    let known = below.len();
                    map.add(&node, &mut below).ok_or_else(wrong)?;
                    if !below[known..].iter().all(|at| seen.insert(*at)) {
                        return Err(wrong());
                    }
                    if nodes + below.len() > limits.nodes || map.mappings.len() > limits.mappings {
                        let most = format!("{} nodes or {} objects", limits.nodes, limits.mappings);
                        return Err(Flaw::Unsupported(format!("a map of more than {most}")));
                    }
                }
            }
            // The nodes below have a level less, so this ends: leaves, of level 0, add none.
            height = height.and_then(|height| height.checked_sub(1));
            nodes += below.len();
            level = below;
        }
        Ok(map)
    }

    /// Adds the entries of a leaf, or the nodes below another one.
    fn add(&mut self, node: &Node<'_>, below: &mut Vec<u64>) -> Option<()> {
        let value_bytes = if node.is_leaf() { VALUE_BYTES } else { CHILD_BYTES };
        for (key, value) in node.entries(KEY_BYTES, value_bytes)? {
            match node.is_leaf() {
                true => self.mappings.push(Mapping {
                    id: u64_at(key, 0),
                    transaction: u64_at(key, 8),
                    flags: u32_at(value, 0),
                    bytes: u32_at(value, 4),
                    block: u64_at(value, 8),
                }),
                false => below.push(u64_at(value, 0)),
            }
        }
        Some(())
    }

    /// Where the last version of an object lies that a transaction knows.
    pub fn find(&self, id: u64, transaction: u64) -> Option<u64> {
        let known = |one: &&Mapping| one.id == id && one.transaction <= transaction && one.flags & flag::DELETED == 0;
        self.mappings.iter().filter(known).max_by_key(|one| one.transaction).map(|one| one.block)
    }
}
