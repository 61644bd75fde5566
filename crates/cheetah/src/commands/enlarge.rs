//! `cheetah enlarge`: further nodes for a drive.

use std::path::PathBuf;

use cheetah_device::Size;
use cheetah_drive::create::{EnlargeRequest, enlarge};
use cheetah_drive::{DriveFile, Wanted};
use serde_json::json;

use super::options::{LayoutArgs, NodeArgs, SizeOrAll, TimeoutArgs};
use crate::failure::Result;
use crate::signals::Stop;
use crate::ui::Ui;

/// What `enlarge` is told.
#[derive(Debug, clap::Args)]
#[command(about = "Add nodes to a drive")]
#[command(long_about = "Adds nodes to a drive, while nobody uses it.

What the drive holds stays where it is; the new space comes after it.

  cheetah enlarge case42.drive --nodes lab4,lab5
  cheetah enlarge case42.drive --wait 1 --size 8GiB")]
pub struct Args {
    /// The drive file
    drive: PathBuf,

    #[command(flatten)]
    nodes: NodeArgs,

    /// How much to add: a size, or all that the new nodes have
    #[arg(long, value_name = "SIZE|all", default_value = "all")]
    size: SizeOrAll,

    #[command(flatten)]
    layout: LayoutArgs,

    /// Reserve nothing: nodes lend memory as it is written, and may run out
    #[arg(long)]
    thin: bool,

    #[command(flatten)]
    timeout: TimeoutArgs,
}

/// Runs it.
pub async fn run(args: Args, ui: Ui) -> Result<()> {
    let mut file = DriveFile::load(&args.drive)?;
    let before = file.size;
    let timeout = args.timeout.get();
    let size = match args.size {
        SizeOrAll::Size(size) => Wanted::Bytes(size.0),
        SizeOrAll::All => Wanted::All,
    };
    let nodes = args.nodes.find(timeout, ui).await?;
    // From here on it takes no longer than the nodes' timeout, and is not left half-done: no signal ends it.
    let _caught = Stop::catch()?;
    enlarge(&mut file, EnlargeRequest { nodes, layout: args.layout.get(), size, thin: args.thin, timeout }).await?;
    ui.answer(
        format_args!("{}: {} now, {} before", args.drive.display(), Size(file.size), Size(before)),
        &json!({ "drive": args.drive, "size_bytes": file.size, "size_before_bytes": before }),
    );
    Ok(())
}
