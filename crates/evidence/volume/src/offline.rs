//! Surveys of volumes in memory, and logical volumes, arrays, shadow copies and encrypted volumes of disks in memory, for tests and fuzzing.

use cheetah_device::memory::Memory;
use cheetah_device::{ByteRange, Device as _};
use futures::FutureExt as _;

use crate::apple::apfs::{Container, Run, encrypted_runs};
use crate::apple::core_storage::{CoreStorage, Log};
use crate::apple::{apfs, core_storage};
use crate::checks::Checks;
use crate::recognise::{START_BYTES, recognise};
use crate::survey::{FileRuns, SurveyPlan, Surveyor, probed_ranges};
use crate::{lvm, md, vss};

/// The result of a survey.
#[derive(Debug, Default)]
pub struct Surveyed {
    /// The kind of file system.
    pub name: &'static str,
    /// The ranges read, in this order.
    pub reads: Vec<ByteRange>,
    /// The ranges to be fetched, in this order.
    pub fetches: Vec<ByteRange>,
    /// Those of both that reach beyond the volume.
    pub outside: Vec<ByteRange>,
    /// The files located.
    pub files: Vec<FileRuns>,
    /// The number of round trips: batches of requests that depend on the answers to earlier ones.
    pub rounds: usize,
    /// Whether the survey ended within its steps.
    pub ended: bool,
}

impl Surveyed {
    /// Returns the ranges read or fetched.
    pub fn asked(&self) -> impl Iterator<Item = ByteRange> {
        self.reads.iter().chain(&self.fetches).copied()
    }
}

/// Surveys the file system in `volume`, in at most `steps_max` steps (reads, and calls of `idle`); `None` if it is not
/// recognised.
pub fn survey(volume: &[u8], steps_max: usize) -> Option<Surveyed> {
    let start = volume.get(..START_BYTES as usize).unwrap_or(volume);
    let mut surveyor = recognise(start)?;
    let mut surveyed = drive(&mut *surveyor, steps_max, |range| {
        let (start, end) = (usize::try_from(range.offset).ok()?, usize::try_from(range.end()).ok()?);
        volume.get(start..end)
    });
    surveyed.fetches.splice(0..0, probed_ranges(ByteRange::new(0, volume.len() as u64)));
    Some(surveyed)
}

/// Drives a surveyor to its end, or for at most `steps_max` steps. A range that `read` returns no bytes for has failed.
pub fn drive<'a>(
    surveyor: &mut dyn Surveyor,
    steps_max: usize,
    mut read: impl FnMut(ByteRange) -> Option<&'a [u8]>,
) -> Surveyed {
    let mut surveyed = Surveyed { name: surveyor.name(), ..Surveyed::default() };
    let mut plan = SurveyPlan::default();
    let mut steps = 0;
    surveyor.start(&mut plan);
    while steps < steps_max {
        surveyed.files.append(&mut plan.files);
        for range in plan.fetches.drain(..) {
            if read(range).is_none() {
                surveyed.outside.push(range);
            }
            surveyed.fetches.push(range);
        }
        let round = std::mem::take(&mut plan.reads);
        if round.is_empty() {
            surveyor.idle(&mut plan);
            steps += 1;
            surveyed.ended = plan.reads.is_empty() && plan.fetches.is_empty() && plan.files.is_empty();
            if surveyed.ended {
                break;
            }
            continue;
        }
        surveyed.rounds += 1;
        for range in round.into_iter().take(steps_max - steps) {
            steps += 1;
            surveyed.reads.push(range);
            match read(range) {
                Some(bytes) => surveyor.arrived(range, bytes, &mut plan),
                None => {
                    surveyed.outside.push(range);
                    surveyor.failed(range, &mut plan);
                }
            }
        }
    }
    surveyed
}

/// Puts together the logical volumes of `disk`, which is one physical volume, whatever its checksums are.
pub fn logical_volumes(disk: Vec<u8>) -> lvm::Assembly {
    let whole = ByteRange::new(0, disk.len() as u64);
    lvm::assemble_unchecked(&Memory::new(disk), &[whole]).now_or_never().unwrap_or_default()
}

/// Puts together the arrays of `disk`, which is divided into members of `member_bytes`, whatever their checksums are.
pub fn arrays(disk: &Memory, member_bytes: u64) -> md::Assembly {
    let places: Vec<_> = ByteRange::new(0, disk.geometry().size).split_at_multiples(member_bytes).collect();
    md::assemble_unchecked(disk, &places).now_or_never().unwrap_or_default()
}

/// Opens all shadow copies of `disk`, which is one volume; none if its catalog cannot be used.
pub fn shadow_copies(disk: &Memory) -> vss::Opened {
    let whole = ByteRange::new(0, disk.geometry().size);
    let Some(Ok(Some(catalog))) = vss::catalog(disk, whole).now_or_never() else { return vss::Opened::default() };
    let numbers: Vec<_> = catalog.copies.iter().map(|copy| copy.number).collect();
    vss::open(disk, &catalog, &numbers, &mut vss::Budget::default()).now_or_never().unwrap_or_default()
}

/// Describes the physical volume of Core Storage on `disk`, whatever its checksums are, and as if its log were not encrypted.
pub fn core_storage(disk: Vec<u8>) -> Option<CoreStorage> {
    let whole = ByteRange::new(0, disk.len() as u64);
    let disk = Memory::new(disk);
    core_storage::read_with(&disk, whole, Log::Whole, Checks::Ignored).now_or_never()?.ok()
}

/// Describes the container of APFS on `disk`, and the encrypted blocks of each volume, whatever its checksums are, and as if nothing were
/// encrypted.
pub fn apfs(disk: Vec<u8>) -> Option<(Container, Vec<Vec<Run>>)> {
    let whole = ByteRange::new(0, disk.len() as u64);
    let disk = Memory::new(disk);
    let container = apfs::read_with(&disk, whole, Checks::Ignored).now_or_never()?.ok()?;
    let runs = |volume| {
        let decrypt = |_: u64, _: &mut [u8]| {};
        encrypted_runs(&disk, whole, &container, volume, &decrypt).now_or_never()?.ok()
    };
    let runs = container.volumes.iter().map(runs).collect::<Option<_>>()?;
    Some((container, runs))
}
