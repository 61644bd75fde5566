//! The results of a job: lines that are kept until the client has them. The job waits while there are too many.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cheetah_control::jobs::JobLine;
use parking_lot::{Condvar, Mutex};
use tokio::sync::watch;
use zeroize::Zeroizing;

use super::JobError;
use crate::output_memory::{KeptOutput, OutputMemory, Place};

/// The size of an answer for which a request waits, in bytes: fewer cost more in heads than they hold.
const ANSWER_BYTES: usize = 64 << 10;

/// The interval at which a job that waits looks whether it was given up.
const LOOK: Duration = Duration::from_millis(100);

/// The job was cancelled, or given up.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Cancelled;

/// The lines of a job.
pub(super) struct Output {
    state: Mutex<State>,
    bytes_max: usize,
    /// What all jobs together may keep.
    memory: Arc<OutputMemory>,
    /// The time after which a job is given up if its lines are not asked for.
    abandoned: Duration,
    /// Signalled when there is room for lines.
    room: Condvar,
    /// Changes when there are lines to send.
    news: watch::Sender<u64>,
}

struct State {
    /// The number of the first line that is kept.
    first: u64,
    lines: VecDeque<Line>,
    bytes: usize,
    /// Whether there is no room for more until these are taken.
    is_full: bool,
    is_complete: bool,
    is_cancelled: bool,
    /// When lines were last asked for.
    asked: Instant,
}

impl State {
    fn cancel(&mut self) {
        self.is_cancelled = true;
        self.lines.clear();
        self.bytes = 0;
    }
}

/// A line that is kept. It is wiped when it is dropped.
struct Line {
    text: Zeroizing<Vec<u8>>,
    _room: KeptOutput,
}

/// The answer to a request for lines.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Answer {
    /// The lines, each with its line end.
    pub body: Vec<u8>,
    /// Whether it is worth sending now.
    pub is_ready: bool,
    /// Whether the client has all lines: the job can be forgotten.
    pub is_over: bool,
}

impl Output {
    /// No lines yet, and at most `bytes_max` at once, within `memory`. It is abandoned once no lines were asked for since `abandoned`
    /// ago.
    pub fn new(bytes_max: usize, abandoned: Duration, memory: Arc<OutputMemory>) -> Self {
        let state = State {
            first: 0,
            lines: VecDeque::new(),
            bytes: 0,
            is_full: false,
            is_complete: false,
            is_cancelled: false,
            asked: Instant::now(),
        };
        Self {
            state: Mutex::new(state),
            bytes_max,
            memory,
            abandoned,
            room: Condvar::new(),
            news: watch::Sender::new(0),
        }
    }

    /// Adds a line. Waits until there is room for it.
    pub fn push(&self, line: &JobLine) -> Result<(), Cancelled> {
        // It consists of numbers and text, so this succeeds.
        let mut made = Zeroizing::new(serde_json::to_vec(line).unwrap_or_default());
        made.push(b'\n');
        // As long as it is: the list in which it was made may have twice the room, which would be kept and not be counted.
        let text = Zeroizing::new(made.to_vec());
        drop(made);
        let mut state = self.state.lock();
        let kept = loop {
            if state.is_cancelled {
                return Err(Cancelled);
            }
            if let Some(kept) = self.room_for(&state, text.len(), line.is_last()) {
                break kept;
            }
            // Few lines are sent, too, if more have to wait for them.
            if !state.is_full && !state.lines.is_empty() {
                state.is_full = true;
                self.news.send_modify(|news| *news += 1);
            }
            self.room.wait_for(&mut state, LOOK);
            if state.asked.elapsed() > self.abandoned {
                state.cancel();
            }
        };
        state.bytes += text.len();
        state.lines.push_back(Line { text, _room: kept });
        state.is_complete |= line.is_last();
        let is_news = state.is_complete || state.bytes >= ANSWER_BYTES;
        drop(state);
        if is_news {
            self.news.send_modify(|news| *news += 1);
        }
        Ok(())
    }

    /// Room for one more line of as many bytes, if there is.
    fn room_for(&self, state: &State, bytes: usize, is_last: bool) -> Option<KeptOutput> {
        let place = match (is_last, state.lines.is_empty()) {
            (true, _) => Place::Last,
            (false, true) => Place::First,
            (false, false) => Place::Further,
        };
        let is_within = is_last || state.bytes.saturating_add(bytes) <= self.bytes_max;
        if is_within { self.memory.keep(bytes, place) } else { None }
    }

    /// Ends the job, and wipes its lines.
    pub fn cancel(&self) {
        self.state.lock().cancel();
        self.room.notify_all();
        self.news.send_modify(|news| *news += 1);
    }

    /// Whether it was cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.state.lock().is_cancelled
    }

    /// Whether no lines were asked for in time.
    pub fn is_abandoned(&self) -> bool {
        self.state.lock().asked.elapsed() > self.abandoned
    }

    /// Returns the lines from number `from` on, as many as fit in an answer, and forgets those before.
    ///
    /// # Errors
    ///
    /// If these lines are forgotten, do not exist yet, or were wiped.
    pub fn take(&self, from: u64) -> Result<Answer, JobError> {
        let mut state = self.state.lock();
        state.asked = Instant::now();
        if state.is_cancelled {
            return Err(JobError::Unknown);
        }
        let had = usize::try_from(from.saturating_sub(state.first)).unwrap_or(usize::MAX);
        if from < state.first || had > state.lines.len() {
            return Err(JobError::NoLine(from));
        }
        for line in state.lines.drain(..had).collect::<Vec<_>>() {
            state.bytes -= line.text.len();
        }
        state.first = from;
        if had > 0 {
            state.is_full = false;
            self.room.notify_all();
        }
        let mut body = Vec::new();
        for line in &state.lines {
            if !body.is_empty() && body.len() + line.text.len() > ANSWER_BYTES + ANSWER_BYTES / 2 {
                break;
            }
            body.extend_from_slice(&line.text);
        }
        let is_over = state.is_complete && state.lines.is_empty();
        let is_ready = state.is_complete || state.is_full || state.bytes >= ANSWER_BYTES;
        Ok(Answer { is_ready, body, is_over })
    }

    /// Notices of lines to send.
    pub fn news(&self) -> watch::Receiver<u64> {
        self.news.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    /// Longer than a test takes.
    const PATIENCE: Duration = Duration::from_secs(600);

    fn line(unit: u64) -> JobLine {
        JobLine::Unreadable { unit, why: "x".repeat(100) }
    }

    fn text(lines: &[JobLine]) -> Vec<u8> {
        lines.iter().flat_map(|line| [serde_json::to_vec(line).unwrap(), b"\n".to_vec()].concat()).collect()
    }

    #[test]
    fn lines_are_kept_until_those_after_them_are_asked_for() {
        let output = Output::new(1 << 20, PATIENCE, Arc::default());
        (0..3).for_each(|unit| output.push(&line(unit)).unwrap());
        let all = Answer { body: text(&[line(0), line(1), line(2)]), is_ready: false, is_over: false };
        assert_eq!(output.take(0).unwrap(), all);
        assert_eq!(output.take(0).unwrap(), all, "the answer may have been lost");
        assert_eq!(output.take(2).unwrap().body, text(&[line(2)]));
        assert_eq!(output.take(1), Err(JobError::NoLine(1)));
        assert_eq!(output.take(4), Err(JobError::NoLine(4)));
        output.push(&JobLine::End { units: 3 }).unwrap();
        assert!(output.take(3).unwrap().is_ready);
        assert_eq!(output.take(4).unwrap(), Answer { body: Vec::new(), is_ready: true, is_over: true });
    }

    #[test]
    fn a_job_whose_lines_are_not_taken_keeps_no_more_than_the_limit_and_ends_when_it_is_cancelled() {
        let line_bytes = text(&[line(0)]).len();
        let output = Arc::new(Output::new(6 * line_bytes + 10, PATIENCE, Arc::default()));
        let pushing = thread::spawn({
            let output = output.clone();
            move || (0..).map(line).map(|line| output.push(&line)).take_while(Result::is_ok).count()
        });
        let wait_for_lines = |kept: usize| {
            while output.state.lock().lines.len() < kept {
                thread::yield_now();
            }
        };
        wait_for_lines(6);
        assert!(output.take(0).unwrap().body == text(&(0..6).map(line).collect::<Vec<_>>()));
        assert!(output.take(4).unwrap().body.starts_with(&text(&[line(4), line(5)])));
        wait_for_lines(6);
        assert_eq!(output.state.lock().bytes, 6 * line_bytes);
        output.cancel();
        assert_eq!(pushing.join().unwrap(), 10);
        assert_eq!(output.take(4), Err(JobError::Unknown));
    }

    #[test]
    fn a_job_that_waits_for_a_client_that_is_gone_ends() {
        let output = Output::new(100, Duration::ZERO, Arc::default());
        assert_eq!((output.push(&line(0)), output.is_abandoned()), (Err(Cancelled), true));
        assert_eq!(output.take(0), Err(JobError::Unknown));
    }
}
