//! `cheetah enlarge`: adds nodes to a drive.

use std::path::PathBuf;

use cheetah_device::Size;
use cheetah_device::path_text::path_to_text;
use cheetah_drive::create::{EnlargeRequest, enlarge};
use cheetah_drive::{DriveFile, DriveSize, UNIT_BYTES_DEFAULT};
use cheetah_error::list;

use super::options::{LayoutArgs, NodeArgs, SizeOrAll, TimeoutArgs};
use crate::answers::create::Enlarge;
use crate::desk::Desk;
use crate::failure::Result;
use crate::signals::Stop;
use crate::ui::Ui;

/// The options of `enlarge`.
#[derive(Debug, clap::Args)]
#[command(about = "Add nodes to a drive")]
#[command(long_about = "Adds nodes to a drive, also while it is in use or is being filled.

The drive's content stays where it is; the new space is appended. A mount, an export or a block device shows the new \
size once the drive is opened again. The new space survives as many losses as the drive: nodes that the drive has \
already may be named beside the new ones. To spread the content over the new nodes, see cheetah rebalance.

  cheetah enlarge case42.drive --nodes lab4,lab5
  cheetah enlarge case42.drive --wait 1 --size 8GiB")]
pub struct Args {
    /// The drive file
    pub drive: PathBuf,

    #[command(flatten)]
    nodes: NodeArgs,

    /// Size to add, or 'all' for all free memory of the new nodes
    #[arg(long, value_name = "SIZE|all", default_value = "all")]
    size: SizeOrAll,

    #[command(flatten)]
    layout: LayoutArgs,

    /// Reserve no memory: writes fail once the nodes are full
    #[arg(long)]
    thin: bool,

    #[command(flatten)]
    timeout: TimeoutArgs,
}

/// Runs the command.
pub async fn run(args: Args, desk: &Desk, ui: Ui) -> Result<()> {
    args.layout.check()?;
    let mut file = DriveFile::load(&args.drive)?;
    let before = file.size;
    let session = desk.session(args.timeout.get());
    let size = match args.size {
        SizeOrAll::Size(size) => DriveSize::Bytes(size.0),
        SizeOrAll::All => DriveSize::All,
    };
    let nodes = args.nodes.find(session.timeout, desk, ui).await?;
    // No signal ends it from here on, so that nothing is left half-done. It takes no longer than the nodes' time-out.
    let _caught = Stop::catch()?;
    // As the drive has it.
    let unit = file.sets.first().and_then(|set| set.unit).unwrap_or(UNIT_BYTES_DEFAULT);
    let layout = args.layout.added(file.losses_max(), nodes.len(), unit);
    let parts = if layout.losses_max() > 0 { file.parts() } else { 1 };
    let users = enlarge(&mut file, EnlargeRequest { nodes, layout, size, parts, thin: args.thin, session }).await?;
    if !users.is_empty() {
        ui.warn(format_args!(
            "{} is in use: {}. These processes continue, and see the new size when they open the drive again: mount, \
             attach or export it anew; an NBD client connects anew after that",
            args.drive.display(),
            list(&users)
        ));
    }
    ui.answer(
        format_args!("{}: {} now, {} before", args.drive.display(), Size(file.size), Size(before)),
        &Enlarge { drive: path_to_text(&args.drive), size_before_bytes: before, size_bytes: file.size },
    );
    Ok(())
}
