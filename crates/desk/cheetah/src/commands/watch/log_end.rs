//! The ends of custody logs.

use std::path::{Path, PathBuf};

use cheetah_custody::{Custodian, CustodyLog, SigningKey, last_records, verify_log};
use cheetah_device::path_text::path_to_text;
use cheetah_words::sentence;

use crate::answers::watch::LogEnd;
use crate::failure::{Failure, Result};

/// The records that are shown of a log.
const RECORDS: usize = 8;

/// The logs to watch: those named, or else those beside the drives.
pub fn logs(named: &[PathBuf], drives: &[PathBuf]) -> Result<Vec<PathBuf>> {
    if let Some(missing) = named.iter().find(|log| !log.is_file()) {
        return Err(Failure::misused(format!("there is no custody log {}", missing.display())));
    }
    let beside = drives.iter().map(|drive| CustodyLog::path_for(drive)).filter(|log| log.is_file());
    Ok(if named.is_empty() { beside.collect() } else { named.to_vec() })
}

/// The end of a log, which is checked again when it has changed.
#[derive(Debug)]
pub struct WatchedLog {
    path: PathBuf,
    custodian: Custodian,
    /// Its length when it was checked.
    checked_bytes: Option<u64>,
    end: LogEnd,
}

impl WatchedLog {
    /// A log that was not looked at yet.
    pub fn new(path: PathBuf, custodian: Custodian) -> Self {
        let log = path_to_text(&path).into_owned();
        let end = LogEnd { log, problems: Vec::new(), records: Vec::new() };
        Self { path, custodian, checked_bytes: None, end }
    }

    /// What was found last.
    pub fn end(&self) -> LogEnd {
        self.end.clone()
    }

    /// Looks at the log again, if its length has changed.
    pub fn look(&mut self) {
        let length = std::fs::metadata(&self.path).ok().map(|found| found.len());
        if length.is_some() && length == self.checked_bytes {
            return;
        }
        self.checked_bytes = length;
        let found = last_records(&self.path, RECORDS).and_then(|records| {
            let problems = problems(&self.path, &self.custodian)?;
            Ok((records, problems))
        });
        match found {
            Ok((records, problems)) => (self.end.records, self.end.problems) = (records, problems),
            Err(error) => self.end.problems = vec![sentence(&error)],
        }
    }
}

/// What is wrong with a log, as far as this machine alone can tell.
fn problems(path: &Path, custodian: &Custodian) -> cheetah_error::Result<Vec<String>> {
    let keys = SigningKey::existing()?.iter().map(SigningKey::public).collect();
    let report = verify_log(path, &custodian.known(keys))?;
    // That it is not finished is no problem of a log whose work goes on.
    let heads = report.heads.into_iter().filter_map(|head| head.problem);
    Ok(report.problem.iter().map(ToString::to_string).chain(report.replaced).chain(heads).collect())
}
