//! `cheetah room pending` and `room approve`: machines without an invitation.

use cheetah_error::Error;
use cheetah_kit::clock::now_s;
use cheetah_room::pending::Code;
use cheetah_tls::Role;

use crate::answers::room::{Approve, Pending, PendingMachine};
use crate::failure::{Failure, Result};
use crate::ui::Ui;
use crate::ui::table::table;

/// The options of `room pending`.
#[derive(Debug, clap::Args)]
#[command(about = "List the machines that ask to join")]
#[command(
    long_about = "Lists the machines that ask to join without an invitation, with their codes. A machine waits for at \
most ten minutes. Approve a machine by the code on its own screen.

  cheetah room pending"
)]
pub struct PendingArgs {}

/// The options of `room approve`.
#[derive(Debug, clap::Args)]
#[command(about = "Let in a machine that shows a code")]
#[command(
    long_about = "Lets in a machine that asks to join without an invitation. Type the code that the machine itself \
shows, not the one that cheetah room pending lists: if they differ, another machine intercepts the connection.

  cheetah room approve 1234-5678 --role node"
)]
pub struct Args {
    /// The code on the machine's screen
    code: String,

    /// Role: node, trusted-node, agent, analyst or examiner; the one that the machine asks for
    #[arg(long, value_parser = super::role)]
    role: Role,
}

/// Lists the machines that wait.
pub fn pending(_: &PendingArgs, room: Option<&str>, ui: Ui) -> Result<()> {
    let room = super::open(room)?;
    if room.serving()?.is_none() {
        ui.note("no process lets machines in; to start one: cheetah room serve");
    }
    let (pending, now) = (room.pending()?, now_s());
    let mut rows = table(&["code", "name", "role", "address", "waits"]);
    let mut values = Vec::new();
    for place in pending.waiting(now) {
        let code = place.code.map(|code| code.to_string()).unwrap_or_default();
        let waits_s = now.saturating_sub(place.began);
        rows.add_row([
            code.clone(),
            place.name.clone(),
            place.role.to_string(),
            place.address.clone(),
            super::shown_seconds(waits_s),
        ]);
        let (address, name, role) = (place.address.as_str(), place.name.as_str(), place.role.name());
        values.push(PendingMachine { address, code, name, role, waits_s });
    }
    let text = if values.is_empty() { "no machine asks to join".to_owned() } else { rows.to_string() };
    ui.answer(text, &Pending { pending: values, room: room.name() });
    Ok(())
}

/// Runs `room approve`.
pub fn run(args: &Args, room: Option<&str>, ui: Ui) -> Result<()> {
    let room = super::open(room)?;
    let code = Code::parse(&args.code)
        .ok_or_else(|| Failure::misused(format!("'{}' is not a code; type its 8 digits", args.code)))?;
    let place = room.change_pending(|pending| {
        pending.approve(code, args.role, now_s()).map_err(|error| Error::failed(error.to_string()).next(error.next()))
    })?;
    let value = Approve { address: &place.address, name: &place.name, role: place.role.name(), room: room.name() };
    ui.answer(format_args!("{} at {} is let in as {}", place.name, place.address, place.role), &value);
    if room.serving()?.is_none() {
        ui.warn("no process lets machines in, so the machine waits on; run: cheetah room serve");
    }
    Ok(())
}
