//! Carries Ethernet frames between pairs of interfaces, each a fixed time later: netem, where the kernel has none.
//!
//! One thread a direction reads frames from a packet socket, stamps them with the kernel's time of arrival,
//! keeps them in a [`Line`] and sends them when they are due. Segmentation offload stays on: super-frames pass
//! whole, with the header that says how to cut them.

mod alarm;
mod line;
mod port;
mod vnet;

use std::error::Error;
use std::sync::Arc;
use std::{io, process, thread};

use alarm::Alarm;
use line::{Line, LineConfig};
use port::{Port, now_ns};

const USAGE: &str = "usage: lab-relay [--delay-us N] [--loss-ppm N] [--rate-mbit N] [--queue-kib N] LEFT:RIGHT …
an option is for the pairs after it";

/// A super-frame, its Ethernet header and the virtio-net header, with room to spare.
const FRAME_BYTES_MAX: usize = 72 << 10;
/// Frames taken in before those due get their turn again.
const BATCH: usize = 16;

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
    for Pair { config, left, right } in pairs {
        let open = |name: &str| Port::open(name).map(Arc::new).map_err(|error| format!("{name}: {error}"));
        let (left_port, right_port) = (open(&left)?, open(&right)?);
        spawn(format!("{left}>{right}"), config, left_port.clone(), right_port.clone())?;
        spawn(format!("{right}>{left}"), config, right_port, left_port)?;
    }
    println!("ready");
    loop {
        thread::park();
    }
}

/// Two interfaces, by name, and what happens between them, the same each way.
struct Pair {
    config: LineConfig,
    left: String,
    right: String,
}

fn arguments() -> Result<Vec<Pair>, Box<dyn Error>> {
    let mut config = LineConfig { delay_ns: 0, rate_bits: None, queue_bytes_max: 64 << 20, loss_ppm: 0 };
    let mut pairs = Vec::new();
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut number = || -> Result<u64, Box<dyn Error>> { Ok(arguments.next().ok_or(USAGE)?.parse()?) };
        match argument.as_str() {
            "--delay-us" => config.delay_ns = number()? * 1_000,
            "--rate-mbit" => config.rate_bits = Some(number()?.max(1) * 1_000_000),
            "--queue-kib" => config.queue_bytes_max = number()? << 10,
            "--loss-ppm" => config.loss_ppm = number()?,
            pair => {
                let (left, right) = pair.split_once(':').ok_or(USAGE)?;
                pairs.push(Pair { config, left: left.to_owned(), right: right.to_owned() });
            }
        }
    }
    if pairs.is_empty() { Err(USAGE.into()) } else { Ok(pairs) }
}

fn spawn(name: String, config: LineConfig, from: Arc<Port>, to: Arc<Port>) -> io::Result<()> {
    thread::Builder::new().name(name.clone()).spawn(move || {
        // An interface that went away ends the relay: so no relay outlives its lab.
        if let Err(error) = carry(&name, config, &from, &to) {
            eprintln!("lab-relay: {name}: {error}");
            process::exit(1);
        }
    })?;
    Ok(())
}

/// Carries frames one way, for ever.
fn carry(name: &str, config: LineConfig, from: &Port, to: &Port) -> io::Result<()> {
    let mut line = Line::new(config);
    let mut alarm = Alarm::default();
    let mut buffer = vec![0; FRAME_BYTES_MAX];
    let (mut lost, mut reported) = (0, 0);
    loop {
        for _ in 0..BATCH {
            let Some((read, arrived_ns)) = from.receive(&mut buffer)? else { break };
            if let Some(frame) = vnet::frame(read) {
                line.push(frame, arrived_ns);
            }
        }
        let mut now = now_ns();
        while let Some(frame) = line.pop_due(now) {
            if !to.send(&frame.bytes)? {
                lost += 1;
            }
            now = now_ns();
        }
        // Those that were to be lost are no news.
        let gone = lost + line.dropped();
        if gone > 2 * reported {
            eprintln!("lab-relay: {name}: {gone} frames dropped so far, {lost} of them by the kernel");
            reported = gone;
        }
        match line.next_due_ns() {
            None => {
                from.wait(None)?;
            }
            Some(due_ns) if alarm.is_near(due_ns, now) => spin_until(due_ns),
            Some(due_ns) => {
                let target_ns = alarm.target_ns(due_ns);
                if !from.wait(Some(target_ns - now))? {
                    alarm.went_off(target_ns, now_ns());
                }
            }
        }
    }
}

fn spin_until(due_ns: u64) {
    while now_ns() < due_ns {
        std::hint::spin_loop();
    }
}
