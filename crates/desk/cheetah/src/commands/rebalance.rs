//! `cheetah rebalance`: spreads a drive evenly over its nodes and further ones.

use std::path::PathBuf;
use std::str::FromStr as _;
use std::time::Duration;

use cheetah_device::Size;
use cheetah_device::path_text::path_to_text;
use cheetah_drive::find::{FindOptions, find};
use cheetah_drive::rebalance::{NodeBytes, RebalanceOptions, RebalanceProgress, Rebalanced, rebalance};
use cheetah_drive::{DriveFile, NodeSpec};

use super::options::TimeoutArgs;
use crate::answers::care::Rebalance;
use crate::desk::Desk;
use crate::failure::{Failure, Result};
use crate::signals::Stop;
use crate::ui::Ui;

/// How long `auto` listens for announcements.
const BROWSE: Duration = Duration::from_secs(3);

/// The options of `rebalance`.
#[derive(Debug, clap::Args)]
#[command(about = "Spread a drive evenly over its nodes and further ones")]
#[command(
    long_about = "Moves parts of a drive to other nodes, until it is spread evenly over its nodes and those of --nodes, \
as far as they have free memory. Reads then use the links of all of them.

The drive is read and written meanwhile, without a pause. The process that has it open for writing moves the parts; if there \
is none, this command does. One part moves at a time, and the node that it leaves wipes it. If this command is stopped, the \
current part still moves, unless this command moves it.

A part moves as a whole, and two parts that hold copies or parity of each other never lie on one node. A drive \
can therefore be spread over as many times its nodes as it has parts on each: see create --parts. Only drives with \
redundancy (mirror, parity) can be rebalanced.

  cheetah rebalance case42.drive --nodes lab5,lab6
  cheetah enlarge case42.drive --nodes lab5,lab6
  cheetah rebalance case42.drive"
)]
pub struct Args {
    /// The drive file
    pub drive: PathBuf,

    /// Further nodes to use: host, host:port, or 'auto' for announced ones
    #[arg(long, value_name = "A,B,…", value_delimiter = ',')]
    nodes: Vec<String>,

    #[command(flatten)]
    timeout: TimeoutArgs,
}

/// Runs the command.
pub async fn run(args: Args, desk: &Desk, ui: Ui) -> Result<()> {
    let session = desk.session(args.timeout.get());
    let specs = args.nodes.iter().map(|text| NodeSpec::from_str(text)).collect::<std::result::Result<Vec<_>, _>>()?;
    let mut file = DriveFile::load(&args.drive)?;
    let nodes = find(&specs, &FindOptions { session: session.clone(), browse: BROWSE }).await?;
    let mut stop = Stop::catch()?;
    let options = RebalanceOptions { nodes, session };
    let mut bar = None;
    let shown = |at: RebalanceProgress| {
        let begun = bar.as_ref().is_some_and(|(moved, _)| *moved == at.moved);
        if !begun {
            bar = Some((at.moved, ui.progress(format!("moving a part from {} to {}", at.from, at.to), at.total_bytes)));
        }
        bar.iter().for_each(|(_, bar)| bar.set(at.done_bytes));
    };
    let done = tokio::select! {
        done = rebalance(&mut file, &options, shown) => done?,
        signal = stop.asked() => {
            return Err(Failure::failed(format!(
                "stopped by {signal}; parts that have moved stay where they are, and a process that has the drive open \
                 for writing completes the current move"
            )));
        }
    };
    drop(bar);
    ui.answer(
        describe(&args, &done),
        &Rebalance {
            drive: path_to_text(&args.drive),
            lacks: done.lacks.as_ref(),
            moved: &done.moved,
            nodes: &done.nodes,
        },
    );
    Ok(())
}

fn describe(args: &Args, done: &Rebalanced) -> String {
    let drive = args.drive.display();
    let bytes: u64 = done.moved.iter().map(|moved| moved.bytes).sum();
    let nodes: Vec<_> = done.nodes.iter().map(|NodeBytes { node, bytes }| format!("{node} {}", Size(*bytes))).collect();
    let moved = match done.moved.len() {
        0 => "no move makes it more even".to_owned(),
        1 => format!("1 part moved ({})", Size(bytes)),
        count => format!("{count} parts moved ({})", Size(bytes)),
    };
    let lacks = done.lacks.as_ref().map(|NodeBytes { node, bytes }| {
        format!("; it would be more even if {node} had {} of free memory", Size(*bytes))
    });
    format!("{drive}: {moved}; now at {}{}", nodes.join(", "), lacks.unwrap_or_default())
}
