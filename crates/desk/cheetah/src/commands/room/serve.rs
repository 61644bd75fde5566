//! `cheetah room serve`: lets machines in.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use cheetah_device::os_error;
use cheetah_kit::clock::now_s;
use cheetah_room::announce::announce;
use cheetah_room::machine::PORT;
use cheetah_room::server::{CLOCK_TOLERANCE_S, Event, serve};
use cheetah_room::{Room, Serving};
use cheetah_words::sentence;
use tokio::net::TcpListener;
use tokio::time::sleep;

use crate::answers::room as answers;
use crate::failure::{Failure, Result};
use crate::os;
use crate::signals::Stop;
use crate::ui::Ui;

/// Ports that are tried if the default one is taken.
const PORTS_TRIED: u16 = 16;
/// How often a detached server checks whether it is still needed.
const IDLE_CHECK: Duration = Duration::from_secs(5);
/// Attempts to claim the room: another process may ask at that moment whether it is served.
const CLAIM_ATTEMPTS: usize = 20;
const CLAIM_PAUSE: Duration = Duration::from_millis(25);

/// The options of `room serve`.
#[derive(Debug, clap::Args)]
#[command(about = "Let machines in, until it is stopped")]
#[command(
    long_about = "Lets machines in: those with an invitation at once, others when you approve their code. Machines \
that have joined work without it. cheetah room invite starts it in the background by itself; run it yourself to watch \
who joins, or to let machines in without an invitation.

  cheetah room serve
  cheetah room serve --listen 192.168.1.5:10812"
)]
pub struct Args {
    /// Address at which to listen [default: every address, port 10812]
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = crate::commands::listen::address)]
    listen: Option<SocketAddr>,

    /// Announce the room by mDNS, for machines without an invitation; the default if it listens beyond loopback
    #[arg(long, overrides_with = "no_announce")]
    announce: bool,

    /// Do not announce the room
    #[arg(long)]
    no_announce: bool,

    /// Leave the terminal, and end when no invitation is open
    #[arg(long, hide = true)]
    detached: bool,
}

/// Runs the command.
pub async fn run(args: Args, room: Option<&str>, ui: Ui) -> Result<()> {
    let mut stop = Stop::catch()?;
    let room = super::open(room)?;
    if args.detached {
        // Fails only if it leads a session already.
        let _ = os::leave_terminal();
    }
    let Some(_claim) = claim(&room).await? else {
        let at = room.last_serving()?.map_or_else(String::new, |it| format!(" (process {}, port {})", it.pid, it.port));
        return Err(Failure::misused(format!("another process lets machines in to room {} already{at}", room.name())));
    };
    let last = room.last_serving()?.map(|serving| serving.port);
    room.clear_serving()?;
    let listener = listen(args.listen, last).await?;
    let at = listener.local_addr().map_err(|error| Failure::failed(os_error::describe(&error)))?;
    room.set_serving(&Serving { pid: std::process::id(), port: at.port(), address: at.ip() })?;
    let name = room.name().to_owned();
    let value = answers::Serve::Ready { key_sha256: room.key().to_string(), listen: at, room: &name };
    ui.answer(format_args!("room {name} lets machines in at {at}"), &value);
    let watched = Room::open(&name)?;
    let announced = args.announce || !(args.no_announce || at.ip().is_loopback());
    let _announcement = announced.then(|| announce(&room, at)).transpose().unwrap_or_else(|error| {
        ui.warn(format_args!("the room is not announced on the local network: {}", sentence(&error)));
        None
    });
    tokio::select! {
        result = serve(listener, room, move |event| report(&event, ui)) => match result? {},
        () = until_idle(&watched), if args.detached => Ok(()),
        signal = stop.asked() => {
            tracing::info!("{signal}: no longer letting machines in");
            Ok(())
        }
    }
}

async fn claim(room: &Room) -> Result<Option<cheetah_room::directory::Lock>> {
    for _ in 0..CLAIM_ATTEMPTS {
        if let Some(claim) = room.claim_serving()? {
            return Ok(Some(claim));
        }
        sleep(CLAIM_PAUSE).await;
    }
    Ok(None)
}

/// Waits until no invitation is open and no machine waits.
async fn until_idle(room: &Room) {
    loop {
        sleep(IDLE_CHECK).await;
        let open = room.register().map_or(true, |register| register.is_open(now_s()));
        if !open && room.pending().map_or(true, |pending| pending.is_empty(now_s())) {
            return;
        }
    }
}

/// Listens at an address. Without one, listens on every address, if possible at the previous port, which invitations
/// contain.
async fn listen(address: Option<SocketAddr>, last: Option<u16>) -> Result<TcpListener> {
    let failed = |at: SocketAddr, error: &std::io::Error| {
        Failure::failed(format!(
            "cannot listen on {at}: {}; choose another address with --listen",
            os_error::describe(error)
        ))
    };
    if let Some(address) = address {
        return TcpListener::bind(address).await.map_err(|error| failed(address, &error));
    }
    let ports = last.into_iter().chain((0..PORTS_TRIED).map(|more| PORT + more));
    let mut why = None;
    for port in ports {
        // Both families; or IPv4 alone on a machine without IPv6.
        for any in [IpAddr::V6(Ipv6Addr::UNSPECIFIED), IpAddr::V4(Ipv4Addr::UNSPECIFIED)] {
            let at = SocketAddr::new(any, port);
            match TcpListener::bind(at).await {
                Ok(listener) => return Ok(listener),
                Err(error) => why = Some(failed(at, &error)),
            }
        }
    }
    Err(why.unwrap_or_else(|| Failure::failed("no port is free; choose an address with --listen")))
}

fn report(event: &Event, ui: Ui) {
    match event {
        Event::Joined { member, clock_offset_s } => {
            let value = answers::Serve::Joined {
                clock_offset_s: *clock_offset_s,
                key_sha256: member.key.to_string(),
                name: &member.name,
                role: member.role.name(),
            };
            ui.event(format_args!("{} joined as {} (key {})", member.name, member.role, member.key), &value);
            if clock_offset_s.unsigned_abs() > CLOCK_TOLERANCE_S {
                ui.warn(format_args!(
                    "the clock of {} differs by {clock_offset_s} s from this machine's; set it, or dates in its records are \
                     wrong",
                    member.name
                ));
            }
        }
        Event::Waiting { name, role, address, code } => {
            let value = answers::Serve::Waiting { address, code, name, role: role.name() };
            let text = format!(
                "{name} at {address} asks to join as {role} and shows {code}; if its screen shows the same: cheetah room \
                 approve {code} --role {role}"
            );
            ui.event(text, &value);
        }
        Event::Refused { address, why, next } => {
            let why = cheetah_words::with(why, next);
            ui.event(format_args!("refused {address}: {why}"), &answers::Serve::Refused { address, why: &why });
        }
    }
}
