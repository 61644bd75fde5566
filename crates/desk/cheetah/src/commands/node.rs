//! `cheetah node`: lends this machine's memory.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;
use std::time::Duration;

use cheetah_control::api::{Draining, NodeReceipt};
use cheetah_device::Size;
use cheetah_nbd::uri::PORT as NBD_PORT;
use cheetah_node::spare::{self, Use};
use cheetah_node::{LENT_BYTES_MAX, LENT_BYTES_MIN, Node, NodeConfig};
use cheetah_room::Host;
use cheetah_room::client::MachineInfo;
use cheetah_room::invitation::parse_host_port;
use cheetah_room::machine::{PORT, host_name, own_addresses};
use cheetah_room::resolve::Purpose;
use tokio::time::{sleep, timeout};

use super::compared::wrapped;
use crate::answers::access::Transport;
use crate::answers::node as answers;
use crate::desk::Desk;
use crate::failure::{Failure, Result};
use crate::os::{self, LOCK_MORE};
use crate::room::{Participation, WithoutRoom, server_at};
use crate::signals::Stop;
use crate::ui::Ui;

/// The interval of looks at a node that is draining.
const DRAIN_LOOK: Duration = Duration::from_millis(200);

/// The memory that a machine keeps available to other programs, unless it has less than four times as much.
const KEEP_FREE_DEFAULT: u64 = 2 << 30;

/// The least that a machine keeps available: programs fill more than this between two looks at the machine.
const KEEP_FREE_MIN: u64 = 64 << 20;

/// The options of `node`.
#[derive(Debug, clap::Args)]
#[command(about = "Lend this machine's memory")]
#[command(long_about = "Lends this machine's memory, until it is stopped (Ctrl-C, SIGTERM).

The memory is locked and kept out of core dumps. It is wiped when a drive is destroyed and when the node stops. The \
node then reads it back, and prints a receipt that says whether it was zero. A restarted node is empty, and drives \
refuse it.

In a room, the node is a member: it joins with the string of cheetah room invite, and keeps its credential. All \
connections are encrypted, and only examiners and analysts of the room can use it.

Without a string, on a machine that knows no room, the node looks for a room that announces itself on the local \
network, or asks the machine that --room HOST:PORT or --join names. It shows a code, and waits until cheetah room approve \
lets it in. If no room is found, it listens on loopback only.

  cheetah node --memory 12GiB --room STRING
  cheetah node --memory 12GiB --room lab
  cheetah node --memory 12GiB --room examiner:10812
  cheetah node --memory 12GiB --room STRING --join examiner:10811

With --memory auto, the node lends what is idle on a machine that people work at, and follows it: it always keeps \
--keep-free available to other programs. When they need memory, the node lends less, has drives with redundancy move \
parts to other nodes, and at last drops parts, which are lost. It lends again when there is room.

  cheetah node --memory auto --keep-free 2GiB --room STRING

With --scan, examiners can have the node work on what it holds (jobs), so that it need not cross the network. The work is done \
when a processor has nothing else to do.

With --drain, a node that is asked to stop first lets drives with redundancy move their parts to other nodes, as \
cheetah drain does.

  cheetah node --memory 12GiB --room STRING --drain 300")]
pub struct Args {
    /// Amount of memory to lend; 'max' lends almost all, on a machine that runs nothing else; 'auto' lends what is idle
    #[arg(long, value_name = "SIZE|max|auto")]
    memory: Memory,

    /// With --memory auto: the memory that stays available to other programs [default: 2GiB, at most a quarter]
    #[arg(long, value_name = "SIZE")]
    keep_free: Option<Size>,

    /// Address for drives (NBD) [default: every address in a room, or 127.0.0.1 without one; port 10809]
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = crate::commands::listen::address)]
    listen: Option<SocketAddr>,

    /// Address for control and metrics (HTTP) [default: the port after the one for drives]
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = crate::commands::listen::address)]
    http: Option<SocketAddr>,

    /// Offer the memory to cheetah create --wait at this address, until it is accepted; repeatable
    #[arg(long, value_name = "EXAMINER:PORT")]
    join: Vec<String>,

    /// Name of this node [default: the host's name]
    #[arg(long, default_value = "", hide_default_value = true)]
    name: String,

    /// Announce the node by mDNS, for --nodes auto; the default if it listens beyond loopback
    #[arg(long, overrides_with = "no_announce")]
    announce: bool,

    /// Do not announce the node
    #[arg(long)]
    no_announce: bool,

    /// Keep a new credential in locked memory only, as a machine without a disk does
    #[arg(long)]
    ephemeral: bool,

    /// Use no room: connections are neither encrypted nor authenticated, and anyone who reaches the port can read and
    /// write
    #[arg(long)]
    insecure: bool,

    /// When asked to stop, first let drives move their parts to other nodes, for at most this long; a second signal ends
    /// that
    #[arg(long, value_name = "SECONDS")]
    drain: Option<u32>,

    /// Also lend the processor: work on jobs of examiners when it has nothing else to do, on every processor and with pauses while
    /// other programs wait for one ('idle'), or with this number of threads
    #[arg(long, value_name = "idle|THREADS")]
    scan: Option<Scan>,

    /// Do not cooperate with cheetah probe
    #[arg(long)]
    no_probe: bool,
}

/// How much to lend.
#[derive(Debug, Clone, Copy)]
enum Memory {
    Bytes(u64),
    Max,
    Auto,
}

impl FromStr for Memory {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        match text {
            "max" => Ok(Self::Max),
            "auto" => Ok(Self::Auto),
            _ => text
                .parse::<Size>()
                .map(|size| Self::Bytes(size.0))
                .map_err(|error| format!("{error}, 'max' or 'auto'")),
        }
    }
}

/// How much of the processor to lend.
#[derive(Debug, Clone, Copy)]
struct Scan(cheetah_node::Scan);

impl FromStr for Scan {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        match text {
            "idle" => Ok(Self(cheetah_node::Scan::idle())),
            _ => match text.parse() {
                Ok(threads) => Ok(Self(cheetah_node::Scan::with(threads))),
                Err(_) => Err("say 'idle', or a number of threads".to_owned()),
            },
        }
    }
}

impl Memory {
    /// The most bytes to lend, and the bytes that the machine keeps available if the node follows it.
    fn amount(self, keep_free: Option<Size>, searches: bool) -> Result<(u64, Option<u64>)> {
        let unknown =
            || Failure::failed("this system does not say how much memory is free: give the amount to lend, in bytes");
        match self {
            Self::Bytes(_) | Self::Max if keep_free.is_some() => {
                Err(Failure::misused("--keep-free is for --memory auto: any other node lends a fixed amount"))
            }
            Self::Bytes(bytes) => Ok((bytes, None)),
            Self::Max => {
                let spare = spare::spare_bytes(Use::of(true, searches)).ok_or_else(unknown)?;
                Ok((spare.min(LENT_BYTES_MAX) >> 20 << 20, None))
            }
            Self::Auto => {
                let total = cheetah_device::machine_memory::machine_memory().ok_or_else(unknown)?.total_bytes;
                let kept = keep_free.map_or((total / 4).min(KEEP_FREE_DEFAULT), |size| size.0);
                if kept < KEEP_FREE_MIN {
                    let least = Size(KEEP_FREE_MIN);
                    return Err(Failure::misused(format!(
                        "a machine that keeps less than {least} free meets its limits before the node can give memory back"
                    )));
                }
                match total.checked_sub(kept).filter(|lent| *lent >= LENT_BYTES_MIN) {
                    Some(lent_max) => Ok((lent_max.min(LENT_BYTES_MAX), Some(kept))),
                    None => Err(Failure::misused(format!(
                        "a machine with {} of memory that keeps {} free has nothing to lend: choose a smaller --keep-free",
                        Size(total),
                        Size(kept)
                    ))),
                }
            }
        }
    }
}

impl Args {
    /// The node's part in a room.
    pub fn participation(&self) -> Participation {
        let name = if self.name.is_empty() { host_name() } else { self.name.clone() };
        let machine = MachineInfo { name, hosts: own_addresses() };
        Participation { purpose: Purpose::Node, ephemeral: self.ephemeral, machine, without_room: self.without_room() }
    }
}

impl Args {
    /// What the node does on a machine without a room: a node that serves other machines asks to join one.
    fn without_room(&self) -> WithoutRoom {
        if self.insecure || self.listen.is_some_and(|listen| listen.ip().is_loopback()) {
            return WithoutRoom::Proceed;
        }
        let examiner = self.join.iter().find_map(|place| parse_host_port(place)).map(|(host, _)| host);
        let is_here = |host: &Host| match host {
            Host::Ip(address) => address.is_loopback(),
            Host::Name(name) => name == "localhost",
        };
        match examiner {
            Some(host) if !is_here(&host) => WithoutRoom::Ask(host, PORT),
            Some(_) => WithoutRoom::Proceed,
            None => WithoutRoom::Discover,
        }
    }
}

/// Runs the command.
pub async fn run(args: Args, desk: &Desk, ui: Ui) -> Result<()> {
    let mut stop = Stop::catch()?;
    let listen = args.listen.unwrap_or_else(|| listen_default(desk.credentials.acting_as().is_some()));
    let announce = args.announce || !(args.no_announce || listen.ip().is_loopback());
    let (memory_bytes, keep_free_bytes) = args.memory.amount(args.keep_free, args.scan.is_some())?;
    let config = NodeConfig {
        keep_free_bytes,
        http_listen: args.http,
        name: args.name,
        join: args.join,
        announce,
        insecure: args.insecure,
        credential: desk.credentials.acting_as().cloned(),
        probe: !args.no_probe,
        scan: args.scan.map(|scan| scan.0),
        dedicated: matches!(args.memory, Memory::Max),
        ..NodeConfig::new(memory_bytes, listen)
    };
    let node = Node::start(config).map_err(cheetah_error::Error::from)?;
    // Once the node has asked to be ended before others: the kernel takes that from no process that may not be dumped, but root's.
    if node.status().scan.is_some() {
        protect_searches(ui);
    }
    say_ready(&node, keep_free_bytes.is_some(), ui);
    if let Some(upkeep) = desk.upkeep.as_ref().filter(|_| node.has_tls()) {
        upkeep.report_server(server_at(node.status().name, node.nbd_address(), Some(node.http_address().port())));
    }
    let mut signal = stop.asked().await;
    if let Some(seconds) = args.drain {
        ui.say(format_args!("{signal}: draining for at most {seconds} s"));
        tokio::select! {
            () = drain(&node, Duration::from_secs(seconds.into()), ui) => {}
            second = stop.asked() => signal = second,
        }
    }
    ui.say(format_args!("{signal}: wiping the lent memory"));
    let receipt = node.shutdown().await;
    if let Some(upkeep) = &desk.upkeep {
        upkeep.server_ended().await;
    }
    let text = describe(&receipt);
    let value = answers::Node::Wiped { wiped: &receipt, receipt: &text };
    ui.answer(format_args!("node {}: {text}", receipt.node), &value);
    if receipt.verified_zero {
        return Ok(());
    }
    Err(Failure::failed("the memory could not be wiped in full; switch the machine off to be sure"))
}

/// Marks the node as draining, and waits until no part of a drive is left, but for at most `limit`.
async fn drain(node: &Node, limit: Duration, ui: Ui) {
    // It names no other nodes, so it is not refused.
    node.exports().set_draining(Some(Draining::default())).ok();
    let emptied = async {
        loop {
            let exports = node.status().exports;
            if exports.is_empty() {
                return Ok(());
            }
            if exports.iter().all(|export| export.lease.is_none()) {
                return Err("no process has their drives open for writing");
            }
            sleep(DRAIN_LOOK).await;
        }
    };
    let why = match timeout(limit, emptied).await {
        Ok(Ok(())) => return,
        Ok(Err(why)) => why,
        Err(_) => "they were not moved in time",
    };
    let left: Vec<String> = node.status().exports.into_iter().map(|export| export.name).collect();
    ui.warn(format_args!("these parts of drives are lost: {}; {why}", left.join(", ")));
}

/// The address to listen on: every one of the machine in a room, loopback without one.
fn listen_default(in_room: bool) -> SocketAddr {
    let any: [IpAddr; 2] = [Ipv6Addr::UNSPECIFIED.into(), Ipv4Addr::UNSPECIFIED.into()];
    // A machine without IPv6 cannot listen on both families by one address.
    let usable = any.into_iter().find(|any| std::net::TcpListener::bind((*any, 0)).is_ok());
    let address = usable.filter(|_| in_room).unwrap_or(Ipv4Addr::LOCALHOST.into());
    SocketAddr::new(address, NBD_PORT)
}

/// Keeps the words and hits of searches off disks: they are in memory of this process that is not lent, and not locked by itself.
fn protect_searches(ui: Ui) {
    if let Err(error) = cheetah_kit::process::forbid_core_dumps() {
        tracing::warn!(%error, "core dumps of this process may hold words and hits of searches");
    }
    if let Err(advice) = os::keep_from_swap() {
        ui.warn(format_args!("words and hits of searches at this node may reach a swap device: {advice}"));
    }
}

fn say_ready(node: &Node, follows: bool, ui: Ui) {
    let status = node.status();
    let (nbd, http) = (node.nbd_address(), node.http_address());
    if !status.memory.locked {
        ui.warn(format_args!("the memory is NOT LOCKED, so evidence may reach a swap device: {LOCK_MORE}"));
    }
    let lent = Size(status.memory.lent_bytes);
    let and_follows = if follows { " and follows the memory of this machine" } else { "" };
    let scheme = if node.has_tls() { "https" } else { "http" };
    let value = answers::Node::Ready {
        http,
        instance: &status.instance,
        lent_bytes: lent.0,
        locked: status.memory.locked,
        name: &status.name,
        nbd,
        transport: Transport::of(node.has_tls()),
        usable_bytes: status.memory.usable_bytes,
    };
    let ready =
        format!("node {} lends {lent}{and_follows}: drives on {nbd}, control on {scheme}://{http}", status.name);
    ui.answer(wrapped(&ready, 0), &value);
}

/// Formats the receipt as one line.
fn describe(receipt: &NodeReceipt) -> String {
    const CHUNK_BYTES: u64 = 64 << 10;
    let wiped = receipt.wiped_total_bytes;
    if wiped == 0 {
        return format!("nothing to wipe: nothing was written to the {} lent", Size(receipt.lent_bytes));
    }
    let verified = if receipt.verified_zero { "verified zero" } else { "NOT verified zero" };
    format!("wiped {} in {} chunks, {verified}", Size(wiped), wiped.div_ceil(CHUNK_BYTES))
}
