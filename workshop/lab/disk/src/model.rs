//! The drives, as their data sheets describe them.
//!
//! A figure that no data sheet states is an estimate, and `sources` says from what; it also says which figures are known from
//! data sheets that could not be read again. Rates are sustained rates, which include the time for changing heads and tracks.

/// Nanoseconds of a millisecond.
const MS: u64 = 1_000_000;
const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// Seek times, settling included, command overhead and rotation not.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SeekTimes {
    /// To the next track.
    pub track_ns: u64,
    /// The mean over random pairs of tracks.
    pub average_ns: u64,
    /// Over the whole stroke.
    pub full_ns: u64,
}

/// A drive.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Model {
    /// Its name on the command line.
    pub name: &'static str,
    /// The drive it stands for.
    pub drive: &'static str,
    /// Where the figures come from.
    pub sources: &'static str,
    pub capacity_bytes: u64,
    /// The time of one revolution.
    pub revolution_ns: u64,
    /// The sustained rates at the outer edge, where the drive begins, and at the inner edge.
    pub outer_bytes_per_s: f64,
    pub inner_bytes_per_s: f64,
    pub read: SeekTimes,
    pub write: SeekTimes,
    /// The time from the arrival of a command until the drive acts on it.
    pub command_ns: u64,
    pub interface_bytes_per_s: f64,
    /// The buffer's segments for reading ahead: their number, and the size of each.
    pub segments: usize,
    pub segment_bytes: u64,
    /// The part of the buffer for writes that are not yet on the platters, and the largest number of separate pieces.
    pub write_cache_bytes: u64,
    pub cached_writes_max: usize,
    /// The number of commands that the drive may reorder.
    pub depth: usize,
    /// The drive has no delays: it shows the overhead of this program.
    pub instant: bool,
}

/// The drive of the thesis of 2005.
pub const IDE: Model = Model {
    name: "ide",
    drive: "Hitachi Deskstar 180GXP, 60 GB, 7,200 rpm, ATA-100, at the thesis's 24 MB/s",
    sources: "the thesis: a Hitachi IDE drive of 60 GB, 24 MB/s sustained through a file system, here everywhere on \
              the drive; Hitachi's specification of IC35L060AVV207: full stroke 15.1 ms (reads) and 16.1 ms (writes), \
              head switch 1.4 ms, 4,096 random reads in 56.3 s, which is 105 % of the sum of overhead, seek and latency: \
              0.4, 8.5 and 4.17 ms; average write seek and division of the 2 MB buffer: estimates",
    capacity_bytes: 60_000_000_000,
    revolution_ns: 8_333_333,
    outer_bytes_per_s: 24e6,
    inner_bytes_per_s: 24e6,
    read: SeekTimes { track_ns: 1_400_000, average_ns: 8_500_000, full_ns: 15_100_000 },
    write: SeekTimes { track_ns: 1_400_000, average_ns: 9_500_000, full_ns: 16_100_000 },
    command_ns: 400_000,
    interface_bytes_per_s: 100e6,
    segments: 4,
    segment_bytes: 256 * KIB,
    write_cache_bytes: MIB,
    cached_writes_max: 32,
    depth: 1,
    instant: false,
};

/// A desktop's drive of 2008, and those of the arrays of 2009, which differ only in their firmware.
pub const DESKTOP: Model = Model {
    name: "desktop",
    drive: "Seagate Barracuda 7200.11 (ES.2), 1 TB, 7,200 rpm, SATA 300",
    sources: "Seagate's data sheet, which could not be read again: 105 MB/s sustained at the outer edge, seek 8.5 ms (reads) and 9.5 ms (writes), track \
              to track 0.8 and 1.0 ms, buffer 32 MB, NCQ; inner rate: from the 85.5 MB/s that HD Tach measured on average \
              over the drive (Computerworld, 2008); full stroke: as 17.35 to 8.0 ms in the manual of Seagate's \
              Constellation; command overhead 0.2 ms as there; division of the buffer: estimate",
    capacity_bytes: 1_000_204_886_016,
    revolution_ns: 8_333_333,
    outer_bytes_per_s: 105e6,
    inner_bytes_per_s: 62e6,
    read: SeekTimes { track_ns: 800_000, average_ns: 8_500_000, full_ns: 18_400_000 },
    write: SeekTimes { track_ns: MS, average_ns: 9_500_000, full_ns: 19_400_000 },
    command_ns: 200_000,
    interface_bytes_per_s: 300e6,
    segments: 16,
    segment_bytes: MIB,
    write_cache_bytes: 16 * MIB,
    cached_writes_max: 64,
    depth: 32,
    instant: false,
};

/// The fast drive of the document of 2009.
pub const VELOCIRAPTOR: Model = Model {
    name: "velociraptor",
    drive: "WD VelociRaptor WD3000GLFS, 300 GB, 10,000 rpm, SATA 300",
    sources: "WD's data sheet, which could not be read again: seek 4.2 ms (reads) and 4.7 ms (writes), buffer 16 MB, NCQ; 120 MB/s at the outer edge, \
              which agrees with the document's own md5sum of 38 GB in 351 s; track to track 0.3 and 0.56 ms and the \
              relation of full stroke to average, 7.81 to 3.8 ms: from the manual of Seagate's Savvio 10K.4, also 10,000 \
              rpm and 2.5 inches, as is the command overhead of 0.2 ms; inner rate and division of the buffer: estimates",
    capacity_bytes: 300_069_052_416,
    revolution_ns: 6_000_000,
    outer_bytes_per_s: 120e6,
    inner_bytes_per_s: 75e6,
    read: SeekTimes { track_ns: 300_000, average_ns: 4_200_000, full_ns: 8_600_000 },
    write: SeekTimes { track_ns: 560_000, average_ns: 4_700_000, full_ns: 9_100_000 },
    command_ns: 200_000,
    interface_bytes_per_s: 300e6,
    segments: 16,
    segment_bytes: 512 * KIB,
    write_cache_bytes: 8 * MIB,
    cached_writes_max: 64,
    depth: 32,
    instant: false,
};

/// A drive without any delay.
pub const ZERO: Model = Model {
    name: "zero",
    drive: "no delays: what this program itself takes",
    sources: "none",
    instant: true,
    ..DESKTOP
};

/// Every model.
pub const ALL: [Model; 4] = [IDE, DESKTOP, VELOCIRAPTOR, ZERO];

/// Returns the model of a name.
pub fn named(name: &str) -> Option<Model> {
    ALL.into_iter().find(|model| model.name == name)
}
