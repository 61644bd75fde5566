//! VMware's descriptors ("Virtual Disk Format 5.0"): which files a disk is made of.

use std::path::Path;

use super::check::{read, size};
use crate::error::{Error, Result};
use crate::raw::RawFile;

/// Bytes of a descriptor that are read: VMware's own are below 20 KiB.
const DESCRIPTOR_LEN_MAX: u64 = 1 << 20;

/// What the sparse header and the descriptor count in.
const SECTOR: u64 = 512;

/// Refuses a disk that has a parent, is encrypted, or is made of files elsewhere.
pub(super) fn check(path: &Path, file: &RawFile) -> Result<()> {
    let refuse = |why: String| Error::failed(format!("{}: {why}", path.display()));
    let start = read(file, 0, SECTOR)?;
    let (texts, is_alone) =
        if start.starts_with(b"KDMV") { embedded(file, &start)? } else { (vec![whole(file)?], false) };
    let descriptors = texts.iter().map(|text| Descriptor::parse(text)).collect::<std::result::Result<Vec<_>, _>>();
    let descriptors = descriptors.map_err(|why| refuse(why.into()))?;
    // A sparse disk with its descriptor inside is the only extent it has; the descriptor then has its name of old.
    for name in descriptors.iter().flat_map(|descriptor| &descriptor.extents).filter(|_| !is_alone) {
        let extent = path.with_file_name(name);
        if !extent.is_file() {
            return Err(Error::Evidence(format!(
                "{}: its extent {name} is missing; put all files of the disk in one folder",
                path.display()
            )));
        }
    }
    Ok(())
}

/// The descriptors in a sparse extent's header, and whether the extent holds data too. The header says where the
/// descriptor is; but qemu looks for the parent in the second sector, whatever the header says.
fn embedded(file: &RawFile, header: &[u8]) -> Result<(Vec<String>, bool)> {
    let u64_at =
        |at: usize| header.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |bytes| u64::from_le_bytes(*bytes));
    let (capacity, offset, len) = (u64_at(12), u64_at(28), u64_at(36));
    if offset == 0 || len == 0 {
        let what = "an extent of a VMDK without its descriptor; give the descriptor, the small .vmdk file beside it";
        return Err(Error::failed(format!("{}: {what}", file.path())));
    }
    // To the first NUL, as qemu does, and not as far as the header says.
    let at = |sector: u64| Ok(text(read(file, sector.saturating_mul(SECTOR), DESCRIPTOR_LEN_MAX)?));
    Ok((vec![at(offset)?, at(1)?], capacity != 0))
}

fn whole(file: &RawFile) -> Result<String> {
    if size(file) > DESCRIPTOR_LEN_MAX {
        return Err(Error::failed(format!("{}: a VMDK descriptor of more than 1 MiB", file.path())));
    }
    Ok(text(read(file, 0, DESCRIPTOR_LEN_MAX)?))
}

/// Up to the first NUL, with which an embedded descriptor is filled up.
fn text(mut bytes: Vec<u8>) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    bytes.truncate(end);
    String::from_utf8_lossy(&bytes).into_owned()
}

/// What matters to us in a descriptor.
#[derive(Debug, PartialEq, Eq)]
struct Descriptor {
    /// Names of the extents' files, beside the descriptor.
    extents: Vec<String>,
}

impl Descriptor {
    fn parse(text: &str) -> std::result::Result<Self, &'static str> {
        const HAS_PARENT: &str = "a VMDK that holds only what differs from another disk (its parent); consolidate the \
            snapshots first, and read the result";
        let mut extents = Vec::new();
        for line in text.lines().map(str::trim) {
            let lower = line.to_ascii_lowercase();
            let parent = lower.strip_prefix("parentcid").and_then(|rest| rest.trim_start().strip_prefix('='));
            if parent.is_some_and(|parent| parent.trim() != "ffffffff") || lower.contains("parentfilenamehint") {
                return Err(HAS_PARENT);
            }
            if lower.starts_with("encryption.") {
                return Err("an encrypted VMDK; decrypt it first");
            }
            if lower.split_ascii_whitespace().next().is_some_and(|word| ["rw", "rdonly", "noaccess"].contains(&word)) {
                extents.extend(extent(line)?);
            }
        }
        Ok(Self { extents })
    }
}

/// `ACCESS SECTORS TYPE "FILE" OFFSET`: the file's name, if the extent has one.
fn extent(line: &str) -> std::result::Result<Option<String>, &'static str> {
    let kind = line.split_ascii_whitespace().nth(2).unwrap_or_default().to_ascii_uppercase();
    if kind == "ZERO" {
        return Ok(None);
    }
    if !["FLAT", "SPARSE", "VMFS", "VMFSSPARSE", "SESPARSE"].contains(&kind.as_str()) {
        return Err("a VMDK that stands for a disk of another machine; image that disk itself");
    }
    let name =
        line.split('"').nth(1).filter(|name| !name.is_empty()).ok_or("a VMDK with an extent that has no name")?;
    // A colon could make it a protocol of qemu's, a slash a file anywhere on this machine.
    if name.contains(['/', '\\', ':']) {
        return Err(
            "a VMDK made of files in other folders; put them beside it, and correct their names in its descriptor",
        );
    }
    Ok(Some(name.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FLAT: &str = "# Disk DescriptorFile\nversion=1\nCID=5b1d9b7e\nparentCID=ffffffff\n\
        createType=\"monolithicFlat\"\n\n# Extent description\nRW 20480 FLAT \"disk-flat.vmdk\" 0\nRW 8 ZERO\n";

    #[test]
    fn extents_lie_beside_the_descriptor() {
        assert_eq!(Descriptor::parse(FLAT).unwrap().extents, ["disk-flat.vmdk"]);
        for (was, is, word) in [
            ("disk-flat.vmdk", "/etc/shadow", "other folders"),
            ("disk-flat.vmdk", "..\\\\disk", "other folders"),
            ("disk-flat.vmdk", "json:{}", "other folders"),
            ("\"disk-flat.vmdk\"", "", "no name"),
            ("RW 20480 FLAT \"disk-flat.vmdk\"", "RW\t1\tFLAT\t\"../disk\"", "other folders"),
            ("FLAT", "VMFSRDM", "another machine"),
            ("parentCID=ffffffff", "parentCID = 12345678", "its parent"),
            ("version=1", "parentFileNameHint=\"base.vmdk\"", "its parent"),
            ("version=1", "encryption.keySafe = \"x\"", "encrypted"),
        ] {
            let refused = Descriptor::parse(&FLAT.replace(was, is)).unwrap_err();
            assert!(refused.contains(word), "{is}: {refused}");
        }
    }
}
