//! Sends trains by an ordinary socket, without raw sockets.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::thread;
use std::time::Duration;

use super::api::Token;
use super::tag;
use crate::clock::Nanos;
use crate::os;

/// Sleeping ends this long before a packet is due; the rest is spent spinning.
pub const SPIN: Duration = Duration::from_micros(100);
/// The longest sleep at once, after which to look for a cancellation.
const NAP: Duration = Duration::from_millis(50);
/// An interface that takes no packet for this long is stuck.
const STUCK: Duration = Duration::from_secs(1);

/// Opens a socket for a train from `here`, a local address, to `there` only. Packets that are too large for the path
/// are refused rather than fragmented.
///
/// # Errors
///
/// If the socket cannot be opened, or there is no route.
pub fn socket(here: SocketAddr, there: SocketAddr) -> io::Result<UdpSocket> {
    let mut from = here;
    from.set_port(0);
    let socket = UdpSocket::bind(from)?;
    os::socket::refuse_fragments(&socket, there.is_ipv4())?;
    socket.set_write_timeout(Some(STUCK))?;
    socket.connect(there)?;
    Ok(socket)
}

/// Sends a packet of `ip_bytes` at each of the times, and returns when each had left. Blocks until the last has left;
/// stops within 50 ms once the train is no longer `wanted`.
///
/// # Errors
///
/// At the first packet that is refused: the far end's port is closed (by ICMP), the packet is too large, or the
/// interface is gone. Also if the train is no longer wanted.
pub fn send(
    socket: &UdpSocket,
    due: &[Nanos],
    token: Token,
    ip_bytes: u32,
    wanted: impl Fn() -> bool,
) -> io::Result<Vec<Nanos>> {
    let v4 = socket.peer_addr()?.ip().to_canonical().is_ipv4();
    let packets: Vec<_> = (0u32..).zip(due).map(|(seq, _)| tag::payload(token, seq, ip_bytes, v4)).collect();
    let mut left = Vec::with_capacity(due.len());
    for (packet, due) in packets.iter().zip(due) {
        if !wait(*due, &wanted) {
            return Err(io::Error::new(io::ErrorKind::Interrupted, "the train was cancelled"));
        }
        socket.send(packet)?;
        left.push(Nanos::now());
    }
    Ok(left)
}

/// Waits until a packet is due; returns false if it is no longer wanted.
fn wait(due: Nanos, wanted: impl Fn() -> bool) -> bool {
    while wanted() {
        let asleep = due.since(Nanos::now()).saturating_sub(SPIN).min(NAP);
        if asleep.is_zero() {
            while Nanos::now() < due {
                std::hint::spin_loop();
            }
            return true;
        }
        thread::sleep(asleep);
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_arrive_in_order_and_not_before_they_are_due() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(receiver) = UdpSocket::bind(address) else { continue };
            receiver.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
            let socket = socket(address.parse().unwrap(), receiver.local_addr().unwrap()).unwrap();
            let start = Nanos::now();
            let due: Vec<_> = (0..3u32).map(|n| start + Duration::from_millis(2) * n).collect();
            let left = send(&socket, &due, Token(7), 500, || true).unwrap();
            assert!(left.len() == 3 && left.iter().zip(&due).all(|(left, due)| left >= due), "{left:?} {due:?}");
            for seq in 0..3 {
                let mut packet = [0; 1500];
                let len = receiver.recv(&mut packet).unwrap();
                assert_eq!(tag::seq_of(Token(7), &packet[..len]), Some(seq));
                assert_eq!(tag::ip_bytes(len, address.starts_with('1')), 500);
            }
        }
    }

    #[test]
    fn closed_port_ends_the_train() {
        // Connected to one peer, so that the kernel gives the port to no other socket meanwhile.
        let held = UdpSocket::bind("127.0.0.1:0").unwrap();
        held.connect("127.0.0.1:9").unwrap();
        let socket = socket("127.0.0.1:0".parse().unwrap(), held.local_addr().unwrap()).unwrap();
        let start = Nanos::now();
        let due: Vec<_> = (0..100u32).map(|n| start + Duration::from_millis(1) * n).collect();
        assert!(send(&socket, &due, Token(7), 100, || true).is_err());
    }

    #[test]
    fn cancelled_train_is_not_sent() {
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        receiver.set_nonblocking(true).unwrap();
        let socket = socket("127.0.0.1:0".parse().unwrap(), receiver.local_addr().unwrap()).unwrap();
        let due = [Nanos::now() + Duration::from_secs(3600)];
        let asked = std::cell::Cell::new(0);
        let wanted = || asked.replace(asked.get() + 1) < 2;
        assert!(send(&socket, &due, Token(7), 100, wanted).is_err(), "it would have waited for an hour");
        assert!(receiver.recv(&mut [0; 100]).is_err());
    }
}
