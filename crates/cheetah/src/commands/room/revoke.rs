//! `cheetah room revoke`: ends a membership.

use cheetah_error::list;
use cheetah_room::place::now;
use serde_json::json;

use crate::failure::{Failure, Result};
use crate::ui::Ui;

/// The options of `room revoke`.
#[derive(Debug, clap::Args)]
#[command(about = "End the membership of machines, or close invitations")]
#[command(
    long_about = "Ends the membership of machines, for good. Also closes the invitations that let them in, since they \
may know the string. The list of revoked certificates is sent at once to the nodes and agents that can be reached; \
the others get it from the room's machine while that machine lets machines in, or from the next examiner that connects \
to them. With the id of an invitation, the command closes only that invitation.

  cheetah room revoke lab-7"
)]
pub struct Args {
    /// Names of members, or ids of open invitations, as cheetah room list shows them
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,
}

/// Runs the command.
pub async fn run(args: &Args, room: Option<&str>, ui: Ui) -> Result<()> {
    let room = super::open(room)?;
    let register = room.register()?;
    let (names, ids): (Vec<_>, Vec<_>) =
        args.names.iter().map(String::as_str).partition(|name| register.member(name).is_some());
    let is_open = |id: &str| register.invitations().iter().any(|open| open.id == id && open.is_open(now()));
    if let Some(unknown) = ids.iter().find(|id| !is_open(id)) {
        return Err(Failure::misused(format!(
            "room {} has no member '{unknown}', and no open invitation of that id; see cheetah room list",
            room.name()
        )));
    }
    let closed_with_members = room.change(|register| {
        for id in &ids {
            register.close(id, now());
        }
        Ok(register.revoke(&names, now()))
    })?;
    let closed: Vec<&str> = ids.iter().copied().chain(closed_with_members.iter().map(String::as_str)).collect();
    if names.is_empty() {
        let value =
            json!({ "room": room.name(), "revoked": [], "closed_invitations": closed, "told": [], "not_told": [] });
        ui.answer(format!("closed: invitation {}", list(&ids)), &value);
        return Ok(());
    }
    let told = crate::room::tell_servers(&room).await?;
    let mut text = format!("revoked: {}", list(&names));
    if !ids.is_empty() {
        text.push_str(&format!("\nclosed: invitation {}", list(&ids)));
    }
    for id in &closed_with_members {
        text.push_str(&format!(
            "\nclosed invitation {id}, which let one of them in; make a new one: cheetah room invite"
        ));
    }
    text.push_str(&format!(
        "\nservers told: {}",
        if told.reached.is_empty() { "none".into() } else { list(&told.reached) }
    ));
    for (server, why) in &told.missed {
        text.push_str(&format!("\nnot told: {server} ({why}); it accepts the revoked until an examiner calls it"));
    }
    let known_otherwise = "it knows of other revoked certificates than this room";
    let missed = told.missed.iter().map(|(node, why)| json!({ "node": node, "why": why }));
    let refused = told.refused.iter().map(|node| json!({ "node": node, "why": known_otherwise }));
    let not_told: Vec<_> = missed.chain(refused).collect();
    let value = json!({
        "room": room.name(), "revoked": names, "closed_invitations": closed, "told": told.reached, "not_told": not_told,
    });
    ui.answer(text, &value);
    if told.refused.is_empty() {
        return Ok(());
    }
    Err(Failure::failed(format!(
        "not told: {}: {known_otherwise}, as after the room's folder was restored from a backup; revoke again each member \
         that was revoked since the backup",
        list(&told.refused)
    )))
}
