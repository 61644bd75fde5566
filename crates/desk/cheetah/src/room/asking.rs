//! Joining a room without an invitation: by a code that both machines show.

use std::io::{BufRead as _, IsTerminal as _};
use std::time::Duration;

use cheetah_room::announce::find;
use cheetah_room::client::{MachineInfo, is_member, wait_for_approval};
use cheetah_room::credentials::{Credentials, stored_credentials};
use cheetah_room::invitation::Host;
use cheetah_room::pending::Code;
use cheetah_room::resolve::{Membership, NewMembership, known};
use cheetah_room::{Fingerprint, PrivateKey};
use cheetah_tls::Role;

use crate::answers::room::Ask;
use crate::failure::{Context, Failure, Result};
use crate::ui::Ui;

/// How long to listen for announcements of rooms.
const BROWSE: Duration = Duration::from_secs(3);

/// Asks the room at a place to let this machine in, and waits until that is approved there. A machine that was let in
/// before does not ask again.
pub async fn ask(
    place: &(Host, u16),
    role: Role,
    machine: &MachineInfo,
    ephemeral: bool,
    ui: Ui,
) -> Result<Membership> {
    let at = place.0.with_port(place.1);
    let is_known = |stored: &cheetah_room::credentials::StoredCredential| {
        stored.at.contains(&at) && stored.credential.identity().is_some_and(|identity| identity.role == role)
    };
    if !ephemeral && let Some(stored) = stored_credentials()?.into_iter().find(is_known) {
        // A member that was revoked asks again, with a new key.
        if is_member(&stored.credential, std::slice::from_ref(place)).await != Some(false) {
            return Ok(known(stored));
        }
    }
    let key = PrivateKey::generate()?;
    let show = async |code: Code, room_key: Fingerprint| {
        let value = Ask::Waiting { at: &at, code: code.to_string(), room_key_sha256: room_key.to_string() };
        let text =
            format!("code {code}; on the machine of the room ({at}), run: cheetah room approve {code} --role {role}");
        ui.event(text, &value);
        Ok(())
    };
    let joined = wait_for_approval((&place.0, place.1), &key, machine, role, show).await?;
    // A man in the middle could have approved this one in a room of its own. That does a node no harm: it only lends
    // memory.
    if role != Role::Node {
        confirm(&joined.room).await?;
    }
    let file = if ephemeral { None } else { Some(Credentials::open()?.store(&joined)?.path) };
    let new = Some(NewMembership { clock_offset_s: joined.clock_offset_s });
    let pem = file.clone();
    Ok(Membership { credential: joined.credential, room: joined.room, pem, file, at: joined.at, new })
}

/// The place of the only room that announces itself on the local network; `None` if none does.
pub async fn announced(ui: Ui) -> Result<Option<(Host, u16)>> {
    let found = find(BROWSE).await.unwrap_or_else(|error| {
        tracing::info!("cannot look for rooms on the local network: {error}");
        Vec::new()
    });
    match &found[..] {
        [] => Ok(None),
        [only] => {
            let at = only.at.0.with_port(only.at.1);
            ui.note(format_args!(
                "this machine is in no room; it asks room {} at {at}, which announces itself",
                only.room
            ));
            Ok(Some(only.at.clone()))
        }
        several => {
            let rooms: Vec<_> =
                several.iter().map(|found| format!("{} at {}", found.room, found.at.0.with_port(found.at.1))).collect();
            Err(Failure::misused(format!(
                "several rooms announce themselves ({}); name one: --room {}",
                rooms.join(", "),
                several[0].at.0.with_port(several[0].at.1)
            )))
        }
    }
}

/// Asks the person at this machine whether the examiner typed the code, and it was accepted.
async fn confirm(room: &str) -> Result<()> {
    const HOW: &str = "for roles other than node, a person must confirm at a terminal; use an invitation instead (cheetah \
                       room invite)";
    if !std::io::stdin().is_terminal() {
        return Err(Failure::misused(HOW));
    }
    crate::ui::stderr::line(format_args!(
        "Did cheetah room approve accept this code on the machine of room {room}? Type yes, or anything else to stop:"
    ));
    let answer = tokio::task::spawn_blocking(|| {
        let mut line = String::new();
        std::io::stdin().lock().read_line(&mut line).map(|_| line)
    });
    let line = answer.await.context("asking was interrupted")?.context("cannot read the answer")?;
    if line.trim() == "yes" {
        return Ok(());
    }
    Err(Failure::failed("not confirmed: the credential is not used; revoke the member on the room's machine"))
}
