//! Header text: case data, and in version 2 device data.

use std::io::Read as _;

use libdeflater::{DecompressionError, Decompressor};

/// The maximum size of unpacked text. EnCase limits values to 3,000 characters; other programs' notes may be longer.
pub(super) const TEXT_MAX: usize = 4 << 20;

/// The compression of text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Method {
    /// None.
    None,
    Zlib,
    Bzip2,
}

/// The values of the category `main`, by identifier.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Values(Vec<(String, String)>);

impl Values {
    /// Unpacks and parses a header. `None` if it is damaged, or lacks the category.
    ///
    /// The text is UTF-16 with a byte order mark, or in an unrecorded code page: bytes that are not UTF-8 are read as
    /// Latin-1. A line `main` precedes a line of identifiers and a line of values, separated by tabs.
    pub(super) fn unpack(packed: &[u8], method: Method) -> Option<Self> {
        let bytes = match method {
            Method::None => packed.get(..packed.len().min(TEXT_MAX))?.to_vec(),
            Method::Zlib => inflate(packed)?,
            Method::Bzip2 => {
                let mut bytes = Vec::new();
                let mut limited = bzip2::read::BzDecoder::new(packed).take(TEXT_MAX as u64);
                limited.read_to_end(&mut bytes).ok()?;
                bytes
            }
        };
        let text = decode(&bytes);
        let mut lines = text.lines().skip_while(|line| *line != "main").skip(1);
        let (names, values) = (lines.next()?, lines.next()?);
        let pairs = names.split('\t').zip(values.split('\t'));
        Some(Self(pairs.map(|(name, value)| (name.to_owned(), unescape(value))).collect()))
    }

    /// The value `name`; `None` if missing or blank.
    pub(super) fn get(&self, name: &str) -> Option<String> {
        let value = self.0.iter().find(|(other, _)| other == name)?.1.trim();
        (!value.is_empty()).then(|| value.to_owned())
    }

    /// The number `name`.
    pub(super) fn number(&self, name: &str) -> Option<u64> {
        self.get(name)?.parse().ok()
    }
}

/// Unpacks a zlib stream of unknown length; `None` if it is damaged or too large.
pub(super) fn inflate(packed: &[u8]) -> Option<Vec<u8>> {
    let mut room = (packed.len() * 4).clamp(4 << 10, TEXT_MAX);
    loop {
        let mut out = vec![0; room];
        match Decompressor::new().zlib_decompress(packed, &mut out) {
            Ok(len) => {
                out.truncate(len);
                return Some(out);
            }
            Err(DecompressionError::InsufficientSpace) if room < TEXT_MAX => room = (room * 4).min(TEXT_MAX),
            Err(_) => return None,
        }
    }
}

fn decode(bytes: &[u8]) -> String {
    let utf16 = |bytes: &[u8], number: fn([u8; 2]) -> u16| {
        let units = bytes.chunks_exact(2).map(|pair| number([pair[0], pair[1]]));
        char::decode_utf16(units).map(|unit| unit.unwrap_or(char::REPLACEMENT_CHARACTER)).collect()
    };
    let text: String = match bytes {
        [0xff, 0xfe, rest @ ..] => utf16(rest, u16::from_le_bytes),
        [0xfe, 0xff, rest @ ..] => utf16(rest, u16::from_be_bytes),
        _ => match std::str::from_utf8(bytes) {
            Ok(text) => text.to_owned(),
            Err(_) => bytes.iter().map(|byte| char::from(*byte)).collect(),
        },
    };
    // Some writers end the text with a zero.
    text.replace('\0', "")
}

/// Version 2 writes line feeds, carriage returns and tabs within values as the characters 1, 2 and 3.
fn unescape(value: &str) -> String {
    value.replace('\u{1}', "\n").replace('\u{2}', "\r").replace('\u{3}', "\t")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_found_by_name_in_any_encoding() {
        let text = "1\r\nmain\r\nc\tn\te\tt\r\n7/26\t\tJosé\ta\u{1}b\r\n\r\n";
        let utf16 = |mark: u16, number: fn(u16) -> [u8; 2]| {
            [mark].into_iter().chain(text.encode_utf16()).flat_map(number).collect::<Vec<_>>()
        };
        let latin: Vec<_> = text.chars().map(|c| u8::try_from(u32::from(c)).unwrap()).collect();
        let encodings =
            [text.as_bytes().to_vec(), latin, utf16(0xfeff, u16::to_le_bytes), utf16(0xfeff, u16::to_be_bytes)];
        for bytes in encodings {
            let values = Values::unpack(&bytes, Method::None).unwrap();
            assert_eq!(values.get("c").as_deref(), Some("7/26"));
            assert_eq!(values.get("n"), None);
            assert_eq!(values.get("e").as_deref(), Some("José"));
            assert_eq!(values.get("t").as_deref(), Some("a\nb"));
        }
        assert_eq!(Values::unpack(b"1\nmain\nc", Method::None), None);
        assert_eq!(Values::unpack(text.as_bytes(), Method::Zlib), None);
    }

    #[test]
    fn text_that_unpacks_beyond_the_limit_is_refused() {
        let mut packer = libdeflater::Compressor::new(libdeflater::CompressionLvl::default());
        let mut pack = |len: usize| {
            let mut out = vec![0; packer.zlib_compress_bound(len)];
            let used = packer.zlib_compress(&vec![b'x'; len], &mut out).unwrap();
            out.truncate(used);
            out
        };
        assert_eq!(inflate(&pack(TEXT_MAX)).map(|text| text.len()), Some(TEXT_MAX));
        assert_eq!(inflate(&pack(TEXT_MAX + 1)), None);
    }
}
