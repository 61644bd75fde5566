//! A man in the middle, which passes TCP connections on and keeps what clients send.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

/// A proxy in front of one server.
pub struct Tap {
    pub address: SocketAddr,
    said: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl Tap {
    pub fn new(to: &str) -> Self {
        Self::holding(to, |_| false)
    }

    /// Passes no more of a connection on once a client has sent a piece that is to be held.
    pub fn holding(to: &str, hold: fn(&[u8]) -> bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, to) = (listener.local_addr().unwrap(), to.to_owned());
        let said: Arc<Mutex<Vec<Vec<u8>>>> = Arc::default();
        let kept = Arc::clone(&said);
        thread::spawn(move || {
            for near in listener.incoming().flatten() {
                let Ok(far) = TcpStream::connect(&*to) else { continue };
                let number = kept.lock().unwrap().len();
                kept.lock().unwrap().push(Vec::new());
                let (near_again, far_again) = (near.try_clone().unwrap(), far.try_clone().unwrap());
                let kept = Arc::clone(&kept);
                let keep = move |bytes: &[u8]| {
                    kept.lock().unwrap()[number].extend_from_slice(bytes);
                    !hold(bytes)
                };
                thread::spawn(move || pass(near, far, keep));
                thread::spawn(move || pass(far_again, near_again, |_| true));
            }
        });
        Self { address, said }
    }

    /// What clients have sent, one entry for each connection.
    pub fn said(&self) -> Vec<Vec<u8>> {
        self.said.lock().unwrap().clone()
    }
}

/// Passes bytes on for as long as `may_pass` says so of each piece. A piece that may not, and all behind it, is never passed on,
/// and the sender is not told.
fn pass(mut from: TcpStream, mut into: TcpStream, may_pass: impl Fn(&[u8]) -> bool) {
    let mut buffer = vec![0; 1 << 16];
    while let Ok(len @ 1..) = from.read(&mut buffer) {
        if !may_pass(&buffer[..len]) {
            // Until the sender gives up.
            while matches!(from.read(&mut buffer), Ok(1..)) {}
            break;
        }
        if into.write_all(&buffer[..len]).is_err() {
            break;
        }
    }
    // The other direction may go on after an end in order.
    let _ = into.shutdown(Shutdown::Write);
}
