//! `cheetah drain`: moves all parts of drives off a node.

use std::path::PathBuf;
use std::str::FromStr as _;
use std::time::Duration;

use cheetah_device::Size;
use cheetah_drive::drain::{DrainOptions, DrainProgress, Drained, drain, mark};
use cheetah_drive::find::{FindOptions, find};
use cheetah_drive::{DriveFile, NodeSpec};

use super::options::TimeoutArgs;
use crate::answers::care::{Drain, Undrain};
use crate::desk::Desk;
use crate::failure::{Failure, Result};
use crate::signals::Stop;
use crate::ui::Ui;

/// The options of `drain`.
#[derive(Debug, clap::Args)]
#[command(about = "Move all parts of drives off a node")]
#[command(long_about = "Moves all parts of drives off a node, so that it can be stopped without a loss.

The node is marked as draining: it takes no new parts. Each process that has a drive with redundancy \
(mirror, parity) open for writing moves its part to another node, while the drive is read and written. \
The node wipes each part that has left. This command shows the progress, and says at once which parts cannot be moved. \
If it is stopped, the moves go on.

A part goes to a node that holds no part of the same drive, and has enough free memory: one of --to, a spare of the \
drive, or an announced node.

A drive that no process has open for writing is moved by this command, if its file is named with --drive. A drive that is \
mounted read-only counts as such.

Parts of drives without redundancy (linear, stripe) cannot be moved.

  cheetah drain lab7
  cheetah drain lab7 --to lab8,lab9
  cheetah drain lab7 --drive case42.drive
  cheetah drain lab7 --undrain

Exits with 1 if parts remain. The mark stays until --undrain, or until the node is stopped.")]
pub struct Args {
    /// The node: host or host:port
    node: String,

    /// Nodes that may take the parts: host, host:port, or 'auto'
    #[arg(long, value_name = "A,B,…", value_delimiter = ',')]
    to: Vec<String>,

    /// Also move the part of this drive, if no process has it open for writing; repeatable
    #[arg(long, value_name = "FILE")]
    pub drive: Vec<PathBuf>,

    /// Take the mark back: the node takes new parts again
    #[arg(long, conflicts_with_all = ["to", "drive"])]
    undrain: bool,

    #[command(flatten)]
    timeout: TimeoutArgs,
}

/// Runs the command.
pub async fn run(args: Args, desk: &Desk, ui: Ui) -> Result<()> {
    let session = desk.session(args.timeout.get());
    let specs = [NodeSpec::from_str(&args.node)?];
    let found = find(&specs, &FindOptions { session: session.clone(), browse: Duration::ZERO }).await?;
    let [node] = &found[..] else {
        return Err(Failure::misused("drain takes one node: its host, or host:port"));
    };
    if args.undrain {
        mark(node, None, &session).await?;
        ui.answer(format_args!("{} takes new parts again", args.node), &Undrain { draining: false, node: &args.node });
        return Ok(());
    }
    args.to.iter().try_for_each(|text| NodeSpec::from_str(text).map(drop))?;
    let drives = args.drive.iter().map(|path| DriveFile::load(path)).collect::<std::result::Result<Vec<_>, _>>()?;
    let mut stop = Stop::catch()?;
    let options = DrainOptions { to: args.to.clone(), drives, session };
    let mut progress = None;
    let shown = |DrainProgress { done_bytes, total_bytes }| {
        let bar = progress.get_or_insert_with(|| ui.progress(format!("draining {}", args.node), total_bytes));
        bar.set(done_bytes);
    };
    let drained = tokio::select! {
        drained = drain(node, options, shown) => drained?,
        signal = stop.asked() => {
            return Err(Failure::failed(format!(
                "stopped by {signal}; {} stays marked, and processes that write to drives go on (--undrain ends that)",
                args.node
            )));
        }
    };
    drop(progress);
    let drained = in_words(drained);
    ui.answer(describe(&args.node, &drained), &Drain { drain: &drained });
    if drained.remaining.is_empty() {
        return Ok(());
    }
    let remain = match drained.remaining.len() {
        1 => "1 part of a drive remains".to_owned(),
        count => format!("{count} parts of drives remain"),
    };
    let why = drained.remaining.iter();
    let why: Vec<_> = why.map(|left| format!("{} ({}): {}", left.export, Size(left.size_bytes), left.why)).collect();
    Err(Failure::failed(format!("{remain} at {}, and would be lost with it: {}", args.node, why.join("; "))))
}

/// Adds the next steps to the reasons.
fn in_words(mut drained: Drained) -> Drained {
    for left in &mut drained.remaining {
        left.why = cheetah_words::with(&left.why, &left.next);
    }
    drained
}

fn describe(node: &str, drained: &Drained) -> String {
    match drained.remaining.is_empty() {
        true => format!("{node} holds no part of a drive ({} moved), and can be stopped", Size(drained.moved_bytes)),
        false => format!("{node}: {} moved", Size(drained.moved_bytes)),
    }
}
