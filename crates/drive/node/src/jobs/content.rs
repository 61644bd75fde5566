//! The content of units, read one by one into locked memory, which is wiped.

use cheetah_control::jobs::UnitPlace;
use cheetah_device::{ByteRange, Error};
use cheetah_kit::locked::LockedBytes;
use cheetah_seal::Stamp;

use super::lent::OwnKey;
use super::units::{Stopped, stored_bytes};

/// Reads the content of units.
pub(super) struct Content<R> {
    read: R,
    unit_bytes: usize,
    /// The key that opens them, if they are sealed.
    key: Option<OwnKey>,
    /// Holds one unit, with its trailer if it is sealed.
    buffer: LockedBytes,
}

/// A unit.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unit<'a> {
    /// Its bytes.
    Plain(&'a [u8]),
    /// Its bytes, opened, and the stamp with which they were sealed.
    Opened(&'a [u8], Stamp),
    /// The key does not open it.
    Unopened,
}

impl<R: Fn(ByteRange, &mut [u8]) -> Result<(), Error>> Content<R> {
    /// The content of units of `unit_bytes` of an export, of which `read` reads a range into a buffer of its length; sealed if there is a
    /// `key`.
    pub fn new(read: R, unit_bytes: u64, key: Option<OwnKey>) -> Result<Self, Stopped> {
        let failed = |why: &str| Stopped::Failed(format!("there is no memory for a unit: {why}"));
        let of = |bytes: u64| usize::try_from(bytes).map_err(|_| failed("it is too large"));
        let buffer = LockedBytes::zeroed(of(stored_bytes(unit_bytes, key.is_some()))?);
        let buffer = buffer.map_err(|error| failed(&error.to_string()))?;
        Ok(Self { read, unit_bytes: of(unit_bytes)?, key, buffer })
    }

    /// The unit at a place.
    pub fn unit(&mut self, place: UnitPlace) -> Result<Unit<'_>, Error> {
        let range = ByteRange::new(place.export, self.buffer.len() as u64);
        (self.read)(range, &mut self.buffer)?;
        let stamp = match &self.key {
            None => None,
            Some(key) => match key.open(place.text / self.unit_bytes as u64, &mut self.buffer) {
                None => return Ok(Unit::Unopened),
                opened => opened,
            },
        };
        let bytes = self.buffer.get(..self.unit_bytes).unwrap_or_default();
        Ok(stamp.map_or(Unit::Plain(bytes), |stamp| Unit::Opened(bytes, stamp)))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Reads of an export with these bytes.
    pub fn reading(bytes: &[u8]) -> impl Fn(ByteRange, &mut [u8]) -> Result<(), Error> {
        |range, out| {
            out.copy_from_slice(&bytes[range.offset as usize..range.end() as usize]);
            Ok(())
        }
    }
}
