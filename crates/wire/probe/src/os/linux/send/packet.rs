//! Packet sockets: whole frames to and from one interface.

use std::io;
use std::mem::{size_of, size_of_val};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use socket2::{Domain, SockAddr, SockFilter, Socket, Type};

/// The buffer size of a socket, if that much is permitted.
pub(super) const BUFFER_BYTES: i32 = 16 << 20;

/// A packet socket bound to one interface.
#[derive(Debug)]
pub(crate) struct PacketSocket(Socket);

impl PacketSocket {
    /// Opens a socket on the interface of that index; it receives nothing.
    pub(crate) fn sending(index: u32) -> io::Result<Self> {
        let socket = Socket::new(Domain::PACKET, Type::RAW, None)?;
        socket.bind(&address(index, 0)?)?;
        enlarge(&socket)?;
        Ok(Self(socket))
    }

    /// Opens a socket that receives, with timestamps, the packets of an Ethernet protocol that pass a filter.
    pub(crate) fn receiving(index: u32, protocol: u16, filter: &[SockFilter]) -> io::Result<Self> {
        let socket = Socket::new(Domain::PACKET, Type::RAW, None)?;
        enlarge(&socket)?;
        set_option(&socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, &1_i32)?;
        // No protocol is bound yet, so no packet arrives before the filter is attached.
        socket.attach_filter(filter)?;
        socket.bind(&address(index, protocol)?)?;
        Ok(Self(socket))
    }

    /// Returns the packets dropped for lack of buffer space since the last call.
    pub(crate) fn drops_since(&self) -> io::Result<u32> {
        let mut stats = libc::tpacket_stats { tp_packets: 0, tp_drops: 0 };
        let mut length = size_of_val(&stats) as libc::socklen_t;
        let (level, name) = (libc::SOL_PACKET, libc::PACKET_STATISTICS);
        // SAFETY: the value and its length outlive the call, which writes no more than the length.
        let done =
            unsafe { libc::getsockopt(self.0.as_raw_fd(), level, name, (&raw mut stats).cast(), &raw mut length) };
        if done < 0 { Err(io::Error::last_os_error()) } else { Ok(stats.tp_drops) }
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn enlarge(socket: &Socket) -> io::Result<()> {
    for (forced, asked) in [(libc::SO_SNDBUFFORCE, libc::SO_SNDBUF), (libc::SO_RCVBUFFORCE, libc::SO_RCVBUF)] {
        if set_option(socket, libc::SOL_SOCKET, forced, &BUFFER_BYTES).is_err() {
            set_option(socket, libc::SOL_SOCKET, asked, &BUFFER_BYTES)?;
        }
    }
    Ok(())
}

fn address(index: u32, protocol: u16) -> io::Result<SockAddr> {
    let index = i32::try_from(index).map_err(|_| io::ErrorKind::InvalidInput)?;
    // SAFETY: the storage is at least as large as any address, and is filled as a `sockaddr_ll` of that length.
    let (_, address) = unsafe {
        SockAddr::try_init(|storage, length| {
            let link = &mut *storage.cast::<libc::sockaddr_ll>();
            link.sll_family = libc::AF_PACKET as libc::sa_family_t;
            link.sll_protocol = protocol.to_be();
            link.sll_ifindex = index;
            *length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
            Ok(())
        })?
    };
    Ok(address)
}

/// Sets a socket option whose value is a plain structure without pointers and padding.
pub(crate) fn set_option<T: Copy>(socket: &impl AsFd, level: i32, name: i32, value: &T) -> io::Result<()> {
    let (pointer, bytes) = (std::ptr::from_ref(value).cast(), size_of_val(value) as libc::socklen_t);
    // SAFETY: the value outlives the call, which reads no more than its size.
    let done = unsafe { libc::setsockopt(socket.as_fd().as_raw_fd(), level, name, pointer, bytes) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
