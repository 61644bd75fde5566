//! A reference model of arrays: bytes are placed one chunk at a time, by the formulas of the kernel (`raid5_compute_sector`,
//! `raid6_idx_to_slot`, `map_sector`, `__raid10_find_phys`), and superblocks are written field by field. It shares no code with what it
//! tests.

/// The shape of an array: sizes in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shape {
    pub level: i32,
    pub layout: u32,
    pub chunk: usize,
    /// The length of each member's data.
    pub lens: Vec<usize>,
}

impl Shape {
    /// An array with this number of members and of rows.
    pub fn new(level: i32, layout: u32, chunk: usize, members: usize, rows: usize) -> Self {
        Self { level, layout, chunk, lens: vec![rows * chunk; members] }
    }

    pub fn members(&self) -> usize {
        self.lens.len()
    }

    pub fn rows(&self) -> usize {
        self.lens[0] / self.chunk
    }

    /// The number of chunks.
    pub fn chunks(&self) -> usize {
        let (members, rows) = (self.members(), self.rows());
        match self.level {
            -1 | 0 => self.lens.iter().map(|len| len / self.chunk).sum(),
            1 => rows,
            4 | 5 => rows * (members - 1),
            6 => rows * (members - 2),
            10 => rows * members / (self.layout & 0xff) as usize,
            _ => unreachable!(),
        }
    }

    /// The data of each member of an array with this content.
    pub fn spread(&self, content: &[u8]) -> Vec<Vec<u8>> {
        assert_eq!(content.len(), self.chunks() * self.chunk);
        let mut data: Vec<Vec<u8>> = self.lens.iter().map(|len| vec![0xee; *len]).collect();
        for (number, chunk) in content.chunks(self.chunk).enumerate() {
            for (member, row) in self.places(number) {
                data[member][row * self.chunk..][..self.chunk].copy_from_slice(chunk);
            }
        }
        if matches!(self.level, 4..=6) {
            (0..self.rows()).for_each(|row| self.add_parity(row, &mut data));
        }
        data
    }

    /// The members that hold a chunk, and in which row.
    pub fn places(&self, number: usize) -> Vec<(usize, usize)> {
        let members = self.members();
        match self.level {
            -1 => {
                let mut rest = number;
                for (member, len) in self.lens.iter().enumerate() {
                    if rest < len / self.chunk {
                        return vec![(member, rest)];
                    }
                    rest -= len / self.chunk;
                }
                unreachable!()
            }
            0 => vec![self.striped(number)],
            1 => (0..members).map(|member| (member, number)).collect(),
            10 => {
                let near = (self.layout & 0xff) as usize;
                let (mut row, mut member) = (number * near / members, number * near % members);
                let mut places = Vec::new();
                for _ in 0..near {
                    places.push((member, row));
                    member += 1;
                    if member >= members {
                        (member, row) = (0, row + 1);
                    }
                }
                places
            }
            _ => {
                let data = members - if self.level == 6 { 2 } else { 1 };
                let row = number / data;
                vec![(self.sector(row, number % data).0, row)]
            }
        }
    }

    /// Kernel, `map_sector`: the zones of members of different sizes.
    fn striped(&self, number: usize) -> (usize, usize) {
        let rows: Vec<_> = self.lens.iter().map(|len| len / self.chunk).collect();
        let mut ends = rows.clone();
        ends.sort_unstable();
        ends.dedup();
        let (mut zone_start, mut row_start) = (0, 0);
        for end in ends {
            let larger: Vec<_> = (0..rows.len()).filter(|member| rows[*member] > row_start).collect();
            let zone_chunks = (end - row_start) * larger.len();
            if number < zone_start + zone_chunks {
                let in_zone = number - zone_start;
                let turn = if self.layout == 1 { number } else { in_zone };
                return (larger[turn % larger.len()], row_start + in_zone / larger.len());
            }
            zone_start += zone_chunks;
            row_start = end;
        }
        unreachable!()
    }

    /// Kernel, `raid5_compute_sector`: the members that hold a chunk of data of a row, P and Q.
    fn sector(&self, row: usize, data: usize) -> (usize, usize, Option<usize>) {
        let disks = self.members();
        let turn = row % disks;
        match (self.level, self.layout) {
            (4, _) | (5, 5) => (data, disks - 1, None),
            (5, 0 | 1) => {
                let pd = if self.layout == 0 { disks - 1 - turn } else { turn };
                (if data >= pd { data + 1 } else { data }, pd, None)
            }
            (5, 2 | 3) => {
                let pd = if self.layout == 2 { disks - 1 - turn } else { turn };
                ((pd + 1 + data) % disks, pd, None)
            }
            (5, 4) => (data + 1, 0, None),
            (6, 0 | 1) => {
                let pd = if self.layout == 0 { disks - 1 - turn } else { turn };
                if pd == disks - 1 {
                    (data + 1, pd, Some(0))
                } else {
                    (if data >= pd { data + 2 } else { data }, pd, Some(pd + 1))
                }
            }
            (6, 2 | 3) => {
                let pd = if self.layout == 2 { disks - 1 - turn } else { turn };
                ((pd + 2 + data) % disks, pd, Some((pd + 1) % disks))
            }
            (6, 4) => (data + 2, 0, Some(1)),
            (6, 5) => (data, disks - 2, Some(disks - 1)),
            _ => unreachable!(),
        }
    }

    /// Computes P and Q of a row, byte by byte. Q begins with the highest power, of the last slot: kernel, `raid6_idx_to_slot`.
    fn add_parity(&self, row: usize, data: &mut [Vec<u8>]) {
        let disks = self.members();
        let (_, p, q) = self.sector(row, 0);
        let first = q.map_or(0, |q| (q + 1) % disks);
        let slots: Vec<_> =
            (0..disks).map(|slot| (first + slot) % disks).filter(|disk| *disk != p && Some(*disk) != q).collect();
        for at in (0..self.chunk).map(|at| row * self.chunk + at) {
            let (mut sum, mut weighted) = (0, 0u8);
            for disk in slots.iter().rev() {
                sum ^= data[*disk][at];
                weighted = weighted << 1 ^ (if weighted & 0x80 != 0 { 0x1d } else { 0 }) ^ data[*disk][at];
            }
            data[p][at] = sum;
            if let Some(q) = q {
                data[q][at] = weighted;
            }
        }
    }
}

/// The version of a superblock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    Old { big_endian: bool },
    New { minor: u8 },
}

/// What the superblock of a member says, beside the shape.
#[derive(Debug, Clone)]
pub struct Superblock {
    pub version: Version,
    pub id: u8,
    pub name: &'static str,
    pub events: u64,
    pub is_clean: bool,
    pub features: u32,
    /// The role of each device; `0xfffe` has failed, `0xffff` is a spare.
    pub roles: Vec<u16>,
    /// Bad blocks, in sectors from the start of the data: only with the feature.
    pub bad: Vec<(u64, u64)>,
}

impl Superblock {
    pub fn new(version: Version, members: usize) -> Self {
        let roles = (0..members as u16).collect();
        Self { version, id: 7, name: "lab:home", events: 20, is_clean: true, features: 0, roles, bad: Vec::new() }
    }

    /// Where the data begin.
    pub fn data_offset(&self) -> usize {
        match self.version {
            Version::Old { .. } | Version::New { minor: 0 } => 0,
            Version::New { minor: 1 } => 8 << 10,
            Version::New { .. } => 16 << 10,
        }
    }

    /// A member: its superblock around its data.
    pub fn member(&self, shape: &Shape, number: usize, data: &[u8]) -> Vec<u8> {
        match self.version {
            Version::Old { big_endian } => {
                let at = data.len().next_multiple_of(64 << 10);
                let mut member = data.to_vec();
                member.resize(at, 0xcc);
                member.extend(self.old(shape, number, big_endian));
                member.resize(at + (64 << 10), 0);
                member
            }
            Version::New { minor } => {
                let start = self.data_offset();
                let len = start + data.len() + if minor == 0 { 24 << 10 } else { 0 };
                let at = [(len / 512 - 16) / 8 * 8 * 512, 0, 4096][usize::from(minor)];
                let mut member = vec![0xcc; len];
                member[start..start + data.len()].copy_from_slice(data);
                let superblock = self.new_one(shape, number, at, data.len());
                member[at..at + superblock.len()].copy_from_slice(&superblock);
                if !self.bad.is_empty() {
                    let list = &mut member[at + 2048..at + 2560];
                    list.fill(0xff);
                    for (entry, (first, count)) in list.chunks_exact_mut(8).zip(&self.bad) {
                        let first = first + (start / 512) as u64;
                        entry.copy_from_slice(&(first << 10 | count).to_le_bytes());
                    }
                }
                member
            }
        }
    }

    fn new_one(&self, shape: &Shape, number: usize, at: usize, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; 256 + 2 * self.roles.len()];
        let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
        let size = shape.lens.iter().min().unwrap() / 512;
        let features = self.features | if shape.level == 0 && shape.layout != 0 { 4096 } else { 0 };
        put(0, &0xa92b_4efcu32.to_le_bytes());
        put(4, &1u32.to_le_bytes());
        put(8, &features.to_le_bytes());
        put(16, &[self.id; 16]);
        put(32, self.name.as_bytes());
        put(72, &shape.level.to_le_bytes());
        put(76, &shape.layout.to_le_bytes());
        put(80, &(size as u64).to_le_bytes());
        put(88, &(shape.chunk as u32 / 512).to_le_bytes());
        put(92, &(shape.members() as u32).to_le_bytes());
        put(128, &(self.data_offset() as u64 / 512).to_le_bytes());
        put(136, &(len as u64 / 512).to_le_bytes());
        put(144, &(at as u64 / 512).to_le_bytes());
        put(160, &(number as u32).to_le_bytes());
        if features & 8 != 0 {
            put(186, &1u16.to_le_bytes());
            put(188, &4u32.to_le_bytes());
        }
        put(200, &self.events.to_le_bytes());
        put(208, &(if self.is_clean { u64::MAX } else { 0 }).to_le_bytes());
        put(220, &(self.roles.len() as u32).to_le_bytes());
        for (index, role) in self.roles.iter().enumerate() {
            put(256 + 2 * index, &role.to_le_bytes());
        }
        seal_new(&mut bytes);
        bytes
    }

    fn old(&self, shape: &Shape, number: usize, big_endian: bool) -> Vec<u8> {
        let mut words = vec![0u32; 1024];
        words[0] = 0xa92b_4efc;
        words[2] = 90;
        [5, 13, 14, 15].into_iter().for_each(|word| words[word] = u32::from(self.id) * 0x0101_0101);
        words[7] = shape.level as u32;
        words[8] = (shape.lens.iter().min().unwrap() / 1024) as u32;
        words[10] = shape.members() as u32;
        words[11] = 127;
        words[33] = u32::from(self.is_clean);
        words[if big_endian { 40 } else { 39 }] = self.events as u32;
        words[64] = shape.layout;
        words[65] = shape.chunk as u32;
        for (index, role) in self.roles.iter().enumerate() {
            let state = if *role < 0xff00 { 6 } else { 9 };
            words[128 + 32 * index..][..5].copy_from_slice(&[index as u32, 8, 1, u32::from(*role), state]);
        }
        words[992] = number as u32;
        let sum: u64 = words.iter().map(|word| u64::from(*word)).sum();
        words[38] = (sum as u32).wrapping_add((sum >> 32) as u32);
        words.iter().flat_map(|word| if big_endian { word.to_be_bytes() } else { word.to_le_bytes() }).collect()
    }
}

/// Writes the checksum of a superblock that has roles up to its end.
pub fn seal_new(bytes: &mut [u8]) {
    bytes[216..220].fill(0);
    let mut sum = 0u64;
    for word in bytes.chunks(4) {
        let mut four = [0; 4];
        four[..word.len()].copy_from_slice(word);
        sum += u64::from(u32::from_le_bytes(four));
    }
    bytes[216..220].copy_from_slice(&((sum as u32).wrapping_add((sum >> 32) as u32)).to_le_bytes());
}
