//! `cheetah verify`: is what was loaded still there?

use std::path::PathBuf;

use cheetah_device::Size;
use cheetah_drive::verify::{Compared, Found, VerifyOptions, VerifyReport};
use cheetah_drive::{DriveFile, HashChoice, Progress};

use super::options::TimeoutArgs;
use crate::failure::{Failure, Result};
use crate::signals::Stop;
use crate::ui::Ui;

/// Bad ranges printed one by one; `--json` has them all.
const RANGES_SHOWN_MAX: usize = 20;

/// What `verify` is told.
#[derive(Debug, clap::Args)]
#[command(about = "Read a drive in full and compare its hashes with those made when it was loaded")]
#[command(long_about = "Reads a drive in full, and compares it with the digests and hashes made when it was loaded.

Exits with 3 if a chunk differs or cannot be read, and says which ranges. What lies behind the image is read too.

  cheetah verify case42.drive
  cheetah verify case42.drive --hash none --json")]
pub struct Args {
    /// The drive file
    drive: PathBuf,

    /// Hashes of the whole to make again, of those made at load; chunk digests are always compared
    #[arg(long, default_value_t)]
    hash: HashChoice,

    #[command(flatten)]
    timeout: TimeoutArgs,
}

/// Runs it.
pub async fn run(args: Args, ui: Ui) -> Result<()> {
    let mut stop = Stop::catch()?;
    let file = DriveFile::load(&args.drive)?;
    let progress = ui.progress(format!("verifying {}", args.drive.display()), file.size);
    let options = VerifyOptions { hashes: args.hash, timeout: args.timeout.get() };
    let shown = |so_far: Progress| progress.set(so_far.done);
    let report = tokio::select! {
        report = cheetah_drive::verify::verify(&file, options, shown) => report?,
        signal = stop.asked() => return Err(Failure::failed(format!("stopped by {signal}; nothing is known"))),
    };
    drop(progress);
    let name = args.drive.display().to_string();
    ui.answer(describe(&name, &report), &report);
    if report.is_ok() {
        return Ok(());
    }
    let since = match report.compared {
        Compared::Modified => ": it was opened for writing since",
        _ => "",
    };
    Err(Failure::evidence(format!("{name} is not what was loaded{since}; see above")))
}

fn describe(name: &str, report: &VerifyReport) -> String {
    let size = Size(report.size);
    let behind = match report.size - report.image_size.min(report.size) {
        0 => String::new(),
        rest => format!(", counting {} behind the image, which need only be readable", Size(rest)),
    };
    let mut lines = vec![match report.compared {
        Compared::Digests if report.is_ok() => format!("{name}: all {size} are as loaded{behind}"),
        Compared::Digests => format!("{name}: {} of {size} are as loaded{behind}", Size(report.ok_bytes)),
        Compared::Modified if report.is_ok() => {
            format!("{name}: opened for writing since it was loaded, but unchanged: all {size} are as loaded{behind}")
        }
        Compared::Modified => format!(
            "{name}: opened for writing since it was loaded: {} of {size} are as loaded{behind}",
            Size(report.ok_bytes)
        ),
        Compared::Empty => {
            format!("{name}: {} of {size} can be read; no image was loaded to compare with", Size(report.ok_bytes))
        }
        Compared::Loading => {
            format!("{name}: its load never finished, so it holds part of an image only; load it again")
        }
    }];
    lines.extend(report.hashes.iter().map(|(kind, digest)| {
        let differs = report.hashes_differing.iter().any(|name| name == kind.name());
        format!("  {:<7} {digest}{}", kind.name(), if differs { "  DIFFERS from the one made at load" } else { "" })
    }));
    lines.extend(ranges("differs", &report.mismatched));
    lines.extend(ranges("unreadable", &report.unreadable));
    lines.join("\n")
}

fn ranges(what: &str, found: &[Found]) -> Vec<String> {
    let mut lines: Vec<_> =
        found.iter().take(RANGES_SHOWN_MAX).map(|bad| format!("  {what}: {}: {}", bad.range(), bad.why)).collect();
    if found.len() > RANGES_SHOWN_MAX {
        lines.push(format!("  {what}: and {} more ranges; --json lists them all", found.len() - RANGES_SHOWN_MAX));
    }
    lines
}
