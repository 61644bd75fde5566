//! A key that another one wraps, in a key bag: values with tags and lengths (DER).

use cheetah_device::le::u32_at;

use super::super::Uuid;

/// How a key is wrapped: with AES-256.
pub const AES_256: u32 = 0;
/// With AES-256, where there is a recovery key.
pub const AES_256_RECOVERY: u32 = 16;
/// With AES-128, as in Core Storage.
pub const AES_128: u32 = 2;

/// Tags.
mod tag {
    pub const SEQUENCE: u8 = 0x30;
    pub const INNER: u8 = 0xa3;
    pub const ID: u8 = 0x81;
    pub const METHOD: u8 = 0x82;
    pub const WRAPPED: u8 = 0x83;
    pub const ITERATIONS: u8 = 0x84;
    pub const SALT: u8 = 0x85;
}

/// The longest wrapped key, in bytes: that of 256 bits.
const WRAPPED_BYTES_MAX: usize = 40;

/// A wrapped key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blob {
    /// The identifier of the key.
    pub id: Uuid,
    /// How it is wrapped.
    pub method: u32,
    /// The wrapped key, which zeros may follow.
    pub wrapped: Vec<u8>,
    /// The iterations of PBKDF2, if a password wraps it; else 0.
    pub iterations: u64,
    /// Its salt.
    pub salt: Vec<u8>,
}

impl Blob {
    /// Parses an entry of a key bag; `None` if it is damaged.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let outer = value(bytes, tag::SEQUENCE)?;
        let inner = value(outer, tag::INNER)?;
        let wrapped = value(inner, tag::WRAPPED)?;
        let iterations = value(inner, tag::ITERATIONS).unwrap_or_default();
        let number =
            iterations.iter().try_fold(0_u64, |number, byte| Some(number.checked_mul(256)? + u64::from(*byte)));
        Some(Self {
            id: Uuid::at(value(inner, tag::ID)?, 0)?,
            method: u32_at(value(inner, tag::METHOD)?, 0),
            wrapped: wrapped[..wrapped.len().min(WRAPPED_BYTES_MAX)].to_vec(),
            iterations: number?,
            salt: value(inner, tag::SALT).unwrap_or_default().to_vec(),
        })
    }
}

/// The first value with a tag.
fn value(mut bytes: &[u8], tag: u8) -> Option<&[u8]> {
    loop {
        let (head, rest) = bytes.split_first_chunk::<2>()?;
        let (len, rest) = match head[1] {
            // The length follows; the low bits are the number of its bytes.
            long @ 0x81..=0x84 => {
                let (len, rest) = rest.split_at_checked(usize::from(long & 0x7f))?;
                (len.iter().fold(0, |len, byte| len << 8 | usize::from(*byte)), rest)
            }
            short @ 0..=0x7f => (usize::from(short), rest),
            _ => return None,
        };
        let (value, rest) = rest.split_at_checked(len)?;
        if head[0] == tag {
            return Some(value);
        }
        bytes = rest;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The key of a volume of a real container.
    const VOLUME_KEY: &[u8] = b"\x30\x7a\x80\x01\x00\x81\x20\xfc\x95\x75\xa3\x11\x6e\xb3\x5d\x8c\x89\x19\x8e\x88\xc9\xab\x54\xe9\
        \xad\xa2\xa9\x8d\xa2\xdd\x2f\x32\x84\x36\x5b\x21\x7f\x8a\xbe\x82\x08\x06\x03\xd4\x65\xcd\x41\x54\xe6\xa3\x49\x80\x01\x00\x81\
        \x10\x00\xdf\x51\x0a\xff\xe6\x49\x69\x96\x07\xef\xa2\x4d\x86\x43\x92\x82\x08\x00\x00\x00\x00\x01\x00\xe0\xff\x83\x28\x4f\x51\
        \xa3\xb0\x16\xa8\x9b\xd7\xbb\xb6\x65\xab\x01\xf1\x40\x04\x7b\x08\xaa\x49\xdb\xe1\x7b\xcc\x1c\x6d\xad\x5e\xc9\xa4\x65\xe5\xd1\
        \xda\xb9\xe1\x38\x93\x3d\x74";

    #[test]
    fn the_key_of_a_volume_is_found() {
        let blob = Blob::parse(VOLUME_KEY).unwrap();
        assert_eq!(blob.id.to_string(), "00DF510A-FFE6-4969-9607-EFA24D864392");
        assert_eq!((blob.method, blob.wrapped.len(), blob.wrapped[0], blob.iterations), (AES_256, 40, 0x4f, 0));
        assert!((0..VOLUME_KEY.len()).all(|len| Blob::parse(&VOLUME_KEY[..len]).is_none()));
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_key_or_none(edits in prop::collection::vec((0usize..200, any::<u8>()), 1..8)) {
            let mut bytes = VOLUME_KEY.to_vec();
            for (at, byte) in edits {
                let at = at % bytes.len();
                bytes[at] = byte;
            }
            let _ = Blob::parse(&bytes);
        }
    }
}
