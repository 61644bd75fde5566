//! NTFS volumes with shadow copies, made as Windows makes them from the description of the format (libvshadow's documentation): a block is
//! kept before it is overwritten, in the store of the newest shadow copy.

// Sizes of some MiB.
#![allow(clippy::cast_possible_truncation)]

use std::collections::BTreeMap;

/// The unit that is kept.
pub const BLOCK_BYTES: usize = 16 << 10;
const SECTOR_BYTES: usize = 512;
const IDENTIFIER: [u8; 16] =
    [0x6b, 0x87, 0x08, 0x38, 0x76, 0xc1, 0x48, 0x4e, 0xb7, 0xae, 0x04, 0x04, 0x6e, 0x6c, 0xc7, 0x52];
const HEADER_AT: usize = 0x1e00;
/// So few entries in a block of a list that it has several blocks.
const LIST_ENTRIES: usize = 7;
/// The types of blocks.
const CATALOG: u32 = 2;
const LIST: u32 = 3;
const STORE: u32 = 4;
const RANGES: u32 = 5;
const BITMAP: u32 = 6;
/// Flags of descriptors; Windows sets the last two of plain ones.
const FORWARDER: u32 = 1;
const OVERLAY: u32 = 2;
const NOT_USED: u32 = 4;
const PLAIN: u32 = 0x88;
/// The time of the first shadow copy, 2022-06-17T03:33:20Z, and how much later each next one is.
const CREATED: u64 = 132_999_104_000_000_000;
const LATER: u64 = 36_000_000_000;

type Block = Vec<u8>;

/// A volume that is used. Its first block is its boot sector and stays as it is.
pub struct Volume {
    blocks: Vec<Block>,
    is_used: Vec<bool>,
    copies: Vec<Store>,
    /// The blocks behind the others, which only the stores use.
    area: Vec<Block>,
    random: Random,
}

/// The store of a shadow copy.
struct Store {
    /// What the blocks were, and those of which that is kept.
    content: Vec<Block>,
    is_kept: Vec<bool>,
    /// Which blocks were not in use, and which of the earlier ones were not in use before.
    is_unused: Vec<bool>,
    was_unused: Vec<bool>,
    /// The blocks that need not be kept any more.
    is_done: Vec<bool>,
    /// Of which block each one holds the content, if it was moved there.
    holds: Vec<Option<usize>>,
    overlays: BTreeMap<usize, usize>,
    descriptors: Vec<Descriptor>,
}

/// The fields of a descriptor.
struct Descriptor {
    original: u64,
    relative: u64,
    at: u64,
    flags: u32,
    sectors: u32,
}

/// A volume, as it is stored.
pub struct Made {
    /// All of its bytes.
    pub bytes: Vec<u8>,
    /// Its shadow copies, the oldest first.
    pub copies: Vec<MadeCopy>,
    /// Where the structures of the store of each shadow copy begin.
    pub stores: Vec<MadeStore>,
    /// Where its catalog begins.
    pub catalog_at: usize,
}

/// A shadow copy, as it should be read.
pub struct MadeCopy {
    /// Its identifier.
    pub id: String,
    /// When it was made.
    pub created: String,
    /// The blocks whose content is certain, by their offsets.
    pub blocks: BTreeMap<usize, Vec<u8>>,
}

/// Where the structures of a store begin.
#[derive(Clone, Copy)]
pub struct MadeStore {
    /// Its header.
    pub header: usize,
    /// Its list of blocks.
    pub list: usize,
    /// Its bitmap.
    pub bitmap: usize,
}

/// Numbers that look random, the same for each seed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }

    fn below(&mut self, end: usize) -> usize {
        self.next() as usize % end
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len.div_ceil(4)).flat_map(|_| (self.next() as u32).to_le_bytes()).take(len).collect()
    }
}

impl Volume {
    /// A volume of some blocks, of which the second half is free.
    pub fn new(blocks: usize, seed: u64) -> Self {
        let mut random = Random(seed);
        let mut content: Vec<_> = (0..blocks).map(|_| random.bytes(BLOCK_BYTES)).collect();
        content[0].fill(0);
        let is_used = (0..blocks).map(|block| block < blocks / 2).collect();
        Self { blocks: content, is_used, copies: Vec::new(), area: Vec::new(), random }
    }

    /// Makes a shadow copy.
    pub fn copy(&mut self) {
        let blocks = self.blocks.len();
        let is_unused: Vec<_> = self.is_used.iter().map(|is_used| !is_used).collect();
        let was_unused: Vec<_> =
            (0..blocks).map(|block| self.copies.last().is_none_or(|last| !last.keeps(block))).collect();
        let is_kept = is_unused.iter().zip(&was_unused).map(|(is, was)| !(*is && *was)).collect();
        self.copies.push(Store {
            content: self.blocks.clone(),
            is_kept,
            is_unused,
            was_unused,
            is_done: vec![false; blocks],
            holds: vec![None; blocks],
            overlays: BTreeMap::new(),
            // What one that is not used says does not matter.
            descriptors: vec![Descriptor { original: 77, relative: 7, at: u64::MAX, flags: NOT_USED, sectors: 5 }],
        });
    }

    /// Overwrites a block, but the first.
    pub fn write(&mut self, block: usize) {
        self.keep(block);
        self.blocks[block] = self.random.bytes(BLOCK_BYTES);
        self.is_used[block] = true;
    }

    /// Frees a block, whose content stays.
    pub fn free(&mut self, block: usize) {
        self.is_used[block] = false;
    }

    /// Moves a block to a free one. Nothing happens if its content was there before, or if it is free.
    pub fn shift(&mut self, from: usize, to: usize) {
        let is_back = self.copies.last().is_some_and(|store| store.holds[from] == Some(to));
        if !self.is_used[from] || self.is_used[to] || is_back || from == to {
            return;
        }
        self.keep(to);
        if let Some(store) = self.copies.last_mut() {
            let of = store.holds[from].take();
            let must_keep = store.keeps(from) && !store.is_done[from];
            if of.is_some() || must_keep {
                store.holds[to] = Some(of.unwrap_or(from));
                store.is_done[from] = true;
                store.is_done[to] = true;
                // A later store must keep it there.
                store.is_unused[to] = false;
                store.descriptors.push(Descriptor {
                    original: offset(from),
                    relative: offset(to),
                    at: 0,
                    flags: FORWARDER,
                    sectors: 0,
                });
            }
        }
        self.blocks[to] = self.blocks[from].clone();
        (self.is_used[from], self.is_used[to]) = (false, true);
    }

    /// Writes sectors to the newest shadow copy itself.
    pub fn write_to_copy(&mut self, block: usize, sectors: u32) {
        let (data_blocks, area) = (self.blocks.len(), &mut self.area);
        let Some(store) = self.copies.last_mut() else { return };
        let known = store.overlays.get(&block).copied();
        let place = known.unwrap_or_else(|| {
            area.push(self.random.bytes(BLOCK_BYTES));
            area.len() - 1
        });
        store.overlays.insert(block, place);
        for sector in (0..32).filter(|sector| sectors >> sector & 1 == 1) {
            let range = sector * SECTOR_BYTES..(sector + 1) * SECTOR_BYTES;
            let written = self.random.bytes(SECTOR_BYTES);
            area[place][range.clone()].copy_from_slice(&written);
            store.content[block][range].copy_from_slice(&written);
        }
        let (at, original) = (offset(data_blocks + place), offset(block));
        let relative = if known.is_some() { 1 } else { offset(place) };
        store.descriptors.push(Descriptor { original, relative, at, flags: OVERLAY, sectors });
    }

    /// Keeps a block before it changes, if the newest shadow copy needs it.
    fn keep(&mut self, block: usize) {
        let Some(store) = self.copies.last_mut() else { return };
        let is_held = store.holds[block].take().is_some();
        if !is_held && (!store.keeps(block) || store.is_done[block]) {
            return;
        }
        store.is_done[block] = true;
        let (at, relative) = (offset(self.blocks.len() + self.area.len()), offset(self.area.len()));
        let flags = if block.is_multiple_of(3) { 0 } else { PLAIN };
        store.descriptors.push(Descriptor { original: offset(block), relative, at, flags, sectors: 0 });
        self.area.push(self.blocks[block].clone());
    }

    /// Writes the structures, and returns the volume with what its shadow copies should be.
    pub fn finish(mut self) -> Made {
        let copies = std::mem::take(&mut self.copies);
        let stores: Vec<_> = (1..).zip(&copies).map(|(number, store)| self.write_store(number, store)).collect();
        let catalog_at = self.here();
        self.put_list(CATALOG, &[vec![], vec![]]);
        self.area.push(vec![0; BLOCK_BYTES]);
        let total = self.here();
        self.write_catalog(catalog_at, &copies, &stores, total as u64);
        let boot = boot_sector(total / SECTOR_BYTES);
        self.blocks[0][..SECTOR_BYTES].copy_from_slice(&boot);
        if let Some(last) = self.area.last_mut() {
            // Its copy.
            last[BLOCK_BYTES - SECTOR_BYTES..].copy_from_slice(&boot);
        }
        let header = [&IDENTIFIER[..], &1_u32.to_le_bytes(), &1_u32.to_le_bytes(), &offset_bytes(HEADER_AT)].concat();
        self.blocks[0][HEADER_AT..][..header.len()].copy_from_slice(&header);
        self.blocks[0][HEADER_AT + 48..][..8].copy_from_slice(&offset_bytes(catalog_at));
        let boot = self.blocks[0].clone();
        let newest = copies.len();
        let copies = (1..).zip(copies).map(|(number, store)| store.made(number, number == newest, &boot)).collect();
        let bytes = [self.blocks, self.area].concat().concat();
        let places = |[header, list, _, bitmap, _]: [usize; 5]| MadeStore { header, list, bitmap };
        Made { bytes, copies, stores: stores.into_iter().map(places).collect(), catalog_at }
    }

    /// Writes the structures of a store; returns where they begin: its header, list, ranges, bitmap and previous bitmap.
    fn write_store(&mut self, number: usize, store: &Store) -> [usize; 5] {
        let header = self.here();
        self.put_list(STORE, &[store_information(number)]);
        let entries: Vec<_> = store.descriptors.iter().map(Descriptor::bytes).collect();
        let blocks: Vec<_> = entries.chunks(LIST_ENTRIES).map(|part| part.concat()).collect();
        let list = self.here();
        self.put_list(LIST, &blocks);
        let ranges = self.here();
        self.put_list(RANGES, &[vec![]]);
        let bitmap = self.here();
        self.put_list(BITMAP, &[bits(&store.is_unused)]);
        let previous = self.here();
        self.put_list(BITMAP, &[bits(&store.was_unused)]);
        [header, list, ranges, bitmap, if number == 1 { 0 } else { previous }]
    }

    fn write_catalog(&mut self, catalog_at: usize, copies: &[Store], stores: &[[usize; 5]], total: u64) {
        let first = catalog_at / BLOCK_BYTES - self.blocks.len();
        // Not in the order of their times.
        for (place, index) in (0..copies.len()).rev().enumerate() {
            let [header, list, ranges, bitmap, previous] = stores[index].map(|at| at as u64);
            let created = CREATED + LATER * index as u64;
            let id = guid(index + 1, 0);
            let entry = &mut self.area[first][128 + 256 * place..][..256];
            let fields = [(0, 2), (8, total), (32, index as u64 + 1), (40, 0x40), (48, created)];
            let more = [(128, 3), (136, list), (160, header), (168, ranges), (176, bitmap), (200, previous)];
            for (at, value) in fields.into_iter().chain(more) {
                entry[at..at + 8].copy_from_slice(&value.to_le_bytes());
            }
            entry[16..32].copy_from_slice(&id);
            entry[144..160].copy_from_slice(&id);
        }
    }

    /// Where the next block of the area is.
    fn here(&self) -> usize {
        (self.blocks.len() + self.area.len()) * BLOCK_BYTES
    }

    /// Adds blocks of one kind with these contents, as a list. Other blocks lie between some of them.
    fn put_list(&mut self, kind: u32, contents: &[Vec<u8>]) {
        for (index, content) in contents.iter().enumerate() {
            let at = self.here();
            let (is_last, has_gap) = (index + 1 == contents.len(), index % 5 == 4);
            let next = match (is_last, has_gap) {
                (true, _) => 0,
                (false, gap) => at + BLOCK_BYTES * (1 + usize::from(gap)),
            };
            let mut block = vec![0; BLOCK_BYTES];
            block[..16].copy_from_slice(&IDENTIFIER);
            block[16..20].copy_from_slice(&1_u32.to_le_bytes());
            block[20..24].copy_from_slice(&kind.to_le_bytes());
            block[32..40].copy_from_slice(&offset_bytes(at));
            block[40..48].copy_from_slice(&offset_bytes(next));
            block[128..128 + content.len()].copy_from_slice(content);
            self.area.push(block);
            if !is_last && has_gap {
                self.area.push(vec![0x66; BLOCK_BYTES]);
            }
        }
    }
}

impl Store {
    /// Whether a block is kept before it changes.
    fn keeps(&self, block: usize) -> bool {
        !(self.is_unused[block] && self.was_unused[block])
    }

    fn made(self, number: usize, is_newest: bool, boot: &[u8]) -> MadeCopy {
        let mut blocks = BTreeMap::new();
        for (block, content) in self.content.iter().enumerate() {
            let is_free = is_newest && !self.keeps(block) && !self.overlays.contains_key(&block);
            if self.is_kept[block] {
                blocks.insert(block * BLOCK_BYTES, content.clone());
            } else if is_free {
                blocks.insert(block * BLOCK_BYTES, vec![0; BLOCK_BYTES]);
            }
        }
        blocks.insert(0, boot.to_vec());
        let hours = 2 + number;
        MadeCopy { id: guid_text(&guid(number, 1)), created: format!("2022-06-17T{hours:02}:33:20Z"), blocks }
    }
}

impl Descriptor {
    fn bytes(&self) -> Vec<u8> {
        let numbers = [self.original, self.relative, self.at];
        let flags = [self.flags, self.sectors];
        numbers.iter().flat_map(|one| one.to_le_bytes()).chain(flags.iter().flat_map(|one| one.to_le_bytes())).collect()
    }
}

/// A volume in which much happened, and its shadow copies.
pub fn random(seed: u64) -> Made {
    let mut random = Random(seed ^ 0x5eed);
    let blocks = 8 + random.below(24);
    let mut volume = Volume::new(blocks, seed);
    for _ in 0..1 + random.below(4) {
        volume.copy();
        for _ in 0..random.below(4) {
            let block = 1 + random.below(blocks - 1);
            volume.write_to_copy(block, random.next() as u32 & random.next() as u32);
        }
        for _ in 0..random.below(40) {
            let (one, other) = (1 + random.below(blocks - 1), 1 + random.below(blocks - 1));
            match random.below(5) {
                0 | 1 => volume.write(one),
                2 => volume.free(one),
                _ => volume.shift(one, other),
            }
        }
    }
    volume.finish()
}

/// The boot sector of an NTFS volume.
fn boot_sector(sectors: usize) -> Vec<u8> {
    let mut boot = vec![0; SECTOR_BYTES];
    // Sectors of 512 bytes, clusters of 8.
    boot[..14].copy_from_slice(b"\xeb\x52\x90NTFS    \0\x02\x08");
    boot[21] = 0xf8;
    boot[40..48].copy_from_slice(&offset_bytes(sectors - 1));
    // The table of files and its copy, and the sizes of their records.
    (boot[48], boot[56], boot[64], boot[68]) = (4, 2, 0xf6, 0xf6);
    boot[510..].copy_from_slice(&[0x55, 0xaa]);
    boot
}

fn offset(block: usize) -> u64 {
    (block * BLOCK_BYTES) as u64
}

fn offset_bytes(offset: usize) -> [u8; 8] {
    (offset as u64).to_le_bytes()
}

/// The identifier of a store (0) or of a shadow copy (1).
fn guid(number: usize, kind: u8) -> [u8; 16] {
    let mut guid = [0xa0 | kind; 16];
    guid[0] = number as u8;
    guid
}

fn guid_text(guid: &[u8; 16]) -> String {
    let hex = |range: std::ops::Range<usize>| guid[range].iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let first: String = guid[..4].iter().rev().map(|byte| format!("{byte:02x}")).collect();
    // All other bytes are the same, in any order.
    format!("{first}-{}-{}-{}-{}", hex(4..6), hex(6..8), hex(8..10), hex(10..16))
}

/// What follows the header in the block of a store: identifiers, and the machine.
fn store_information(number: usize) -> Vec<u8> {
    let mut bytes =
        [&[0x11; 16][..], &guid(number, 1), &[0x22; 16], &[9, 0, 0, 0, 1, 0, 0, 0, 9, 0, 0x42, 0, 0, 0, 0, 0]].concat();
    for _ in 0..2 {
        bytes.extend([6, 0]);
        bytes.extend("LAB".encode_utf16().flat_map(u16::to_le_bytes));
    }
    bytes
}

/// A bitmap; the bits of blocks behind the others are set, too.
fn bits(blocks: &[bool]) -> Vec<u8> {
    let mut bytes = vec![0xff; BLOCK_BYTES - 128];
    for (block, _) in blocks.iter().enumerate().filter(|(_, is_set)| !**is_set) {
        bytes[block / 8] &= !(1 << (block % 8));
    }
    bytes
}
