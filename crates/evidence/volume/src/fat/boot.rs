//! The boot sector: the layout of the volume.

use cheetah_device::ByteRange;

use cheetah_device::le::{u16_at, u32_at, u64_at};

const SECTOR_BYTES: usize = 512;
/// The sectors of the boot sector and of its copies, used if it was wiped: FAT32's and exFAT's.
const PLACES: [usize; 3] = [0, 6 * SECTOR_BYTES, 12 * SECTOR_BYTES];
/// The maximum number of clusters by the specifications; numbering starts at 2.
const FIRST: u32 = 2;
const CLUSTERS_MAX_FAT12: u64 = 4084;
const CLUSTERS_MAX_FAT16: u64 = 65_524;
const CLUSTERS_MAX_FAT32: u64 = 0x0fff_fff5;
const CLUSTERS_MAX_EXFAT: u64 = 0xffff_fff5;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Fat12,
    Fat16,
    Fat32,
    ExFat,
}

/// The position of the root directory.
#[derive(Debug, Clone, Copy)]
pub(super) enum Root {
    /// Before the clusters.
    Fixed(ByteRange),
    /// In the chain that starts with this cluster.
    Chain(u32),
}

/// The layout of the volume. No product of these numbers overflows.
#[derive(Debug, Clone)]
pub(super) struct Geometry {
    pub kind: Kind,
    pub volume_bytes: u64,
    /// The size of a cluster.
    pub cluster_bytes: u64,
    /// The number of clusters.
    pub clusters: u32,
    /// The first file allocation table.
    pub table: ByteRange,
    pub root: Root,
    /// The offset of the first cluster.
    heap: u64,
}

impl Geometry {
    /// Parses the boot sector in the start of a volume; `None` if missing or implausible.
    pub fn parse(start: &[u8]) -> Option<Self> {
        for place in PLACES {
            let sector = start.get(place..place + SECTOR_BYTES)?;
            match u16_at(sector, 510) {
                0xaa55 if sector.get(3..11) == Some(b"EXFAT   ") => return Self::ex_fat(sector),
                0xaa55 => return Self::fat(sector),
                0 => {}
                _ => return None,
            }
        }
        None
    }

    fn fat(sector: &[u8]) -> Option<Self> {
        let byte = |at: usize| u64::from(sector.get(at).copied().unwrap_or(0));
        let either = |short: usize, long: usize| match u16_at(sector, short) {
            0 => u64::from(u32_at(sector, long)),
            short => short.into(),
        };
        let (sector_bytes, cluster_sectors) = (u64::from(u16_at(sector, 11)), byte(13));
        let (reserved, tables, root_entries) = (u64::from(u16_at(sector, 14)), byte(16), u64::from(u16_at(sector, 17)));
        let (sectors, table_sectors) = (either(19, 32), either(22, 36));
        let is_sound = (512..=4096).contains(&sector_bytes)
            && sector_bytes.is_power_of_two()
            && cluster_sectors.is_power_of_two()
            && reserved > 0
            && (1..=8).contains(&tables)
            && table_sectors > 0;
        if !is_sound {
            return None;
        }
        let root_at = reserved + tables * table_sectors;
        let heap = root_at + (root_entries * 32).div_ceil(sector_bytes);
        let clusters = sectors.checked_sub(heap)? / cluster_sectors;
        let kind = if u16_at(sector, 22) == 0 || clusters > CLUSTERS_MAX_FAT16 {
            Kind::Fat32
        } else if clusters > CLUSTERS_MAX_FAT12 {
            Kind::Fat16
        } else {
            Kind::Fat12
        };
        let root = match kind {
            Kind::Fat32 => Root::Chain(u32_at(sector, 44)),
            _ => Root::Fixed(ByteRange::new(root_at * sector_bytes, (heap - root_at) * sector_bytes)),
        };
        Self {
            kind,
            volume_bytes: sectors * sector_bytes,
            cluster_bytes: cluster_sectors * sector_bytes,
            clusters: u32::try_from(clusters.min(CLUSTERS_MAX_FAT32)).ok()?,
            table: ByteRange::new(reserved * sector_bytes, table_sectors * sector_bytes),
            root,
            heap: heap * sector_bytes,
        }
        .with_clusters_of_table()
    }

    fn ex_fat(sector: &[u8]) -> Option<Self> {
        let shift = |at: usize| u32::from(sector.get(at).copied().unwrap_or(u8::MAX));
        let (sector_shift, cluster_shift) = (shift(108), shift(109));
        if !(9..=12).contains(&sector_shift) || sector_shift + cluster_shift > 25 {
            return None;
        }
        let bytes = |sectors: u64| sectors.checked_mul(1 << sector_shift);
        let (volume_bytes, heap) = (bytes(u64_at(sector, 72))?, bytes(u32_at(sector, 88).into())?);
        let cluster_bytes = 1 << (sector_shift + cluster_shift);
        let clusters = u64::from(u32_at(sector, 92)).min(volume_bytes.checked_sub(heap)? / cluster_bytes);
        Self {
            kind: Kind::ExFat,
            volume_bytes,
            cluster_bytes,
            clusters: u32::try_from(clusters.min(CLUSTERS_MAX_EXFAT)).ok()?,
            table: ByteRange::new(bytes(u32_at(sector, 80).into())?, bytes(u32_at(sector, 84).into())?),
            root: Root::Chain(u32_at(sector, 96)),
            heap,
        }
        .with_clusters_of_table()
    }

    /// Drops clusters without an entry in the table; `None` if the layout exceeds the volume.
    fn with_clusters_of_table(mut self) -> Option<Self> {
        let entries = self.table.len.checked_mul(8)? / self.entry_bits();
        self.clusters = self.clusters.min(u32::try_from(entries).unwrap_or(u32::MAX).saturating_sub(FIRST));
        let is_sound =
            self.clusters > 0 && self.table.offset > 0 && self.table.fits(self.heap) && self.heap < self.volume_bytes;
        is_sound.then_some(self)
    }

    /// The size of a table entry, in bits.
    pub fn entry_bits(&self) -> u64 {
        match self.kind {
            Kind::Fat12 => 12,
            Kind::Fat16 => 16,
            Kind::Fat32 | Kind::ExFat => 32,
        }
    }

    /// Whether the cluster exists.
    pub fn has(&self, cluster: u32) -> bool {
        cluster.checked_sub(FIRST).is_some_and(|index| index < self.clusters)
    }

    /// The range of `count` clusters from `first`, as far as they exist.
    pub fn range(&self, first: u32, count: u32) -> ByteRange {
        let Some(index) = first.checked_sub(FIRST).filter(|index| *index < self.clusters) else {
            return ByteRange::new(0, 0);
        };
        let count = u64::from(count.min(self.clusters - index));
        ByteRange::new(self.heap + u64::from(index) * self.cluster_bytes, count * self.cluster_bytes)
    }

    /// The number of clusters that `bytes` take.
    pub fn clusters_for(&self, bytes: u64) -> u32 {
        u32::try_from(bytes.div_ceil(self.cluster_bytes)).unwrap_or(u32::MAX)
    }
}
