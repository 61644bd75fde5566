//! Trains of UDP packets, sent as plain programs send them (`sleep`, `spin`, `mmsg`); and the judge, which says when packets
//! arrived (`receive`). Times are nanoseconds of `CLOCK_MONOTONIC`.

mod clock;
mod receive;
mod send;

use std::error::Error;
use std::net::SocketAddrV4;
use std::process;
use std::str::FromStr;

use receive::Receiver;
use send::{Trains, Way};

const USAGE: &str = "usage: bench-packets sleep|spin|mmsg ADDRESS:PORT IP-BYTES PACKETS GAP-NS TRAINS INTERVAL-US
           sends so many trains; prints `due left` for each packet, an empty line after each train
       bench-packets receive INTERFACE PORT
           prints `ready`; for each line of input what has arrived since, `arrived ip-bytes` each, then `dropped N`";

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
        [way, to, ip_bytes, packets, gap_ns, trains, interval_us] => {
            let way = match *way {
                "sleep" => Way::Sleep,
                "spin" => Way::Spin,
                "mmsg" => Way::Mmsg,
                _ => return Err(USAGE.into()),
            };
            let wanted = Trains {
                to: parse::<SocketAddrV4>(to)?,
                ip_bytes: parse(ip_bytes)?,
                packets: parse(packets)?,
                gap_ns: parse(gap_ns)?,
                trains: parse(trains)?,
                interval_us: parse(interval_us)?,
            };
            send::send(way, &wanted)
        }
        _ => Err(USAGE.into()),
    }
}

fn parse<T: FromStr>(word: &str) -> Result<T, Box<dyn Error>> {
    word.parse().map_err(|_| format!("'{word}' makes no sense here\n{USAGE}").into())
}
