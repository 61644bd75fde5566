//! Sends trains of UDP packets as plain programs do (`sleep`, `raw`, `spin`, `mmsg`), and reports when packets arrived
//! (`receive`). Times are nanoseconds of `CLOCK_MONOTONIC`.

mod clock;
mod ingress;
mod raw;
mod realtime;
mod receive;
mod send;
mod small;
mod stalls;

use std::error::Error;
use std::net::SocketAddrV4;
use std::process;
use std::str::FromStr;

use raw::Transport;
use receive::Receiver;
use send::{Method, TrainRequest};

const USAGE: &str = "usage: bench-packets sleep|raw|spin|mmsg ADDRESS:PORT IP-BYTES PACKETS GAP-NS TRAINS INTERVAL-US
           sends TRAINS trains; prints `due left` for each packet, and after each train `host NS` and an empty line;
           raw has real-time priority
       bench-packets receive INTERFACE PORT
           prints `ready`; for each line of input, prints `arrived ip-bytes` for each new packet, then
           `ingress time ip-bytes` for each where the kernel began to process it, then `dropped N`
       bench-packets clock COUNT
           reads the clock, and prints `difference-ns occurrences`
       bench-packets oversleep NS COUNT
           sleeps COUNT times for NS, and prints by how many nanoseconds each sleep was longer
       bench-packets burst tcp|udp ADDRESS:PORT FROM-ADDRESS COUNT
           sends identical packets without a payload as fast as calls return; prints `host NS` for every 10000";

fn main() {
    if let Err(error) = run() {
        eprintln!("bench-packets: {error}");
        process::exit(1);
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["receive", interface, port] => Receiver::open(interface, parse(port)?)?.serve(),
        ["clock", count] => Ok(small::clock(count_of(count)?)?),
        ["oversleep", asked_ns, count] => Ok(small::oversleep(parse(asked_ns)?, count_of(count)?)?),
        ["burst", protocol @ ("tcp" | "udp"), to, from, count] => {
            let transport = if *protocol == "tcp" { Transport::Tcp } else { Transport::Udp };
            Ok(small::burst(transport, parse(to)?, parse(from)?, count_of(count)?)?)
        }
        [method, to, ip_bytes, packets, gap_ns, trains, interval_us] => {
            let method = match *method {
                "sleep" => Method::Sleep,
                "raw" => Method::Raw,
                "spin" => Method::Spin,
                "mmsg" => Method::Mmsg,
                _ => return Err(USAGE.into()),
            };
            let request = TrainRequest {
                to: parse::<SocketAddrV4>(to)?,
                ip_bytes: parse(ip_bytes)?,
                packets: parse(packets)?,
                gap_ns: parse(gap_ns)?,
                trains: parse(trains)?,
                interval_us: parse(interval_us)?,
            };
            send::send(method, &request)
        }
        _ => Err(USAGE.into()),
    }
}

fn count_of(word: &str) -> Result<usize, Box<dyn Error>> {
    let count = parse(word)?;
    if count > small::COUNT_MAX { Err(format!("at most {} values", small::COUNT_MAX).into()) } else { Ok(count) }
}

fn parse<T: FromStr>(word: &str) -> Result<T, Box<dyn Error>> {
    word.parse().map_err(|_| format!("invalid argument '{word}'\n{USAGE}").into())
}
