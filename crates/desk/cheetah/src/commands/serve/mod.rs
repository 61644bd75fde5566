//! `cheetah serve`: serves a disk of this machine to an examiner, read-only.

mod list;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use axum::Extension;
use axum::middleware::from_fn;
use cheetah_acquire::agent::{Agent, AgentConfig, CpuMax, Protection};
use cheetah_control::http::{self, Ends};
use cheetah_control::revoked;
use cheetah_device::{Size, os_error};
use cheetah_probe::far::{Caller, FarConfig, router};
use cheetah_room::client::MachineInfo;
use cheetah_room::machine::{host_name, own_addresses};
use cheetah_room::resolve::Purpose;
use cheetah_tls::ServerTls;
use tokio::net::TcpListener;

use crate::answers::access::{self as answers, ReadOnly};
use crate::commands::compared::wrapped;
use crate::commands::options::warn_of_doubts;
use crate::desk::Desk;
use crate::failure::Result;
use crate::os::{LEAVES_NOTHING, SYSTEM};
use crate::room::{Participation, WithoutRoom, server_at};
use crate::signals::Stop;
use crate::ui::Ui;

/// The default address: NBD's own port, on loopback.
const LISTEN: &str = "127.0.0.1:10809";
/// Limits of measurements of the path to this machine. A connection takes almost no memory, and may last as long as the
/// longest train or bulk transfer, with some time to spare.
const PROBE_LIMITS: http::Limits = http::Limits { connections_max: 8, life_max: Duration::from_secs(30) };
/// How long the agent looks for what is in doubt about its disk before it serves.
const LOOK_MAX: Duration = Duration::from_secs(3);
/// Attempts to find two consecutive free ports.
const TWO_PORTS_ATTEMPTS: usize = 16;

/// The options of `serve`.
#[derive(Debug, clap::Args)]
#[command(about = "Serve a disk of this machine to be acquired, read-only")]
#[command(long_about = "Serves a disk of this machine, read-only, until it is stopped: the agent on the suspect's \
machine.

The disk is opened read-only. If nothing uses it, the agent also makes the kernel refuse writes to it. Any NBD client \
can read it; to cheetah acquire, the agent also sends compressed data and digests that it computes at the source.

If the examiner cannot reach this machine, use --connect: the agent then connects to the examiner's acquire --listen, \
and reconnects until it is stopped.

--list names the disks of this machine instead: size, model, serial number, what uses them, and their volumes; encrypted \
ones with the identifiers by which their keys can be asked for.

  cheetah serve --list
  cheetah serve /dev/sda --listen 192.168.1.9:10809 --room STRING
  cheetah serve /dev/sda --connect examiner:10809 --room STRING
  cheetah serve /dev/sda --connect examiner:10809 --room STRING \\
      --cpu-max low --rate-max 2MiB
  cheetah serve \\\\.\\PhysicalDrive0 --connect examiner:10809 --room STRING")]
pub struct Args {
    /// The disk or image to serve
    #[arg(required_unless_present = "list")]
    device: Option<PathBuf>,

    /// List the disks of this machine, and serve none
    #[arg(long, conflicts_with = "device")]
    list: bool,

    /// Address at which to listen [default: 127.0.0.1:10809, or none with --connect]
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = crate::commands::listen::address)]
    listen: Option<SocketAddr>,

    /// Connect to the examiner's machine, where acquire --listen waits
    #[arg(long, value_name = "HOST:PORT")]
    connect: Option<String>,

    /// Use no room: connections are neither encrypted nor authenticated, and anyone on the path can read the disk
    #[arg(long)]
    insecure: bool,

    /// Keep a new credential in locked memory only; the default on Windows
    #[arg(long, overrides_with = "no_ephemeral")]
    ephemeral: bool,

    /// Keep a new credential in a file, also on Windows
    #[arg(long)]
    no_ephemeral: bool,

    /// Name of the export [default: the file's name]
    #[arg(long, default_value = "", hide_default_value = true)]
    name: String,

    /// Maximum number of bytes sent per second
    #[arg(long, value_name = "SIZE", value_parser = rate)]
    rate_max: Option<Size>,

    /// Limit of processor time for compression: a percentage of all processors, or 'low': one thread at idle priority
    #[arg(long, value_name = "PERCENT|low", value_parser = str::parse::<CpuMax>)]
    cpu_max: Option<CpuMax>,

    /// Maximum number of connections
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u8).range(1..=16))]
    connections_max: u8,

    /// Do not make the kernel refuse writes to the disk
    #[arg(long)]
    no_setro: bool,

    /// Do not cooperate with cheetah probe, which uses the port after the NBD port. (With --rate-max, the agent sends no
    /// test traffic, only answers)
    #[arg(long)]
    no_probe: bool,
}

impl Args {
    /// The agent's part in a room, which a list has not.
    pub fn participation(&self) -> Option<Participation> {
        if self.list {
            return None;
        }
        let machine = MachineInfo { name: host_name(), hosts: own_addresses() };
        Some(Participation {
            purpose: Purpose::Agent,
            ephemeral: self.ephemeral || LEAVES_NOTHING && !self.no_ephemeral,
            machine,
            without_room: WithoutRoom::Proceed,
        })
    }
}

/// Parses a rate in bytes per second.
fn rate(text: &str) -> Result<Size, String> {
    match text.strip_suffix("/s").unwrap_or(text).parse::<Size>() {
        Ok(size) if size.0 >= 1024 => Ok(size),
        Ok(_) => Err("at least 1KiB per second, or clients time out".into()),
        Err(error) => Err(error.to_string()),
    }
}

/// Runs the command.
pub async fn run(args: Args, desk: &Desk, ui: Ui) -> Result<()> {
    let mut stop = Stop::catch()?;
    let Some(device) = &args.device else { return list::run(desk, &mut stop, ui).await };
    let by_default = || args.connect.is_none().then(|| LISTEN.parse().ok()).flatten();
    let mut listen = args.listen.or_else(by_default);
    let mut probe = None;
    if let Some(any) =
        listen.filter(|at| at.port() == 0 && !args.no_probe && desk.credentials.server(*at, args.insecure).is_ok())
    {
        (listen, probe) = two_ports(any).await.map_or((listen, None), |(clients, next)| (Some(clients), Some(next)));
    }
    let config = AgentConfig {
        name: args.name,
        listen,
        credential: desk.credentials.acting_as().cloned(),
        insecure: args.insecure,
        connections_max: args.connections_max.into(),
        rate_max: args.rate_max.map(|size| size.0),
        cpu_max: args.cpu_max.unwrap_or_default(),
        protect: !args.no_setro,
        connect: args.connect.clone(),
        ..AgentConfig::new(device)
    };
    let probe_tls = match probe.as_ref().and_then(|listener| listener.local_addr().ok()).or(listen) {
        Some(address) => desk.credentials.server(address, args.insecure).map_err(cheetah_control::exposed)?,
        None => None,
    };
    let agent = Agent::start(config).await?;
    if let Some(address) = agent.address().filter(|_| probe.is_none() && !args.no_probe) {
        probe = probe_listener(address, ui).await;
    }
    let far = FarConfig { name: agent.name().to_owned(), sends: args.rate_max.is_none() };
    let probe_address = probe.as_ref().and_then(|listener| listener.local_addr().ok());
    say_ready(&agent, args.connect.as_deref(), probe_address, ui);
    warn_of_doubts(&agent.doubts(LOOK_MAX).await, ui);
    if let (Some(address), Some(_), Some(upkeep)) = (agent.address(), &probe_tls, &desk.upkeep) {
        upkeep.report_server(server_at(agent.name().to_owned(), address, probe_address.map(|address| address.port())));
    }
    tokio::select! {
        never = agent.run() => match never {},
        never = serve_probes(probe, (probe_tls, desk), far) => match never {},
        signal = stop.asked() => {
            tracing::info!("{signal}: no longer serving");
            if let Some(upkeep) = &desk.upkeep {
                upkeep.server_ended().await;
            }
            Ok(())
        }
    }
}

/// Returns an address with a free port for clients, and a listener at the port after it.
async fn two_ports(any: SocketAddr) -> Option<(SocketAddr, TcpListener)> {
    for _ in 0..TWO_PORTS_ATTEMPTS {
        let next = TcpListener::bind(any).await.ok()?;
        let clients = SocketAddr::new(any.ip(), next.local_addr().ok()?.port().checked_sub(1)?);
        if TcpListener::bind(clients).await.is_ok() {
            return Some((clients, next));
        }
    }
    None
}

/// Listens at the port after the one for clients, which `cheetah probe` uses. If it is taken, the disk is served without
/// it.
async fn probe_listener(clients: SocketAddr, ui: Ui) -> Option<TcpListener> {
    let next = SocketAddr::new(clients.ip(), clients.port().checked_add(1)?);
    match TcpListener::bind(next).await {
        Ok(listener) => Some(listener),
        Err(error) => {
            let error = os_error::describe(&error);
            ui.warn(format_args!(
                "cheetah probe cannot measure the path to this agent: cannot listen on {next}: {error}"
            ));
            None
        }
    }
}

/// Cooperates with measurements, if there is a listener for them.
async fn serve_probes(
    listener: Option<TcpListener>,
    (tls, desk): (Option<ServerTls>, &Desk),
    far: FarConfig,
) -> Infallible {
    match listener {
        Some(listener) => {
            let revoked = revoked::router(desk.credentials.acting_as().filter(|_| tls.is_some()).cloned());
            let router = router(far).layer(from_fn(http::only_readers)).merge(revoked);
            let with_caller = |Ends { peer, here }| router.clone().layer(Extension(Caller { peer, here }));
            http::serve(listener, PROBE_LIMITS, tls, with_caller).await
        }
        None => std::future::pending().await,
    }
}

fn say_ready(agent: &Agent, connect: Option<&str>, probe: Option<SocketAddr>, ui: Ui) {
    let (identity, name) = (agent.identity(), agent.name());
    let uri = agent.address().map(|address| format!("nbd://{address}/{name}"));
    let value = answers::Serve::Ready {
        connect,
        identity,
        name,
        probe,
        read_only: state(agent.protection()).0,
        size_bytes: identity.size,
        uri: uri.as_deref(),
    };
    let disk: Vec<&str> = [&identity.model, &identity.serial].into_iter().flatten().map(String::as_str).collect();
    let disk = if disk.is_empty() { String::new() } else { format!(" ({})", disk.join(", serial ")) };
    let places = [
        uri.as_ref().map(|uri| format!("at {uri}")),
        connect.map(|examiner| format!("to {examiner}, to which it connects")),
    ];
    let places: Vec<_> = places.into_iter().flatten().collect();
    let (location, size) = (&identity.location, Size(identity.size));
    ui.answer(
        format_args!(
            "{}\n{}",
            wrapped(&format!("{location}{disk}, {size}, is served read-only {}", places.join(" and ")), 0),
            wrapped(&format!("writes by this machine: {}", state(agent.protection()).1), 0)
        ),
        &value,
    );
}

/// Whether the kernel refuses writes to the disk: a word for programs, and a sentence for people.
fn state(protection: &Protection) -> (ReadOnly, String) {
    match protection {
        Protection::Found => (ReadOnly::Found, format!("refused by {SYSTEM}: the disk was read-only already")),
        Protection::Set => {
            (ReadOnly::Set, format!("refused by {SYSTEM} from now on (blockdev --setrw permits them again)"))
        }
        Protection::Not(why) => (ReadOnly::NotSet, format!("not refused by {SYSTEM}: {why}")),
    }
}
