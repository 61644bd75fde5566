//! An interface as a packet socket, which receives every frame that arrives on it, and sends frames through it.

use std::ffi::CString;
use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

const BUFFER_BYTES: libc::c_int = 64 << 20;
/// Missing from the libc crate for some targets.
const PACKET_IGNORE_OUTGOING: libc::c_int = 23;

/// One end of the relay.
pub struct Port {
    socket: OwnedFd,
}

impl Port {
    /// Opens `interface`. Needs CAP_NET_RAW.
    pub fn open(interface: &str) -> io::Result<Self> {
        let name = CString::new(interface)?;
        // SAFETY: `name` is a C string that outlives the call.
        let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
        if index == 0 {
            return Err(io::Error::last_os_error());
        }
        // Protocol 0 receives nothing, so no frame of another interface arrives before the bind.
        let kind = libc::SOCK_RAW | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        // SAFETY: plain system call; the descriptor is checked and owned at once.
        let socket = unsafe {
            let fd = libc::socket(libc::AF_PACKET, kind, 0);
            check(fd)?;
            OwnedFd::from_raw_fd(fd)
        };
        let port = Self { socket };
        port.set_option(libc::SOL_PACKET, libc::PACKET_VNET_HDR, 1)?;
        port.set_option(libc::SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)?;
        port.set_option(libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1)?;
        port.set_option(libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, BUFFER_BYTES)?;
        port.set_option(libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, BUFFER_BYTES)?;
        port.bind(index)?;
        Ok(port)
    }

    fn set_option(&self, level: libc::c_int, option: libc::c_int, value: libc::c_int) -> io::Result<()> {
        let pointer = (&raw const value).cast();
        // SAFETY: `pointer` points to a c_int, and its size is passed.
        check(unsafe { libc::setsockopt(self.fd(), level, option, pointer, socklen::<libc::c_int>()) })
    }

    fn bind(&self, index: libc::c_uint) -> io::Result<()> {
        // SAFETY: a sockaddr_ll of zeros is a valid one.
        let mut address: libc::sockaddr_ll = unsafe { zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
        address.sll_ifindex = index as i32;
        // SAFETY: `address` is a sockaddr_ll, and its size is passed.
        check(unsafe { libc::bind(self.fd(), (&raw const address).cast(), socklen::<libc::sockaddr_ll>()) })
    }

    /// Reads one frame, with its virtio-net header, and when it arrived (real time, ns); `None` if none waits.
    pub fn receive<'a>(&self, buffer: &'a mut [u8]) -> io::Result<Option<(&'a [u8], u64)>> {
        let mut control = [0u64; 16];
        let mut slice = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
        // SAFETY: a msghdr of zeros is a valid, empty one.
        let mut message: libc::msghdr = unsafe { zeroed() };
        message.msg_iov = &raw mut slice;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = size_of_val(&control) as _;
        // SAFETY: `message` points to `buffer` and `control`, which live through the call, with their sizes.
        let read = unsafe { libc::recvmsg(self.fd(), &raw mut message, 0) };
        if read < 0 {
            let error = io::Error::last_os_error();
            return if error.kind() == io::ErrorKind::WouldBlock { Ok(None) } else { Err(error) };
        }
        let arrived_ns = timestamp_ns(&message).unwrap_or_else(now_ns);
        Ok(Some((&buffer[..read as usize], arrived_ns)))
    }

    /// Sends one frame with its virtio-net header. Returns false if the kernel had no room, and the frame is lost.
    pub fn send(&self, bytes: &[u8]) -> io::Result<bool> {
        // SAFETY: pointer and length are of one slice.
        let sent = unsafe { libc::send(self.fd(), bytes.as_ptr().cast(), bytes.len(), 0) };
        if sent >= 0 {
            return Ok(true);
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::ENOBUFS | libc::EAGAIN) => Ok(false),
            _ => Err(error),
        }
    }

    /// Waits until a frame can be read, or `timeout_ns` has passed. Returns whether a frame can be read.
    pub fn wait(&self, timeout_ns: Option<u64>) -> io::Result<bool> {
        wait(&[self], timeout_ns)
    }

    fn fd(&self) -> libc::c_int {
        self.socket.as_raw_fd()
    }
}

/// Waits until a frame can be read from one of `ports`, or `timeout_ns` has passed. Returns whether a frame can be
/// read.
pub fn wait(ports: &[&Port], timeout_ns: Option<u64>) -> io::Result<bool> {
    let mut polls: Vec<libc::pollfd> =
        ports.iter().map(|port| libc::pollfd { fd: port.fd(), events: libc::POLLIN, revents: 0 }).collect();
    let timeout =
        timeout_ns.map(|ns| libc::timespec { tv_sec: (ns / 1_000_000_000) as _, tv_nsec: (ns % 1_000_000_000) as _ });
    let pointer = timeout.as_ref().map_or(std::ptr::null(), |timeout| &raw const *timeout);
    // SAFETY: the count is that of the pollfds, and `pointer` is null or points to a timespec that lives through the
    // call.
    match check(unsafe { libc::ppoll(polls.as_mut_ptr(), polls.len() as libc::nfds_t, pointer, std::ptr::null()) }) {
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(true),
        Err(error) => Err(error),
        Ok(()) => Ok(polls.iter().any(|poll| poll.revents != 0)),
    }
}

/// Returns the time of `CLOCK_REALTIME`, by which the kernel stamps frames.
pub fn now_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is a timespec. The call cannot fail for this clock.
    unsafe { libc::clock_gettime(libc::CLOCK_REALTIME, &raw mut now) };
    nanoseconds(&now)
}

fn nanoseconds(time: &libc::timespec) -> u64 {
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn timestamp_ns(message: &libc::msghdr) -> Option<u64> {
    // SAFETY: `message` was filled in by recvmsg, so walking its control messages stays within its buffer, and
    // one of this kind holds a timespec (perhaps unaligned).
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(message);
        while !header.is_null() {
            if (*header).cmsg_level == libc::SOL_SOCKET && (*header).cmsg_type == libc::SCM_TIMESTAMPNS {
                let time: libc::timespec = libc::CMSG_DATA(header).cast::<libc::timespec>().read_unaligned();
                return Some(nanoseconds(&time));
            }
            header = libc::CMSG_NXTHDR(message, header);
        }
    }
    None
}

fn socklen<T>() -> libc::socklen_t {
    size_of::<T>() as libc::socklen_t
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
