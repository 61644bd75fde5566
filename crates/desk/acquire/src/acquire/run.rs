//! An acquisition from start to end.

use std::time::{Duration, Instant};

use cheetah_custody::acquisition_report::REPORT;
use cheetah_custody::{ContentOf, CustodyEvent, FileRead};
use cheetah_device::coverage::State;
use cheetah_device::{ByteRange, Error as DeviceError};
use cheetah_drive::DriveFile;
use cheetah_drive::recognise::Opening;
use cheetah_error::next::Acquisition;
use cheetah_error::{Error, Result};
use cheetah_image::{BadRange, Hashes, Identity, Watching};
use cheetah_source::{Evidence, UnlockOutcome};
use time::OffsetDateTime;
use time::macros::format_description;

use super::begin::{Prepared, begin, refuse_sources};
use super::complete::{complete, keep_map, put_beside, verify_all};
use super::recorder::Recorder;
use crate::engine::{
    Checkpoints, Damage, EtaMeter, Look, Pass, PassEnd, SinkQueues, SourceFiles, StopSignal, Tally, watch_all,
};
use crate::journal::{AcquisitionState, Journal};
use crate::order::{AcquireEvent, Destination, Form, Request};
use crate::os;
use crate::reader::Salvage;
use crate::report::{Report, SinkReport};
use crate::sink::Sink;

/// Acquires a source, or resumes an interrupted acquisition. `stop` asks it to stop in good order; it can also be
/// resumed after a kill.
///
/// On success every image has its name, and everything is on stable storage, including on nodes. Unreadable parts of
/// the source are not an error here; see [`Report::is_whole`].
///
/// # Errors
///
/// `Kind::Misuse` for a request that cannot be carried out, `Kind::Evidence` for a source that has changed or has
/// more unreadable ranges than tolerated, `Kind::Failed` and `Kind::Device` for errors that the same command may
/// overcome when it is repeated.
pub async fn acquire(
    request: Request,
    stop: impl Future<Output = &'static str> + Send,
    mut events: impl FnMut(AcquireEvent) + Send,
) -> Result<Report> {
    request.check()?;
    let mut stop = std::pin::pin!(stop);
    let mut recorder = Recorder::new(&mut events);
    let evidence = tokio::select! {
        biased;
        why = &mut stop => return Err(Error::failed(format!("stopped by {why} before anything was acquired"))),
        evidence = (request.source)() => evidence?,
    };
    let unlocked = tokio::select! {
        biased;
        why = &mut stop => return Err(Error::failed(format!("stopped by {why} before anything was acquired"))),
        unlocked = unlocked(&request, &evidence) => unlocked?,
    };
    let begun = tokio::select! {
        biased;
        why = &mut stop => Err(why),
        begun = begin(&request, evidence, &mut recorder) => Ok(begun?),
    };
    let begun = match begun {
        Ok(begun) => begun,
        Err(why) => {
            let error = stopped(why);
            recorder.record_end(&error.to_string(), false);
            return Err(error);
        }
    };
    let Prepared { journal, state, sinks, hashing, evidence } = begun;
    let volumes = Volumes { unlocked, content: request.content.clone() };
    volumes.record(&mut recorder)?;
    let patience = request.session.timeout;
    let mut doubts = of_the_device(&evidence.source.identity.location).await;
    doubts.extend(of_the_disks(&evidence, patience).await);
    let (look, found) = match cheetah_source::may_look_meanwhile(&evidence) {
        true => (Look::pending(patience), Vec::new()),
        false => (Look::done(), cheetah_source::doubts(&evidence.source, patience).await),
    };
    doubts.extend(found);
    if !doubts.is_empty() {
        recorder.tell(AcquireEvent::Doubts { doubts: doubts.clone() })?;
    }
    let watching = watch_all(&evidence).await;
    let files = SourceFiles::start(&evidence.source, request.hashes);
    if let Some(hashed) = &evidence.source.hashed {
        hashed.go_on_with(state.files.values());
    }
    let identity = &evidence.source.identity;
    let salvage = Salvage::of(identity, request.retries);
    let mut pass = Pass {
        source: request.source.clone(),
        salvage,
        window_bytes: request.window_bytes,
        errors_max: request.errors_max,
        retry_for: request.retry_for,
        same_source: request.same_source,
        compare_all: request.compare_all,
        damage: Damage::of(&state.bad),
        queues: SinkQueues::start(sinks),
        hashing,
        hashed: evidence.source.hashed.clone(),
        checkpoints: Checkpoints::new(journal, state.at, request.checkpoint_bytes),
        tell: &mut |event| recorder.tell(event),
        pace: EtaMeter::new(state.start.source.size, state.at),
        state,
        begun: Instant::now(),
        tally: Tally::default(),
        look,
        doubts,
    };
    let ended = pass.run(evidence, &mut stop as StopSignal<'_>).await;
    let Pass { state, queues, hashing, checkpoints, tally, begun, doubts, .. } = pass;
    let active = Duration::from_millis(state.active_ms) + begun.elapsed();
    let mut checkpoints = checkpoints;
    // An error here has been reported by `ended`, or no longer matters.
    let _ = checkpoints.settle().await;
    let safe_at = checkpoints.safe_at();
    let journal = checkpoints.close().await;
    let sinks = queues.stop().await;
    let (error, is_error) = match ended {
        Ok(PassEnd::Whole) => {
            let completed = tokio::select! {
                biased;
                why = &mut stop => Err((stopped(why), false)),
                report = async {
                    let (hashes, parts) = hashing.finish_with_parts().await?;
                    recorder.tell(AcquireEvent::Completing { hashes: hashes.clone() })?;
                    let files = files.finish(&hashes, parts, &state.bad).await;
                    // All of it was read: a change since the last read is found now, or never.
                    watching.iter().try_for_each(Watching::check)?;
                    let whole = Finished { state, hashes, active, tally, doubts, volumes, files };
                    let journal =
                        journal.ok_or_else(|| Error::failed("the journal is lost").next(Acquisition::Resume))?;
                    whole.complete(&request, sinks?, journal, &mut recorder).await
                } => report.map_err(|error| (error, true)),
            };
            return completed.map_err(|(error, is_error)| {
                recorder.record_end(&error.to_string(), is_error);
                error
            });
        }
        Ok(PassEnd::Stopped(why)) => (stopped(why), false),
        Ok(PassEnd::Lost(error)) => {
            let source = &state.start.source.location;
            (Error::failed(format!("{source} is lost: {error}")).next(Acquisition::Resume), true)
        }
        Err(error) => (resumable(error), true),
    };
    give_up(&request, &state, safe_at, sinks).await;
    recorder.record_end(&error.to_string(), is_error);
    Err(error)
}

/// Tries the keys on the volumes of the source, if there are any.
async fn unlocked(request: &Request, evidence: &Evidence) -> Result<Option<UnlockOutcome>> {
    let Some(choice) = &request.unlock else { return Ok(None) };
    let others = choice.open_others().await?;
    refuse_sources(others.iter().map(|other| &other.source), &request.destinations)?;
    let (stack, _) = choice.find(&evidence.source, &others).await?;
    Ok(stack.unlocked.map(|unlocked| unlocked.outcome()))
}

/// What is known of encrypted volumes, for the logs and the report.
struct Volumes {
    /// What the keys did to the volumes of the source.
    unlocked: Option<UnlockOutcome>,
    /// Of what the source is the content, if it is that of a volume.
    content: Option<ContentOf>,
}

impl Volumes {
    fn record(&self, recorder: &mut Recorder<'_>) -> Result<()> {
        let unlocked = self.unlocked.clone().map(|outcome| CustodyEvent::Unlocked(Box::new(outcome)));
        let content = self.content.as_ref().map(ContentOf::event);
        unlocked.iter().chain(&content).try_for_each(|event| recorder.record(event))
    }
}

fn stopped(why: &str) -> Error {
    Error::failed(format!("stopped by {why}")).next(Acquisition::Resume)
}

/// Adds to an error that the same command resumes the acquisition.
fn resumable(error: Error) -> Error {
    if error.is_misuse() || error.is_evidence() {
        return error;
    }
    match error.device_error() {
        Some(DeviceError::NoSpace(why)) => {
            Error::failed(format!("{}: {why}", error.doing())).next(Acquisition::FreeSpaceAndResume)
        }
        _ => error.next(Acquisition::Resume),
    }
}

/// Closes everything so that the acquisition can be resumed. Errors here are only logged: another is reported.
async fn give_up(request: &Request, state: &AcquisitionState, safe_at: u64, sinks: Result<Vec<Box<dyn Sink>>>) {
    for sink in sinks.into_iter().flatten() {
        if let Err(error) = sink.close().await {
            tracing::warn!("{error}");
        }
    }
    let mut coverage = state.coverage();
    coverage.set(ByteRange::between(safe_at, coverage.size()), State::Unread);
    for destination in &request.destinations {
        if let Err(error) = keep_map(destination, &coverage, &state.bad) {
            tracing::warn!("{error}");
        }
    }
}

/// The maximum number of notes on how the source was recognised in the last record of a custody log. Each note is in a
/// record of its own, too.
const NOTES_LOGGED_MAX: usize = 100;

/// A pass that reached the end of the source.
struct Finished {
    state: AcquisitionState,
    hashes: Hashes,
    active: Duration,
    tally: Tally,
    /// What is in doubt about the source.
    doubts: Vec<String>,
    /// What is known of encrypted volumes.
    volumes: Volumes,
    /// The files that it was read from.
    files: Vec<FileRead>,
}

impl Finished {
    async fn complete(
        self,
        request: &Request,
        sinks: Vec<Box<dyn Sink>>,
        journal: Journal,
        recorder: &mut Recorder<'_>,
    ) -> Result<Report> {
        let mut sinks = complete(request, &self.state, &self.hashes, sinks, recorder).await?;
        let unreadable_bytes = Damage::of(&self.state.bad).bytes;
        let corrupt_bytes = self.state.bad.iter().filter(|bad| bad.corrupt).map(|bad| bad.len).sum();
        let notes = notes_on(&self.state.openings).take(NOTES_LOGGED_MAX).collect();
        for files in self.files.chunks(cheetah_custody::FILES_LOGGED_TOGETHER) {
            recorder.record(&CustodyEvent::SourceFiles { files: files.to_vec() })?;
        }
        let finished = cheetah_custody::Finished {
            size: self.state.at,
            unreadable_bytes,
            corrupt_bytes,
            hashes: self.hashes.clone(),
            notes,
            digests: Some(self.state.digests.root()),
            drive: None,
            report: true,
            head_in_report: true,
        };
        for (index, destination) in request.destinations.iter().enumerate() {
            let finished = cheetah_custody::Finished { drive: drive_id(destination)?, ..finished.clone() };
            recorder.record_for(index, &CustodyEvent::Finished(Box::new(finished)))?;
        }
        if request.verify {
            verify_all(request, &self.state, &self.hashes, &mut sinks, recorder).await?;
        }
        for (sink, head) in sinks.iter_mut().zip(recorder.heads()) {
            sink.head = head;
        }
        let report = self.report(sinks);
        for (destination, sink) in request.destinations.iter().zip(&report.sinks) {
            let path = destination.beside("report.txt");
            REPORT.replace(&path, report.to_string().as_bytes())?;
            put_beside(destination, &path, "report.txt", request.session.timeout).await?;
            if let Some(custody) = &sink.custody {
                put_beside(destination, custody, "custody", request.session.timeout).await?;
            }
        }
        journal.remove()?;
        Ok(report)
    }

    fn report(self, sinks: Vec<SinkReport>) -> Report {
        let Self { state, hashes, active, tally, doubts, volumes, files } = self;
        let damage = Damage::of(&state.bad);
        let (interruptions, notes) = (state.interruptions(), notes_on(&state.openings).collect());
        let mut unreadable = Vec::new();
        state.bad.into_iter().for_each(|bad: BadRange| bad.push(&mut unreadable));
        let (decrypted, volume) = match volumes.content {
            Some(ContentOf::Decrypted(decrypted)) => (Some(decrypted), None),
            Some(ContentOf::Volume(volume)) => (None, Some(volume)),
            None => (None, None),
        };
        let seconds = active.as_secs_f64();
        Report {
            tool: concat!("Cheetah ", env!("CARGO_PKG_VERSION")).to_owned(),
            case: state.start.e01.case,
            doubts,
            unlocked: volumes.unlocked,
            decrypted,
            volume,
            files,
            size: state.at,
            // The stored hashes are of content that is not there.
            hashes_differing: match unreadable.iter().any(|bad| bad.corrupt) {
                true => Vec::new(),
                false => Report::differing(&state.start.source.hashes, &hashes),
            },
            hashes,
            corrupt_bytes: unreadable.iter().filter(|bad| bad.corrupt).map(|bad| bad.len).sum(),
            unreadable,
            unreadable_bytes: damage.bytes,
            retries: state.retries,
            interruptions,
            reconnects: state.links_lost,
            notes,
            started: rfc3339(OffsetDateTime::from_unix_timestamp(i64::try_from(state.start.at_s).unwrap_or(0)).ok()),
            finished: rfc3339(Some(OffsetDateTime::now_utc())),
            duration_s: seconds,
            // Far below the largest value that fits.
            rate_bytes_s: (state.at as f64 / seconds.max(0.001)) as u64,
            wire: tally.wire(),
            openings: state.openings,
            source: Identity { write_protected: state.write_protected, ..state.start.source },
            sinks,
        }
    }
}

/// What an examiner must know of the times that the source was opened again, a sentence each.
fn notes_on(openings: &[Opening]) -> impl Iterator<Item = String> {
    openings.iter().flat_map(Opening::notes).map(|note| note.to_string())
}

/// What must be known of a disk of this machine, a sentence each. An agent says it of its own.
async fn of_the_device(location: &str) -> Vec<String> {
    let Some((path, _)) = cheetah_image::spec::path_of(location) else { return Vec::new() };
    tokio::task::spawn_blocking(move || os::remarks(&path)).await.unwrap_or_default()
}

/// What is in doubt about the disks that a volume lies on, a sentence each.
async fn of_the_disks(evidence: &Evidence, patience: Duration) -> Vec<String> {
    let mut doubts = Vec::new();
    for disk in &evidence.disks {
        let location = &disk.identity.location;
        let mut found = of_the_device(location).await;
        found.extend(cheetah_source::doubts(disk, patience).await);
        // Those that were there when it was opened are doubts about the volume.
        found.retain(|doubt| evidence.source.notes.iter().all(|known| known != doubt));
        doubts.extend(found.iter().map(|doubt| format!("{location}: {doubt}")));
    }
    doubts
}

/// The id of the drive that a destination is, if it is one.
fn drive_id(destination: &Destination) -> Result<Option<String>> {
    let is_drive = destination.form == Form::Drive;
    is_drive.then(|| DriveFile::load(&destination.path).map(|file| file.id)).transpose()
}

fn rfc3339(time: Option<OffsetDateTime>) -> String {
    let format = format_description!("[year]-[month]-[day]T[hour]:[minute]:[second]Z");
    // Fails only for years that need more than four digits.
    time.and_then(|time| time.format(format).ok()).unwrap_or_default()
}
