//! Completing an acquisition: naming the images, writing coverage maps, and reading everything back if asked.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use cheetah_device::coverage::State;
use cheetah_device::{Coverage, DynDevice};
use cheetah_drive::digests::Digests;
use cheetah_drive::verify::{Compared, VerifyOptions, verify};
use cheetah_drive::{DriveFile, Session};
use cheetah_error::{Error, Result};
use cheetah_image::ewf::Ewf;
use cheetah_image::hash::Hashing;
use cheetah_image::{BadRange, HashChoice, Hashes, RawFile};
use cheetah_source::{LinkUse, ObjectTarget, SourceOptions};

use super::recorder::Recorder;
use super::side_files::MAP;
use crate::engine::{EtaMeter, Replay, read_back};
use crate::journal::AcquisitionState;
use crate::order::{AcquireEvent, Destination, Form, Progress, Request};
use crate::os;
use crate::report::SinkReport;
use crate::sink::{Sink, Whole};

/// Completes every destination.
pub async fn complete(
    request: &Request,
    state: &AcquisitionState,
    hashes: &Hashes,
    sinks: Vec<Box<dyn Sink>>,
    recorder: &mut Recorder<'_>,
) -> Result<Vec<SinkReport>> {
    let coverage = state.coverage();
    // A comparison of everything settles earlier doubts.
    let differ_bytes_max =
        state.openings.iter().filter_map(|opening| opening.comparison.differ_bytes_max()).next_back().unwrap_or(0);
    let whole = Whole { hashes: hashes.clone(), digests: state.digests.clone(), coverage, differ_bytes_max };
    let mut reports = Vec::new();
    for (index, (destination, sink)) in request.destinations.iter().zip(sinks).enumerate() {
        // Before the image is named, or an incomplete image could be taken for a whole one.
        let map = keep_map(destination, &whole.coverage, &state.bad)?;
        if let Some(map) = &map {
            put_beside(destination, map, "map", request.session.timeout).await?;
        }
        let files = sink.finish(&whole).await?;
        reports.push(SinkReport {
            destination: destination.to_string(),
            form: destination.form,
            stored_bytes: stored(destination, &files, request.session.timeout).await?,
            files,
            map,
            custody: recorder.log_path(index),
            head: None,
            verified: None,
            verified_hashes: Hashes::default(),
            problems: Vec::new(),
        });
    }
    Ok(reports)
}

/// Writes the coverage map beside an incomplete image; removes an earlier map of a whole one. Comments at its end tell the
/// `bad` ranges that are corrupt in the source from those that could not be read.
pub fn keep_map(destination: &Destination, coverage: &Coverage, bad: &[BadRange]) -> Result<Option<PathBuf>> {
    let path = destination.beside("map");
    if destination.form == Form::Drive {
        // Written when the drive file records it.
        return Ok((!coverage.is_whole()).then_some(path));
    }
    if !coverage.is_whole() {
        let mut text = coverage.to_string();
        let mut corrupt = bad.iter().filter(|bad| bad.corrupt).peekable();
        if corrupt.peek().is_some() {
            text.push_str(
                "# corrupt in the image that is the source (all other ranges of status - were unreadable):\n",
            );
        }
        corrupt.for_each(|bad| text.push_str(&format!("# corrupt  {:#010x}  {:#010x}\n", bad.offset, bad.len)));
        MAP.replace(&path, text.as_bytes())?;
        return Ok(Some(path));
    }
    MAP.remove(&path).map(|()| None)
}

/// Copies the file at `path` to the object beside the object `destination` that has its name and this suffix. Does nothing
/// for other destinations.
pub async fn put_beside(destination: &Destination, path: &Path, suffix: &str, timeout: Duration) -> Result<()> {
    let Some(uri) = &destination.object else { return Ok(()) };
    let content = std::fs::read(path).map_err(|error| Error::io(format_args!("reading {}", path.display()), &error))?;
    let image = ObjectTarget::parse(uri, timeout)?;
    image.beside(&format!("{}.{suffix}", image.file_name()))?.put(content.into()).await
}

async fn stored(destination: &Destination, files: &[PathBuf], timeout: Duration) -> Result<u64> {
    if destination.object.is_some() {
        let mut bytes = 0;
        for file in files {
            bytes += ObjectTarget::parse(&file.to_string_lossy(), timeout)?.size().await?;
        }
        return Ok(bytes);
    }
    Ok(match destination.form {
        Form::Drive => DriveFile::load(&destination.path).map_or(0, |file| file.size),
        Form::Raw | Form::E01 => files.iter().filter_map(|file| os::stored_bytes(file)).sum(),
    })
}

/// Reads every destination back, and adds the findings to the reports.
pub async fn verify_all(
    request: &Request,
    state: &AcquisitionState,
    hashes: &Hashes,
    reports: &mut [SinkReport],
    recorder: &mut Recorder<'_>,
) -> Result<()> {
    let coverage = Arc::new(state.coverage());
    for (index, (destination, report)) in request.destinations.iter().zip(reports).enumerate() {
        let mut shown = Ok(());
        let show = |progress: Progress| {
            let event = AcquireEvent::Verifying { destination: destination.to_string(), progress };
            shown = std::mem::replace(&mut shown, Ok(())).and_then(|()| recorder.tell(event));
        };
        let found = match destination.form {
            Form::Drive => verify_drive(request, destination, (&state.digests, &coverage), show).await,
            Form::Raw | Form::E01 => {
                let opened = open_image(destination, &report.files, &request.session).await;
                match opened {
                    Ok(device) => verify_image(destination, device, state, &coverage, hashes, show).await,
                    Err(error) => Err(error),
                }
            }
        };
        shown?;
        // An image that cannot be read is a finding, too.
        let found = found.unwrap_or_else(|error| ReadBack { problems: vec![error.to_string()], ..ReadBack::default() });
        report.verified = Some(found.problems.is_empty());
        report.verified_hashes = found.hashes;
        report.problems = found.problems;
        let verified = cheetah_custody::Verified {
            ok: report.problems.is_empty(),
            size: state.at,
            unreadable_bytes: coverage.bytes(State::Unreadable),
            hashes: report.verified_hashes.clone(),
            digests: found.digests,
            at_nodes_bytes: 0,
            problems: report.problems.clone(),
        };
        recorder.record_for(index, &cheetah_custody::CustodyEvent::Verified(Box::new(verified)))?;
    }
    Ok(())
}

/// The result of reading a destination back.
#[derive(Default)]
struct ReadBack {
    /// The hashes that were computed again.
    hashes: Hashes,
    /// Whether every chunk's digest was compared.
    digests: bool,
    /// The problems found, a sentence each.
    problems: Vec<String>,
}

/// Opens a complete image, to be read from its medium.
async fn open_image(destination: &Destination, files: &[PathBuf], session: &Session) -> Result<DynDevice> {
    if let Some(uri) = &destination.object {
        // Unreadable ranges are zeros in the hashes.
        let options = SourceOptions { apply_map: false, ..SourceOptions::new(LinkUse::default(), session.clone()) };
        return Ok(cheetah_source::open(uri, &options).await?.source.device);
    }
    let (path, files, form) = (destination.path.clone(), files.to_vec(), destination.form);
    let open = move || -> Result<DynDevice> {
        files.iter().for_each(|file| os::forget_cached(file));
        Ok(match form {
            Form::E01 => Arc::new(Ewf::open(&path)?),
            Form::Raw | Form::Drive => Arc::new(RawFile::open(&path)?),
        })
    };
    tokio::task::spawn_blocking(open).await.map_err(|error| Error::failed(format!("{destination}: {error}")))?
}

async fn verify_image(
    destination: &Destination,
    device: DynDevice,
    state: &AcquisitionState,
    coverage: &Arc<Coverage>,
    hashes: &Hashes,
    mut show: impl FnMut(Progress) + Send,
) -> Result<ReadBack> {
    let name = destination.to_string();
    let size = device.geometry().size;
    if size != state.at {
        let problems = vec![format!("{name} has {size} bytes, where {} were acquired", state.at)];
        return Ok(ReadBack { problems, ..ReadBack::default() });
    }
    let hashing = Hashing::start(hashes.choice())?;
    let (mut pace, begun) = (EtaMeter::new(size, 0), Instant::now());
    let replay = Replay { hashing: &hashing, sinks: Vec::new(), bad: &[] };
    let read = read_back(&device, &name, size, (&state.digests, coverage), Some(replay), |bytes| {
        pace.step(bytes, 0, begun.elapsed());
        show(pace.progress());
    });
    read.await?;
    let again = hashing.finish().await?;
    let differs = |(kind, digest): (cheetah_image::HashKind, &str)| {
        let now = again.get(kind).filter(|now| *now != digest)?;
        Some(format!("{name} has the {} {now}, where {digest} was acquired", kind.name()))
    };
    let problems = hashes.iter().filter_map(differs).collect();
    Ok(ReadBack { problems, digests: true, hashes: again })
}

async fn verify_drive(
    request: &Request,
    destination: &Destination,
    (digests, coverage): (&Digests, &Coverage),
    mut show: impl FnMut(Progress) + Send,
) -> Result<ReadBack> {
    let file = DriveFile::load(&destination.path)?;
    let recorded = file.image.as_ref().and_then(|image| image.digests.as_ref());
    if recorded.is_none_or(|recorded| recorded.blake3 != digests.root()) {
        let problems = vec![format!("{destination}: its drive file does not name the digests of what was acquired")];
        return Ok(ReadBack { problems, ..ReadBack::default() });
    }
    // Only the digests of the chunks are compared, and the report says so.
    let (hashes, signed) = (HashChoice::NONE, Hashes::default());
    let options = VerifyOptions { hashes, signed, session: request.session.clone(), at_nodes: false, lend: None };
    let (mut pace, begun) = (EtaMeter::new(file.size, 0), Instant::now());
    let mut last = 0;
    let progress = |so_far: cheetah_drive::CopyProgress| {
        pace.step(so_far.done.saturating_sub(last), 0, begun.elapsed());
        last = so_far.done;
        show(pace.progress());
    };
    let report = verify(&file, options, progress).await?;
    let expected = |range: cheetah_device::ByteRange| coverage.runs(range).all(|(_, state)| state == State::Unreadable);
    let unreadable = report.unreadable.iter().filter(|found| !expected(found.range()));
    let mut problems: Vec<_> =
        unreadable.map(|found| format!("{destination}: {} is unreadable: {}", found.range(), found.why)).collect();
    problems.extend(report.mismatched.iter().map(|found| format!("{destination}: {} {}", found.range(), found.why)));
    Ok(ReadBack { problems, digests: report.compared == Compared::Digests, hashes: Hashes::default() })
}
