//! A job at a node, from its start to its last line.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use blake3::hazmat::ChainingValue;
use cheetah_control::ControlError;
use cheetah_control::jobs::{Digest, JobLine, NewJob, VALUE_BYTES, Work};
use cheetah_error::Fact;
use tokio::time::{Instant, sleep};

use super::lenders::Lender;
use super::not_done::NotDone;

/// How long a request waits for lines, in seconds.
const WAIT_S: u64 = 5;
/// How long a node may take until its next line: longer than a busy machine needs for one.
const PATIENCE: Duration = Duration::from_secs(60);
/// The pause before a request is sent again.
const PAUSE: Duration = Duration::from_millis(200);

/// The values of units, by their number; `None` of those that the node does not have.
pub(super) type Values = Vec<Option<ChainingValue>>;

/// Has a node hash units.
pub(super) async fn digest(lender: &Lender, work: Digest) -> Result<Values, NotDone> {
    let count = work.count().and_then(|count| usize::try_from(count).ok()).unwrap_or(0);
    let new = NewJob { instance: lender.instance.clone(), export: lender.export.clone(), work: Work::Digest(work) };
    // A connection of its own: jobs at one node do not wait for each other.
    let control = lender.control.clone().keeping_connection();
    let due = Instant::now() + PATIENCE;
    let id = loop {
        match control.start_job(&new).await {
            Ok(started) => break started.id,
            Err(ControlError::Refused { status: 429, .. }) if Instant::now() < due => sleep(PAUSE).await,
            Err(error) => return Err(NotDone::Refused(error)),
        }
    };
    let (mut values, mut from, mut due) = (vec![None; count], 0, Instant::now() + PATIENCE);
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
            due = Instant::now() + PATIENCE;
        }
        for line in lines {
            from += 1;
            if note(line, &mut values)? {
                // The node forgets the job, or does so after a while.
                let _ = control.job_lines(&id, from, 0).await;
                return Ok(values);
            }
        }
        if Instant::now() >= due {
            let _ = control.cancel_job(&id).await;
            return Err(NotDone::NoTime);
        }
    }
}

/// Notes what a line says. Returns whether it is the last one.
fn note(line: JobLine, values: &mut Values) -> Result<bool, NotDone> {
    match line {
        JobLine::Values { from, base64 } => {
            let malformed = || NotDone::Malformed;
            let bytes = STANDARD.decode(base64).map_err(|_| malformed())?;
            let (parts, []) = bytes.as_chunks::<VALUE_BYTES>() else { return Err(malformed()) };
            let from = usize::try_from(from).map_err(|_| malformed())?;
            let places = values.get_mut(from..).and_then(|rest| rest.get_mut(..parts.len())).ok_or_else(malformed)?;
            places.iter_mut().zip(parts).for_each(|(place, value)| *place = Some(*value));
            Ok(false)
        }
        JobLine::Unreadable { .. } => Ok(false),
        JobLine::End { .. } => Ok(true),
        JobLine::Failed { why } => Err(NotDone::Failed(why)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_that_are_none_are_refused() {
        let mut values = vec![None; 3];
        let line = |from, bytes: &[u8]| JobLine::Values { from, base64: STANDARD.encode(bytes) };
        assert_eq!(note(line(1, &[7; 64]), &mut values), Ok(false));
        assert_eq!(values, [None, Some([7; 32]), Some([7; 32])]);
        for hostile in [line(2, &[0; 64]), line(0, &[0; 128]), line(u64::MAX, &[0; 32]), line(0, &[0; 33])] {
            note(hostile, &mut values).unwrap_err();
        }
        note(JobLine::Values { from: 0, base64: "?".into() }, &mut values).unwrap_err();
        assert_eq!(values[0], None);
        note(JobLine::Failed { why: "the export was deleted".into() }, &mut values).unwrap_err();
    }
}
