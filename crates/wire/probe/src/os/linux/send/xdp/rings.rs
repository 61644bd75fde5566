//! The rings of an `AF_XDP` socket. One side advances the producer's index, the other the consumer's.

use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use rustix::net::sockopt::{
    set_xdp_tx_ring_size, set_xdp_umem_completion_ring_size, set_xdp_umem_fill_ring_size, xdp_mmap_offsets,
};
use rustix::net::xdp::{XDP_PGOFF_TX_RING, XDP_UMEM_PGOFF_COMPLETION_RING, XdpDesc, XdpRingOffset};

use super::super::memory::Memory;

/// Entries of the fill ring, which is required even for a socket that receives nothing.
const FILL_ENTRIES: u32 = 64;

struct Ring {
    memory: Memory,
    producer: usize,
    consumer: usize,
    first: usize,
    mask: u32,
}

/// The frames to send. We advance the producer's index, the kernel the consumer's.
pub(super) struct Descriptors(Ring);

/// The completed frames. The kernel advances the producer's index, we the consumer's.
pub(super) struct Completions(Ring);

/// Creates both rings, with `entries` (a power of two) each.
pub(super) fn open(socket: &impl AsFd, entries: u32) -> io::Result<(Descriptors, Completions)> {
    set_xdp_umem_fill_ring_size(socket, FILL_ENTRIES)?;
    set_xdp_umem_completion_ring_size(socket, entries)?;
    set_xdp_tx_ring_size(socket, entries)?;
    let offsets = xdp_mmap_offsets(socket)?;
    let descriptors = Ring::map(socket, offsets.tx, size_of::<XdpDesc>(), entries, XDP_PGOFF_TX_RING)?;
    let completions = Ring::map(socket, offsets.cr, size_of::<u64>(), entries, XDP_UMEM_PGOFF_COMPLETION_RING)?;
    Ok((Descriptors(descriptors), Completions(completions)))
}

impl Ring {
    fn map(socket: &impl AsFd, at: XdpRingOffset, entry_bytes: usize, entries: u32, offset: u64) -> io::Result<Self> {
        let number = |offset: u64| usize::try_from(offset).map_err(io::Error::other);
        let (producer, consumer, first) = (number(at.producer)?, number(at.consumer)?, number(at.desc)?);
        let memory = Memory::of(socket, first + entries as usize * entry_bytes, offset)?;
        Ok(Self { memory, producer, consumer, first, mask: entries - 1 })
    }

    const fn entry(&self, nth: u32, bytes: usize) -> usize {
        self.first + (nth & self.mask) as usize * bytes
    }
}

impl Descriptors {
    /// Writes the descriptor of the `nth` frame, which is not released yet.
    pub(super) fn describe(&self, nth: u32, address: u64, bytes: u32, options: u32) {
        let entry = self.0.entry(nth, size_of::<XdpDesc>());
        self.0.memory.wide_cell(entry).store(address, Relaxed);
        self.0.memory.cell(entry + 8).store(bytes, Relaxed);
        self.0.memory.cell(entry + 12).store(options, Relaxed);
    }

    /// Releases all frames before the `end`th.
    pub(super) fn publish(&self, end: u32) {
        self.0.memory.cell(self.0.producer).store(end, Release);
    }

    /// Returns the number of frames that the kernel has taken so far.
    pub(super) fn taken(&self) -> u32 {
        self.0.memory.cell(self.0.consumer).load(Acquire)
    }
}

impl Completions {
    /// Takes the address of a completed frame.
    pub(super) fn take(&self) -> Option<u64> {
        let consumer = self.0.memory.cell(self.0.consumer);
        let (next, end) = (consumer.load(Relaxed), self.0.memory.cell(self.0.producer).load(Acquire));
        if next == end {
            return None;
        }
        let address = self.0.memory.wide_cell(self.0.entry(next, size_of::<u64>())).load(Relaxed);
        consumer.store(next.wrapping_add(1), Release);
        Some(address)
    }
}
