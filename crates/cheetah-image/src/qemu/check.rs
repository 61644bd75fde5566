//! Checks a virtual disk before qemu opens it: a disk that refers to other files could make qemu read any file of this
//! machine as evidence.

use std::fmt;
use std::path::Path;

use serde_json::json;

use super::file::{read, size};
use super::vmdk;
use crate::detect::Footer;
use crate::identity::Kind;
use crate::raw::RawFile;
use cheetah_error::{Error, Result};

/// A format that is read through qemu.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Virtual {
    /// QEMU's.
    Qcow2,
    /// VMware's.
    Vmdk,
    /// Virtual PC's.
    Vhd,
    /// Hyper-V's.
    Vhdx,
}

impl Virtual {
    /// Returns the kind in identities.
    pub const fn kind(self) -> Kind {
        match self {
            Self::Qcow2 => Kind::Qcow2,
            Self::Vmdk => Kind::Vmdk,
            Self::Vhd => Kind::Vhd,
            Self::Vhdx => Kind::Vhdx,
        }
    }

    /// Returns the block node for qemu-nbd. It states the format, so that qemu never guesses, and has no backing image.
    pub(super) fn node(self, path: &Path) -> Result<String> {
        let path = path.to_str().ok_or_else(|| {
            Error::failed(format!("{}: qemu-nbd takes only names in UTF-8; rename the file", path.display()))
        })?;
        let file = json!({ "driver": "file", "filename": path });
        let node = match self {
            Self::Qcow2 => json!({ "driver": "qcow2", "file": file, "backing": null }),
            Self::Vmdk => json!({ "driver": "vmdk", "file": file, "backing": null }),
            // By default qemu may take the size from the geometry, which is rounded down and would cut off the end.
            Self::Vhd => json!({ "driver": "vpc", "file": file, "force_size_calc": "current_size" }),
            Self::Vhdx => json!({ "driver": "vhdx", "file": file }),
        };
        Ok(format!("json:{node}"))
    }
}

impl fmt::Display for Virtual {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Qcow2 => "QCOW2",
            Self::Vmdk => "VMDK",
            Self::Vhd => "VHD",
            Self::Vhdx => "VHDX",
        })
    }
}

/// Refuses an image that depends on other files, or is damaged.
pub(super) fn check(path: &Path, format: Virtual) -> Result<()> {
    let file = RawFile::open(path)?;
    let bytes = |offset, len| read(&file, offset, len);
    let objection = match format {
        Virtual::Qcow2 => qcow2(&bytes(0, 104)?),
        Virtual::Vmdk => return vmdk::check(path, &file),
        Virtual::Vhd => vhd(&bytes(size(&file).saturating_sub(512), 512)?, &bytes(0, 512)?),
        // qemu itself refuses a VHDX that has a parent.
        Virtual::Vhdx => None,
    };
    match objection {
        None => Ok(()),
        Some(Objection::Damaged(what)) => Err(Error::Evidence(format!("{}: {what}", path.display()))),
        Some(Objection::NotWhole(what)) => Err(Error::failed(format!("{}: {what}", path.display()))),
    }
}

/// The reason that an image is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Objection {
    /// It violates its format.
    Damaged(&'static str),
    /// It depends on other files.
    NotWhole(&'static str),
}

/// Checks the header (docs/interop/qcow2.txt in QEMU's sources).
fn qcow2(header: &[u8]) -> Option<Objection> {
    const EXTERNAL_DATA: u64 = 1 << 2;
    let u32_at = |at: usize| header.get(at..)?.first_chunk().map(|bytes| u32::from_be_bytes(*bytes));
    let u64_at = |at: usize| header.get(at..)?.first_chunk().map(|bytes| u64::from_be_bytes(*bytes));
    let (Some(version), Some(backing), Some(encryption)) = (u32_at(4), u64_at(8), u32_at(32)) else {
        return Some(Objection::Damaged("a QCOW2 image that is cut short"));
    };
    let features = if version > 2 { u64_at(72) } else { Some(0) };
    match features {
        None => Some(Objection::Damaged("a QCOW2 image that is cut short")),
        _ if backing != 0 => Some(Objection::NotWhole(
            "a QCOW2 image that holds only what differs from another image (its backing file); convert it with qemu-img \
             convert where that image is, and read the result",
        )),
        _ if encryption != 0 => {
            Some(Objection::NotWhole("an encrypted QCOW2 image; decrypt it with qemu-img convert first"))
        }
        Some(features) if features & EXTERNAL_DATA != 0 => Some(Objection::NotWhole(
            "a QCOW2 image whose data is in another file; convert it with qemu-img convert first",
        )),
        Some(_) => None,
    }
}

/// Checks the footer; a dynamic or differencing VHD has a copy at its start, and either is enough.
fn vhd(end: &[u8], start: &[u8]) -> Option<Objection> {
    match Footer::parse(end).or_else(|| Footer::parse(start)) {
        None => Some(Objection::Damaged("a VHD image whose footers are damaged; its end may be missing")),
        Some(Footer { differencing: true, .. }) => Some(Objection::NotWhole(
            "a VHD image that holds only what differs from another image (its parent); merge them first, and read the \
             result",
        )),
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(version: u8, backing: u8, crypt: u8, features: u8) -> Vec<u8> {
        let mut header = vec![0; 104];
        (header[7], header[15], header[35], header[79]) = (version, backing, crypt, features);
        header
    }

    #[test]
    fn a_qcow2_that_needs_more_than_itself_is_refused() {
        assert_eq!(qcow2(&header(2, 0, 0, 0)), None);
        assert_eq!(qcow2(&header(3, 0, 0, 1)), None);
        let refused = |header: &[u8]| match qcow2(header) {
            Some(Objection::NotWhole(why)) => why,
            other => panic!("{other:?}"),
        };
        assert!(refused(&header(3, 9, 0, 0)).contains("backing"));
        assert!(refused(&header(2, 0, 1, 0)).contains("encrypted"));
        assert!(refused(&header(3, 0, 0, 4)).contains("another file"));
        for len in 0..80 {
            assert!(matches!(qcow2(&header(3, 0, 0, 0)[..len]), Some(Objection::Damaged(_))), "{len}");
        }
    }
}
