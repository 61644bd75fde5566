//! The memory frames lie in, cut into places of one size; ahead of each frame is what is said about it.

use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

use rustix::net::sockopt::set_xdp_umem_reg;
use rustix::net::xdp::{XdpUmemReg, XdpUmemRegFlags};

use crate::send::memory::Memory;

/// Each frame has a page of its own: that is the most there is, and two on one would not take the same time to send.
const PLACE_BYTES: usize = 4096;

/// Room for `struct xsk_tx_metadata`, so much that frames are aligned as the processor's caches are.
const ABOUT_BYTES: usize = 64;

/// The longest frame, in bytes.
pub(super) const FRAME_BYTES_MAX: usize = PLACE_BYTES - ABOUT_BYTES;

/// `XDP_UMEM_TX_METADATA_LEN`, Linux 6.11: there is something said about frames.
const XDP_UMEM_TX_METADATA_LEN: u32 = 1 << 2;

/// `XDP_TXMD_FLAGS_TIMESTAMP`: when the frame was done with is wanted, in place of the request behind the flags.
const XDP_TXMD_FLAGS_TIMESTAMP: u64 = 1;
const STAMP_OFFSET: usize = 8;

/// `XDP_TX_METADATA`, of a descriptor: something is said about this frame.
const XDP_TX_METADATA: u32 = 1 << 1;

/// Memory shared with the kernel.
pub(super) struct Umem {
    memory: Memory,
    places: u32,
    /// Whether the kernel knows of what is said about frames.
    stamps: bool,
}

impl Umem {
    /// Makes it and has it registered.
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
        let stamped = with(XdpUmemRegFlags::from_bits_retain(XDP_UMEM_TX_METADATA_LEN), ABOUT_BYTES as u32);
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
        self.memory.write(place + ABOUT_BYTES, frame);
        ((place + ABOUT_BYTES) as u64, if self.stamps { XDP_TX_METADATA } else { 0 })
    }

    /// Has the caches hold a frame and what is said about it.
    pub(super) fn touch(&self, nth: u32) {
        self.memory.touch(self.start(nth), ABOUT_BYTES + 1536);
    }

    /// The place an address is in.
    pub(super) const fn place(address: u64) -> usize {
        address as usize / PLACE_BYTES
    }

    /// When the kernel was done with the frame, in nanoseconds of `CLOCK_TAI`.
    pub(super) fn stamp(&self, place: usize) -> Option<u64> {
        let stamp = self.memory.wide_cell(place % self.places as usize * PLACE_BYTES + STAMP_OFFSET).load(Acquire);
        (self.stamps && stamp > 0).then_some(stamp)
    }

    const fn start(&self, nth: u32) -> usize {
        (nth % self.places) as usize * PLACE_BYTES
    }
}
