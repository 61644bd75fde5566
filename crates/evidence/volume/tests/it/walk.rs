//! Helpers for tests of surveys: the ranges a tool reads of an image, compared with those a survey requests.

use std::path::Path;
use std::process::{Command, Stdio};

use cheetah_device::ByteRange;
use cheetah_volume::offline::{Surveyed, drive, survey};
use cheetah_volume::recognise::START_BYTES;
use cheetah_volume::survey::ProbeSurveyor;

use crate::need;

const SECTOR_BYTES: u64 = 512;

/// Returns the content of an image from the folder of real ones, which is not part of the project.
pub fn evidence(name: &str) -> Option<Vec<u8>> {
    let path = need::evidence(name)?;
    match path.extension()?.to_str()? {
        "gz" => Some(output(Command::new("gzip").arg("-dc").arg(path))),
        "E01" => need::programs(&["ewfexport"]).then(|| {
            let mut command = Command::new("ewfexport");
            output(command.args(["-q", "-u", "-f", "raw", "-o", "0", "-t", "-"]).arg(path))
        }),
        "qcow2" => need::programs(&["qemu-img"]).then(|| {
            let folder = tempfile::tempdir().unwrap();
            let raw = folder.path().join("raw");
            output(Command::new("qemu-img").args(["convert", "-O", "raw"]).arg(path).arg(&raw));
            std::fs::read(raw).unwrap()
        }),
        other => panic!("no idea how to unpack {other}"),
    }
}

/// Runs a program, which must succeed; returns its output.
pub fn output(command: &mut Command) -> Vec<u8> {
    let output = command.stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// Adds the ranges that tools probe to those of a survey.
pub fn probed(device: &[u8], surveyed: &mut Surveyed) {
    let mut probes = ProbeSurveyor::new(device.len() as u64);
    let probed = drive(&mut probes, 1000, |range| device.get(range.offset as usize..range.end() as usize));
    assert!(probed.ended);
    surveyed.fetches.extend(probed.asked());
}

/// Surveys a volume to the end.
pub fn surveyed(volume: &[u8]) -> Surveyed {
    let surveyed = survey(volume, 100_000).expect("a known file system");
    assert!(surveyed.ended, "no end after 100,000 steps");
    surveyed
}

/// Runs a program with `image` as an argument between these; returns its reads in order.
pub fn reads(program: &str, arguments: &[&str], image: &Path, behind: &[&str]) -> Vec<ByteRange> {
    let trace = tempfile::NamedTempFile::new().unwrap();
    let mut command = Command::new("strace");
    command.args(["-f", "-y", "-s", "0", "-e", "trace=lseek,read,pread64", "-o"]).arg(trace.path());
    output(command.arg(program).args(arguments).arg(image).args(behind));
    let file = format!("<{}>", image.canonicalize().unwrap().display());
    let mut at = 0;
    let mut reads = Vec::new();
    for line in std::fs::read_to_string(trace.path()).unwrap().lines().filter(|line| line.contains(&file)) {
        let Some(result) = line.rsplit_once(" = ").and_then(|(_, result)| result.trim().parse().ok()) else { continue };
        if line.contains("lseek(") {
            at = result;
        } else if line.contains("pread64(") {
            let offset = line.rsplit_once(") =").unwrap().0.rsplit_once(", ").unwrap().1;
            reads.push(ByteRange::new(offset.parse().unwrap(), result));
        } else {
            reads.push(ByteRange::new(at, result));
            at += result;
        }
    }
    assert!(!reads.is_empty(), "{program} was seen to read nothing of {}", image.display());
    reads
}

/// The ranges a tool reads, compared with those a survey requests, in bytes counted once.
#[derive(Debug)]
pub struct Nearness {
    /// Bytes the tool reads.
    pub read_bytes: u64,
    /// Of those, bytes the survey requests.
    pub near_bytes: u64,
    /// Bytes the survey requests.
    pub asked_bytes: u64,
    /// The number of the tool's reads that would wait for the link.
    pub waits: usize,
}

impl Nearness {
    /// Compares by sector. The Sleuth Kit reads 64 KiB from the sector it needs. A read that lacks one sector waits as
    /// long as one that lacks all, so a survey has to request every sector, and nothing is rounded here. The start of a
    /// volume, by which a survey is chosen, counts as requested.
    pub fn of(reads: &[ByteRange], surveyed: &Surveyed, volume_bytes: u64) -> Self {
        let start = ByteRange::new(0, START_BYTES);
        let sectors = |ranges: &mut dyn Iterator<Item = ByteRange>| {
            let mut sectors = vec![false; volume_bytes.div_ceil(SECTOR_BYTES) as usize];
            for range in ranges.filter_map(|range| range.intersection(ByteRange::new(0, volume_bytes))) {
                sectors[(range.offset / SECTOR_BYTES) as usize..range.end().div_ceil(SECTOR_BYTES) as usize].fill(true);
            }
            sectors
        };
        let asked = sectors(&mut surveyed.asked().chain([start]));
        let read = sectors(&mut reads.iter().copied());
        let count = |of: &mut dyn Iterator<Item = bool>| of.filter(|is| *is).count() as u64 * SECTOR_BYTES;
        Self {
            read_bytes: count(&mut read.iter().copied()),
            near_bytes: count(&mut read.iter().zip(&asked).map(|(a, b)| *a && *b)),
            asked_bytes: count(&mut asked.iter().copied()),
            waits: (reads.iter())
                .filter(|read| sectors(&mut [**read].into_iter()).iter().zip(&asked).any(|(is, near)| *is && !near))
                .count(),
        }
    }

    /// Asserts that nearly everything read was requested, and not much else.
    pub fn assert_good(&self) {
        assert!(self.near_bytes * 100 >= self.read_bytes * 99, "too little was surveyed: {self:?}");
        assert!(self.asked_bytes * 2 <= self.read_bytes * 3, "too much was asked for: {self:?}");
    }
}
