//! `cheetah room init`: makes a room.

use cheetah_device::path_text::path_to_text;
use cheetah_drive::user_name;
use cheetah_room::Room;
use cheetah_room::credentials::stored_credentials;
use cheetah_room::machine::host_name;

use crate::answers::room::Init;
use crate::failure::{Failure, Result};
use crate::ui::Ui;

/// The options of `room init`.
#[derive(Debug, clap::Args)]
#[command(about = "Make a room on this machine")]
#[command(
    long_about = "Makes a room: a key, kept in the user's configuration directory with owner-only rights, and a \
credential for the examiner at this machine. Anyone with the key can let machines in: back up the directory, and let \
no other user read it.

  cheetah room init lab"
)]
pub struct Args {
    /// Name of the room
    name: String,
}

/// Runs the command.
pub fn run(args: &Args, ui: Ui) -> Result<()> {
    if let Some(stored) = stored_credentials()?.into_iter().find(|stored| stored.room == args.name) {
        let role = stored.credential.identity().map_or("member", |identity| identity.role.name());
        return Err(Failure::misused(format!(
            "this machine is a member of a room '{}' already, as {role}; use that (--room {}), or choose another name for a \
             room of its own",
            args.name, args.name
        )));
    }
    let room = Room::init(&args.name, &format!("{}.{}", user_name(), host_name()))?;
    let text = format!(
        "room {}: {}\nfingerprint of its key: {}\nnext: cheetah room invite --role node",
        room.name(),
        room.path().display(),
        room.key()
    );
    let value = Init {
        directory: path_to_text(room.path()),
        id: room.id().to_string(),
        key_sha256: room.key().to_string(),
        room: room.name(),
    };
    ui.answer(text, &value);
    Ok(())
}
