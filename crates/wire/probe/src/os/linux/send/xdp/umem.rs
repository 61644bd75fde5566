//! The memory of frames, divided into places of equal size. Each place holds the frame's metadata, then the frame.

use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

use rustix::net::sockopt::set_xdp_umem_reg;
use rustix::net::xdp::{XdpUmemReg, XdpUmemRegFlags};

use super::super::memory::Memory;

/// One page for each frame: the largest possible size. Two frames on one page would take different times to send.
const PLACE_BYTES: usize = 4096;

/// Room for `struct xsk_tx_metadata`, rounded up so that frames start on a cache line.
const METADATA_BYTES: usize = 64;

/// The longest frame, in bytes.
pub(super) const FRAME_BYTES_MAX: usize = PLACE_BYTES - METADATA_BYTES;

/// `XDP_UMEM_TX_METADATA_LEN`, Linux 6.11: frames have metadata.
const XDP_UMEM_TX_METADATA_LEN: u32 = 1 << 2;

/// `XDP_TXMD_FLAGS_TIMESTAMP`: requests the time of completion, which overwrites the request behind the flags.
const XDP_TXMD_FLAGS_TIMESTAMP: u64 = 1;
const STAMP_OFFSET: usize = 8;

/// `XDP_TX_METADATA`, of a descriptor: this frame has metadata.
const XDP_TX_METADATA: u32 = 1 << 1;

/// Memory shared with the kernel.
pub(super) struct Umem {
    memory: Memory,
    places: u32,
    /// Whether the kernel supports metadata.
    stamps: bool,
}

impl Umem {
    /// Allocates the memory and registers it with the kernel.
    pub(super) fn register(socket: impl AsFd, places: u32) -> io::Result<Self> {
        let memory = Memory::anonymous(PLACE_BYTES * places as usize)?;
        let with = |flags, tx_metadata_len| XdpUmemReg {
            addr: memory.address(),
            len: memory.bytes() as u64,
            chunk_size: PLACE_BYTES as u32,
            headroom: 0,
            flags,
            tx_metadata_len,
        };
        let stamped = with(XdpUmemRegFlags::from_bits_retain(XDP_UMEM_TX_METADATA_LEN), METADATA_BYTES as u32);
        let stamps = set_xdp_umem_reg(&socket, stamped).is_ok();
        if !stamps {
            set_xdp_umem_reg(&socket, with(XdpUmemRegFlags::empty(), 0))?;
        }
        Ok(Self { memory, places, stamps })
    }

    /// Copies a frame into its place. Returns the address and the options for its descriptor.
    pub(super) fn put(&mut self, nth: u32, frame: &[u8]) -> (u64, u32) {
        let place = self.start(nth);
        if self.stamps {
            self.memory.wide_cell(place).store(XDP_TXMD_FLAGS_TIMESTAMP, Relaxed);
            self.memory.wide_cell(place + STAMP_OFFSET).store(0, Relaxed);
        }
        self.memory.write(place + METADATA_BYTES, frame);
        ((place + METADATA_BYTES) as u64, if self.stamps { XDP_TX_METADATA } else { 0 })
    }

    /// Loads a frame and its metadata into the processor's caches.
    pub(super) fn touch(&self, nth: u32) {
        self.memory.touch(self.start(nth), METADATA_BYTES + 1536);
    }

    /// Returns the place that contains an address.
    pub(super) const fn place(address: u64) -> usize {
        address as usize / PLACE_BYTES
    }

    /// Returns when the kernel completed the frame, in nanoseconds of `CLOCK_TAI`.
    pub(super) fn stamp(&self, place: usize) -> Option<u64> {
        let stamp = self.memory.wide_cell(place % self.places as usize * PLACE_BYTES + STAMP_OFFSET).load(Acquire);
        (self.stamps && stamp > 0).then_some(stamp)
    }

    const fn start(&self, nth: u32) -> usize {
        (nth % self.places) as usize * PLACE_BYTES
    }
}
