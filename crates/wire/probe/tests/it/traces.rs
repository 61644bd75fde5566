//! Estimates from recorded trains, by the estimators as measurements use them.

use std::fs;
use std::path::Path;

use cheetah_probe::clock::Nanos;
use cheetah_probe::estimate::capacity::{Observations, Unknown, estimate};
use cheetah_probe::estimate::{Arrival, TrainArrivals};
use cheetah_probe::path::Method;

/// The packets of a train that is long enough for any path.
const PACKETS_LONG: usize = 64;

/// A recorded path; the first lines of its file describe it.
#[derive(Debug, Default)]
struct Trace {
    bits_per_s: f64,
    error_max: f64,
    ip_bytes: u32,
    trains: Vec<TrainArrivals>,
}

fn read(path: &Path) -> Trace {
    let mut trace = Trace::default();
    let text = fs::read_to_string(path).unwrap();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["bits_per_s", value] => trace.bits_per_s = value.parse().unwrap(),
            ["error_max", value] => trace.error_max = value.parse().unwrap(),
            ["ip_bytes", value] => trace.ip_bytes = value.parse().unwrap(),
            ["train", packets] => {
                trace.trains.push(TrainArrivals { packets: packets.parse().unwrap(), arrivals: Vec::new() });
            }
            [seq, sent, came] => {
                let time = |text: &str| Nanos(text.parse().unwrap());
                let (seq, sent, came) = (seq.parse().unwrap(), time(sent), time(came));
                trace.trains.last_mut().unwrap().arrivals.push(Arrival { seq, sent, came, ip_bytes: trace.ip_bytes });
            }
            _ => panic!("{}: {line}", path.display()),
        }
    }
    trace
}

#[test]
fn capacities_of_recorded_paths_are_right() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/traces");
    let mut seen = 0;
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let trace = read(&path);
        let is_short = trace.trains.iter().all(|train| train.packets < PACKETS_LONG);
        let observed = Observations { trains: trace.trains, ..Observations::default() };
        let estimated = match estimate(Method::Tcp, &observed) {
            Ok(estimated) => estimated,
            // A measurement then sends longer trains, which a recording cannot.
            Err(Unknown::TooShort) if is_short => continue,
            Err(why) => panic!("{}: {why:?}", path.display()),
        };
        let error = (estimated.bits_per_s / trace.bits_per_s - 1.0).abs();
        println!("{}: {error:.4} {estimated:?}", path.display());
        assert!(error <= trace.error_max, "{}: {estimated:?}", path.display());
        assert!(!estimated.at_least, "{}: {estimated:?}", path.display());
        seen += 1;
    }
    assert!(seen > 0);
}
