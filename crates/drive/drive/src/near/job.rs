//! A job at a node, from its start to its last line.

use std::sync::Arc;
use std::time::Duration;

use cheetah_control::ControlError;
use cheetah_control::jobs::{ABANDONED_S, JobLine, LINES_WAIT_S_MAX, NewJob};
use cheetah_device::ByteRange;
use cheetah_error::Fact;
use tokio::time::{Instant, sleep};

use super::lenders::Lender;
use super::node_work::{NodeWork, Results};
use super::not_done::NotDone;

/// How long a request waits for lines, in seconds.
const WAIT_S: u64 = 5;
/// How long a node may take until its next line: longer than a busy machine needs for one. Then this process reads.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// The pause before a request is sent again.
const PAUSE: Duration = Duration::from_millis(200);

const _: () = {
    assert!(WAIT_S <= LINES_WAIT_S_MAX);
    // Several requests in turn may find no lines.
    assert!(4 * WAIT_S <= PATIENCE.as_secs());
    // As long as lines are asked for again, the node keeps them.
    assert!(PATIENCE.as_secs() <= ABANDONED_S);
};

/// Has a node do a job on units with these ranges of the drive, as many as the job has. It is given up once no line has come for
/// as long as `patience`.
pub(super) async fn run<W: NodeWork>(
    (lender, patience): (&Lender, Duration),
    job: &NewJob,
    ranges: &[ByteRange],
    work: &W,
) -> Result<Results<W::Found>, NotDone> {
    // A connection of its own: jobs at one node do not wait for each other.
    let control = lender.control.clone().keeping_connection();
    let due = Instant::now() + patience;
    let id = loop {
        match control.start_job(job).await {
            Ok(started) => break started.id,
            Err(ControlError::Refused { status: 429, .. }) if Instant::now() < due => sleep(PAUSE).await,
            Err(error) => return Err(NotDone::Refused(error)),
        }
    };
    let nothing: Arc<str> = format!("node {} sent nothing about it", lender.name).into();
    let mut results: Results<W::Found> = ranges.iter().map(|_| Err(nothing.clone())).collect();
    let (mut from, mut due) = (0, Instant::now() + patience);
    loop {
        let lines = match control.job_lines(&id, from, WAIT_S).await {
            Ok(lines) => lines,
            // The lines are still there.
            Err(ControlError::NoAnswer { fact: Fact::Unreachable | Fact::Silent, .. }) if Instant::now() < due => {
                sleep(PAUSE).await;
                continue;
            }
            Err(error) => return Err(NotDone::Gone(error)),
        };
        if !lines.is_empty() {
            due = Instant::now() + patience;
        }
        for line in lines {
            from += 1;
            if note(line, &lender.name, ranges, work, &mut results)? {
                // The node forgets the job, or does so after a while.
                let _ = control.job_lines(&id, from, 0).await;
                return Ok(results);
            }
            // A line for each unit, and the last one.
            if from > ranges.len() as u64 {
                let _ = control.cancel_job(&id).await;
                return Err(NotDone::Malformed);
            }
        }
        if Instant::now() >= due {
            let _ = control.cancel_job(&id).await;
            return Err(NotDone::NoTime);
        }
    }
}

/// Notes what a line of node `name` says. Returns whether it is the last one.
fn note<W: NodeWork>(
    line: JobLine,
    name: &str,
    ranges: &[ByteRange],
    work: &W,
    results: &mut Results<W::Found>,
) -> Result<bool, NotDone> {
    let (from, found) = match line {
        JobLine::End { .. } => return Ok(true),
        JobLine::Failed { why } => return Err(NotDone::Failed(why)),
        JobLine::Unreadable { unit, .. } => (unit, vec![Err(format!("the memory of node {name} is damaged").into())]),
        JobLine::TooManyHits { unit } => (unit, vec![Err("it has more hits than a node returns".into())]),
        JobLine::Unopened { unit } => {
            (unit, vec![Err(format!("the key that node {name} was lent does not open it").into())])
        }
        line => work.read(line, ranges)?,
    };
    let from = usize::try_from(from).map_err(|_| NotDone::Malformed)?;
    let places = results.get_mut(from..).and_then(|rest| rest.get_mut(..found.len())).ok_or(NotDone::Malformed)?;
    places.iter_mut().zip(found).for_each(|(place, found)| *place = found);
    Ok(false)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// What is noted of lines about units with these ranges.
    pub fn noted<W: NodeWork>(
        lines: impl IntoIterator<Item = JobLine>,
        ranges: &[ByteRange],
        work: &W,
    ) -> Result<Results<W::Found>, NotDone> {
        let mut results = ranges.iter().map(|_| Err("nothing".into())).collect();
        for line in lines {
            note(line, "a", ranges, work, &mut results)?;
        }
        Ok(results)
    }
}
