//! Containers of APFS with one encrypted volume.

use super::Bytes;

/// Bytes of a block.
pub const BLOCK: usize = 4096;
/// The identifiers of the container and of its volume.
pub const CONTAINER_ID: [u8; 16] = [1; 16];
/// See above.
pub const VOLUME_ID: [u8; 16] = [2; 16];
/// Where things are, in blocks: the area of checkpoints, of which there are two.
pub const CHECKPOINTS: u64 = 1;
/// The map of the objects of the container, and of those of the volume; the block behind each has its tree.
pub const CONTAINER_MAP: u64 = 3;
/// See above.
pub const VOLUME_MAP: u64 = 8;
/// The superblock of the volume.
pub const SUPERBLOCK: u64 = 5;
/// The key bags.
pub const CONTAINER_BAG: u64 = 6;
/// See above.
pub const VOLUME_BAG: u64 = 7;
/// The tree of files: a root, and a leaf with its parts of files.
pub const ROOT: u64 = 10;
/// See above.
pub const LEAF: u64 = 11;

/// A key and a value.
pub type Record = (Vec<u8>, Vec<u8>);

/// A part of a file: its place in the file, its length, first block and number.
pub fn extent(file: u64, at: u64, bytes: u64, block: u64, number: u64) -> Record {
    let key = [(file | 8 << 60).to_le_bytes(), at.to_le_bytes()].concat();
    (key, [bytes, block, number].map(u64::to_le_bytes).concat())
}

/// A key that another one wraps, by a password if there are iterations.
pub fn blob(method: u8, wrapped: &[u8; 40], iterations: u16, salt: &[u8]) -> Vec<u8> {
    let method = [&[0x82, 8, method][..], &[0; 7], &[0x83, 40]].concat();
    let iterations = [&[0x84, 2][..], &iterations.to_be_bytes(), &[0x85, salt.len() as u8]].concat();
    let inner = [&[0x81, 16][..], &VOLUME_ID, &method, wrapped, &iterations, salt].concat();
    let outer = [&[0x80, 1, 0, 0xa3, inner.len() as u8][..], &inner].concat();
    [&[0x30, 0x81, outer.len() as u8][..], &outer].concat()
}

/// A container of so many blocks, whose volume has a key, something that opens it, and parts of files.
pub fn container(blocks: usize, key: &[u8], opener: &[u8], extents: &[Record]) -> Vec<u8> {
    let mut made = Container(Bytes(vec![0; blocks * BLOCK]));
    for (block, transaction) in [(0, 3), (CHECKPOINTS, 3), (CHECKPOINTS + 1, 4)] {
        made.object(block, 0x8000_0001, 0);
        made.numbers(block, 16, [transaction]).put(block, 32, b"NXSB\0\x10").numbers(block, 40, [blocks as u64]);
        made.put(block, 72, &CONTAINER_ID).put(block, 104, &[2]).numbers(block, 112, [CHECKPOINTS]);
        made.numbers(block, 160, [CONTAINER_MAP]).numbers(block, 184, [1026]);
        made.numbers(block, 1264, [4]).numbers(block, 1296, [CONTAINER_BAG, 1]);
    }
    // A transaction that no checkpoint knows counts for nothing.
    made.map(CONTAINER_MAP, &[(1026, 2, 0, 2), (1026, 4, 0, SUPERBLOCK), (1026, 5, 0, 2)]);
    made.object(SUPERBLOCK, 0xd, 0);
    made.put(SUPERBLOCK, 32, b"APSB").numbers(SUPERBLOCK, 128, [VOLUME_MAP]).put(SUPERBLOCK, 240, &VOLUME_ID);
    made.numbers(SUPERBLOCK, 264, [8]).put(SUPERBLOCK, 704, b"Disk");
    let place = [VOLUME_BAG, 1].map(u64::to_le_bytes).concat();
    made.bag(CONTAINER_BAG, *b"keys", &[(3, &place), (2, key)]);
    made.bag(VOLUME_BAG, *b"recs", &[(3, opener), (4, b"a hint")]);
    // One that was deleted has no place.
    made.map(VOLUME_MAP, &[(1028, 4, 4, ROOT), (1029, 4, 4, LEAF), (1030, 4, 5, 0)]);
    made.node(ROOT, 0xe, 1, false, &[(vec![0; 16], 1029_u64.to_le_bytes().to_vec())]);
    made.node(LEAF, 0xe, 0, false, extents);
    made.0.0
}

struct Container(Bytes);

impl Container {
    fn put(&mut self, block: u64, at: usize, content: &[u8]) -> &mut Self {
        self.0.put(block as usize * BLOCK + at, content);
        self
    }

    fn numbers<const N: usize>(&mut self, block: u64, at: usize, numbers: [u64; N]) -> &mut Self {
        self.0.numbers(block as usize * BLOCK + at, numbers);
        self
    }

    fn object(&mut self, block: u64, kind: u32, subkind: u32) {
        self.put(block, 24, &[kind.to_le_bytes(), subkind.to_le_bytes()].concat());
    }

    /// A node of a tree: all but one are roots.
    fn node(&mut self, block: u64, subkind: u32, level: u16, is_fixed: bool, records: &[Record]) {
        let is_root = block != LEAF;
        self.object(block, if is_root { 2 } else { 3 }, subkind);
        let flags = u16::from(is_root) | u16::from(level == 0) << 1 | u16::from(is_fixed) << 2;
        let table = records.len() * if is_fixed { 4 } else { 8 };
        let numbers = [flags, level, records.len() as u16, 0, 0, table as u16];
        self.put(block, 32, &numbers.map(u16::to_le_bytes).concat());
        let end = BLOCK - if is_root { 40 } else { 0 };
        let (mut keys, mut values) = (0, 0);
        for (number, (key, value)) in records.iter().enumerate() {
            values += value.len();
            self.put(block, 56 + table + keys, key).put(block, end - values, value);
            let entry = match is_fixed {
                true => vec![keys as u16, values as u16],
                false => vec![keys as u16, key.len() as u16, values as u16, value.len() as u16],
            };
            let entry: Vec<u8> = entry.into_iter().flat_map(u16::to_le_bytes).collect();
            self.put(block, 56 + number * entry.len(), &entry);
            keys += key.len();
        }
    }

    /// A map of objects: the identifier, transaction, flags and block of each.
    fn map(&mut self, block: u64, mappings: &[(u64, u64, u32, u64)]) {
        self.object(block, 0xb, 0);
        self.numbers(block, 48, [block + 1]);
        let records = mappings.iter().map(|(id, transaction, flags, at)| {
            let value = [&flags.to_le_bytes()[..], &(BLOCK as u32).to_le_bytes(), &at.to_le_bytes()].concat();
            ([*id, *transaction].map(u64::to_le_bytes).concat(), value)
        });
        self.node(block + 1, 0xb, 0, true, &records.collect::<Vec<_>>());
    }

    fn bag(&mut self, block: u64, kind: [u8; 4], entries: &[(u16, &[u8])]) {
        self.object(block, u32::from_be_bytes(kind), 0);
        self.put(block, 34, &[entries.len() as u8]);
        let mut at = 48;
        for (kind, content) in entries {
            let numbers = [*kind, content.len() as u16].map(u16::to_le_bytes).concat();
            self.put(block, at, &VOLUME_ID).put(block, at + 16, &numbers).put(block, at + 24, content);
            at += (24 + content.len()).next_multiple_of(16);
        }
    }
}
