//! Command descriptor blocks of the commands that read.

/// A command. None of them changes the content or the state of the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cdb {
    /// TEST UNIT READY: whether the logical unit can be read now (SPC-4, 6.47).
    TestUnitReady,
    /// INQUIRY: standard data, or with `page` one of the vital product data pages (SPC-4, 6.6).
    Inquiry {
        /// Page code.
        page: Option<u8>,
        /// Maximum number of bytes to return.
        len: u16,
    },
    /// MODE SENSE (SPC-4, 6.13), without block descriptors; the header before the pages has the write-protect bit.
    ModeSense6 {
        /// Page code.
        page: u8,
        /// Maximum number of bytes to return.
        len: u8,
    },
    /// Number and length of blocks, up to 2^32 (SBC-3, 5.15). Returns 8 bytes.
    ReadCapacity10,
    /// Number and length of blocks (SBC-3, 5.16).
    ReadCapacity16 {
        /// Maximum number of bytes to return.
        len: u32,
    },
    /// Blocks within the first 2^32 (SBC-3, 5.11).
    Read10 {
        /// First block.
        lba: u32,
        /// Number of blocks; 0 reads none.
        blocks: u16,
    },
    /// Blocks (SBC-3, 5.13).
    Read16 {
        /// First block.
        lba: u64,
        /// Number of blocks; 0 reads none.
        blocks: u32,
    },
}

impl Cdb {
    /// Reads `blocks` blocks from `lba`, with the oldest command that can: optical drives support no newer one.
    pub fn read(lba: u64, blocks: u32) -> Self {
        match (u32::try_from(lba), u16::try_from(blocks)) {
            (Ok(lba), Ok(blocks)) if lba.checked_add(blocks.into()).is_some() => Self::Read10 { lba, blocks },
            _ => Self::Read16 { lba, blocks },
        }
    }

    /// Encodes the command, padded with zeros.
    pub fn encode(&self) -> [u8; 16] {
        let mut cdb = [0; 16];
        match *self {
            Self::TestUnitReady => {}
            Self::Inquiry { page, len } => {
                cdb[..3].copy_from_slice(&[0x12, u8::from(page.is_some()), page.unwrap_or(0)]);
                cdb[3..5].copy_from_slice(&len.to_be_bytes());
            }
            // Byte 1: disable block descriptors.
            Self::ModeSense6 { page, len } => cdb[..5].copy_from_slice(&[0x1A, 0x08, page & 0x3F, 0, len]),
            Self::ReadCapacity10 => cdb[0] = 0x25,
            // An action of SERVICE ACTION IN(16).
            Self::ReadCapacity16 { len } => {
                cdb[..2].copy_from_slice(&[0x9E, 0x10]);
                cdb[10..14].copy_from_slice(&len.to_be_bytes());
            }
            Self::Read10 { lba, blocks } => {
                cdb[0] = 0x28;
                cdb[2..6].copy_from_slice(&lba.to_be_bytes());
                cdb[7..9].copy_from_slice(&blocks.to_be_bytes());
            }
            Self::Read16 { lba, blocks } => {
                cdb[0] = 0x88;
                cdb[2..10].copy_from_slice(&lba.to_be_bytes());
                cdb[10..14].copy_from_slice(&blocks.to_be_bytes());
            }
        }
        cdb
    }

    /// One of each kind, with extreme values.
    #[cfg(test)]
    pub(crate) fn samples() -> Vec<Self> {
        let samples = vec![
            Self::TestUnitReady,
            Self::Inquiry { page: None, len: u16::MAX },
            Self::Inquiry { page: Some(u8::MAX), len: u16::MAX },
            Self::ModeSense6 { page: u8::MAX, len: u8::MAX },
            Self::ReadCapacity10,
            Self::ReadCapacity16 { len: u32::MAX },
            Self::Read10 { lba: u32::MAX, blocks: u16::MAX },
            Self::Read16 { lba: u64::MAX, blocks: u32::MAX },
        ];
        // A new variant must be added above as well.
        for sample in &samples {
            match sample {
                Self::TestUnitReady | Self::Inquiry { .. } | Self::ModeSense6 { .. } | Self::ReadCapacity10 => {}
                Self::ReadCapacity16 { .. } | Self::Read10 { .. } | Self::Read16 { .. } => {}
            }
        }
        samples
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_command_only_reads() {
        // TEST UNIT READY, INQUIRY, MODE SENSE(6), READ CAPACITY(10), READ(10), READ(16), and of SERVICE ACTION IN(16)
        // only READ CAPACITY(16).
        let harmless: BTreeSet<u8> = [0x00, 0x12, 0x1A, 0x25, 0x28, 0x88, 0x9E].into();
        let sent: BTreeSet<u8> = Cdb::samples().iter().map(|cdb| cdb.encode()[0]).collect();
        assert_eq!(sent, harmless);
        for cdb in Cdb::samples() {
            let bytes = cdb.encode();
            assert!(bytes[0] != 0x9E || bytes[1] == 0x10, "{cdb:?}");
        }
    }

    #[test]
    fn commands_are_encoded_as_the_standards_say() {
        let read = Cdb::read(0x0102_0304, 0x0506).encode();
        assert_eq!(read, [0x28, 0, 1, 2, 3, 4, 0, 5, 6, 0, 0, 0, 0, 0, 0, 0]);
        let read = Cdb::read(0x01_0203_0405, 6).encode();
        assert_eq!(read, [0x88, 0, 0, 0, 0, 1, 2, 3, 4, 5, 0, 0, 0, 6, 0, 0]);
        assert_eq!(Cdb::Inquiry { page: Some(0x80), len: 255 }.encode()[..6], [0x12, 1, 0x80, 0, 255, 0]);
    }

    proptest! {
        #[test]
        fn the_short_read_is_used_only_where_it_can_say_it(lba: u64, blocks: u32) {
            for lba in [lba, lba >> 32] {
                match Cdb::read(lba, blocks) {
                    Cdb::Read10 { lba: short, blocks: few } => {
                        prop_assert_eq!((u64::from(short), u32::from(few)), (lba, blocks));
                    }
                    other => prop_assert_eq!(other, Cdb::Read16 { lba, blocks }),
                }
            }
        }
    }
}
