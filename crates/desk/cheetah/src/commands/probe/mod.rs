//! `cheetah probe`: the path to a host, before anything is acquired over it.

mod options;
mod path;
mod problems;
mod send;
mod show;

use std::net::{IpAddr, Ipv6Addr};

use cheetah_probe::schedule::Pattern;

use self::options::{Family, PacketArgs};
use crate::desk::Desk;
use crate::failure::{Failure, Result};
use crate::signals::Stop;
use crate::ui::Ui;

/// The arguments of `probe`.
#[derive(Debug, clap::Args)]
#[command(about = "Measure the path to a host and advise on acquiring over it")]
#[command(
    long_about = "Measures the path to a host: round trips, the capacity of its narrowest link, the bandwidth available \
on it, the largest packet it carries, and the routers on the way. Then estimates the time that a disk takes over it, and \
advises whether to compress, and which number of connections, window and prefetch to use.

The host need not cooperate. With a node or an agent on it, the capacity in each direction and the throughput of TCP are \
measured, too. Packets are sent to that host's address only, and their number is limited.

Precise packet timing needs raw sockets (root, or setcap cap_net_raw,cap_sys_nice,cap_ipc_lock+ep on the program). Without \
them, round trips, and the path to a node or an agent, are still measured.

--send measures only how well packets keep their schedule.

  cheetah probe 10.0.0.7 --disk 4TiB
  cheetah probe 10.0.0.7 --json > path.json
  cheetah acquire nbd://10.0.0.7/sda case42.E01 --tune path.json
  cheetah probe 10.0.0.7 --send train:50@242us --repeat 20"
)]
pub struct Args {
    /// The host: a name or an address
    host: String,

    /// Send packets to a UDP port on a schedule, and report how well they kept it: single, pair:GAP, train:N@GAP,
    /// gaps:G1,G2,… or at:T1,T2,…, with times as in 10us, 1.5ms, 0
    #[arg(long, value_name = "PATTERN")]
    send: Option<Pattern>,

    #[command(flatten)]
    path: path::PathArgs,

    #[command(flatten)]
    sending: send::SendArgs,

    #[command(flatten)]
    packets: PacketArgs,
}

/// Runs it.
pub async fn run(args: Args, desk: &Desk, ui: Ui) -> Result<()> {
    let mut stop = Stop::catch()?;
    let address = tokio::select! {
        address = resolve(&args.host, args.packets.family()) => address?,
        signal = stop.asked() => return Err(Failure::failed(format!("stopped by {signal} before anything was sent"))),
    };
    match args.send {
        Some(pattern) => send::run(&args.host, address, pattern, args.sending, &args.packets, &mut stop, ui).await,
        None => path::run((&args.host, address), args.path, &args.packets, desk, &mut stop, ui).await,
    }
}

/// The host's first address of the family that is wanted.
async fn resolve(host: &str, family: Family) -> Result<IpAddr> {
    let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
    if let Some((name, port)) = bare.rsplit_once(':')
        && port.parse::<u16>().is_ok()
        && bare.parse::<Ipv6Addr>().is_err()
    {
        return Err(Failure::misused(format!("name the host without a port: cheetah probe {name}")));
    }
    let unknown = |error| {
        tracing::debug!("looking up {bare}: {error}");
        Failure::failed(format!("no address is known for {host}; check the name, or name its IP address"))
    };
    let addresses: Vec<_> = tokio::net::lookup_host((bare, 0)).await.map_err(unknown)?.collect();
    // Such an address is ambiguous without the name of its link, which the sender does not receive.
    let (local, rest): (Vec<_>, Vec<_>) =
        addresses.iter().map(|address| address.ip().to_canonical()).partition(is_link_local);
    let wanted = rest.into_iter().find(|address| match family {
        Family::Any => true,
        Family::V4 => address.is_ipv4(),
        Family::V6 => address.is_ipv6(),
    });
    if let (None, Some(address)) = (wanted, local.first()) {
        return Err(Failure::misused(format!(
            "{address} is valid on one link only, and probes are not sent to such addresses: name another address of \
             the host, e.g. its IPv4 address"
        )));
    }
    wanted.ok_or_else(|| Failure::misused(format!("{host} has no {family} address; leave -4 and -6 away")))
}

/// RFC 4291 section 2.5.6. Those of IPv4 (RFC 3927) are routed like any other.
const fn is_link_local(address: &IpAddr) -> bool {
    matches!(address, IpAddr::V6(address) if address.is_unicast_link_local())
}
