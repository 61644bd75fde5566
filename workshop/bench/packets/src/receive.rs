//! The receiver: a packet socket on an interface, where the kernel stamps each packet on arrival. It is read only on
//! request, so that no process wakes up and disturbs a sender on the same machine; packets wait in the socket.

use std::error::Error;
use std::ffi::CString;
use std::fmt::Write as _;
use std::io::{self, BufRead as _, Write as _};
use std::mem::{size_of, zeroed};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use crate::clock::wall_offset_ns;
use crate::ingress::Ingress;

/// Room for some 100,000 packets.
const BUFFER_BYTES: libc::c_int = 256 << 20;
/// Bytes kept of each packet: its headers.
const SNAP_BYTES: u32 = 64;
/// Missing from the libc crate for some targets.
const PACKET_STATISTICS: libc::c_int = 6;
const IP_LENGTH_AT: usize = 14 + 2;
/// Bytes of a TCP packet that only `burst` sends: cross traffic goes to the same port.
const TCP_IP_BYTES: u32 = 40;

/// Receives TCP and UDP packets to one port.
pub struct Receiver {
    socket: OwnedFd,
    /// Missing where BPF is not permitted.
    ingress: Option<Ingress>,
}

impl Receiver {
    /// Opens `interface`. Needs CAP_NET_RAW.
    pub fn open(interface: &str, port: u16) -> Result<Self, Box<dyn Error>> {
        let name = CString::new(interface)?;
        // SAFETY: `name` is a C string that outlives the call.
        let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
        if index == 0 {
            return Err(format!("{interface}: {}", io::Error::last_os_error()).into());
        }
        // Protocol 0 receives nothing, so no packet arrives before the filter is set.
        let kind = libc::SOCK_RAW | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        // SAFETY: plain system call; the descriptor is checked and owned at once.
        let socket = unsafe {
            let fd = libc::socket(libc::AF_PACKET, kind, 0);
            check(fd)?;
            OwnedFd::from_raw_fd(fd)
        };
        let ingress = Ingress::attach(index, port);
        if let Err(error) = &ingress {
            eprintln!("bench-packets: no stamps at ingress: {error}");
        }
        let receiver = Self { socket, ingress: ingress.ok() };
        receiver.set_option(libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, &BUFFER_BYTES)?;
        receiver.set_option(libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, &1)?;
        receiver.filter(port)?;
        receiver.bind(index)?;
        Ok(receiver)
    }

    /// Answers each line of input with the packets that arrived since the previous one.
    pub fn serve(&self) -> Result<(), Box<dyn Error>> {
        println!("ready");
        for line in io::stdin().lock().lines() {
            line?;
            let offset_ns = wall_offset_ns();
            let mut report = String::new();
            while let Some((wall_ns, ip_bytes)) = self.next()? {
                writeln!(report, "{} {ip_bytes}", wall_ns.saturating_sub(offset_ns))?;
            }
            while let Some((at_ns, ip_bytes)) = self.ingress.as_ref().and_then(Ingress::next) {
                writeln!(report, "ingress {at_ns} {ip_bytes}")?;
            }
            writeln!(report, "dropped {}", self.dropped()?)?;
            let mut out = io::stdout().lock();
            out.write_all(report.as_bytes())?;
            out.flush()?;
        }
        Ok(())
    }

    /// Returns the next waiting packet: its arrival time by `CLOCK_REALTIME`, and its length.
    fn next(&self) -> io::Result<Option<(u64, u16)>> {
        let mut frame = [0u8; SNAP_BYTES as usize];
        let mut control = [0u64; 16];
        let mut slice = libc::iovec { iov_base: frame.as_mut_ptr().cast(), iov_len: frame.len() };
        // SAFETY: a msghdr of zeros is a valid, empty one.
        let mut message: libc::msghdr = unsafe { zeroed() };
        message.msg_iov = &raw mut slice;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = size_of_val(&control) as _;
        // SAFETY: `message` points to `frame` and `control`, which live through the call, with their sizes.
        let read = unsafe { libc::recvmsg(self.socket.as_raw_fd(), &raw mut message, 0) };
        if read < 0 {
            let error = io::Error::last_os_error();
            return if error.kind() == io::ErrorKind::WouldBlock { Ok(None) } else { Err(error) };
        }
        let arrived_ns = timestamp_ns(&message).ok_or_else(|| io::Error::other("the kernel did not stamp a packet"))?;
        Ok(Some((arrived_ns, u16::from_be_bytes([frame[IP_LENGTH_AT], frame[IP_LENGTH_AT + 1]]))))
    }

    /// Returns the number of packets dropped since the last call because the socket was full.
    fn dropped(&self) -> io::Result<u32> {
        // `struct tpacket_stats`: packets, drops.
        let mut stats = [0u32; 2];
        let mut length = size_of_val(&stats) as libc::socklen_t;
        let pointer = stats.as_mut_ptr().cast();
        // SAFETY: `pointer` points to `length` bytes.
        check(unsafe {
            libc::getsockopt(self.socket.as_raw_fd(), libc::SOL_PACKET, PACKET_STATISTICS, pointer, &raw mut length)
        })?;
        Ok(stats[1])
    }

    /// Accepts only IPv4 UDP packets to `port`, and TCP packets of two headers without options or payload, and no fragments but the first.
    fn filter(&self, port: u16) -> io::Result<()> {
        let step = |code: u32, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
        let load = libc::BPF_LD | libc::BPF_ABS;
        let equals = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
        let mut program = [
            step(load | libc::BPF_H, 0, 0, 12),
            step(equals, 0, 11, libc::ETH_P_IP as u32),
            step(load | libc::BPF_B, 0, 0, 23),
            step(equals, 3, 0, libc::IPPROTO_UDP as u32),
            step(equals, 0, 8, libc::IPPROTO_TCP as u32),
            step(load | libc::BPF_H, 0, 0, IP_LENGTH_AT as u32),
            step(equals, 0, 6, TCP_IP_BYTES),
            step(load | libc::BPF_H, 0, 0, 20),
            step(libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K, 4, 0, 0x1fff),
            step(libc::BPF_LDX | libc::BPF_B | libc::BPF_MSH, 0, 0, 14),
            step(libc::BPF_LD | libc::BPF_IND | libc::BPF_H, 0, 0, 16),
            step(equals, 0, 1, u32::from(port)),
            step(libc::BPF_RET | libc::BPF_K, 0, 0, SNAP_BYTES),
            step(libc::BPF_RET | libc::BPF_K, 0, 0, 0),
        ];
        let filter = libc::sock_fprog { len: program.len() as _, filter: program.as_mut_ptr() };
        self.set_option(libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &filter)
    }

    fn bind(&self, index: libc::c_uint) -> io::Result<()> {
        // SAFETY: a sockaddr_ll of zeros is a valid one.
        let mut address: libc::sockaddr_ll = unsafe { zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = (libc::ETH_P_IP as u16).to_be();
        address.sll_ifindex = index as i32;
        let length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        // SAFETY: `address` is a sockaddr_ll, and its size is passed.
        check(unsafe { libc::bind(self.socket.as_raw_fd(), (&raw const address).cast(), length) })
    }

    fn set_option<T>(&self, level: libc::c_int, option: libc::c_int, value: &T) -> io::Result<()> {
        let length = size_of::<T>() as libc::socklen_t;
        // SAFETY: `value` is a reference, and the size of its target is passed.
        check(unsafe {
            libc::setsockopt(self.socket.as_raw_fd(), level, option, std::ptr::from_ref(value).cast(), length)
        })
    }
}

fn timestamp_ns(message: &libc::msghdr) -> Option<u64> {
    // SAFETY: `message` was filled in by recvmsg, so walking its control messages stays within its buffer, and
    // one of this kind holds a timespec (perhaps unaligned).
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(message);
        while !header.is_null() {
            if (*header).cmsg_level == libc::SOL_SOCKET && (*header).cmsg_type == libc::SCM_TIMESTAMPNS {
                let time: libc::timespec = libc::CMSG_DATA(header).cast::<libc::timespec>().read_unaligned();
                return Some(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64);
            }
            header = libc::CMSG_NXTHDR(message, header);
        }
    }
    None
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
