//! The links of the nodes: what they carry, and the capacity that was measured.
//!
//! A capacity is taken from what `cheetah probe` measured, and never guessed: the speed that an interface states is not what a
//! path carries, and the highest rate so far says only that the link carries as much.

use std::path::{Path, PathBuf};

use cheetah_kit::clock::now_ms;
use cheetah_probe::path::PathReport;

use super::targets::Target;
use crate::answers::watch::{Capacity, CapacityMethod, Carried, Link};
use crate::commands::tune::read_report;
use crate::failure::{Failure, Result};

/// The capacities that were measured, with the names and addresses of the hosts.
#[derive(Debug, Default)]
pub struct Measured(Vec<([String; 2], Capacity)>);

impl Measured {
    /// Reads the outputs of `cheetah probe --json`.
    ///
    /// # Errors
    ///
    /// If one cannot be read, or has no capacity.
    pub fn read(reports: &[PathBuf]) -> Result<Self> {
        let mut all = reports.iter().map(|path| of_report(path)).collect::<Result<Vec<_>>>()?;
        // The newest of a host first. The times have one form.
        all.sort_by(|(_, one), (_, other)| other.at.cmp(&one.at));
        Ok(Self(all))
    }

    /// The newest of a host, which has these names and addresses.
    fn of(&self, hosts: &[String]) -> Option<Capacity> {
        let is_it = |names: &[String; 2]| names.iter().any(|name| hosts.contains(name));
        self.0.iter().find(|(names, _)| is_it(names)).map(|(_, capacity)| capacity.clone())
    }
}

fn of_report(path: &Path) -> Result<([String; 2], Capacity)> {
    let report = read_report("--probed", path)?;
    let capacity = capacity(&report).ok_or_else(|| {
        let (name, host) = (path.display(), &report.host);
        Failure::misused(format!("--probed {name}: no capacity of the path to {host} was measured: probe it again"))
    })?;
    Ok(([report.host, report.address.to_string()], capacity))
}

/// The capacity of the path from a host: best by trains that it sent itself.
fn capacity(report: &PathReport) -> Option<Capacity> {
    let far = report.far.as_ref();
    let back = far.and_then(|far| Some((far.from_bits_per_s?, far.from_at_least, CapacityMethod::Trains)));
    let echoed = || report.capacity.as_ref().map(|found| (found.bits_per_s, found.at_least, CapacityMethod::Echo));
    let tcp = || far.and_then(|far| Some((far.tcp_from_bits_per_s?, true, CapacityMethod::Transfer)));
    let (bits_per_s, at_least, method) = back.or_else(echoed).or_else(tcp)?;
    // A conversion of a float saturates. A rate of zero is no capacity.
    let bytes_per_s = Some((bits_per_s / 8.0) as u64).filter(|rate| *rate > 0)?;
    Some(Capacity { at: report.started.clone(), at_least, bytes_per_s, method })
}

/// The link of a host, and what was seen of it.
#[derive(Debug)]
pub struct WatchedLink {
    /// The names and addresses of the host; by the first it is called.
    hosts: Vec<String>,
    /// The nodes on it, by their numbers.
    pub nodes: Vec<usize>,
    most: Option<Carried>,
    read_bytes_per_s: Option<u64>,
}

impl WatchedLink {
    /// The link of a node's host, of which nothing was seen yet.
    pub fn new(target: &Target) -> Self {
        Self { hosts: target.hosts(), nodes: Vec::new(), most: None, read_bytes_per_s: None }
    }

    /// Notes the rates at which clients read from the nodes on it, as far as they are known.
    pub fn note(&mut self, rates: impl Iterator<Item = u64>) {
        self.read_bytes_per_s = rates.reduce(u64::saturating_add);
        let is_more = |rate: &u64| *rate > self.most.map_or(0, |most| most.bytes_per_s);
        if let Some(bytes_per_s) = self.read_bytes_per_s.filter(is_more) {
            self.most = Some(Carried { at_ms: now_ms(), bytes_per_s });
        }
    }

    /// What is known of it.
    pub fn shown(&self, measured: &Measured) -> Link {
        Link {
            capacity: measured.of(&self.hosts),
            host: self.hosts.first().cloned().unwrap_or_default(),
            most: self.most,
            read_bytes_per_s: self.read_bytes_per_s,
        }
    }
}

#[cfg(test)]
mod tests {
    use cheetah_probe::path::{self, FarEnd, Method};

    use super::*;

    fn report() -> PathReport {
        PathReport::new("lab-7", "10.0.0.7".parse().unwrap())
    }

    #[test]
    fn a_capacity_is_that_of_the_way_back_and_one_connection_shows_a_lower_bound() {
        let far = FarEnd { tcp_from_bits_per_s: Some(7.2e8), ..FarEnd::default() };
        let echoed = path::Capacity {
            method: Method::Icmp,
            bits_per_s: 9e8,
            low_bits_per_s: 8e8,
            high_bits_per_s: 1e9,
            confidence: 0.9,
            at_least: false,
            batched: false,
            samples: 40,
        };
        let found = |report: PathReport| capacity(&report).map(|it| (it.bytes_per_s, it.at_least, it.method));
        assert_eq!(found(report()), None);
        let tcp = PathReport { far: Some(far.clone()), ..report() };
        assert_eq!(found(tcp.clone()), Some((90_000_000, true, CapacityMethod::Transfer)));
        let both = PathReport { capacity: Some(echoed), ..tcp };
        assert_eq!(found(both.clone()), Some((112_500_000, false, CapacityMethod::Echo)));
        let far = FarEnd { from_bits_per_s: Some(8e8), ..far };
        assert_eq!(found(PathReport { far: Some(far), ..both }), Some((100_000_000, false, CapacityMethod::Trains)));
    }

    #[test]
    fn the_newest_measurement_of_a_host_is_used_and_another_host_has_none() {
        let of = |at: &str, bytes_per_s| {
            let capacity = Capacity { at: at.into(), at_least: false, bytes_per_s, method: CapacityMethod::Trains };
            (["lab-7".to_owned(), "10.0.0.7".to_owned()], capacity)
        };
        let measured = Measured(vec![of("2026-11-28T08:00:00Z", 2), of("2026-11-27T08:00:00Z", 1)]);
        for host in ["lab-7", "10.0.0.7"] {
            assert_eq!(measured.of(&[host.to_owned()]).unwrap().bytes_per_s, 2);
        }
        assert_eq!(measured.of(&["lab-70".to_owned()]), None);
    }

    #[test]
    fn a_link_carries_what_all_nodes_on_it_send_and_the_most_stays() {
        let mut link =
            WatchedLink { hosts: vec!["lab-7".into()], nodes: vec![0, 1], most: None, read_bytes_per_s: None };
        link.note([3, 4].into_iter());
        link.note([2].into_iter());
        let shown = link.shown(&Measured::default());
        assert_eq!((shown.read_bytes_per_s, shown.most.unwrap().bytes_per_s, shown.capacity), (Some(2), 7, None));
        link.note(std::iter::empty());
        let shown = link.shown(&Measured::default());
        assert_eq!((shown.read_bytes_per_s, shown.most.unwrap().bytes_per_s), (None, 7));
    }
}
