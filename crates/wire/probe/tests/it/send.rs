//! Each backend sends the frames of a train in order, never early, and at the times that it reports.

use std::time::Duration;

use cheetah_probe::capture::Capture;
use cheetah_probe::clock::Nanos;
use cheetah_probe::frame::{self, ETHERNET_BYTES, Probe, Session};
use cheetah_probe::route::Route;
use cheetah_probe::send::{Backend, Departures, Options, PreDispatch, SendError, Sender, Stamp, Train, open};

use crate::net::{FAR, HERE, NEAR, Net, THERE};

const BACKENDS: [Backend; 2] = [Backend::Ring, Backend::Xdp];

/// Two clock readings of one event differ by less, unless one is of another clock. The machine may do other things
/// between them.
const SLACK: Duration = Duration::from_secs(60);

fn sender(backend: Backend, pre_dispatch: PreDispatch) -> Result<(Route, Box<dyn Sender>), SendError> {
    let route = Route::to(THERE.parse().unwrap()).unwrap();
    let sender = open(&route, Options { backend: Some(backend), pre_dispatch, ..Options::default() })?;
    Ok((route, sender))
}

/// A train of UDP to a port that is closed.
fn train(route: &Route, packets: u32, gap: Duration, ip_bytes: usize) -> Train {
    let session = Session { nonce: 7, local_port: 40_000, port: 33_434 };
    let frame = |seq| frame::frame(&route.ends(), &session, Probe::Udp { seq }, ip_bytes, true);
    let start = Nanos::now() + Duration::from_millis(2);
    Train { frames: (0..packets).map(frame).collect(), due: (0..packets).map(|nth| start + gap * nth).collect() }
}

/// Sends a train, and returns the packets that arrived at the other end.
fn sent(net: &Net, backend: Backend, when: PreDispatch, packets: u32, gap: Duration) -> Option<SentTrain> {
    let mut capture = net.on(FAR, || Capture::open(&Route::to(HERE.parse().unwrap()).unwrap()).unwrap());
    let (train, departures) = net.on(NEAR, || {
        let (route, mut sender) =
            sender(backend, when).map_err(|error| cheetah_testing::skip(&error.to_string())).ok()?;
        assert_eq!(sender.backend(), backend);
        let train = train(&route, packets, gap, 1000);
        let departures = sender.send(&train).unwrap();
        Some((train, departures))
    })?;
    let mut came = Vec::new();
    let deadline = Nanos::now() + Duration::from_secs(60);
    while came.len() < train.frames.len() {
        let Some(captured) = capture.recv_until(deadline).unwrap() else { break };
        if captured.frame.len() == 1000 + ETHERNET_BYTES {
            came.push((captured.frame.to_vec(), captured.at));
        }
    }
    assert_eq!(capture.dropped(), 0);
    Some(SentTrain { train, departures, came })
}

struct SentTrain {
    train: Train,
    departures: Departures,
    came: Vec<(Vec<u8>, Nanos)>,
}

impl SentTrain {
    fn check(self) {
        let (frames, came): (Vec<_>, Vec<_>) = self.came.into_iter().unzip();
        assert!(frames == self.train.frames, "{} of {} frames", frames.len(), self.train.frames.len());
        assert_eq!(self.departures.left.len(), frames.len());
        for ((due, left), came) in self.train.due.iter().zip(&self.departures.left).zip(came) {
            let left = left.unwrap();
            assert!(left + Duration::from_micros(5) >= *due, "{left} is before {due}");
            let apart = left.since(came).max(came.since(left));
            assert!(apart < SLACK, "it left at {left} and came at {came}");
        }
    }
}

#[test]
fn every_backend_sends_packets_in_order_when_they_are_due() {
    let Some(net) = Net::pair() else { return };
    for backend in BACKENDS {
        for gap in [0, 100, 3_000].map(Duration::from_micros) {
            if let Some(sent) = sent(&net, backend, PreDispatch::Initial, 20, gap) {
                sent.check();
            }
        }
    }
}

#[test]
fn packets_may_be_handed_over_shortly_before_they_are_due() {
    let Some(net) = Net::pair() else { return };
    for backend in BACKENDS {
        for ahead in [0, 100, 10_000].map(Duration::from_micros) {
            if let Some(sent) = sent(&net, backend, PreDispatch::OnTheFly(ahead), 20, Duration::from_micros(200)) {
                sent.check();
            }
        }
    }
}

#[test]
fn trains_longer_than_a_ring_are_refilled_as_they_go() {
    let Some(net) = Net::pair() else { return };
    for backend in BACKENDS {
        if let Some(sent) = sent(&net, backend, PreDispatch::Initial, 3_000, Duration::ZERO) {
            sent.check();
        }
    }
}

#[test]
fn the_kernel_stamps_packets_sent_through_a_virtual_link() {
    let Some(net) = Net::pair() else { return };
    let sent = sent(&net, Backend::Ring, PreDispatch::Initial, 5, Duration::ZERO).unwrap();
    assert_eq!(sent.departures.stamp, Stamp::Kernel);
}

#[test]
fn several_trains_go_through_one_sender() {
    let Some(net) = Net::pair() else { return };
    for backend in BACKENDS {
        net.on(NEAR, || {
            let Ok((route, mut sender)) = sender(backend, PreDispatch::Initial) else { return };
            for packets in [1, 0, 700, 700, 2] {
                let departures = sender.send(&train(&route, packets, Duration::ZERO, 60)).unwrap();
                assert_eq!(departures.left.iter().flatten().count(), packets as usize);
                assert!(departures.left.is_sorted());
            }
        });
    }
}

#[test]
fn the_best_backend_sends_on_time() {
    let Some(net) = Net::pair() else { return };
    net.on(NEAR, || {
        let route = Route::to(THERE.parse().unwrap()).unwrap();
        let sender = open(&route, Options::default()).unwrap();
        // The kernel accepts times for packets here as well, and ignores them.
        assert!(matches!(sender.backend(), Backend::Xdp | Backend::Ring), "{}", sender.backend());
        for backend in [Backend::TxtimeEtf, Backend::TxtimeFq] {
            assert!(open(&route, Options { backend: Some(backend), ..Options::default() }).is_err());
        }
    });
}

#[test]
fn frames_that_are_too_long_are_refused() {
    let Some(net) = Net::pair() else { return };
    for backend in BACKENDS {
        net.on(NEAR, || {
            let Ok((route, mut sender)) = sender(backend, PreDispatch::Initial) else { return };
            let mut train = train(&route, 1, Duration::ZERO, 100);
            train.frames[0].resize(20_000, 0);
            assert!(matches!(sender.send(&train), Err(SendError::TooLong { bytes: 20_000, .. })));
            train.frames[0].truncate(1514);
            sender.send(&train).unwrap();
        });
    }
}

#[test]
fn an_interface_that_goes_down_midway_is_reported() {
    let Some(net) = Net::pair() else { return };
    for backend in BACKENDS {
        net.ip(NEAR, &["link", "set", FAR, "up"]);
        let error = net.on(NEAR, || {
            let (route, mut sender) = sender(backend, PreDispatch::Initial).ok()?;
            // It would last a minute.
            let train = train(&route, 600, Duration::from_millis(100), 100);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    std::thread::sleep(Duration::from_millis(100));
                    net.ip(NEAR, &["link", "set", FAR, "down"]);
                });
                Some(sender.send(&train).err().unwrap())
            })
        });
        if let Some(error) = error {
            assert!(matches!(error, SendError::Down { .. }), "{backend}: {error}");
        }
    }
}

#[test]
fn without_the_right_nothing_is_sent() {
    let Some(net) = Net::pair() else { return };
    let error = net.on(NEAR, || {
        let route = Route::to(THERE.parse().unwrap()).unwrap();
        // Only this thread, which ends with the test, loses its capabilities.
        let none = rustix::thread::CapabilitySet::empty();
        let sets = rustix::thread::CapabilitySets { effective: none, permitted: none, inheritable: none };
        rustix::thread::set_capabilities(None, sets).unwrap();
        open(&route, Options::default()).err().unwrap()
    });
    assert!(matches!(error, SendError::NotPermitted));
}
