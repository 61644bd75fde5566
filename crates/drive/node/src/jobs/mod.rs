//! Jobs: work on the content of this node's own exports, by threads that run when a processor has nothing else to do.
//!
//! A job is [checked](units::check), waits for a thread, and is worked on by one thread; [`Output`] keeps its results until the
//! client has them. So a node's memory for jobs is limited by the number of jobs, the results that each keeps and that all keep
//! together, the [patterns] of few orders, for which there must be memory left, and a unit for each thread. A job whose results nobody
//! asks for is ended. Results and orders are wiped when they are forgotten, and a key that was [lent] for a job when the job ends; what
//! libraries make of them is wiped as they free it ([`Wiping`]). Nothing here knows what the content is: no format of
//! evidence is parsed.

mod content;
mod digest;
mod lent;
mod output;
mod pace;
pub(crate) mod patterns;
mod search;
mod seats;
mod units;

use std::collections::{BTreeMap, VecDeque};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use cheetah_control::jobs::{ABANDONED_S, Digest, JobLine, LINES_WAIT_S_MAX, LentKey, NewJob, ScanStatus, Units, Work};
use cheetah_device::Device as _;
use cheetah_kit::locked::with_stack_wiped;
use cheetah_kit::random;
use cheetah_kit::thread::enter_idle_class;
use cheetah_kit::wiping::Wiping;
use cheetah_search::Search;
use parking_lot::{Condvar, Mutex};
use tokio::time::{Instant, timeout_at};

use crate::export::Export;
use crate::exports::{Exports, ExportsError};
use crate::instance::Instance;
use crate::output_memory::OutputMemory;
use crate::search_memory::{NoMemory, SearchMemory};
use content::Content;
use lent::{Borrower, OwnKey};
use output::Output;
use pace::Pace;
use patterns::{AllPatterns, Patterns};
use seats::Seat;
use units::Stopped;

/// The maximum number of threads that work on jobs.
const THREADS_MAX: usize = 64;

/// The interval at which idle threads look for jobs that were given up.
const SWEEP: Duration = Duration::from_secs(1);

/// How long the end of the node waits for threads: a hostile expression takes long in one unit.
const END_WAIT: Duration = Duration::from_secs(2);
/// The interval at which it looks whether they have ended.
const END_LOOK: Duration = Duration::from_millis(10);

/// The processor that a node lends for jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scan {
    /// The number of threads that work when a processor has nothing else to do.
    pub threads: NonZeroUsize,
    /// Whether they pause while other programs of the machine wait for a processor.
    pub gives_way: bool,
    /// When the system has them run.
    pub class: Class,
}

/// When the system has threads run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// When a processor has nothing else to do. On a busy machine that may be never.
    Idle,
    /// In turn with those of other programs.
    Ordinary,
}

impl Scan {
    /// A number of threads that do not pause.
    pub const fn with(threads: NonZeroUsize) -> Self {
        Self { threads, gives_way: false, class: Class::Idle }
    }

    /// A number of threads that are lent like those of any program: for programs that embed a node, on machines that have no other work.
    pub const fn ordinary(threads: NonZeroUsize) -> Self {
        Self { class: Class::Ordinary, ..Self::with(threads) }
    }

    /// A thread for each processor, which give way.
    pub fn idle() -> Self {
        Self {
            threads: thread::available_parallelism().unwrap_or(NonZeroUsize::MIN),
            gives_way: true,
            class: Class::Idle,
        }
    }
}

/// What clients can make a node keep.
#[derive(Debug, Clone, Copy)]
struct Limits {
    /// Jobs, those that wait and those whose results are not all taken included.
    jobs_max: usize,
    /// Bytes of results of each.
    output_bytes_max: usize,
    /// The time after which a job ends if its results are not asked for.
    abandoned: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { jobs_max: 32, output_bytes_max: 1 << 20, abandoned: Duration::from_secs(ABANDONED_S) }
    }
}

/// Why a request about jobs was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum JobError {
    #[error("this node does not lend its processor")]
    Off,
    #[error("this node is shutting down")]
    Ending,
    #[error("this node has as many jobs as it takes: ask again")]
    TooMany,
    #[error(transparent)]
    NoMemory(#[from] NoMemory),
    #[error("this is another run of the node: the content is gone")]
    OtherInstance,
    #[error("{0}")]
    Export(#[from] ExportsError),
    #[error("{0}")]
    Bad(&'static str),
    #[error("this node is lent no keys")]
    NoKeys,
    #[error("keys were lent for as many tasks on this export as its receipt names")]
    TooManyTasks,
    #[error("there is no such job, or it has ended")]
    Unknown,
    #[error("line {0} of the job is forgotten, or is not there yet")]
    NoLine(u64),
    #[error("no random numbers: {0}")]
    NoId(String),
}

/// The jobs of a node, and the threads that work on them.
pub(crate) struct Jobs {
    queue: Arc<Queue>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    threads_count: usize,
    patterns: AllPatterns,
    /// What the results of all jobs may take.
    outputs: Arc<OutputMemory>,
    /// What opens lent keys, if any are lent to this node.
    borrower: Option<Borrower>,
}

struct Queue {
    limits: Limits,
    pace: Pace,
    class: Class,
    state: Mutex<State>,
    /// Signalled when there is a job to begin, or the end.
    changed: Condvar,
}

#[derive(Default)]
struct State {
    by_id: BTreeMap<String, Arc<Job>>,
    waiting: VecDeque<Arc<Job>>,
    is_ended: bool,
}

struct Job {
    export: Arc<Export>,
    units: Units,
    task: Task,
    /// The key that opens the units, until the job is worked on.
    key: Mutex<Option<OwnKey>>,
    output: Output,
    // After all that is data of a case.
    _wiping: Wiping,
}

/// The work of a job that was taken.
enum Task {
    Digest(Digest),
    Search(Arc<Patterns>),
}

/// The work of a job that a thread has begun.
enum Begun<'a> {
    Digest(Digest),
    Search(&'a Search, Seat<'a>),
}

impl Jobs {
    /// Starts the threads; none if the node does not lend its processor. `is_trusted`: keys are lent to it.
    pub fn start(scan: Option<Scan>, is_trusted: bool) -> std::io::Result<Self> {
        Self::with(scan, is_trusted, Limits::default())
    }

    fn with(scan: Option<Scan>, is_trusted: bool, limits: Limits) -> std::io::Result<Self> {
        let threads_count = scan.map_or(0, |scan| scan.threads.get()).min(THREADS_MAX);
        let memory = Arc::<SearchMemory>::default();
        let outputs = Arc::clone(memory.outputs());
        let patterns = AllPatterns::within(memory, threads_count);
        let pace = Pace::new(threads_count, scan.is_some_and(|scan| scan.gives_way));
        let class = scan.map_or(Class::Idle, |scan| scan.class);
        let queue = Arc::new(Queue { limits, pace, class, state: Mutex::default(), changed: Condvar::new() });
        let borrower = is_trusted.then(Borrower::new).transpose().map_err(std::io::Error::other)?;
        let jobs = Self { queue, threads: Mutex::default(), threads_count, patterns, outputs, borrower };
        for _ in 0..jobs.threads_count {
            let queue = Arc::clone(&jobs.queue);
            let thread = thread::Builder::new().name("job".into()).spawn(move || queue.work())?;
            jobs.threads.lock().push(thread);
        }
        if jobs.threads_count > 0 && jobs.queue.pace.looks() {
            let queue = Arc::clone(&jobs.queue);
            let thread = thread::Builder::new().name("pace".into()).spawn(move || queue.pace.watch())?;
            jobs.threads.lock().push(thread);
        }
        Ok(jobs)
    }

    /// The same, with searches and results that take no more memory than there is.
    #[must_use]
    pub fn within(self, memory: Arc<SearchMemory>) -> Self {
        let outputs = Arc::clone(memory.outputs());
        Self { patterns: AllPatterns::within(memory, self.threads_count), outputs, ..self }
    }

    /// What it lends, if anything.
    pub fn status(&self) -> Option<ScanStatus> {
        let jobs = self.queue.state.lock().by_id.len();
        let recipient = self.borrower.as_ref().map(Borrower::recipient);
        (self.threads_count > 0).then_some(ScanStatus { threads: self.threads_count, jobs, recipient })
    }

    /// Takes a job of the member `by`, and returns its id.
    pub fn add(&self, new: NewJob, by: &str, exports: &Exports, instance: Instance) -> Result<String, JobError> {
        if self.threads_count == 0 {
            return Err(JobError::Off);
        }
        if !instance.is(&new.instance) {
            return Err(JobError::OtherInstance);
        }
        let export = exports.export(&new.export)?;
        units::check(&new.units, new.key.is_some(), export.geometry().size).map_err(JobError::Bad)?;
        let key = new.key.map(|key| self.key(&key, &new.units, &export, by)).transpose()?;
        let task = self.task(new.work, &new.units)?;
        let id = random::bits_128().map_err(|error| JobError::NoId(error.to_string()))?;
        let id = format!("{id:032x}");
        let limits = self.queue.limits;
        let output = Output::new(limits.output_bytes_max, limits.abandoned, Arc::clone(&self.outputs));
        let (key, wiping) = (Mutex::new(key), Wiping::begin());
        let job = Arc::new(Job { export, units: new.units, task, key, output, _wiping: wiping });
        self.queue.sweep();
        let mut state = self.queue.state.lock();
        if state.is_ended {
            return Err(JobError::Ending);
        }
        if state.by_id.len() >= self.queue.limits.jobs_max {
            return Err(JobError::TooMany);
        }
        state.by_id.insert(id.clone(), Arc::clone(&job));
        state.waiting.push_back(job);
        drop(state);
        self.queue.changed.notify_one();
        Ok(id)
    }

    /// The key that is lent for a job.
    fn key(&self, key: &LentKey, units: &Units, export: &Export, by: &str) -> Result<OwnKey, JobError> {
        let borrower = self.borrower.as_ref().ok_or(JobError::NoKeys)?;
        borrower.take(key, units.unit_bytes, export.keys_lent(), by)
    }

    /// The work, if it is within the limits.
    fn task(&self, work: Work, units: &Units) -> Result<Task, JobError> {
        match work {
            Work::Digest(work) => digest::check(&work, units).map(|()| Task::Digest(work)).map_err(JobError::Bad),
            Work::Search(order) => {
                patterns::check(&order).map_err(JobError::Bad)?;
                self.patterns.of(order).map(Task::Search)
            }
        }
    }

    /// The lines of a job from number `from` on, as they are sent. Waits until there are many, but for at most `wait`.
    pub async fn lines(&self, id: &str, from: u64, wait: Duration) -> Result<Vec<u8>, JobError> {
        let job = self.job(id)?;
        let due = Instant::now() + wait.min(Duration::from_secs(LINES_WAIT_S_MAX));
        let mut news = job.output.news();
        loop {
            news.mark_unchanged();
            let answer = job.output.take(from)?;
            if answer.is_over {
                self.queue.state.lock().by_id.remove(id);
            }
            if answer.is_ready || timeout_at(due, news.changed()).await.is_err() {
                return Ok(job.output.take(from).map_or(answer.body, |answer| answer.body));
            }
        }
    }

    /// Ends a job, and wipes its results.
    pub fn cancel(&self, id: &str) -> Result<(), JobError> {
        let mut state = self.queue.state.lock();
        let job = state.by_id.remove(id).ok_or(JobError::Unknown)?;
        job.end();
        state.drop_cancelled();
        drop(state);
        self.queue.pace.wake();
        Ok(())
    }

    /// Ends all jobs and threads.
    pub fn end(&self) {
        let mut state = self.queue.state.lock();
        state.is_ended = true;
        state.waiting.clear();
        let jobs = std::mem::take(&mut state.by_id);
        drop(state);
        self.queue.changed.notify_all();
        jobs.values().for_each(|job| job.end());
        self.queue.pace.end();
        let (threads, due) = (std::mem::take(&mut *self.threads.lock()), Instant::now() + END_WAIT);
        // One that is left finds neither its job nor its export again.
        while threads.iter().any(|thread| !thread.is_finished()) && Instant::now() < due {
            thread::sleep(END_LOOK);
        }
    }

    fn job(&self, id: &str) -> Result<Arc<Job>, JobError> {
        self.queue.state.lock().by_id.get(id).map(Arc::clone).ok_or(JobError::Unknown)
    }
}

impl Queue {
    /// Works on jobs until the end.
    fn work(&self) {
        if self.class == Class::Idle
            && let Err(error) = enter_idle_class()
        {
            tracing::warn!(%error, "jobs compete with the programs of this machine: the idle class is refused");
        }
        while let Some(job) = self.next() {
            // Words and hits may be on the stack, too.
            with_stack_wiped(|| job.run(&self.pace));
        }
    }

    fn next(&self) -> Option<Arc<Job>> {
        loop {
            self.sweep();
            let mut state = self.state.lock();
            if state.is_ended {
                return None;
            }
            if let Some(job) = state.waiting.pop_front() {
                return Some(job);
            }
            self.changed.wait_for(&mut state, SWEEP);
        }
    }

    /// Ends the jobs whose results nobody asks for.
    fn sweep(&self) {
        let mut state = self.state.lock();
        state.by_id.retain(|_, job| {
            let is_kept = !job.output.is_abandoned();
            if !is_kept {
                job.end();
            }
            is_kept
        });
        state.drop_cancelled();
    }
}

impl State {
    fn drop_cancelled(&mut self) {
        self.waiting.retain(|job| !job.output.is_cancelled());
    }
}

impl Job {
    /// Ends it before its time. Its results are wiped, and so is its key, unless a thread works with it: that looks after each unit.
    fn end(&self) {
        self.output.cancel();
        drop(self.key.lock().take());
    }

    /// Whether it was cancelled. It is ended here if it is abandoned: while all threads wait, no other looks after jobs.
    fn is_over(&self) -> bool {
        if self.output.is_abandoned() {
            self.end();
        }
        self.output.is_cancelled()
    }

    /// Works on it, as soon and as long as it may.
    fn run(&self, pace: &Pace) {
        if self.output.is_cancelled() {
            return;
        }
        let last = match self.work(pace) {
            Ok(units) => JobLine::End { units },
            Err(Stopped::Failed(why)) => JobLine::Failed { why },
            Err(Stopped::Cancelled) => return,
        };
        // If it was cancelled meanwhile, nobody waits for it.
        let _ = self.output.push(&last);
    }

    /// Works on the units, and returns their number. The key is wiped when this returns: before the last line is there.
    fn work(&self, pace: &Pace) -> Result<u64, Stopped> {
        let is_cancelled = || self.is_over();
        // Before the turn: otherwise a job that may be worked on could wait for one that pauses.
        let begun = match &self.task {
            Task::Digest(work) => Begun::Digest(*work),
            Task::Search(patterns) => {
                let (search, seat) = patterns.begin(is_cancelled)?;
                Begun::Search(search, seat)
            }
        };
        let turn = pace.begin();
        let (units, key) = (&self.units, self.key.lock().take());
        // Its key may have been wiped meanwhile: sealed units are not to be taken for others.
        if is_cancelled() {
            return Err(Stopped::Cancelled);
        }
        let read = |range, out: &mut [u8]| {
            turn.wait(is_cancelled);
            self.export.read_here(range, out)
        };
        let content = Content::new(read, units.unit_bytes, key)?;
        match begun {
            Begun::Digest(work) => digest::run(work, units, content, |line| self.output.push(line)),
            Begun::Search(search, _seat) => search::run(search, units, content, |line| self.output.push(line)),
        }
    }
}

#[cfg(test)]
mod tests;
