//! Checks that an extent of a VMDK holds every grain that its tables refer to ("Virtual Disk Format 5.0"; for the kinds that it
//! leaves out, block/vmdk.c in QEMU's sources).

use cheetah_device::ByteRange;
use cheetah_device::le::{u32_at, u64_at};

use super::file::{Places, cut, read, size, table};
use crate::note::ImageNote;
use crate::raw::RawFile;
use cheetah_error::{Error, Result};

/// The signatures of the kinds of sparse extents: hosted, of VMFS, and space-efficient.
pub(super) const SPARSE: &[u8] = b"KDMV";
pub(super) const VMFS_SPARSE: &[u8] = b"COWD";
pub(super) const SE_SPARSE: &[u8] = &[0xbe, 0xba, 0xfe, 0xca, 0, 0, 0, 0];

/// The unit of sizes and offsets.
const SECTOR: u64 = 512;
/// Flags of a hosted extent: an entry of 1 is a grain of zeros; grains are compressed.
const ZERO_GRAINS: u32 = 1 << 2;
const COMPRESSED: u32 = 1 << 16;
/// The place of the directory in a header of which a copy at the end has the right one.
const AT_END: u64 = u64::MAX;
/// The maximum number of entries of a directory: 2 TiB need 64 Ki.
const DIRECTORY_MAX: u64 = 2 << 20;
/// The maximum number of entries of a table in qemu.
const TABLE_MAX: u64 = 4096;
/// Bytes before a compressed grain: its place in the disk, and its length.
const MARKER_LEN: u64 = 12;

/// The directory of an extent's tables, and the form of its grains.
struct Directory {
    /// Its offset in bytes, and its number of entries.
    at: u64,
    entries: u64,
    /// Entries in a table, and bytes in an entry.
    table_entries: u64,
    entry_bytes: u64,
    grain_bytes: u64,
    form: Form,
}

enum Form {
    Hosted {
        zero_grains: bool,
        compressed: bool,
    },
    Vmfs,
    /// The offsets of the tables and of the grains, in bytes.
    SpaceEfficient {
        tables: u64,
        grains: u64,
    },
}

/// Refuses an extent that is cut short; returns what is in doubt. An extent without a signature is plain data,
/// and not checked.
pub(super) fn check(file: &RawFile) -> Result<Option<ImageNote>> {
    let start = read(file, 0, SECTOR)?;
    let damaged = |why: &str| Error::evidence(format!("{}: an extent of a VMDK {why}", file.path()));
    let directory = match () {
        () if start.starts_with(SPARSE) => hosted(file, &start)?,
        () if start.starts_with(VMFS_SPARSE) => vmfs(&start),
        () if start.starts_with(SE_SPARSE) => space_efficient(&start),
        () => return Ok(None),
    };
    let directory = directory.filter(|directory| {
        (1..=TABLE_MAX).contains(&directory.table_entries)
            && directory.grain_bytes > 0
            && directory.entries <= DIRECTORY_MAX
    });
    let directory = directory.ok_or_else(|| damaged("whose header is damaged"))?;
    directory.check(file)
}

fn hosted(file: &RawFile, start: &[u8]) -> Result<Option<Directory>> {
    let footer;
    let header = if u64_at(start, 56) == AT_END {
        // Before the last sector, which marks the end.
        footer = read(file, (size(file) / SECTOR * SECTOR).saturating_sub(2 * SECTOR), SECTOR)?;
        if !footer.starts_with(SPARSE) || u64_at(&footer, 56) == AT_END {
            return Err(cut(file, "the directory of its content, of which there is no trace at its end,", size(file)));
        }
        &footer[..]
    } else {
        start
    };
    let flags = u32_at(header, 8);
    let (capacity, grain, table_entries) = (u64_at(header, 12), u64_at(header, 20), u64::from(u32_at(header, 44)));
    let form = Form::Hosted { zero_grains: flags & ZERO_GRAINS != 0, compressed: flags & COMPRESSED != 0 };
    Ok(Directory::of(u64_at(header, 56), capacity, (grain, table_entries), form))
}

fn vmfs(header: &[u8]) -> Option<Directory> {
    let number = |at| u64::from(u32_at(header, at));
    let directory = Directory::of(number(20), number(12), (number(16), 4096), Form::Vmfs)?;
    Some(Directory { entries: number(24), ..directory })
}

fn space_efficient(header: &[u8]) -> Option<Directory> {
    let field = |number: usize| u64_at(header, number * 8);
    let place = |number| field(number).checked_mul(SECTOR);
    Some(Directory {
        at: place(16)?,
        entries: place(17)? / 8,
        table_entries: place(4)? / 8,
        entry_bytes: 8,
        grain_bytes: place(3)?,
        form: Form::SpaceEfficient { tables: place(18)?, grains: place(24)? },
    })
}

impl Directory {
    /// A directory of 32-bit entries; `None` if its numbers are absurd.
    fn of(at: u64, capacity: u64, (grain, table_entries): (u64, u64), form: Form) -> Option<Self> {
        let in_table = grain.checked_mul(table_entries).filter(|sectors| *sectors > 0)?;
        Some(Self {
            at: at.checked_mul(SECTOR)?,
            entries: capacity.div_ceil(in_table),
            table_entries,
            entry_bytes: 4,
            grain_bytes: grain.checked_mul(SECTOR)?,
            form,
        })
    }

    fn check(&self, file: &RawFile) -> Result<Option<ImageNote>> {
        let mut places = Places::of(file);
        let mut last_packed = None;
        for at in self.tables(file)? {
            let range = ByteRange::new(at, self.table_entries * self.entry_bytes);
            table(file, "a table of grains", range, |piece| {
                piece.chunks_exact(self.entry_bytes as usize).try_for_each(|entry| match self.grain(entry) {
                    None => Ok(()),
                    Some(at) if self.is_compressed() => {
                        last_packed = last_packed.max(Some(at));
                        if at.saturating_add(MARKER_LEN) > size(file) {
                            Err(cut(file, "content of the disk", at))
                        } else {
                            Ok(())
                        }
                    }
                    Some(at) => places.check(at, self.grain_bytes),
                })
            })?;
        }
        if let Some(at) = last_packed {
            let marker = read(file, at, MARKER_LEN)?;
            let end = at + MARKER_LEN + u64::from(u32_at(&marker, 8));
            if end > size(file) {
                return Err(cut(file, "the end of the last grain", end));
            }
        }
        Ok(places.note())
    }

    const fn is_compressed(&self) -> bool {
        matches!(self.form, Form::Hosted { compressed: true, .. })
    }

    /// The offsets of the tables, each once.
    fn tables(&self, file: &RawFile) -> Result<Vec<u64>> {
        let mut tables = Vec::new();
        table(
            file,
            "the directory of its content",
            ByteRange::new(self.at, self.entries * self.entry_bytes),
            |piece| {
                tables.extend(piece.chunks_exact(self.entry_bytes as usize).filter_map(|entry| self.table_at(entry)));
                Ok(())
            },
        )?;
        tables.sort_unstable();
        tables.dedup();
        Ok(tables)
    }

    fn table_at(&self, entry: &[u8]) -> Option<u64> {
        match self.form {
            Form::SpaceEfficient { tables, .. } => {
                let number = u64_at(entry, 0);
                let bytes = self.table_entries * self.entry_bytes;
                (number != 0).then(|| tables.saturating_add((number & 0xffff_ffff).saturating_mul(bytes)))
            }
            _ => Some(u64::from(u32_at(entry, 0)) * SECTOR).filter(|at| *at != 0),
        }
    }

    /// The offset of a grain; `None` if it has no place in the file.
    fn grain(&self, entry: &[u8]) -> Option<u64> {
        match self.form {
            Form::SpaceEfficient { grains, .. } => {
                let entry = u64_at(entry, 0);
                let number = (entry & 0x0fff_0000_0000_0000) >> 48 | (entry & 0x0000_ffff_ffff_ffff) << 12;
                (entry >> 60 == 3).then(|| grains.saturating_add(number.saturating_mul(self.grain_bytes)))
            }
            Form::Hosted { zero_grains: true, .. } if u32_at(entry, 0) == 1 => None,
            _ => Some(u64::from(u32_at(entry, 0)) * SECTOR).filter(|at| *at != 0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    fn checked(bytes: &[u8]) -> Result<Option<ImageNote>> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(bytes).unwrap();
        check(&RawFile::open(file.path()).unwrap())
    }

    fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
        bytes[at..at + value.len()].copy_from_slice(value);
    }

    /// An extent of each kind with a directory in sector 1, a table from sector 8 on, and two grains of 8 sectors.
    fn extents() -> Vec<(&'static str, Vec<u8>)> {
        const LEN: usize = (8 + 64 + 16) * 512;
        let mut hosted = vec![0; LEN];
        put(&mut hosted, 0, SPARSE);
        put(&mut hosted, 12, &64u64.to_le_bytes());
        put(&mut hosted, 20, &8u64.to_le_bytes());
        put(&mut hosted, 44, &512u32.to_le_bytes());
        put(&mut hosted, 56, &1u64.to_le_bytes());
        let mut vmfs = vec![0; LEN];
        put(&mut vmfs, 0, VMFS_SPARSE);
        put(&mut vmfs, 12, &[64u32, 8, 1, 1].map(u32::to_le_bytes).concat());
        for extent in [&mut hosted, &mut vmfs] {
            put(extent, 512, &8u32.to_le_bytes());
            put(extent, 8 * 512, &[72u32, 0, 80].map(u32::to_le_bytes).concat());
        }
        let mut efficient = vec![0; LEN];
        put(&mut efficient, 0, SE_SPARSE);
        for (field, value) in [(2, 64u64), (3, 8), (4, 64), (16, 1), (17, 1), (18, 8), (19, 64), (24, 72), (25, 16)] {
            put(&mut efficient, field * 8, &value.to_le_bytes());
        }
        put(&mut efficient, 512, &(1u64 << 60).to_le_bytes());
        put(&mut efficient, 8 * 512, &[3u64 << 60, 0, 3 << 60 | 1 << 48].map(u64::to_le_bytes).concat());
        let mut packed = hosted.clone();
        put(&mut packed, 8, &COMPRESSED.to_le_bytes());
        put(&mut packed, 80 * 512 + 8, &(8 * 512 - 12u32).to_le_bytes());
        vec![("hosted", hosted), ("VMFS", vmfs), ("space-efficient", efficient), ("compressed", packed)]
    }

    #[test]
    fn every_grain_of_every_kind_of_extent_must_be_in_the_file() {
        for (kind, extent) in extents() {
            assert_eq!(checked(&extent).unwrap(), None, "{kind}");
            for len in [80 * 512, 79 * 512, 72 * 512, 9 * 512, 8 * 512, 600] {
                let refused = checked(&extent[..len]).unwrap_err();
                assert!(refused.is_evidence(), "{kind} {len}: {refused}");
            }
            match checked(&extent[..extent.len() - 512]) {
                Ok(note) => {
                    assert!(kind != "compressed" && matches!(note, Some(ImageNote::PieceCut { .. })), "{kind}");
                }
                Err(refused) => assert!(kind == "compressed", "{kind}: {refused}"),
            }
        }
        let mut zeros = extents().remove(0).1;
        put(&mut zeros, 8, &ZERO_GRAINS.to_le_bytes());
        put(&mut zeros, 8 * 512, &[1u32, 0, 0].map(u32::to_le_bytes).concat());
        assert_eq!(checked(&zeros[..12 * 512]).unwrap(), None);
    }

    #[test]
    fn a_directory_at_the_end_must_be_there() {
        let mut extent = extents().remove(0).1;
        let footer = extent[..512].to_vec();
        put(&mut extent, 56, &AT_END.to_le_bytes());
        assert!(checked(&extent).is_err());
        extent.extend(footer);
        extent.extend([0; 512]);
        assert_eq!(checked(&extent).unwrap(), None);
    }
}
