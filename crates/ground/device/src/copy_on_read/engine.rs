//! Copy-on-read as a state machine: events in, actions out. It does no I/O and reads no clock.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::copy_pacer::CopyPacer;
use super::suspects::{Suspects, next_unit};
use super::transfers::{CopyTransfer, CopyTransfers, InTransit, TransferId, TransferStage};
use super::{CopyOnReadConfig, FETCH_BYTES_MAX, GRAIN, Progress};
use crate::coverage::State;
use crate::{ByteRange, Coverage, Data, Error, Result};

/// Names a read that waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ReadId(u64);

/// An action for the shell, which reports the outcome as an event.
#[derive(Debug)]
pub(super) enum CopyAction {
    /// Read this from the source; then [`CopyEngine::fetched`].
    Fetch(TransferId, ByteRange),
    /// Write this to the drive; then [`CopyEngine::written`].
    Write(TransferId, ByteRange, Data),
    /// Answer a waiting read.
    Answer(ReadId, Result<Vec<AnswerPart>>),
    /// Flush the drive; then [`CopyEngine::flushed`].
    Flush,
    /// Record this coverage, which the drive has flushed; then [`CopyEngine::recorded`].
    Record(Coverage),
}

/// A part of the answer to a read.
#[derive(Debug)]
pub(super) enum AnswerPart {
    /// To be read from the drive.
    OnDrive(ByteRange),
    /// This data.
    InMemory(Data),
}

/// How to answer a read.
#[derive(Debug)]
pub(super) enum CopyReadPlan {
    /// At once.
    Now(Result<Vec<AnswerPart>>),
    /// By a later [`CopyAction::Answer`].
    Wait(ReadId),
}

/// The state of recording the coverage.
#[derive(Debug)]
enum Recording {
    /// Nothing in progress; not again before this time.
    Idle(Duration),
    /// The drive is flushing; the coverage at that moment.
    Flushing(Coverage),
    Writing,
}

/// The state machine; see the [module](super).
pub(super) struct CopyEngine {
    config: CopyOnReadConfig,
    /// How errors name the source.
    source: Arc<str>,
    /// The ranges on the drive, and the unreadable ones.
    coverage: Coverage,
    /// `Unread` where the source has not been asked yet; `Read` everywhere else.
    asked: Coverage,
    transfers: CopyTransfers,
    suspects: Suspects,
    waiting: BTreeMap<ReadId, ByteRange>,
    pacer: CopyPacer,
    /// The offset at which the background copy continues.
    at: u64,
    next_id: u64,
    recording: Recording,
    /// The coverage has changed since it was last recorded.
    dirty: bool,
    progress: Progress,
    /// The reason why fetching has stopped.
    stopped: Option<Error>,
}

type CopyActions = Vec<CopyAction>;

/// Whether a range can be answered.
enum RangeStatus {
    Ready(Result<Vec<AnswerPart>>),
    /// Everything missing is in flight.
    InFlight,
    /// Something is neither held nor in flight.
    Missing,
}

impl CopyEngine {
    /// Continues from a coverage.
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
            transfers: CopyTransfers::default(),
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

    /// Returns the progress.
    pub(super) fn progress(&self) -> &Progress {
        &self.progress
    }

    /// Returns the ranges on the drive.
    pub(super) fn coverage(&self) -> &Coverage {
        &self.coverage
    }

    /// Plans a read of a range that is not empty and lies within the source.
    pub(super) fn read(&mut self, range: ByteRange, now: Duration, actions: &mut CopyActions) -> CopyReadPlan {
        match self.status_of(range) {
            RangeStatus::Ready(answer) => return CopyReadPlan::Now(answer),
            RangeStatus::InFlight => {}
            RangeStatus::Missing => {
                if let Some(why) = &self.stopped {
                    return CopyReadPlan::Now(Err(why.clone()));
                }
                self.demand(range, now, actions);
            }
        }
        self.pacer.give_way();
        let id = ReadId(self.new_id());
        self.waiting.insert(id, range);
        CopyReadPlan::Wait(id)
    }

    /// Cancels a waiting read. Its fetches continue.
    pub(super) fn forget(&mut self, id: ReadId) {
        self.waiting.remove(&id);
    }

    /// Marks `range` as unread again: the drive's content differs from the data that the source sent.
    pub(super) fn invalidate(&mut self, range: ByteRange) {
        let known: Vec<_> =
            self.coverage.runs(range).filter(|(_, state)| *state == State::Read).map(|(run, _)| run).collect();
        for run in known {
            self.coverage.set(run, State::Unread);
            self.asked.set(run, State::Unread);
            self.progress.read -= run.len;
            // A coverage being flushed is recorded next, so it is corrected; one being recorded is recorded once more.
            if let Recording::Flushing(coverage) = &mut self.recording {
                coverage.set(run, State::Unread);
            }
            self.mark_dirty();
        }
    }

    /// Notes that the source has answered, or failed.
    pub(super) fn fetched(&mut self, id: TransferId, outcome: Result<Data>, now: Duration, actions: &mut CopyActions) {
        let calm = self.waiting.is_empty();
        let Some(transfer) = self.transfers.get_mut(id) else { return };
        let TransferStage::Fetching(sent) = transfer.stage else { return };
        let range = transfer.range;
        self.pacer.finished(sent, outcome.is_ok(), calm, now);
        match outcome {
            Ok(data) if data.len() == range.len => {
                transfer.stage = TransferStage::Writing(data.clone());
                self.source_answered();
                actions.push(CopyAction::Write(id, range, data));
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

    /// Notes that something in a transfer's range cannot be read, and retries it in smaller units to find the sectors.
    fn unreadable(&mut self, id: TransferId, error: &Error, now: Duration, actions: &mut CopyActions) {
        let Some(CopyTransfer { range, .. }) = self.transfers.remove(id) else { return };
        match next_unit(range.len, self.config.sector_bytes) {
            Some(unit) => self.suspects.add(range, unit),
            None => {
                tracing::warn!("{}: {range} cannot be read: {error}", self.source);
                self.coverage.set(range, State::Unreadable);
                self.progress.unreadable += range.len;
                self.mark_dirty();
            }
        }
        self.revisit(range, now, actions);
    }

    /// Notes that the source did not answer: fails the reads that wait for it, and pauses.
    fn source_lost(&mut self, id: TransferId, error: Error, now: Duration, actions: &mut CopyActions) {
        let Some(transfer) = self.transfers.remove(id) else { return };
        self.give_up(&transfer);
        self.pacer.source_failed(now);
        self.progress.source_trouble = Some(error.clone());
        for (read, _) in self.waiting_for(transfer.range) {
            self.waiting.remove(&read);
            actions.push(CopyAction::Answer(read, Err(error.clone())));
        }
    }

    /// Marks a transfer's range to be requested again.
    fn give_up(&mut self, transfer: &CopyTransfer) {
        match transfer.unit {
            Some(unit) => self.suspects.add(transfer.range, unit),
            None => self.asked.set(transfer.range, State::Unread),
        }
    }

    /// Notes that the drive has written a range, or failed.
    pub(super) fn written(&mut self, id: TransferId, outcome: Result<()>, now: Duration, actions: &mut CopyActions) {
        let Some(transfer) = self.transfers.remove(id) else { return };
        match outcome {
            Ok(()) => {
                self.coverage.set(transfer.range, State::Read);
                self.progress.read += transfer.range.len;
                self.progress.drive_trouble = None;
                self.pacer.drive_answered();
                self.mark_dirty();
            }
            Err(error) => {
                self.give_up(&transfer);
                self.pacer.drive_failed(now);
                self.drive_refused(error, actions);
                self.revisit(transfer.range, now, actions);
            }
        }
    }

    fn drive_refused(&mut self, error: Error, actions: &mut CopyActions) {
        self.progress.drive_trouble = Some(error.clone());
        // Another process copies now.
        if matches!(error, Error::Fenced(_)) {
            self.stop(error, actions);
        }
    }

    fn mark_dirty(&mut self) {
        self.dirty = true;
        self.progress.recorded = false;
    }

    /// Stops fetching: reads of ranges not copied fail with `why`, waiting ones included. Data that has arrived is
    /// still written.
    pub(super) fn stop(&mut self, why: Error, actions: &mut CopyActions) {
        let why = self.stopped.get_or_insert(why).clone();
        for (read, _) in std::mem::take(&mut self.waiting) {
            actions.push(CopyAction::Answer(read, Err(why.clone())));
        }
    }

    /// Whether nothing is being written, so that the coverage is final once stopped.
    pub(super) fn is_quiet(&self) -> bool {
        !self.transfers.writes()
    }

    /// Starts all fetches that may start now.
    pub(super) fn pump(&mut self, now: Duration, actions: &mut CopyActions) {
        while self.stopped.is_none() && self.transfers.bytes() < self.config.memory_bytes {
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

    /// Records the coverage now.
    pub(super) fn flush(&mut self, actions: &mut CopyActions) {
        if matches!(self.recording, Recording::Idle(_)) && self.dirty {
            self.dirty = false;
            self.recording = Recording::Flushing(self.coverage.clone());
            actions.push(CopyAction::Flush);
        }
    }

    /// Notes that the drive has flushed, or failed.
    pub(super) fn flushed(&mut self, outcome: Result<()>, now: Duration, actions: &mut CopyActions) {
        let Recording::Flushing(coverage) = std::mem::replace(&mut self.recording, Recording::Writing) else { return };
        match outcome {
            Ok(()) => actions.push(CopyAction::Record(coverage)),
            Err(error) => {
                self.recording = Recording::Idle(now + self.config.record_every);
                self.dirty = true;
                self.drive_refused(error, actions);
            }
        }
    }

    /// Notes that the coverage has been recorded, or could not be.
    pub(super) fn recorded(&mut self, outcome: &Result<()>, now: Duration) {
        self.recording = Recording::Idle(now + self.config.record_every);
        self.dirty |= outcome.is_err();
        self.progress.recorded = !self.dirty;
    }

    /// Returns when to call [`pump`](Self::pump) next, if nothing else happens.
    pub(super) fn wakes_at(&self, now: Duration) -> Option<Duration> {
        let record = match self.recording {
            Recording::Idle(next) if self.dirty => Some(next),
            _ => None,
        };
        let resumes = self.pacer.resumes_at().filter(|_| self.stopped.is_none() && !self.progress.is_settled());
        // The pump has started all requests that are due, or they wait for another event.
        record.into_iter().chain(resumes).filter(|at| *at > now).min()
    }

    /// Fetches the missing parts of a range that a reader waits for.
    fn demand(&mut self, range: ByteRange, now: Duration, actions: &mut CopyActions) {
        let wide = range.aligned_to(GRAIN);
        let runs: Vec<_> =
            self.asked.runs(wide).filter(|(_, state)| *state == State::Unread).map(|(run, _)| run).collect();
        for part in runs.into_iter().flat_map(|run| run.split_at_multiples(FETCH_BYTES_MAX)) {
            self.fetch(part, None, false, now, actions);
        }
        for (part, unit) in self.suspects.take(range) {
            self.fetch(part, Some(unit), false, now, actions);
        }
    }

    /// Returns the next range of the background copy: unrequested ranges first, suspect ones last.
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

    fn fetch(&mut self, range: ByteRange, unit: Option<u64>, ahead: bool, now: Duration, actions: &mut CopyActions) {
        let id = TransferId(self.new_id());
        let sent = self.pacer.sent(range.len, ahead, now);
        self.asked.set(range, State::Read);
        self.transfers.insert(CopyTransfer { id, range, unit, stage: TransferStage::Fetching(sent) });
        actions.push(CopyAction::Fetch(id, range));
    }

    /// Answers the waiting reads that `range` completes, and fetches the missing ranges of the others.
    fn revisit(&mut self, range: ByteRange, now: Duration, actions: &mut CopyActions) {
        for (read, wanted) in self.waiting_for(range) {
            match self.status_of(wanted) {
                RangeStatus::Ready(answer) => {
                    self.waiting.remove(&read);
                    actions.push(CopyAction::Answer(read, answer));
                }
                RangeStatus::InFlight => {}
                RangeStatus::Missing => self.demand(wanted, now, actions),
            }
        }
    }

    fn waiting_for(&self, range: ByteRange) -> Vec<(ReadId, ByteRange)> {
        let overlapping = self.waiting.iter().filter(|(_, wanted)| wanted.intersection(range).is_some());
        overlapping.map(|(read, wanted)| (*read, *wanted)).collect()
    }

    /// Returns whether a read of `range` can be answered now.
    fn status_of(&self, range: ByteRange) -> RangeStatus {
        let mut parts = Vec::new();
        let (mut in_flight, mut missing) = (false, false);
        for (run, state) in self.coverage.runs(range) {
            match state {
                State::Read => parts.push(AnswerPart::OnDrive(run)),
                State::Unreadable => return RangeStatus::Ready(Err(self.unreadable_error(run))),
                State::Unread => {
                    let mut in_transit = 0;
                    for (part, state) in self.transfers.within(run) {
                        in_transit += part.len;
                        match state {
                            InTransit::Fetching => in_flight = true,
                            InTransit::Writing(data) => parts.push(AnswerPart::InMemory(data)),
                        }
                    }
                    missing |= in_transit < run.len;
                }
            }
        }
        match (missing, in_flight) {
            (true, _) => RangeStatus::Missing,
            (false, true) => RangeStatus::InFlight,
            (false, false) => RangeStatus::Ready(Ok(parts)),
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
