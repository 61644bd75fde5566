//! Where the units of a sealed drive lie. Does no I/O.
//!
//! A **unit** is a run of content that is sealed as a whole. With its **trailer**, it lies in one run on the device
//! below, at a multiple of the **stride**, so that content and tag always travel in one write:
//!
//! ```text
//! content        | unit 0       | unit 1       | …
//! device below   | ciphertext 0 | trailer 0 | ciphertext 1 | trailer 1 | …
//! ```

use cheetah_device::ByteRange;

/// Bytes of a trailer: the stamp and the tag.
pub const TRAILER_BYTES: u64 = 24;
/// The unit of drives for small random writes, in bytes.
pub const UNIT_BYTES_SMALL: u64 = 4 << 10;
/// The unit of drives for images, in bytes.
pub const UNIT_BYTES_LARGE: u64 = 64 << 10;
/// The maximum number of units: each takes 8 bytes of the client's memory, several times while a record is written.
pub const UNITS_MAX: u64 = if usize::BITS < 64 { 1 << 26 } else { 1 << 32 };

/// The units of a drive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Units {
    bytes: u64,
    size: u64,
}

impl Units {
    /// Divides `size` bytes of content into units of `bytes`; `None` if the format does not allow that.
    pub fn new(bytes: u64, size: u64) -> Option<Self> {
        let known = matches!(bytes, UNIT_BYTES_SMALL | UNIT_BYTES_LARGE);
        (known && size > 0 && size.div_ceil(bytes) <= UNITS_MAX).then_some(Self { bytes, size })
    }

    /// The most content, in bytes, that fits into `capacity` bytes in units of `bytes`.
    pub const fn fitting(bytes: u64, capacity: u64) -> u64 {
        capacity / (bytes + TRAILER_BYTES) * bytes
    }

    /// Bytes of content in a unit.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes of content.
    pub const fn size(&self) -> u64 {
        self.size
    }

    /// The number of units. The last one is filled up with zeros.
    pub const fn count(&self) -> u64 {
        self.size.div_ceil(self.bytes)
    }

    /// Bytes from one unit to the next on the device below.
    pub const fn stride(&self) -> u64 {
        self.bytes + TRAILER_BYTES
    }

    /// Bytes that all units take on the device below.
    pub const fn sealed_bytes(&self) -> u64 {
        self.count() * self.stride()
    }

    /// The units that a range of content touches: the first, and the one after the last.
    pub const fn touched(&self, range: ByteRange) -> (u64, u64) {
        (range.offset / self.bytes, range.end().div_ceil(self.bytes))
    }

    /// The range of the device below that the units from `first` up to, not including, `end` take.
    pub const fn sealed_range(&self, first: u64, end: u64) -> ByteRange {
        ByteRange::between(first * self.stride(), end * self.stride())
    }

    /// The range of content of the units from `first` up to, not including, `end`; that of the last one includes its
    /// padding.
    pub const fn content_range(&self, first: u64, end: u64) -> ByteRange {
        ByteRange::between(first * self.bytes, end * self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overhead_is_within_its_limits() {
        for (bytes, percent_max) in [(UNIT_BYTES_SMALL, 0.6), (UNIT_BYTES_LARGE, 0.04)] {
            let units = Units::new(bytes, 1 << 30).unwrap();
            let overhead = (units.sealed_bytes() - units.size()) as f64 / units.size() as f64;
            assert!(overhead * 100.0 <= percent_max, "{bytes}: {overhead}");
        }
    }

    #[test]
    fn content_that_fits_is_the_most_that_fits() {
        for bytes in [UNIT_BYTES_SMALL, UNIT_BYTES_LARGE] {
            for capacity in [bytes + TRAILER_BYTES, 1 << 20, (1 << 30) + 12345] {
                let size = Units::fitting(bytes, capacity);
                assert!(Units::new(bytes, size).unwrap().sealed_bytes() <= capacity);
                assert!(Units::new(bytes, size + 1).unwrap().sealed_bytes() > capacity);
            }
        }
        assert_eq!(Units::new(UNIT_BYTES_SMALL, Units::fitting(UNIT_BYTES_SMALL, 4096)), None, "no unit fits");
    }

    #[test]
    fn sizes_that_the_format_does_not_have_are_refused() {
        assert_eq!(Units::new(8192, 1 << 20), None);
        assert_eq!(Units::new(UNIT_BYTES_SMALL, 0), None);
        assert_eq!(Units::new(UNIT_BYTES_SMALL, u64::MAX), None);
    }
}
