//! Beginning an acquisition, or resuming it where the journal says.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cheetah_custody::CustodyLog;
use cheetah_device::path_text::path_to_text;
use cheetah_drive::DriveFile;
use cheetah_drive::file::side_space::digests_bytes;
use cheetah_error::next::{Acquisition, Files};
use cheetah_error::{Error, Result};
use cheetah_image::ewf::write::{Compression, E01Options};
use cheetah_image::hash::Hashing;
use cheetah_image::{Identity, Source, space};
use cheetah_kit::clock::now_s;
use cheetah_kit::file::Status;
use cheetah_kit::random;
use cheetah_source::{Evidence, UploadRecord};

use super::recorder::Recorder;
use super::side_files;
use crate::engine::{EtaMeter, Replay, SourceFiles, examine_disks, read_back, recognise_first};
use crate::journal::{AcquisitionState, Journal, JournalRecord, Signed, Start, Unread, VERSION, both, changes};
use crate::order::{AcquireEvent, Destination, Form, Request};
use crate::os;
use crate::reader::sector_size;
use crate::sink::{self, Resumed, Setup, Sink};

/// The state from which a pass over the source starts.
pub struct Prepared {
    /// The journal, locked.
    pub journal: Journal,
    /// The state so far.
    pub state: AcquisitionState,
    /// One sink for each destination, in order.
    pub sinks: Vec<Box<dyn Sink>>,
    /// The hashes of the whole, which already include the content of the sinks.
    pub hashing: Hashing,
    /// The source.
    pub evidence: Evidence,
}

/// Starts an acquisition, or resumes the one whose journal exists.
pub async fn begin(request: &Request, evidence: Evidence, recorder: &mut Recorder<'_>) -> Result<Prepared> {
    let path = request.destinations[0].beside("acquire");
    refuse_sources(std::iter::once(&evidence.source).chain(&evidence.disks), &request.destinations)?;
    if request.restart {
        discard(&request.destinations, request.session.timeout).await?;
    }
    let start = start(request, &evidence.source.identity)?;
    match open_journal(request, &path, recorder)? {
        None => {
            let start = Start { disks: examine_disks(&evidence.disks).await?, ..start };
            begin_new(request, evidence, (start, &path), recorder).await
        }
        Some((journal, state)) => {
            state.start.check_same_request(&start)?;
            go_on(request, evidence, (journal, state), recorder).await
        }
    }
}

/// Opens the journal at `path`, if there is one, as far as the custody log beside the first destination vouches for it. A
/// record is believed for its signature, with the key of this examiner.
fn open_journal(
    request: &Request,
    path: &Path,
    recorder: &mut Recorder<'_>,
) -> Result<Option<(Journal, AcquisitionState)>> {
    let Some(journal) = Journal::lock(path)? else { return Ok(None) };
    let Some(key) = &request.key else { return journal.read(Signed::NotKept) };
    let log = CustodyLog::path_for(&request.destinations[0].path);
    let there = log.symlink_metadata().is_ok();
    let known = request.custodian.known(vec![key.public()]);
    let report = there.then(|| cheetah_custody::verify_log(&log, &known)).transpose()?;
    let signed = report.and_then(|report| report.journal).filter(|signed| signed.key == key.public().id());
    let read = journal.read(signed.as_ref().map_or(Signed::Nothing, |signed| Signed::As(&signed.sha256)));
    if let Err(error) = &read
        && error.is_evidence()
        && there
    {
        // The attempt is an incident, which belongs on record.
        keep_logs(request, recorder)?;
        recorder.record_end(&error.to_string(), true);
    }
    read
}

/// Fails if a destination is one of the sources, or a file that one of them is read from.
pub fn refuse_sources<'a>(sources: impl IntoIterator<Item = &'a Source>, destinations: &[Destination]) -> Result<()> {
    for source in sources {
        let is_source = |to: &&Destination| {
            is_same_file(&source.identity.location, to)
                || source.files.iter().any(|file| is_same_file(&path_to_text(&file.path), to))
        };
        if let Some(same) = destinations.iter().find(is_source) {
            return Err(is_the_source(same));
        }
    }
    Ok(())
}

/// Fails if a destination is the source that the user calls `text`, which is not open yet.
pub fn refuse_source_named(text: &str, destinations: &[Destination]) -> Result<()> {
    match destinations.iter().find(|to| is_same_file(text, to)) {
        Some(same) => Err(is_the_source(same)),
        None => Ok(()),
    }
}

fn is_the_source(destination: &Destination) -> Error {
    Error::misuse(format!("{destination} is the source itself, which is never written; choose another name"))
}

/// Returns whether a destination is the file that the source is read from, under any name.
fn is_same_file(source: &str, destination: &Destination) -> bool {
    if let Some(uri) = &destination.object {
        return source == uri;
    }
    let id = |path: &Path| Status::at(path).ok().map(|status| status.id);
    let Some((source, _)) = cheetah_image::spec::path_of(source) else { return false };
    // Copies of a drive's file are the same drive.
    let drive = |path: &Path| DriveFile::load(path).ok().map(|file| file.id);
    let is_same_drive =
        || destination.form == Form::Drive && drive(&source).is_some_and(|id| drive(&destination.path) == Some(id));
    let there = id(&source);
    there.is_some() && there == id(&destination.path) || is_same_drive()
}

async fn begin_new(
    request: &Request,
    evidence: Evidence,
    (start, path): (Start, &Path),
    recorder: &mut Recorder<'_>,
) -> Result<Prepared> {
    let setup = setup(request, &start);
    for destination in &request.destinations {
        sink::check(destination, &setup).await?;
        side_files::check(destination)?;
    }
    if request.check_space {
        check_space(&request.destinations, &setup)?;
    }
    let mut journal = Journal::create(path, &start)?;
    let begun = async {
        keep_logs(request, recorder)?;
        recorder.record(&started(&start)?)?;
        recorder.witness().map_or(Ok(()), |witness| journal.witnessed_by(witness))?;
        let heads = recorder.heads();
        create(request, &setup, &heads).await
    };
    let sinks = match begun.await {
        Ok(sinks) => sinks,
        Err(error) => {
            recorder.record_end(&error.to_string(), true);
            journal.remove()?;
            return Err(error);
        }
    };
    recorder.tell(AcquireEvent::Started {
        source: Box::new(start.source.clone()),
        destinations: start.destinations.clone(),
        resumed_at: 0,
    })?;
    let parts = SourceFiles::parts(&evidence.source, request.hashes);
    let hashing = Hashing::start_with_parts(request.hashes, parts)?;
    Ok(Prepared { journal, state: AcquisitionState::new(start)?, sinks, hashing, evidence })
}

/// Fails if there is too little space for the images. A raw image has holes where the source has; an E01 that is compressed
/// may take less than its content, so only one that would have to shrink to a tenth is refused, and others are warned of.
fn check_space(destinations: &[Destination], setup: &Setup) -> Result<()> {
    let content = content_bytes(setup);
    let files = |part: u64| -> Vec<_> {
        let is_packed = |to: &Destination| to.form == Form::E01 && setup.e01.compression != Compression::NONE;
        let written = |to: &Destination| match (&to.object, to.form) {
            (Some(_), _) => UploadRecord::bytes_max(setup.size),
            (None, Form::Drive) => digests_bytes(setup.size),
            (None, _) => content / if is_packed(to) { part } else { 1 },
        };
        // Beside each are a journal, a log and a report.
        destinations.iter().map(|to| (to.path.clone(), written(to).saturating_add(space::RECORD_BYTES))).collect()
    };
    space::check(&files(10), Files::MakeSpaceOrSkip)?;
    if let Err(error) = space::check(&files(1), Files::MakeSpace) {
        tracing::warn!("there may be too little space: without compression, {error}");
    }
    Ok(())
}

/// The bytes of content that the source may have: those on the disk, for a sparse file.
fn content_bytes(setup: &Setup) -> u64 {
    let Some((path, _)) = cheetah_image::spec::path_of(&setup.source) else { return setup.size };
    match path.metadata() {
        // Of a raw image: the file of another has less than its content.
        Ok(metadata) if metadata.is_file() && metadata.len() == setup.size => {
            os::stored_bytes(&path).map_or(setup.size, |stored| setup.size.min(stored))
        }
        _ => setup.size,
    }
}

/// The setup of an image whose header has the head of its custody log, as far as there is space for both it and the notes.
/// The header is written before the content, so it has the head at the beginning.
fn with_head(setup: &Setup, head: Option<&cheetah_custody::Head>) -> Setup {
    let Some(head) = head else { return setup.clone() };
    let mut noted = setup.clone();
    noted.e01.case.notes = Some(head.noted().before_notes(setup.e01.case.notes.as_deref()));
    if noted.e01.check().is_ok() { noted } else { setup.clone() }
}

/// Creates every sink, or none; `heads` are those of the custody logs. Drives come last, because their former content cannot be restored.
async fn create(
    request: &Request,
    setup: &Setup,
    heads: &[Option<cheetah_custody::Head>],
) -> Result<Vec<Box<dyn Sink>>> {
    let mut order: Vec<_> = request.destinations.iter().enumerate().collect();
    order.sort_by_key(|(_, destination)| destination.form == Form::Drive);
    let mut sinks = Vec::new();
    for (index, destination) in &order {
        // An upload that is resumed is made again from its beginning, which must not differ then.
        let head = heads.get(*index).and_then(Option::as_ref).filter(|_| destination.object.is_none());
        match sink::create(destination, &with_head(setup, head)).await {
            Ok(sink) => sinks.push((*index, sink)),
            Err(error) => {
                drop(sinks.split_off(0));
                for (_, destination) in order.iter().take_while(|(other, _)| other != index) {
                    sink::discard(destination, setup.session.timeout).await?;
                }
                return Err(error);
            }
        }
    }
    sinks.sort_by_key(|(index, _)| *index);
    Ok(sinks.into_iter().map(|(_, sink)| sink).collect())
}

async fn go_on(
    request: &Request,
    evidence: Evidence,
    (mut journal, mut state): (Journal, AcquisitionState),
    recorder: &mut Recorder<'_>,
) -> Result<Prepared> {
    keep_logs(request, recorder)?;
    let (mut pace, begun, mut shown) = (EtaMeter::new(state.at, 0), Instant::now(), Ok(()));
    let mut compared = |done, total| {
        pace.set(done, total, begun.elapsed());
        shown =
            std::mem::replace(&mut shown, Ok(())).and_then(|()| recorder.tell(AcquireEvent::Checking(pace.progress())));
    };
    let how = (request.same_source, request.compare_all, request.retry_for);
    let known = recognise_first(&request.source, &state, evidence, how, &mut compared).await;
    shown?;
    let (evidence, opening) = match known {
        Ok(known) => known,
        Err(error) => {
            if error.exit_code() == 3 {
                recorder.tell(AcquireEvent::SourceChanged { what: error.to_string() })?;
            }
            return Err(error);
        }
    };
    let now = &evidence.source.identity;
    let write_protected = now.write_protected;
    let resumed = JournalRecord::Resume { at_s: now_s(), write_protected, opening: Some(Box::new(opening.clone())) };
    recorder.witness().map_or(Ok(()), |witness| journal.witnessed_by(witness))?;
    journal.append(&resumed)?;
    state.resumes += 1;
    state.write_protected = both(state.write_protected, write_protected);
    let (source, changed) = (cheetah_custody::source(now)?, changes(&state.start.source, now));
    let opened = cheetah_custody::source(&opening)?;
    state.reopened(opening);
    recorder.record(&cheetah_custody::CustodyEvent::Resumed { at: state.at, source, changed, opened })?;
    let resumed = take_up(request, evidence, (journal, state), recorder).await;
    resumed.inspect_err(|error| recorder.record_end(&error.to_string(), true))
}

/// Resumes every destination; the resumption is on record already.
async fn take_up(
    request: &Request,
    evidence: Evidence,
    (journal, state): (Journal, AcquisitionState),
    recorder: &mut Recorder<'_>,
) -> Result<Prepared> {
    recorder.tell(AcquireEvent::Started {
        source: Box::new(evidence.source.identity.clone()),
        destinations: state.start.destinations.clone(),
        resumed_at: state.at,
    })?;
    let hashes = state.start.hash_choice()?;
    let hashing = Hashing::start_with_parts(hashes, SourceFiles::parts(&evidence.source, hashes))?;
    let mut setup = setup(request, &state.start);
    let Some(marks) = state.marks.clone().filter(|_| state.at > 0) else {
        // No checkpoint was written. Partial files that are there are from this acquisition.
        setup.restart = true;
        let sinks = create(request, &setup, &recorder.heads()).await?;
        return Ok(Prepared { journal, state, sinks, hashing, evidence });
    };
    let mut found = Vec::new();
    for (destination, mark) in request.destinations.iter().zip(&marks) {
        found.push(sink::resume(destination, &setup, state.at, mark).await?);
    }
    read_held(request, &state, &mut found, &evidence, &hashing, recorder).await?;
    // Files are changed only now that their content is known.
    let go_on = |found| match found {
        Resumed::Files { go_on, .. } => go_on(),
        Resumed::Drive(_, sink) | Resumed::Upload(sink) => Ok(sink),
    };
    let sinks = found.into_iter().map(go_on).collect::<Result<_>>()?;
    Ok(Prepared { journal, state, sinks, hashing, evidence })
}

/// Reads the destinations back, compares their content with the digests in the journal, and hashes it. Sinks of those that
/// cannot be read are given the content again, from the first that can be, or else from the source.
async fn read_held(
    request: &Request,
    state: &AcquisitionState,
    found: &mut [Resumed],
    evidence: &Evidence,
    hashing: &Hashing,
    recorder: &mut Recorder<'_>,
) -> Result<()> {
    let coverage = Arc::new(state.coverage());
    let (mut refilled, mut devices) = (Vec::new(), Vec::new());
    for (destination, found) in request.destinations.iter().zip(found) {
        match found {
            Resumed::Files { held, .. } | Resumed::Drive(held, _) => {
                devices.push((destination.to_string(), held.clone()))
            }
            Resumed::Upload(sink) => refilled.push(sink),
        }
    }
    let mut replay = Some(Replay { hashing, sinks: refilled, bad: &state.bad });
    if devices.is_empty() {
        devices.push((evidence.source.identity.location.clone(), evidence.source.device.clone()));
    }
    let mut pace = EtaMeter::new(state.at * devices.len() as u64, 0);
    let begun = Instant::now();
    for (name, device) in devices {
        let mut shown = Ok(());
        let known = (&state.digests, &coverage);
        let read = read_back(&device, &name, state.at, known, replay.take(), |bytes| {
            pace.step(bytes, 0, begun.elapsed());
            shown = std::mem::replace(&mut shown, Ok(()))
                .and_then(|()| recorder.tell(AcquireEvent::Checking(pace.progress())));
        });
        read.await.map_err(|error| match error.is_evidence() {
            true => error.next(Acquisition::BeginAgain),
            false => error,
        })?;
        shown?;
    }
    Ok(())
}

fn keep_logs(request: &Request, recorder: &mut Recorder<'_>) -> Result<()> {
    let keep = |key| recorder.keep_logs(&request.destinations, (key, &request.custodian));
    request.key.as_ref().map_or(Ok(()), keep)
}

fn started(start: &Start) -> Result<cheetah_custody::CustodyEvent> {
    let mut started = cheetah_custody::Started::new(&start.source, &start.e01.case, start.destinations.clone())?;
    let options = [("hash", start.hashes.clone()), ("level", start.e01.compression.to_string())];
    started.options = options.map(|(name, value)| (name.to_owned(), value)).into();
    Ok(cheetah_custody::CustodyEvent::Started(Box::new(started)))
}

/// Returns the first record of the journal for this request.
fn start(request: &Request, source: &Identity) -> Result<Start> {
    let given = &request.e01;
    let made_up = random::bytes()?;
    let e01 = E01Options {
        sector_size: sector_size(source),
        model: given.model.clone().or_else(|| source.model.clone()),
        serial: given.serial.clone().or_else(|| source.serial.clone()),
        write_blocked: given.write_blocked || source.write_protected == Some(true),
        // Recorded, so that a resumed E01 is byte for byte the same file.
        guid: given.guid.or(Some(made_up)),
        force: request.force,
        ..given.clone()
    };
    Ok(Start {
        version: VERSION,
        at_s: now_s(),
        source: source.clone(),
        destinations: request.destinations.iter().map(ToString::to_string).collect(),
        hashes: request.hashes.to_string(),
        e01,
        noted: request.noted.clone(),
        // Examined when it begins.
        disks: Vec::new(),
    })
}

fn setup(request: &Request, start: &Start) -> Setup {
    Setup {
        size: start.source.size,
        source: start.source.location.clone(),
        sector_size: start.source.sector_size,
        e01: start.e01.clone(),
        force: request.force,
        restart: request.restart,
        force_lease: request.force_lease,
        session: request.session.clone(),
    }
}

/// Discards an interrupted acquisition, of which nothing is left afterwards but the custody logs. Takes every lock before it
/// removes the first file, so that an acquisition in progress is left alone.
///
/// # Errors
///
/// `Kind::Failed` if the acquisition is in progress, or a file or an upload cannot be removed.
pub async fn discard(destinations: &[Destination], timeout: Duration) -> Result<()> {
    let Some(journal) = destinations.first().map(|first| first.beside("acquire")) else { return Ok(()) };
    let known = Journal::lock(&journal)?;
    let mut locks = Vec::new();
    for destination in destinations {
        for suffix in ["partial", "custody", "acquire"] {
            let path = destination.beside(suffix);
            // The journal is locked already.
            if known.is_none() || path != journal {
                locks.push(sink::lock(destination, &path)?);
            }
        }
    }
    // The journal last: it is what shows that there is something to discard.
    for destination in destinations {
        sink::discard(destination, timeout).await?;
    }
    known.map_or(Ok(()), Unread::remove)
}
