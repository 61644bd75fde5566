//! Parsers of the data that commands return. Data may be truncated or wrong; a missing field is `None`.

/// Standard INQUIRY data (SPC-4, 6.6.2).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standard {
    /// Peripheral qualifier: 0 with a device, 1 without one now, 3 if there can be none.
    pub qualifier: u8,
    /// Peripheral device type: 0 for a disk.
    pub device_type: u8,
    /// T10 vendor identification.
    pub vendor: String,
    /// Product identification.
    pub product: String,
    /// Product revision level.
    pub revision: String,
}

impl Standard {
    /// Parses the data; `None` if it is shorter than the standard's 36 bytes.
    pub fn parse(data: &[u8]) -> Option<Self> {
        let data = data.get(..36)?;
        Some(Self {
            qualifier: data[0] >> 5,
            device_type: data[0] & 0x1F,
            vendor: text(&data[8..16]),
            product: text(&data[16..32]),
            revision: text(&data[32..36]),
        })
    }

    /// The kind of device, in words.
    pub fn kind(&self) -> &'static str {
        match self.device_type {
            0x00 | 0x0E | 0x14 => "disk",
            0x01 => "tape drive",
            0x02 => "printer",
            0x03 => "processor",
            0x05 => "optical drive",
            0x07 => "optical memory device",
            0x08 => "media changer",
            0x0C => "storage array controller",
            0x0D => "enclosure",
            0x11 => "object storage device",
            _ => "device of an unknown kind",
        }
    }

    /// Whether READ applies to it.
    pub fn has_blocks(&self) -> bool {
        matches!(self.device_type, 0x00 | 0x05 | 0x07 | 0x0E | 0x14)
    }

    /// Whether the write-protect bit is defined; MMC does not define it for optical drives.
    pub fn tells_write_protection(&self) -> bool {
        matches!(self.device_type, 0x00 | 0x07 | 0x0E | 0x14)
    }
}

/// Trimmed printable ASCII; any other byte becomes a question mark.
fn text(bytes: &[u8]) -> String {
    let bytes = bytes.split(|byte| *byte == 0).next().unwrap_or(&[]);
    let shown = |byte: &u8| if matches!(byte, b' '..=b'~') { char::from(*byte) } else { '?' };
    bytes.iter().map(shown).collect::<String>().trim().to_owned()
}

/// The body of a vital product data page, if it is the requested page (SPC-4, 7.8).
fn page(data: &[u8], code: u8) -> Option<&[u8]> {
    let (header, body) = data.split_first_chunk::<4>()?;
    let len = u16::from_be_bytes([header[2], header[3]]).into();
    (header[1] == code).then(|| &body[..body.len().min(len)])
}

/// The serial number in page 0x80 (SPC-4, 7.8.16); `None` if it is blank.
pub fn serial_number(data: &[u8]) -> Option<String> {
    Some(text(page(data, 0x80)?)).filter(|serial| !serial.is_empty())
}

/// The fields of page 0xB0 (SBC-3, 6.5.3) that concern reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockLimits {
    /// The maximum number of blocks in one command; 0 if not reported.
    pub transfer_blocks_max: u32,
}

impl BlockLimits {
    /// Parses the page.
    pub fn parse(data: &[u8]) -> Option<Self> {
        let body = page(data, 0xB0)?;
        let transfer_blocks_max = u32::from_be_bytes(*body.get(4..)?.first_chunk()?);
        Some(Self { transfer_blocks_max })
    }
}

/// The number and size of blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capacity {
    /// The address of the last block.
    pub last_lba: u64,
    /// Bytes in a logical block.
    pub block_bytes: u32,
    /// The base-2 logarithm of the number of logical blocks in a physical block.
    pub physical_exponent: u8,
}

impl Capacity {
    /// Parses the data of READ CAPACITY(10) (SBC-3, 5.15.2). `last_lba` is 0xFFFFFFFF on a larger device.
    pub fn parse10(data: &[u8]) -> Option<Self> {
        let (lba, rest) = data.split_first_chunk()?;
        let block_bytes = u32::from_be_bytes(*rest.first_chunk()?);
        Some(Self { last_lba: u32::from_be_bytes(*lba).into(), block_bytes, physical_exponent: 0 })
    }

    /// Parses the data of READ CAPACITY(16) (SBC-3, 5.16.2).
    pub fn parse16(data: &[u8]) -> Option<Self> {
        let (lba, rest) = data.split_first_chunk()?;
        let block_bytes = u32::from_be_bytes(*rest.first_chunk()?);
        let physical_exponent = data.get(13).map_or(0, |byte| byte & 0x0F);
        Some(Self { last_lba: u64::from_be_bytes(*lba), block_bytes, physical_exponent })
    }
}

/// The write-protect bit in a disk's mode parameter header (SPC-4, 7.5.5; SBC-3, 6.4.1).
pub fn parse_write_protected(data: &[u8]) -> Option<bool> {
    data.get(2).map(|byte| byte & 0x80 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_are_trimmed_and_printable() {
        let mut data = *b"\0\0\x05\x02\x1f\0\0\0IET     VIRTUAL-DISK    0001";
        let standard = Standard::parse(&data).unwrap();
        assert_eq!(
            (&standard.vendor[..], &standard.product[..], &standard.revision[..]),
            ("IET", "VIRTUAL-DISK", "0001")
        );
        data[16] = 0x1B;
        assert_eq!(Standard::parse(&data).unwrap().product, "?IRTUAL-DISK");
        assert_eq!(serial_number(b"\0\x80\0\x04 ab  more"), Some("ab".into()));
        assert_eq!(serial_number(b"\0\x80\0\x02  "), None);
        assert_eq!(serial_number(b"\0\x83\0\x02ab"), None);
    }

    proptest! {
        #[test]
        fn anything_is_parsed_or_not_there(data in prop::collection::vec(any::<u8>(), 0..70), code in 0x80u8..=0xB0) {
            let _ = (Standard::parse(&data), Capacity::parse10(&data), Capacity::parse16(&data));
            let _ = parse_write_protected(&data);
            let mut data = data;
            if let Some(byte) = data.get_mut(1) {
                *byte = code;
            }
            let _ = (serial_number(&data), BlockLimits::parse(&data));
        }
    }
}
