//! The same tools on the image and on the drive.

use std::path::Path;
use std::time::Duration;

use super::tools::{self, Cold, Run};
use crate::answers::demo::Row;
use crate::failure::{Failure, Result};
use crate::ui::table::table;

/// The note that follows a table in which a tool was slower on the drive.
const SLOWER: &str = "

A speed-up below 1 is expected for tools that make a few small reads, such as
mmls and fls: a local disk answers them sooner than a node, which adds a round
trip to each. A drive pays off when much is read (md5sum), when several tools or
analysts read at once, and where disks are slower than the network.";

/// The results of all runs.
pub struct Comparison {
    /// One row per tool.
    pub rows: Vec<Row>,
    /// How caches were dropped.
    pub cold: &'static str,
    /// md5sum's run on the image.
    md5sum: Run,
}

impl Comparison {
    /// Runs each tool on `image` and on `drive`.
    pub async fn make(image: &Path, drive: &Path, bytes: u64) -> Result<Self> {
        let cold = Cold::best();
        let both = async |program: &str, args: &[String]| -> Result<(Run, Run)> {
            let on_image = tools::run_cold(cold, program, args, image).await?;
            let on_drive = tools::run_cold(cold, program, args, drive).await?;
            Ok((on_image, on_drive))
        };
        let mut rows = Vec::new();
        let table = both("mmls", &[]).await?;
        let starts = if table.0.status.success() { tools::partition_starts(&table.0.printed) } else { Vec::new() };
        rows.push(Row::new("mmls".into(), format!("{} partitions", starts.len()), table)?);
        // Without a table the image is one file system, or the tools say the same about both.
        let places: Vec<Vec<String>> = match starts.as_slice() {
            [] => vec![vec!["-r".into()]],
            starts => starts.iter().map(|start| vec!["-r".into(), "-o".into(), start.to_string()]).collect(),
        };
        for args in places {
            let runs = both("fls", &args).await?;
            let entries = runs.0.printed.iter().filter(|byte| **byte == b'\n').count();
            rows.push(Row::new(format!("fls {}", args.join(" ")), format!("{entries} entries"), runs)?);
        }
        let runs = both("md5sum", &[]).await?;
        let rate = bytes as f64 / f64::from(1 << 20) / runs.1.took.as_secs_f64().max(1e-6);
        let md5sum = runs.0.clone();
        rows.push(Row::new("md5sum".into(), format!("drive: {rate:.0} MiB/s"), runs)?);
        Ok(Self { rows, cold: cold.describe(), md5sum })
    }

    /// Runs md5sum on the drive once more, and `event` when it is about a third done.
    pub async fn md5sum_during(
        &mut self,
        ran: &str,
        drive: &Path,
        event: impl Future<Output = Result<()>>,
    ) -> Result<()> {
        let before = self.rows.last().map_or(0.0, |row| row.drive_s);
        let later = async {
            tokio::time::sleep(Duration::from_secs_f64(before / 3.0)).await;
            event.await
        };
        let (run, happened) = tokio::join!(tools::run_cold(Cold::best(), "md5sum", &[], drive), later);
        happened?;
        let row = Row::new(ran.to_owned(), String::new(), (self.md5sum.clone(), run?))?;
        self.rows.push(row);
        Ok(())
    }

    /// Returns whether all runs were identical.
    pub fn identical(&self) -> bool {
        self.rows.iter().all(|row| row.identical)
    }

    /// Returns the table and its notes.
    pub fn table(&self) -> String {
        let mut table = table(&["ran", "answer", ">image", ">drive", ">speed-up", "identical"]);
        for row in &self.rows {
            table.add_row([
                row.ran.clone(),
                row.answer.clone(),
                format!("{:.2} s", row.image_s),
                format!("{:.2} s", row.drive_s),
                format!("{:.1}", row.image_s / row.drive_s.max(1e-3)),
                if row.identical { "yes".into() } else { "NO".to_owned() },
            ]);
        }
        let notes = if self.rows.iter().any(|row| row.image_s < row.drive_s) { SLOWER } else { "" };
        format!("{table}\n{}{notes}", self.cold)
    }
}

impl Row {
    fn new(ran: String, answer: String, (image, drive): (Run, Run)) -> Result<Self> {
        let identical = image.printed == drive.printed && image.status == drive.status;
        if identical && image.printed.is_empty() && !image.status.success() && ran == "md5sum" {
            let why = String::from_utf8_lossy(&image.complained).trim().to_owned();
            return Err(Failure::failed(format!("{ran} could read neither: {why}")));
        }
        let (image_s, drive_s) = (image.took.as_secs_f64(), drive.took.as_secs_f64());
        Ok(Self { ran, answer, image_s, drive_s, identical })
    }
}
