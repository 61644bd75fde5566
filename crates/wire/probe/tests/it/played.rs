//! A simulated host that answers echo requests as the test specifies.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use cheetah_probe::capture::Capture;
use cheetah_probe::clock::Nanos;
use cheetah_probe::route::Route;
use cheetah_probe::send::{self, Backend, PreDispatch, Train};

use crate::net::{FAR, HERE, MACS, NEAR, Net, THERE};

/// Frames to send, each with its delay.
pub type Answers = Vec<(Duration, Vec<u8>)>;

/// Simulates a host until it is dropped.
pub struct Played {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Played {
    /// A network whose far machine has no address, so that the test answers for it: `answers` gets the number of each
    /// echo request, from 0, and the right answer.
    pub fn host(answers: impl FnMut(usize, Vec<u8>) -> Answers + Send + 'static) -> Option<(Net, Self)> {
        let mut net = Net::new()?;
        net.machines(&[NEAR, FAR]);
        net.link((NEAR, HERE, "fd77::1"), (FAR, "", ""));
        net.ip(NEAR, &["neighbour", "add", THERE, "lladdr", MACS[1], "dev", FAR]);
        let played = Self::on(&net, answers);
        Some((net, played))
    }

    /// Simulates the far machine of two.
    pub fn on(net: &Net, answers: impl FnMut(usize, Vec<u8>) -> Answers + Send + 'static) -> Self {
        let shown = net.ip(FAR, &["-o", "link", "show", "dev", NEAR]);
        let route = Route {
            interface: NEAR.into(),
            index: shown.split(':').next().unwrap().parse().unwrap(),
            local: THERE.parse::<IpAddr>().unwrap(),
            remote: HERE.parse::<IpAddr>().unwrap(),
            gateway: None,
            local_mac: mac(MACS[1]),
            remote_mac: mac(MACS[0]),
            mtu: 1500,
            loopback: false,
        };
        let over = Arc::new(AtomicBool::new(false));
        // A socket stays in the namespace in which it was opened, whichever thread uses it.
        let (capture, sender) = net.on(FAR, || {
            let backend = Some(Backend::Ring);
            let options = send::Options { backend, pre_dispatch: PreDispatch::Initial, realtime: false, cpu: None };
            (Capture::open(&route).unwrap(), send::open(&route, options).unwrap())
        });
        let thread = std::thread::spawn({
            let over = over.clone();
            move || play(capture, sender, &over, answers)
        });
        Self { over, thread: Some(thread) }
    }
}

impl Drop for Played {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn play(
    mut capture: Capture,
    mut sender: Box<dyn send::Sender>,
    over: &AtomicBool,
    mut answers: impl FnMut(usize, Vec<u8>) -> Answers,
) {
    let mut nth = 0;
    let mut waiting: Vec<(Nanos, Vec<u8>)> = Vec::new();
    while !over.load(Ordering::Relaxed) {
        let soon = Nanos::now() + Duration::from_millis(5);
        let next = waiting.iter().map(|(at, _)| *at).min().unwrap_or(soon);
        if let Ok(Some(captured)) = capture.recv_until(next.min(soon))
            && let Some(right) = echo(captured.frame)
        {
            waiting.extend(answers(nth, right).into_iter().map(|(later, frame)| (Nanos::now() + later, frame)));
            nth += 1;
        }
        let (due, rest) = waiting.into_iter().partition(|(at, _)| *at <= Nanos::now());
        waiting = rest;
        for (at, frame) in due {
            let _ = sender.send(&Train { frames: vec![frame], due: vec![at] });
        }
    }
}

/// The answer to an echo request over IPv4 without options.
fn echo(frame: &[u8]) -> Option<Vec<u8>> {
    let is_request = frame.get(12..14)? == [8, 0] && *frame.get(23)? == 1 && *frame.get(34)? == 8;
    let mut answer = is_request.then(|| frame.to_vec())?;
    for (a, b, bytes) in [(0, 6, 6), (26, 30, 4)] {
        let (left, right) = answer.split_at_mut(b);
        left[a..a + bytes].swap_with_slice(&mut right[..bytes]);
    }
    answer[34] = 0;
    // RFC 1624: a decrease in the message is an increase in its checksum.
    let (sum, carry) = u16::from_be_bytes([answer[36], answer[37]]).overflowing_add(0x0800);
    answer[36..38].copy_from_slice(&(sum + u16::from(carry)).to_be_bytes());
    Some(answer)
}

fn mac(text: &str) -> [u8; 6] {
    let bytes: Vec<u8> = text.split(':').map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect();
    bytes.try_into().unwrap()
}
