//! The whole layer as a state machine: events in, actions out. It does no I/O and reads no clock.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::copy_pacer::CopyPacer;
use super::flights::{Aloft, Flight, FlightId, Flights, Stage};
use super::suspects::{Suspects, next_unit};
use super::{CopyOnReadConfig, FETCH_BYTES_MAX, GRAIN, Progress};
use crate::coverage::State;
use crate::{ByteRange, Coverage, Data, Error, Result};

/// Names a read that waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ReadId(u64);

/// What is to be done; whoever does it reports the outcome as an event.
#[derive(Debug)]
pub(super) enum Action {
    /// Read this from the source; then [`Engine::fetched`].
    Fetch(FlightId, ByteRange),
    /// Write this to the drive; then [`Engine::written`].
    Write(FlightId, ByteRange, Data),
    /// Answer a read that waited.
    Answer(ReadId, Result<Vec<Piece>>),
    /// Flush the drive; then [`Engine::flushed`].
    Flush,
    /// Record this coverage, all of which the drive has flushed; then [`Engine::recorded`].
    Record(Coverage),
}

/// A part of the answer to a read. The parts come in order.
#[derive(Debug)]
pub(super) enum Piece {
    /// To be read from the drive.
    There(ByteRange),
    /// This.
    Here(Data),
}

/// What becomes of a read.
#[derive(Debug)]
pub(super) enum Plan {
    /// Answered.
    Now(Result<Vec<Piece>>),
    /// To be answered by an [`Action::Answer`].
    Wait(ReadId),
}

/// Recording what has been copied.
#[derive(Debug)]
enum Recording {
    /// Nothing under way; next not before then.
    Idle(Duration),
    /// What the drive had when it was asked to flush.
    Flushing(Coverage),
    Writing,
}

/// See the module's essay.
pub(super) struct Engine {
    config: CopyOnReadConfig,
    /// How errors name the source.
    source: Arc<str>,
    /// What the drive has, and what cannot be had.
    coverage: Coverage,
    /// `Unread` where nobody has asked the source yet; `Read` everywhere else.
    asked: Coverage,
    flights: Flights,
    suspects: Suspects,
    waiting: BTreeMap<ReadId, ByteRange>,
    pacer: CopyPacer,
    /// Where the background goes on.
    at: u64,
    next_id: u64,
    recording: Recording,
    /// What is covered is not all recorded.
    dirty: bool,
    progress: Progress,
    /// Nothing is fetched any more, for this reason.
    stopped: Option<Error>,
}

type Actions = Vec<Action>;

/// What can be said of a range that was asked for.
enum Outlook {
    Ready(Result<Vec<Piece>>),
    /// All that is missing is on its way.
    Coming,
    /// Something is neither here nor on its way.
    Missing,
}

impl Engine {
    /// For a source that is covered so far already.
    pub(super) fn new(config: CopyOnReadConfig, coverage: Coverage) -> Self {
        let mut asked = coverage.clone();
        let unreadable: Vec<_> = coverage.in_state(State::Unreadable).collect();
        unreadable.into_iter().for_each(|range| asked.set(range, State::Read));
        let progress = Progress {
            size: coverage.size(),
            read: coverage.bytes(State::Read),
            unreadable: coverage.bytes(State::Unreadable),
            recorded: true,
            source_trouble: None,
            drive_trouble: None,
        };
        Self {
            source: config.source_name.clone(),
            recording: Recording::Idle(config.record_every),
            config,
            coverage,
            asked,
            flights: Flights::default(),
            suspects: Suspects::default(),
            waiting: BTreeMap::new(),
            pacer: CopyPacer::new(),
            at: 0,
            next_id: 0,
            dirty: false,
            progress,
            stopped: None,
        }
    }

    /// How far it has come.
    pub(super) fn progress(&self) -> &Progress {
        &self.progress
    }

    /// What the drive has.
    pub(super) fn coverage(&self) -> &Coverage {
        &self.coverage
    }

    /// Somebody wants a range, which is not empty and lies within the source.
    pub(super) fn read(&mut self, range: ByteRange, now: Duration, actions: &mut Actions) -> Plan {
        match self.outlook(range) {
            Outlook::Ready(answer) => return Plan::Now(answer),
            Outlook::Coming => {}
            Outlook::Missing => {
                if let Some(why) = &self.stopped {
                    return Plan::Now(Err(why.clone()));
                }
                self.demand(range, now, actions);
            }
        }
        self.pacer.give_way();
        let id = ReadId(self.new_id());
        self.waiting.insert(id, range);
        Plan::Wait(id)
    }

    /// Nobody waits for that read any more. What was asked for on its account goes on.
    pub(super) fn forget(&mut self, id: ReadId) {
        self.waiting.remove(&id);
    }

    /// What the drive has in `range` is not what the source sent: it is unread again.
    pub(super) fn unlearn(&mut self, range: ByteRange) {
        let known: Vec<_> =
            self.coverage.runs(range).filter(|(_, state)| *state == State::Read).map(|(run, _)| run).collect();
        for run in known {
            self.coverage.set(run, State::Unread);
            self.asked.set(run, State::Unread);
            self.progress.read -= run.len;
            // What is being flushed is about to be recorded; what is being recorded is recorded once more.
            if let Recording::Flushing(coverage) = &mut self.recording {
                coverage.set(run, State::Unread);
            }
            self.soil();
        }
    }

    /// The source has answered, or failed.
    pub(super) fn fetched(&mut self, id: FlightId, outcome: Result<Data>, now: Duration, actions: &mut Actions) {
        let calm = self.waiting.is_empty();
        let Some(flight) = self.flights.get_mut(id) else { return };
        let Stage::Fetching(sent) = flight.stage else { return };
        let range = flight.range;
        self.pacer.finished(sent, outcome.is_ok(), calm, now);
        match outcome {
            Ok(data) if data.len() == range.len => {
                flight.stage = Stage::Writing(data.clone());
                self.source_answered();
                actions.push(Action::Write(id, range, data));
                self.revisit(range, now, actions);
            }
            Ok(data) => {
                let why = format!("{}: {range} was answered with {} bytes", self.source, data.len());
                self.source_lost(id, Error::Invalid(why.into()), now, actions);
            }
            Err(error) if error.is_bad_sector() => {
                self.source_answered();
                self.unreadable(id, &error, now, actions);
            }
            Err(error) => self.source_lost(id, error, now, actions),
        }
    }

    fn source_answered(&mut self) {
        self.pacer.source_answered();
        self.progress.source_trouble = None;
    }

    /// Something in a flight's range cannot be read: which sectors is found out by asking for less at a time.
    fn unreadable(&mut self, id: FlightId, error: &Error, now: Duration, actions: &mut Actions) {
        let Some(Flight { range, .. }) = self.flights.remove(id) else { return };
        match next_unit(range.len, self.config.sector_bytes) {
            Some(unit) => self.suspects.add(range, unit),
            None => {
                tracing::warn!("{}: {range} cannot be read: {error}", self.source);
                self.coverage.set(range, State::Unreadable);
                self.progress.unreadable += range.len;
                self.soil();
            }
        }
        self.revisit(range, now, actions);
    }

    /// The source did not answer: whoever waits for it is told, and it is left alone for a while.
    fn source_lost(&mut self, id: FlightId, error: Error, now: Duration, actions: &mut Actions) {
        let Some(flight) = self.flights.remove(id) else { return };
        self.give_up(&flight);
        self.pacer.source_failed(now);
        self.progress.source_trouble = Some(error.clone());
        for (read, _) in self.waiting_for(flight.range) {
            self.waiting.remove(&read);
            actions.push(Action::Answer(read, Err(error.clone())));
        }
    }

    /// A flight's range is to be asked for anew.
    fn give_up(&mut self, flight: &Flight) {
        match flight.unit {
            Some(unit) => self.suspects.add(flight.range, unit),
            None => self.asked.set(flight.range, State::Unread),
        }
    }

    /// The drive has what it was given, or not.
    pub(super) fn written(&mut self, id: FlightId, outcome: Result<()>, now: Duration, actions: &mut Actions) {
        let Some(flight) = self.flights.remove(id) else { return };
        match outcome {
            Ok(()) => {
                self.coverage.set(flight.range, State::Read);
                self.progress.read += flight.range.len;
                self.progress.drive_trouble = None;
                self.pacer.drive_answered();
                self.soil();
            }
            Err(error) => {
                self.give_up(&flight);
                self.pacer.drive_failed(now);
                self.drive_refused(error, actions);
                self.revisit(flight.range, now, actions);
            }
        }
    }

    fn drive_refused(&mut self, error: Error, actions: &mut Actions) {
        self.progress.drive_trouble = Some(error.clone());
        // Somebody else copies now.
        if matches!(error, Error::Fenced(_)) {
            self.stop(error, actions);
        }
    }

    fn soil(&mut self) {
        self.dirty = true;
        self.progress.recorded = false;
    }

    /// Nothing more is fetched; reads of what is not there fail with `why`, those that wait included. What has come
    /// is still written.
    pub(super) fn stop(&mut self, why: Error, actions: &mut Actions) {
        let why = self.stopped.get_or_insert(why).clone();
        for (read, _) in std::mem::take(&mut self.waiting) {
            actions.push(Action::Answer(read, Err(why.clone())));
        }
    }

    /// Whether nothing is being written, so that what is covered stays as it is once stopped.
    pub(super) fn is_quiet(&self) -> bool {
        !self.flights.writes()
    }

    /// Time has passed, or something has happened: what can be started now is.
    pub(super) fn pump(&mut self, now: Duration, actions: &mut Actions) {
        while self.stopped.is_none() && self.flights.bytes() < self.config.memory_bytes {
            let Some(bytes) = self.pacer.next_request(now) else { break };
            let Some((range, unit)) = self.next_ahead(bytes) else { break };
            self.fetch(range, unit, true, now, actions);
        }
        if let Recording::Idle(next) = self.recording
            && self.dirty
            && (now >= next || self.progress.is_settled())
        {
            self.flush(actions);
        }
    }

    /// Records what is covered now, without waiting for the time to do so.
    pub(super) fn flush(&mut self, actions: &mut Actions) {
        if matches!(self.recording, Recording::Idle(_)) && self.dirty {
            self.dirty = false;
            self.recording = Recording::Flushing(self.coverage.clone());
            actions.push(Action::Flush);
        }
    }

    /// The drive has flushed what had been written before, or could not.
    pub(super) fn flushed(&mut self, outcome: Result<()>, now: Duration, actions: &mut Actions) {
        let Recording::Flushing(coverage) = std::mem::replace(&mut self.recording, Recording::Writing) else { return };
        match outcome {
            Ok(()) => actions.push(Action::Record(coverage)),
            Err(error) => {
                self.recording = Recording::Idle(now + self.config.record_every);
                self.dirty = true;
                self.drive_refused(error, actions);
            }
        }
    }

    /// The coverage has been recorded, or could not be.
    pub(super) fn recorded(&mut self, outcome: &Result<()>, now: Duration) {
        self.recording = Recording::Idle(now + self.config.record_every);
        self.dirty |= outcome.is_err();
        self.progress.recorded = !self.dirty;
    }

    /// When [`pump`](Self::pump) is to be called next, if nothing else happens.
    pub(super) fn wakes_at(&self, now: Duration) -> Option<Duration> {
        let ledger = match self.recording {
            Recording::Idle(next) if self.dirty => Some(next),
            _ => None,
        };
        let resumes = self.pacer.resumes_at().filter(|_| self.stopped.is_none() && !self.progress.is_settled());
        // What is due already was started by the pump, or waits for something else to happen.
        ledger.into_iter().chain(resumes).filter(|at| *at > now).min()
    }

    /// Asks for what is missing of a range that somebody waits for.
    fn demand(&mut self, range: ByteRange, now: Duration, actions: &mut Actions) {
        let wide = range.aligned_to(GRAIN);
        let runs: Vec<_> =
            self.asked.runs(wide).filter(|(_, state)| *state == State::Unread).map(|(run, _)| run).collect();
        for piece in runs.into_iter().flat_map(|run| run.split_at_multiples(FETCH_BYTES_MAX)) {
            self.fetch(piece, None, false, now, actions);
        }
        for (piece, unit) in self.suspects.take(range) {
            self.fetch(piece, Some(unit), false, now, actions);
        }
    }

    /// What the background asks for next: what nobody has asked for, and what could not be read last of all.
    fn next_ahead(&mut self, bytes: u64) -> Option<(ByteRange, Option<u64>)> {
        let size = self.asked.size();
        let unread = |from, to| {
            let mut runs = self.asked.runs(ByteRange::between(from, to));
            runs.find(|(_, state)| *state == State::Unread).map(|(run, _)| run)
        };
        match unread(self.at, size).or_else(|| unread(0, self.at)) {
            Some(run) => {
                let range = run.split_at_multiples(bytes).next()?;
                self.at = range.end();
                Some((range, None))
            }
            None => self.suspects.take_next().map(|(range, unit)| (range, Some(unit))),
        }
    }

    fn fetch(&mut self, range: ByteRange, unit: Option<u64>, ahead: bool, now: Duration, actions: &mut Actions) {
        let id = FlightId(self.new_id());
        let sent = self.pacer.sent(range.len, ahead, now);
        self.asked.set(range, State::Read);
        self.flights.insert(Flight { id, range, unit, stage: Stage::Fetching(sent) });
        actions.push(Action::Fetch(id, range));
    }

    /// Answers the reads that waited for something in `range` and need wait no longer; asks for what is missing now.
    fn revisit(&mut self, range: ByteRange, now: Duration, actions: &mut Actions) {
        for (read, wanted) in self.waiting_for(range) {
            match self.outlook(wanted) {
                Outlook::Ready(answer) => {
                    self.waiting.remove(&read);
                    actions.push(Action::Answer(read, answer));
                }
                Outlook::Coming => {}
                Outlook::Missing => self.demand(wanted, now, actions),
            }
        }
    }

    fn waiting_for(&self, range: ByteRange) -> Vec<(ReadId, ByteRange)> {
        let overlapping = self.waiting.iter().filter(|(_, wanted)| wanted.intersection(range).is_some());
        overlapping.map(|(read, wanted)| (*read, *wanted)).collect()
    }

    /// What a reader of `range` can be told now.
    fn outlook(&self, range: ByteRange) -> Outlook {
        let mut pieces = Vec::new();
        let (mut coming, mut missing) = (false, false);
        for (run, state) in self.coverage.runs(range) {
            match state {
                State::Read => pieces.push(Piece::There(run)),
                State::Unreadable => return Outlook::Ready(Err(self.unreadable_error(run))),
                State::Unread => {
                    let mut found = 0;
                    for (part, aloft) in self.flights.within(run) {
                        found += part.len;
                        match aloft {
                            Aloft::Fetching => coming = true,
                            Aloft::Writing(data) => pieces.push(Piece::Here(data)),
                        }
                    }
                    missing |= found < run.len;
                }
            }
        }
        match (missing, coming) {
            (true, _) => Outlook::Missing,
            (false, true) => Outlook::Coming,
            (false, false) => Outlook::Ready(Ok(pieces)),
        }
    }

    fn unreadable_error(&self, range: ByteRange) -> Error {
        Error::Unreadable { device: self.source.clone(), range, why: "the source could not read it".into() }
    }

    fn new_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }
}
