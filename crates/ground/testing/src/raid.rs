//! Members of arrays of Linux's software RAID, made from the description of the format (Linux: `include/uapi/linux/raid/md_p.h`), and
//! disks with partitions.

// Sizes of some MiB.
#![allow(clippy::cast_possible_truncation)]

/// The chunks of a RAID 5, and where the superblock and the data of a member begin.
const CHUNK: usize = 64 << 10;
const SUPERBLOCK_AT: usize = 4096;
const DATA_AT: usize = 256 << 10;
/// Where the first partition of a disk begins, and of what their sizes are multiples.
const FIRST_AT: usize = 1 << 20;
const PARTITION_UNIT: usize = 64 << 10;

/// What the superblocks of an array say.
struct Array<'a> {
    name: &'a str,
    level: u32,
    members: u16,
    data_bytes: usize,
}

impl Array<'_> {
    /// The start of a member: its superblock, of version 1.2, and the place up to its data.
    fn head(&self, number: u32) -> Vec<u8> {
        let sectors = |bytes: usize| (bytes as u64 / 512).to_le_bytes();
        let mut block = vec![0; 256];
        let mut put = |at: usize, bytes: &[u8]| block[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, &0xa92b_4efc_u32.to_le_bytes());
        put(4, &1_u32.to_le_bytes());
        // Its identifier.
        let id: Vec<_> = self.name.bytes().cycle().take(16).collect();
        put(16, &id);
        put(32, format!("lab:{}", self.name).as_bytes());
        put(72, &self.level.to_le_bytes());
        // Left symmetric.
        put(76, &2_u32.to_le_bytes());
        put(80, &sectors(self.data_bytes));
        put(88, &(CHUNK as u32 / 512).to_le_bytes());
        put(92, &u32::from(self.members).to_le_bytes());
        put(128, &sectors(DATA_AT));
        put(136, &sectors(self.data_bytes));
        put(144, &sectors(SUPERBLOCK_AT));
        put(160, &number.to_le_bytes());
        // Its count of events, and where a resynchronization has arrived: at the end.
        put(200, &7_u64.to_le_bytes());
        put(208, &u64::MAX.to_le_bytes());
        // As many roles as make whole words.
        let roles: Vec<_> = (0..self.members.next_multiple_of(2)).collect();
        put(220, &(roles.len() as u32).to_le_bytes());
        for role in roles {
            let role = if role < self.members { role } else { u16::MAX };
            block.extend(role.to_le_bytes());
        }
        let sum: u64 = block.as_chunks::<4>().0.iter().map(|word| u64::from(u32::from_le_bytes(*word))).sum();
        block[216..220].copy_from_slice(&(sum as u32).wrapping_add((sum >> 32) as u32).to_le_bytes());
        let mut head = vec![0; DATA_AT];
        head[SUPERBLOCK_AT..][..block.len()].copy_from_slice(&block);
        head
    }
}

/// The members of a RAID 5 (left symmetric) of three with this content, and zeros up to the end of a row.
pub fn raid5(name: &str, content: &[u8]) -> Vec<Vec<u8>> {
    let rows = content.len().div_ceil(2 * CHUNK);
    let array = Array { name, level: 5, members: 3, data_bytes: rows * CHUNK };
    let mut members: Vec<_> = (0..3).map(|number| array.head(number)).collect();
    let chunk = |number: usize| {
        let mut bytes = content.iter().skip(number * CHUNK).take(CHUNK).copied().collect::<Vec<_>>();
        bytes.resize(CHUNK, 0);
        bytes
    };
    for row in 0..rows {
        let (first, second) = (chunk(2 * row), chunk(2 * row + 1));
        let parity = 2 - row % 3;
        members[parity].extend(first.iter().zip(&second).map(|(one, other)| one ^ other));
        members[(parity + 1) % 3].extend(first);
        members[(parity + 2) % 3].extend(second);
    }
    members
}

/// The first of the two members of a RAID 1 with this content, whose length is a multiple of a sector.
pub fn mirror(name: &str, content: &[u8]) -> Vec<u8> {
    let array = Array { name, level: 1, members: 2, data_bytes: content.len() };
    [array.head(0).as_slice(), content].concat()
}

/// A disk with an MBR and these partitions, of at most four, each of a type.
pub fn disk(partitions: &[(u8, &[u8])]) -> Vec<u8> {
    let mut disk = vec![0; FIRST_AT];
    for (index, (kind, content)) in partitions.iter().enumerate() {
        let (start, len) = (disk.len(), content.len().next_multiple_of(PARTITION_UNIT));
        let entry = &mut disk[446 + 16 * index..][..16];
        entry[4] = *kind;
        entry[8..12].copy_from_slice(&(start as u32 / 512).to_le_bytes());
        entry[12..16].copy_from_slice(&(len as u32 / 512).to_le_bytes());
        disk.extend(*content);
        disk.resize(start + len, 0);
    }
    disk[510..512].copy_from_slice(&[0x55, 0xaa]);
    disk
}
