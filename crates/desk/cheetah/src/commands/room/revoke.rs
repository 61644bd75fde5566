//! `cheetah room revoke`: ends a membership.

use cheetah_error::list;
use cheetah_kit::clock::now_s;

use crate::answers::room::{NotNotified, Revoke};
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
    let is_open = |id: &str| register.invitations().iter().any(|open| open.id == id && open.is_open(now_s()));
    if let Some(unknown) = ids.iter().find(|id| !is_open(id)) {
        return Err(Failure::misused(format!(
            "room {} has no member '{unknown}', and no open invitation of that id; see cheetah room list",
            room.name()
        )));
    }
    let closed_with_members = room.change(|register| {
        for id in &ids {
            register.close(id, now_s());
        }
        Ok(register.revoke(&names, now_s()))
    })?;
    let closed: Vec<&str> = ids.iter().copied().chain(closed_with_members.iter().map(String::as_str)).collect();
    if names.is_empty() {
        let value = Revoke {
            closed_invitations: &closed,
            not_notified: Vec::new(),
            notified: &[],
            revoked: &[],
            room: room.name(),
        };
        ui.answer(format!("closed: invitation {}", list(&ids)), &value);
        return Ok(());
    }
    let answers = crate::room::notify_servers(&room).await?;
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
        "\nservers notified: {}",
        if answers.notified.is_empty() { "none".into() } else { list(&answers.notified) }
    ));
    for (why, servers) in by_reason(&answers.missed) {
        text.push_str(&format!(
            "\nnot notified: {} ({why}); until an examiner connects there, revoked members are accepted",
            list(&servers)
        ));
    }
    let known_otherwise = "it knows of other revoked certificates than this room";
    let missed = answers.missed.iter().map(|(node, why)| NotNotified { node, why });
    let refused = answers.refused.iter().map(|node| NotNotified { node, why: known_otherwise });
    let value = Revoke {
        closed_invitations: &closed,
        not_notified: missed.chain(refused).collect(),
        notified: &answers.notified,
        revoked: &names,
        room: room.name(),
    };
    ui.answer(text, &value);
    if answers.refused.is_empty() {
        return Ok(());
    }
    Err(Failure::failed(format!(
        "not notified: {}: {known_otherwise}, as after the room's folder was restored from a backup; revoke again each member \
         that was revoked since the backup",
        list(&answers.refused)
    )))
}

/// Groups the names of servers by the reason, which contains the address: several members may have had one address.
fn by_reason(missed: &[(String, String)]) -> Vec<(&str, Vec<&str>)> {
    let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
    for (name, why) in missed {
        match reasons.iter_mut().find(|(reason, _)| reason == why) {
            Some((_, names)) if names.contains(&name.as_str()) => {}
            Some((_, names)) => names.push(name),
            None => reasons.push((why, vec![name])),
        }
    }
    reasons
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_that_failed_for_one_reason_share_a_line() {
        let missed = [("a", "x: refused"), ("b", "y: refused"), ("c", "x: refused"), ("a", "x: refused")];
        let missed = missed.map(|(name, why)| (name.to_owned(), why.to_owned()));
        assert_eq!(by_reason(&missed), [("x: refused", vec!["a", "c"]), ("y: refused", vec!["b"])]);
    }
}
