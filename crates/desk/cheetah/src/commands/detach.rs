//! `cheetah detach`: ends a block device.

use std::path::PathBuf;

use cheetah_device::path_text::path_to_text;
use cheetah_error::Error;

use crate::answers::access::Detach;
use crate::failure::Result;
use crate::os::{self, Feature};
use crate::ui::Ui;

/// The options of `detach`.
#[derive(Debug, clap::Args)]
#[command(about = "Detach a drive or an image")]
#[command(
    long_about = "Detaches a block device that `cheetah attach` has made, and waits until the process behind it has ended. \
Written data is then on stable storage, and the drive is free for the next writer.

A device that is in use stays attached, and its mounts and programs are named.

  cheetah detach /dev/nbd0"
)]
pub struct Args {
    /// The block device
    #[arg(value_name = "/dev/nbdN")]
    device: PathBuf,

    /// Detach it even while it is in use: requests of its users fail, and what they have not yet written is lost
    #[arg(long)]
    force: bool,
}

/// Runs the command.
pub async fn run(args: Args, ui: Ui) -> Result<()> {
    os::offers(Feature::BlockDevices)?;
    cheetah_attach::block::detach(&args.device, args.force).await.map_err(Error::from)?;
    let value = Detach::Detached { device: path_to_text(&args.device) };
    ui.answer(format_args!("{}: detached", args.device.display()), &value);
    Ok(())
}
