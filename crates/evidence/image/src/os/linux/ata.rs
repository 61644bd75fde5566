//! The model and serial number in a disk's IDENTIFY DEVICE data (ATA/ATAPI Command Set 3, 7.12.7).
//!
//! `HDIO_GET_IDENTITY` (linux/hdreg.h) returns the data that the kernel holds; no command is sent to the disk. Disks have two
//! characters in each word, the first in the higher byte; the kernel has put them in order. The request is needed for ATA over
//! Ethernet only: of other disks, sysfs has these facts.

#![allow(unsafe_code, reason = "an ioctl without a safe wrapper")]

use std::fs::File;
use std::io;

use rustix::ioctl::{Getter, Opcode, ioctl, opcode};

use crate::clean::clean;

const HDIO_GET_IDENTITY: Opcode = opcode::none(0x03, 0x0d);
/// Words of 16 bits, in little-endian order.
const IDENTIFY_LEN: usize = 512;
/// The words with the serial number, and those with the model.
const SERIAL: std::ops::Range<usize> = 10..20;
const MODEL: std::ops::Range<usize> = 27..47;

/// What a disk calls itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Names {
    /// Its model.
    pub model: Option<String>,
    /// Its serial number.
    pub serial: Option<String>,
}

/// Returns the names of an open disk. Fails if the disk's driver does not know this request.
pub(crate) fn names(disk: &File) -> io::Result<Names> {
    // SAFETY: HDIO_GET_IDENTITY writes at most 512 bytes (struct hd_driveid, or the data itself) through the pointer that
    // it is given; Getter passes a pointer to 512 bytes, of which every value is valid.
    let identify: [u8; IDENTIFY_LEN] = unsafe { ioctl(disk, Getter::<HDIO_GET_IDENTITY, _>::new()) }?;
    Ok(parse(&identify))
}

fn parse(identify: &[u8; IDENTIFY_LEN]) -> Names {
    let text = |words: std::ops::Range<usize>| {
        let text = String::from_utf8_lossy(&identify[words.start * 2..words.end * 2]);
        let text = clean(&text).trim().to_owned();
        (!text.is_empty()).then_some(text)
    };
    Names { model: text(MODEL), serial: text(SERIAL) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identify(fields: &[(usize, &str)]) -> [u8; IDENTIFY_LEN] {
        let mut identify = [0; IDENTIFY_LEN];
        for (word, text) in fields {
            identify[word * 2..][..text.len()].copy_from_slice(text.as_bytes());
        }
        identify
    }

    #[test]
    fn names_are_read_without_their_padding_and_control_characters() {
        let names =
            parse(&identify(&[(10, "0.0:evidence-host   "), (27, "Coraid EtherDrive vblade\u{1b}[0m          ")]));
        assert_eq!(names.serial.as_deref(), Some("0.0:evidence-host"));
        assert_eq!(names.model.as_deref(), Some("Coraid EtherDrive vblade[0m"));
        assert_eq!(parse(&identify(&[])), Names::default());
    }

    #[test]
    fn a_file_is_no_disk() {
        assert!(names(&tempfile::tempfile().unwrap()).is_err());
    }
}
