//! `cheetah status`: a drive and its nodes.

use std::path::PathBuf;

use cheetah_device::Size;
use cheetah_drive::status::{DriveStatus, NodeState, NodeStatus, status};
use cheetah_drive::{DriveFile, ImageState};

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
        };
        text.push_str(&format!("\nimage {}, {}, {state}", image.source, Size(image.size)));
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
