//! Stamps packets where the kernel begins to process them: a BPF program at an interface's ingress hook. A packet
//! socket's stamp is taken earlier, when the driver hands the packet over; what lies between is the backlog.
//!
//! Senders that bypass queue disciplines bypass the egress hook, too, so their departures are stamped by the driver
//! (`SO_TIMESTAMPING`) instead.

use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Commands and constants of `linux/bpf.h`.
const MAP_CREATE: libc::c_long = 0;
const PROG_LOAD: libc::c_long = 5;
const MAP_LOOKUP_AND_DELETE: libc::c_long = 21;
const LINK_CREATE: libc::c_long = 28;
const MAP_TYPE_QUEUE: u32 = 22;
const PROG_TYPE_SCHED_CLS: u32 = 3;
const TCX_INGRESS: u32 = 46;
const KTIME_GET_NS: i32 = 5;
const SKB_LOAD_BYTES: i32 = 26;
const MAP_PUSH_ELEM: i32 = 87;

/// The most packets that wait to be read; further ones are not stamped.
const STAMPS_MAX: u32 = 100_000;
/// The Ethernet, IP and UDP headers up to the destination port, and where they are on the program's stack.
const HEADERS_BYTES: i32 = 38;
const HEADERS: i16 = -40;
const STAMP: i16 = -64;

/// A stamp and the big-endian length of its packet, as the program pushes them.
#[repr(C)]
#[derive(Default)]
struct Stamp {
    at_ns: u64,
    ip_bytes: u64,
}

/// `struct bpf_insn`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Step {
    code: u8,
    registers: u8,
    offset: i16,
    value: i32,
}

/// The part of `union bpf_attr` that a command uses, in words.
type Attributes = [u64; 16];

/// The stamps of UDP packets to one port.
pub struct Ingress {
    queue: OwnedFd,
    /// Detaches the program when dropped.
    _link: OwnedFd,
}

impl Ingress {
    /// Attaches to the interface with this index. Needs CAP_BPF and CAP_NET_ADMIN, and Linux 6.6.
    pub fn attach(interface: u32, port: u16) -> io::Result<Self> {
        let queue = create_queue()?;
        let program = load(&program(queue.as_raw_fd(), port))?;
        let mut attributes = Attributes::default();
        attributes[0] = words(program.as_raw_fd() as u32, interface);
        attributes[1] = words(TCX_INGRESS, 0);
        let link = command(LINK_CREATE, &mut attributes)?;
        Ok(Self { queue, _link: link })
    }

    /// Returns the next stamp, of `CLOCK_MONOTONIC`, and the length of the packet.
    pub fn next(&self) -> Option<(u64, u16)> {
        let mut stamp = Stamp::default();
        let mut attributes = Attributes::default();
        attributes[0] = u64::from(self.queue.as_raw_fd() as u32);
        attributes[2] = (&raw mut stamp) as u64;
        // SAFETY: the kernel writes one value of the queue's size, which is that of `stamp`.
        let done = unsafe { bpf(MAP_LOOKUP_AND_DELETE, &mut attributes) };
        (done == 0).then(|| (stamp.at_ns, u16::from_be(stamp.ip_bytes as u16)))
    }
}

fn create_queue() -> io::Result<OwnedFd> {
    let mut attributes = Attributes::default();
    attributes[0] = words(MAP_TYPE_QUEUE, 0);
    attributes[1] = words(size_of::<Stamp>() as u32, STAMPS_MAX);
    command(MAP_CREATE, &mut attributes)
}

fn load(steps: &[Step]) -> io::Result<OwnedFd> {
    let license = c"Apache-2.0";
    let mut attributes = Attributes::default();
    attributes[0] = words(PROG_TYPE_SCHED_CLS, steps.len() as u32);
    attributes[1] = steps.as_ptr() as u64;
    attributes[2] = license.as_ptr() as u64;
    // The expected type of attachment, at byte 68.
    attributes[8] = words(0, TCX_INGRESS);
    command(PROG_LOAD, &mut attributes)
}

/// Pushes the time and the length of each UDP packet to `port`, and passes all packets on.
fn program(queue: i32, port: u16) -> Vec<Step> {
    let step =
        |code: u8, to: u8, from: u8, offset: i16, value: i32| Step { code, registers: from << 4 | to, offset, value };
    let call = |function| step(0x85, 0, 0, 0, function);
    let set = |register, value| step(0xb7, register, 0, 0, value);
    let copy = |to, from| step(0xbf, to, from, 0, 0);
    let add = |register, value| step(0x07, register, 0, 0, value);
    let differs = |register, value, skipped| step(0x55, register, 0, skipped, value);
    let load_u16 = |to, offset| step(0x69, to, 10, offset, 0);
    let load_u8 = |to, offset| step(0x71, to, 10, offset, 0);
    let store_u64 = |offset, from| step(0x7b, 10, from, offset, 0);
    vec![
        // The headers may lie outside the packet's linear part.
        set(2, 0),
        copy(3, 10),
        add(3, i32::from(HEADERS)),
        set(4, HEADERS_BYTES),
        call(SKB_LOAD_BYTES),
        differs(0, 0, 16),
        load_u16(1, HEADERS + 12),
        differs(1, i32::from((libc::ETH_P_IP as u16).to_be()), 14),
        load_u8(1, HEADERS + 23),
        differs(1, libc::IPPROTO_UDP, 12),
        load_u16(1, HEADERS + 36),
        differs(1, i32::from(port.to_be()), 10),
        call(KTIME_GET_NS),
        store_u64(STAMP, 0),
        load_u16(1, HEADERS + 16),
        store_u64(STAMP + 8, 1),
        // A load of 64 bits takes two steps.
        step(0x18, 1, 1, 0, queue),
        step(0, 0, 0, 0, 0),
        copy(2, 10),
        add(2, i32::from(STAMP)),
        set(3, 0),
        call(MAP_PUSH_ELEM),
        // TCX_NEXT
        set(0, -1),
        step(0x95, 0, 0, 0, 0),
    ]
}

const fn words(low: u32, high: u32) -> u64 {
    low as u64 | (high as u64) << 32
}

/// Runs a command that returns a descriptor.
fn command(command: libc::c_long, attributes: &mut Attributes) -> io::Result<OwnedFd> {
    // SAFETY: the attributes name memory that lives through the call.
    let fd = unsafe { bpf(command, attributes) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made this descriptor.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// # Safety
/// Addresses in the attributes must be valid for the command.
unsafe fn bpf(command: libc::c_long, attributes: &mut Attributes) -> libc::c_long {
    unsafe { libc::syscall(libc::SYS_bpf, command, attributes.as_mut_ptr(), size_of::<Attributes>()) }
}
