//! `cheetah unmount`: ends a mount.

use std::path::PathBuf;

use cheetah_device::path_text::path_to_text;
use cheetah_error::Error;

use crate::answers::access::Unmount;
use crate::failure::Result;
use crate::os::{self, Feature};
use crate::ui::Ui;

/// The options of `unmount`.
#[derive(Debug, clap::Args)]
#[command(about = "Unmount a drive or an image")]
#[command(
    long_about = "Unmounts a drive or an image that `cheetah mount` has mounted, and waits until the process behind \
it has ended. Written data is then on stable storage, and the drive is free for the next writer.

A mount whose process is gone (\"Transport endpoint is not connected\") is removed.

  cheetah unmount /mnt/case42"
)]
pub struct Args {
    /// The directory it is mounted on
    dir: PathBuf,

    /// Detach the mount even while files on it are open; it ends when they are closed
    #[arg(long)]
    lazy: bool,
}

/// Runs the command.
pub async fn run(args: Args, ui: Ui) -> Result<()> {
    os::offers(Feature::Mounts)?;
    cheetah_attach::unmount(&args.dir, args.lazy).await.map_err(Error::from)?;
    let done = if args.lazy { "detached" } else { "unmounted" };
    let dir = path_to_text(&args.dir);
    let value = if args.lazy { Unmount::Detached { dir } } else { Unmount::Unmounted { dir } };
    ui.answer(format_args!("{}: {done}", args.dir.display()), &value);
    Ok(())
}
