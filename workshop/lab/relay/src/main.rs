//! Forwards Ethernet frames between pairs of interfaces after a fixed delay, for kernels without netem.
//!
//! A thread reads frames from a packet socket, stamps them with the kernel's time of arrival, keeps them in a
//! [`Line`](line::Line) and sends them when they are due. Segmentation offload stays on: super-frames pass
//! whole, with the header that says how to cut them.

mod alarm;
mod carry;
mod cross;
mod direction;
mod fair;
mod line;
mod pauses;
mod port;
mod random;
mod vnet;

use std::error::Error;
use std::sync::Arc;
use std::{io, process, thread};

use direction::Direction;
use line::{LineConfig, Wire};
use port::Port;

const USAGE: &str = "usage: lab-relay [--delay-us N] [--loss-ppm N] [--held-kib N] [--rate-bits N --queue-bytes N]
                 [--cross-ppm N] [--cross-burst N] [--fair 0|1] [--batch-left-us N] [--batch-right-us N] [--late-us N] LEFT:RIGHT …
an option applies to the pairs after it; cross traffic goes towards LEFT only";

fn main() {
    if let Err(error) = run() {
        eprintln!("lab-relay: {error}");
        process::exit(1);
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let pairs = arguments()?;
    // SAFETY: plain system call. Without it the kernel may round waits of ordinary threads up by 50 µs.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) };
    for pair in pairs {
        connect(pair)?;
    }
    println!("ready");
    loop {
        thread::park();
    }
}

/// Two interfaces, by name, and the link between them, the same each way except for cross traffic and batching.
struct Pair {
    config: LineConfig,
    cross_ppm: u64,
    cross_burst: u64,
    /// The intervals at which frames are delivered towards the left and the right, in nanoseconds; 0 delivers each when
    /// it is due.
    batch_left_ns: u64,
    batch_right_ns: u64,
    left: String,
    right: String,
}

fn arguments() -> Result<Vec<Pair>, Box<dyn Error>> {
    let mut config =
        LineConfig { delay_ns: 0, wire: None, held_bytes_max: 64 << 20, loss_ppm: 0, batch_ns: 0, late_ns_max: 0 };
    let (mut rate_bits, mut queue_bytes_max, mut cross_ppm, mut cross_burst) = (0, 0, 0, 1);
    let (mut fair, mut batch_left_ns, mut batch_right_ns) = (false, 0, 0);
    let mut pairs = Vec::new();
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut number = || -> Result<u64, Box<dyn Error>> { Ok(arguments.next().ok_or(USAGE)?.parse()?) };
        match argument.as_str() {
            "--delay-us" => config.delay_ns = number()? * 1_000,
            "--held-kib" => config.held_bytes_max = number()? << 10,
            "--loss-ppm" => config.loss_ppm = number()?,
            "--rate-bits" => rate_bits = number()?,
            "--queue-bytes" => queue_bytes_max = number()?,
            "--cross-ppm" => cross_ppm = number()?,
            "--cross-burst" => cross_burst = number()?,
            "--fair" => fair = number()? > 0,
            "--late-us" => config.late_ns_max = number()? * 1_000,
            "--batch-left-us" => batch_left_ns = number()? * 1_000,
            "--batch-right-us" => batch_right_ns = number()? * 1_000,
            pair => {
                let (left, right) = pair.split_once(':').ok_or(USAGE)?;
                config.wire =
                    (rate_bits > 0).then_some(Wire { rate_bits, queue_bytes_max, cross_ppm: 0, cross_burst: 1, fair });
                let (left, right) = (left.to_owned(), right.to_owned());
                pairs.push(Pair { config, cross_ppm, cross_burst, batch_left_ns, batch_right_ns, left, right });
            }
        }
    }
    if pairs.is_empty() { Err(USAGE.into()) } else { Ok(pairs) }
}

/// Returns the configuration with cross traffic, if there is a wire.
fn shared(config: LineConfig, cross_ppm: u64, cross_burst: u64) -> LineConfig {
    LineConfig { wire: config.wire.map(|wire| Wire { cross_ppm, cross_burst, ..wire }), ..config }
}

/// Forwards frames between two interfaces: by one thread, on time, if a wire spaces them; otherwise by a thread for
/// each direction.
fn connect(pair: Pair) -> Result<(), Box<dyn Error>> {
    let Pair { config, cross_ppm, cross_burst, batch_left_ns, batch_right_ns, left, right } = pair;
    let open = |name: &str| Port::open(name).map(Arc::new).map_err(|error| format!("{name}: {error}"));
    let (left_port, right_port) = (open(&left)?, open(&right)?);
    let to_right = LineConfig { batch_ns: batch_right_ns, ..config };
    let to_left = LineConfig { batch_ns: batch_left_ns, ..shared(config, cross_ppm, cross_burst) };
    let there = Direction::new(format!("{left}>{right}"), to_right, left_port.clone(), right_port.clone());
    let back = Direction::new(format!("{right}>{left}"), to_left, right_port, left_port);
    if config.wire.is_some() {
        spawn(format!("{left}:{right}"), move || carry::both_ways([there, back]))?;
    } else {
        spawn(format!("{left}>{right}"), move || carry::one_way(there))?;
        spawn(format!("{right}>{left}"), move || carry::one_way(back))?;
    }
    Ok(())
}

fn spawn(name: String, work: impl FnOnce() -> io::Result<()> + Send + 'static) -> io::Result<()> {
    thread::Builder::new().name(name.clone()).spawn(move || {
        // A removed interface ends the relay, so no relay outlives its lab.
        if let Err(error) = work() {
            eprintln!("lab-relay: {name}: {error}");
            process::exit(1);
        }
    })?;
    Ok(())
}
