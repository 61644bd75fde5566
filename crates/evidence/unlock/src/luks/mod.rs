//! LUKS 1 and 2: a header, in whose slots the key of the volume lies, encrypted with keys that are made of passphrases.
//!
//! A key counts only if the digest in the header confirms it, so nothing is ever decrypted with a wrong one.

mod first;
mod header;
mod second;
mod split;

use std::sync::Arc;

use cheetah_device::ByteRange;
use cheetah_device::supervise::spawn_blocking;
use cheetah_kit::locked::{LockedBytes, with_stack_wiped};

pub use self::first::parse as parse_first;
pub use self::header::Header;
use self::header::Slot;
pub use self::second::{parse as parse_second, parse_description};
use crate::derive::Budget;
use crate::key::{Key, Keys};
use crate::opened::Opened;
use crate::piece::Piece;
use crate::refusal::{Refusal, Result, Untried};

/// Bytes of a header of LUKS 1, and of the binary part of one of LUKS 2.
const BINARY_BYTES: u64 = 4096;

/// Opens the volume with the first of the keys that fits.
pub(crate) async fn open(volume: &Piece, keys: &Keys) -> Result<Opened> {
    let header = read_header(volume).await?;
    match header.data_at {
        0 => Err(Refusal::Unsupported("a header apart from its data, unless it is given as a file,".to_owned())),
        _ => with_keys(volume, header, keys).await?.opened(volume.range),
    }
}

/// Opens a header that is kept apart from its volume, with the first of the keys that fits.
pub(crate) async fn unseal(header: &Piece, keys: &Keys) -> Result<Unsealed> {
    with_keys(header, read_header(header).await?, keys).await
}

/// A header with the key of its volume.
pub(crate) struct Unsealed {
    header: Arc<Header>,
    master: LockedBytes,
    protector: String,
}

impl Unsealed {
    /// The volume in `range` of a device.
    pub fn opened(&self, range: ByteRange) -> Result<Opened> {
        with_stack_wiped(|| self.header.opened(&self.master, range, self.protector.clone()))
    }
}

/// Finds the key of the volume whose header is at `place`, with the first of the keys that fits.
async fn with_keys(place: &Piece, header: Header, keys: &Keys) -> Result<Unsealed> {
    let header = Arc::new(header);
    let mut slots = Slots::new(place, Arc::clone(&header));
    for key in keys.iter() {
        if let Some(master) = with_stack_wiped(|| header.master_key(key))? {
            return Ok(Unsealed { header, master, protector: "master key".to_owned() });
        }
        if let Some((number, master)) = slots.try_key(key).await? {
            return Ok(Unsealed { header, master, protector: format!("key slot {number}") });
        }
    }
    Err(Refusal::WrongKeys { untried: slots.untried })
}

/// Reads the header. Of LUKS 2 there are two; the second one counts if the first one is damaged.
async fn read_header(volume: &Piece) -> Result<Header> {
    let head = volume.read_up_to(0, BINARY_BYTES).await?;
    if let Some(first) = first::parse(&head) {
        return first;
    }
    let mut found = Err(Refusal::Damaged("there is none of a known version"));
    for at in second::PLACES {
        let Ok(head) = volume.read(at, BINARY_BYTES).await else { break };
        let Some(bytes) = second::header_bytes(&head, at) else { continue };
        found = match volume.read(at, bytes).await {
            Ok(header) => second::parse(&header, at),
            Err(why) => Err(why),
        };
        if !matches!(found, Err(Refusal::Damaged(_) | Refusal::Unread(_))) {
            break;
        }
    }
    found
}

/// The slots of a volume, read when they are first tried.
struct Slots<'a> {
    volume: &'a Piece,
    header: Arc<Header>,
    areas: Vec<Option<Arc<[u8]>>>,
    /// Why slots could not be tried.
    untried: Vec<Untried>,
}

impl<'a> Slots<'a> {
    fn new(volume: &'a Piece, header: Arc<Header>) -> Self {
        let areas = vec![None; header.slots.len()];
        let of_slot = |(number, why): &(u32, Refusal)| Untried::Slot { number: *number, why: Box::new(why.clone()) };
        let untried = header.refused.iter().map(of_slot).collect();
        Self { volume, header, areas, untried }
    }

    /// Returns the number of the slot that the key opens, and the key of the volume.
    async fn try_key(&mut self, key: &Arc<Key>) -> Result<Option<(u32, LockedBytes)>> {
        let mut budget = Budget::of_one_key();
        for index in 0..self.header.slots.len() {
            let number = self.header.slots[index].number;
            match self.try_slot(index, key, &mut budget).await {
                Ok(Some(master)) => return Ok(Some((number, master))),
                Ok(None) => {}
                Err(Refusal::GivenUp) => return Err(Refusal::GivenUp),
                Err(why) => {
                    let (known, slot) = (&mut self.untried, Untried::Slot { number, why: Box::new(why) });
                    if !known.contains(&slot) {
                        known.push(slot);
                    }
                }
            }
        }
        Ok(None)
    }

    async fn try_slot(&mut self, index: usize, key: &Arc<Key>, budget: &mut Budget) -> Result<Option<LockedBytes>> {
        budget.spend(&self.header.slots[index].kdf)?;
        self.header.digests.iter().try_for_each(|digest| budget.spend(&digest.kdf))?;
        let area = match &self.areas[index] {
            Some(area) => Arc::clone(area),
            None => {
                let place = self.header.slots[index].area;
                let area = Arc::from(self.volume.read(place.offset, place.len).await?);
                Arc::clone(self.areas[index].insert(area))
            }
        };
        let (header, key) = (Arc::clone(&self.header), Arc::clone(key));
        let tried = spawn_blocking(move || with_stack_wiped(|| header.key_in_slot(&header.slots[index], &area, &key)));
        tried.await.map_err(|_| Refusal::GivenUp)?
    }
}

impl Header {
    /// Returns the key of the volume, if `key` opens the slot whose material is `area`. Blocks.
    fn key_in_slot(&self, slot: &Slot, area: &[u8], key: &Key) -> Result<Option<LockedBytes>> {
        let mut slot_key = LockedBytes::zeroed(slot.cipher_key_bytes)?;
        slot.kdf.derive(&key.bytes, &slot.salt, &mut slot_key)?;
        let mut material = LockedBytes::copy_of(area)?;
        slot.cipher(&slot_key)?.decrypt(0, &mut material);
        let mut master = LockedBytes::zeroed(self.key_bytes)?;
        let stripes = material.get(..slot.material_bytes).ok_or(Refusal::Damaged("its material is cut short"))?;
        split::merge(slot.split_hash, stripes, &mut master);
        Ok(self.confirms(slot, &master)?.then_some(master))
    }

    /// Returns the key of the volume, if `key` is that.
    fn master_key(&self, key: &Key) -> Result<Option<LockedBytes>> {
        let Some(bytes) = key.hexadecimal()?.filter(|bytes| bytes.len() == self.key_bytes) else { return Ok(None) };
        Ok(self.confirm(&bytes)?.then_some(bytes))
    }
}
