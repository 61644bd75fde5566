//! Checks a virtual disk before qemu opens it: a disk that refers to other files could make qemu read any file of this
//! machine as evidence.

use std::fmt;
use std::path::Path;

use serde::Serialize;

use super::checked::Checked;
use super::file::{read, size};
use super::{qcow2, vhdx, vmdk};
use crate::clean::clean;
use crate::detect::Footer;
use crate::identity::Kind;
use crate::raw::RawFile;
use crate::source::SourceFile;
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
        let file = FileNode { driver: "file", filename: path };
        let node = match self {
            Self::Qcow2 => FormatNode::Qcow2 { file, backing: () },
            Self::Vmdk => FormatNode::Vmdk { file, backing: () },
            Self::Vhd => FormatNode::Vpc { file, force_size_calc: "current_size" },
            Self::Vhdx => FormatNode::Vhdx { file },
        };
        let node = serde_json::to_string(&node)
            .map_err(|error| Error::failed(format!("the options of qemu-nbd cannot be written: {error}")))?;
        Ok(format!("json:{node}"))
    }
}

/// A block node of qemu that reads a format.
#[derive(Serialize)]
#[serde(tag = "driver", rename_all = "lowercase")]
enum FormatNode<'a> {
    /// QCOW2, without a backing image: `null`.
    Qcow2 { file: FileNode<'a>, backing: () },
    /// VMDK, without a backing image: `null`.
    Vmdk { file: FileNode<'a>, backing: () },
    /// VHD. By default qemu may take the size from the geometry, which is rounded down and would cut off the end.
    Vpc { file: FileNode<'a>, force_size_calc: &'static str },
    /// VHDX.
    Vhdx { file: FileNode<'a> },
}

/// A block node of qemu that reads a file.
#[derive(Serialize)]
struct FileNode<'a> {
    driver: &'static str,
    filename: &'a str,
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

/// Refuses an image that depends on other files, is cut short or damaged.
pub(super) fn check(path: &Path, format: Virtual) -> Result<Checked> {
    let file = RawFile::open(path)?;
    let bytes = |offset, len| read(&file, offset, len);
    let mut checked = match format {
        Virtual::Qcow2 => qcow2::check(&file)?,
        Virtual::Vmdk => vmdk::check(path, &file)?,
        Virtual::Vhd => {
            let (end, start) = (bytes(size(&file).saturating_sub(512), 512)?, bytes(0, 512)?);
            vhd(&end, &start, &bytes(512, 1024)?, &path.display())?;
            Checked::default()
        }
        // qemu itself refuses a VHDX that is cut short.
        Virtual::Vhdx => match vhdx::parent(&file)? {
            None => Checked::default(),
            Some(parent) => {
                let path = path.display();
                return Err(Error::failed(format!(
                    "{path}: a VHDX image that holds only what differs from another image (its parent, {parent}); merge \
                     them first, and read the result"
                )));
            }
        },
    };
    checked.files.insert(0, SourceFile { path: path.to_owned(), size: size(&file) });
    Ok(checked)
}

/// Checks the footer; a dynamic or differencing VHD has a copy at its start, and either is enough. `header` is behind that copy.
fn vhd(end: &[u8], start: &[u8], header: &[u8], path: &dyn fmt::Display) -> Result<()> {
    match Footer::parse(end).or_else(|| Footer::parse(start)) {
        None => Err(Error::evidence(format!(
            "{path}: a VHD image whose footers are damaged; its end may be missing: the file may be cut short"
        ))),
        Some(Footer { differencing: true, .. }) => {
            let parent = vhd_parent(header).map_or_else(String::new, |name| format!(", {name}"));
            Err(Error::failed(format!(
                "{path}: a VHD image that holds only what differs from another image (its parent{parent}); merge them \
                 first, and read the result"
            )))
        }
        Some(_) => Ok(()),
    }
}

/// The name of the parent in a dynamic disk header ("Parent Unicode Name").
fn vhd_parent(header: &[u8]) -> Option<String> {
    let units = header
        .strip_prefix(b"cxsparse")?
        .get(56..568)?
        .chunks_exact(2)
        .map(|pair| u16::from_be_bytes([pair[0], pair[1]]));
    let name = String::from_utf16_lossy(&units.take_while(|unit| *unit != 0).collect::<Vec<_>>());
    Some(clean(&name)).filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vhd_with_a_parent_is_refused_and_the_parent_is_named() {
        let mut footer = [0; 512];
        footer[..8].copy_from_slice(b"conectix");
        footer[63] = 4;
        let sum: u32 = footer.iter().map(|byte| u32::from(*byte)).sum();
        footer[64..68].copy_from_slice(&(!sum).to_be_bytes());
        let mut header = [0; 1024];
        header[..8].copy_from_slice(b"cxsparse");
        let name = "base";
        header[64..72].copy_from_slice(b"\0b\0a\0s\0e");
        let refused = vhd(&footer, &footer, &header, &"x.vhd").unwrap_err().to_string();
        assert!(refused.contains(name), "{refused}");
        assert!(vhd(&[0; 512], &[0; 512], &header, &"x.vhd").unwrap_err().is_evidence());
    }
}
