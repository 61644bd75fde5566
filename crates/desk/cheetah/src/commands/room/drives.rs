//! `cheetah room drives`: the drives that the room hands out.

use cheetah_room::archive::Archive;
use cheetah_room::client::MachineInfo;
use cheetah_room::resolve::{Purpose, Wanted, resolve};

use crate::answers::room::{Drives, RemoveDrive};
use crate::failure::{Failure, Result};
use crate::ui::Ui;

/// The options of `room drives`.
#[derive(Debug, clap::Args)]
#[command(about = "List the drives that the room hands out by name")]
#[command(
    long_about = "Lists the drives whose files the room's machine hands out to its examiners and analysts. When an \
examiner of the room creates or changes a drive, the room's machine gets the drive file. A member names the drive by \
the room:

  cheetah room drives
  cheetah mount lab:case42 /mnt"
)]
pub struct Args {
    /// No longer hand out this drive. The drive itself is unchanged
    #[arg(long, value_name = "NAME")]
    remove: Option<String>,
}

/// Runs the command.
pub async fn run(args: Args, room: Option<&str>, ui: Ui) -> Result<()> {
    let wanted = Wanted { text: room, purpose: Purpose::Client, ephemeral: false, machine: MachineInfo::default() };
    let membership = resolve(&wanted).await?;
    let membership =
        membership.ok_or_else(|| Failure::misused("this machine is in no room, or in several: give --room"))?;
    let archive = Archive::of(&membership);
    if let Some(name) = args.remove {
        if !archive.forget(&name, None).await? {
            return Err(Failure::misused(format!("room {} hands out no drive named {name}", archive.name())));
        }
        ui.answer(format_args!("room {} no longer hands out {name}", archive.name()), &RemoveDrive { removed: &name });
        return Ok(());
    }
    let drives = archive.drives().await?;
    let named: Vec<_> = drives.iter().map(|drive| format!("{}:{drive}", archive.name())).collect();
    let text = if named.is_empty() { format!("room {} hands out no drive", archive.name()) } else { named.join("\n") };
    ui.answer(text, &Drives { drives: &drives, room: archive.name() });
    Ok(())
}
