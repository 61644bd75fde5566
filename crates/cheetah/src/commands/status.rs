//! `cheetah status`: a drive and its nodes.

use std::path::PathBuf;

use cheetah_device::Size;
use cheetah_drive::status::{CoveredStatus, DriveStatus, NodeState, NodeStatus, status};
use cheetah_drive::{DriveFile, Image, ImageState};

use super::options::TimeoutArgs;
use crate::failure::{Failure, Result};
use crate::ui::Ui;
use crate::ui::table::table;

/// What `status` is told.
#[derive(Debug, clap::Args)]
#[command(about = "Show a drive and the state of its nodes")]
#[command(long_about = "Shows a drive, and what each of its nodes says.

Exits with 3 if part of the drive is lost.

  cheetah status case42.drive
  cheetah status case42.drive --json | jq .healthy")]
pub struct Args {
    /// The drive file
    drive: PathBuf,

    #[command(flatten)]
    timeout: TimeoutArgs,
}

/// Runs it.
pub async fn run(args: Args, ui: Ui) -> Result<()> {
    let file = DriveFile::load(&args.drive)?;
    let found = status(&file, args.timeout.get()).await?;
    ui.answer(describe(&found), &found);
    if found.healthy {
        return Ok(());
    }
    Err(Failure::evidence(format!("part of {} is lost; see above", args.drive.display())))
}

fn describe(found: &DriveStatus) -> String {
    let mut text =
        format!("{}  {}  {}  id {}", found.name, Size(found.size_bytes), found.layout.join(", then "), found.id);
    if let Some(image) = &found.image {
        let state = match image.state {
            ImageState::Intact => "intact",
            ImageState::Loading => "load never finished: PARTIAL",
            ImageState::Modified => "opened for writing since",
            ImageState::Filling => "being filled: NOT WHOLE YET",
            ImageState::Incomplete => "parts could not be read: PARTIAL",
        };
        text.push_str(&format!("\nimage {}, {}, {state}", image.source, Size(image.size)));
        if let Some(covered) = &found.covered {
            text.push_str(&describe_covered(covered, image));
        }
    }
    let mut table = table(&["node", ">size", ">used", ">connections", "writer", "state"]);
    for node in &found.nodes {
        table.add_row([
            node.node.clone(),
            Size(node.size_bytes).to_string(),
            node.used_bytes.map_or_else(|| "?".into(), |bytes| Size(bytes).to_string()),
            node.connections.map_or_else(|| "?".into(), |count| count.to_string()),
            node.writer.clone().unwrap_or_else(|| "-".into()),
            state(node),
        ]);
    }
    format!("{text}\n{table}")
}

fn describe_covered(covered: &CoveredStatus, image: &Image) -> String {
    let share = |bytes: u64| {
        // In tenths of a percent, rounded down: what is nearly whole is not whole.
        let tenths = u128::from(bytes) * 1000 / u128::from(image.size.max(1));
        format!("{} ({}.{}%)", Size(bytes), tenths / 10, tenths % 10)
    };
    let mut text = format!(
        "\n  read {}, unread {}, unreadable {}",
        share(covered.read_bytes),
        share(covered.unread_bytes),
        share(covered.unreadable_bytes)
    );
    if image.state == ImageState::Filling {
        let filler = covered.filler.as_deref().map_or_else(|| "nobody just now".into(), |who| format!("by {who}"));
        text.push_str(&format!("; filled {filler}"));
    }
    text
}

fn state(node: &NodeStatus) -> String {
    let state = match node.state {
        NodeState::Ok => "ok",
        NodeState::Empty => "EMPTY",
        NodeState::Unreachable => "UNREACHABLE",
        NodeState::Foreign => "answers (not a Cheetah node)",
    };
    match &node.problem {
        Some(problem) => format!("{state}: {problem}"),
        None => state.to_owned(),
    }
}
