//! Calls about jobs.

use std::time::Duration;

use bytes::Bytes;
use hyper::Method;

use super::{ControlClient, Result};
use crate::http::caller::words;
use crate::jobs::{JobLine, JobStarted, NewJob};
use crate::routes::{JOB, JOB_LINES, JOBS, fill};

impl ControlClient {
    /// Has the node begin a job.
    pub async fn start_job(&self, job: &NewJob) -> Result<JobStarted> {
        self.send(Method::POST, JOBS, job).await
    }

    /// Gets lines of a job's results, from number `from` on; those before are forgotten. Waits for up to `wait_s` seconds until
    /// there are many, or the last one.
    pub async fn job_lines(&self, id: &str, from: u64, wait_s: u64) -> Result<Vec<JobLine>> {
        let path = format!("{}?from={from}&wait_s={wait_s}", fill(JOB_LINES, [id]));
        let limit = self.timeout.saturating_add(Duration::from_secs(wait_s));
        let body = self.call(Method::GET, &path, Bytes::new(), limit).await?;
        let lines = body.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        lines.map(|line| self.job_line(line)).collect()
    }

    fn job_line(&self, line: &[u8]) -> Result<JobLine> {
        Ok(match self.parse(line)? {
            JobLine::Unreadable { unit, why } => JobLine::Unreadable { unit, why: words(&why) },
            JobLine::Failed { why } => JobLine::Failed { why: words(&why) },
            line => line,
        })
    }

    /// Ends a job, and has its results wiped.
    pub async fn cancel_job(&self, id: &str) -> Result<()> {
        self.call(Method::DELETE, &fill(JOB, [id]), Bytes::new(), self.timeout).await.map(drop)
    }
}
