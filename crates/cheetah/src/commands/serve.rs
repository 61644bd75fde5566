//! `cheetah serve`: a disk for whoever acquires it, from the machine it is in.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use axum::Extension;
use cheetah_acquire::agent::{Agent, AgentConfig, CpuMax, Protection};
use cheetah_control::http::{self, Ends};
use cheetah_device::Size;
use cheetah_probe::far::{Caller, FarConfig, router};
use serde_json::json;
use tokio::net::TcpListener;

use crate::failure::Result;
use crate::signals::Stop;
use crate::ui::Ui;

/// Where it listens unless told otherwise: NBD's own port, on loopback.
const LISTEN: &str = "127.0.0.1:10809";
/// What those who measure the way here may take: connections, which take next to no memory, each for the longest train or bulk
/// transfer there is and some time to spare.
const PROBE_LIMITS: http::Limits = http::Limits { connections_max: 8, life_max: Duration::from_secs(30) };
/// How often two free ports in a row are looked for.
const TWO_PORTS_TRIES: usize = 16;

/// What `serve` is told.
#[derive(Debug, clap::Args)]
#[command(about = "Serve a disk of this machine to be acquired, read-only")]
#[command(long_about = "Serves a disk of this machine, read-only, until it is stopped: the agent on the suspect's \
machine.

It is opened for reading only, and where nothing uses it the kernel is told to refuse writes to it. Any NBD client can \
read it; cheetah acquire also gets what it reads packed and digested here, at the source. Where the examiner cannot \
reach this machine, the agent calls: with --connect it keeps connections to the examiner's acquire --listen, and goes \
on calling until it is stopped.

  cheetah serve /dev/sda --listen 192.168.1.9:10809 --insecure
  cheetah serve /dev/sda --connect examiner:10809 --insecure
  cheetah serve /dev/sda --connect examiner:10809 --insecure \\
      --cpu-max low --rate-max 2MiB")]
pub struct Args {
    /// The disk, or an image
    device: PathBuf,

    /// Where to listen [default: 127.0.0.1:10809, unless it is to call]
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = crate::commands::listen::address)]
    listen: Option<SocketAddr>,

    /// Call the examiner, who waits there with acquire --listen
    #[arg(long, value_name = "HOST:PORT")]
    connect: Option<String>,

    /// Listen beyond loopback or call another machine, although nothing is encrypted yet: whoever is on the way can read
    #[arg(long)]
    insecure: bool,

    /// What to call the disk to clients; the file's name unless told
    #[arg(long, default_value = "", hide_default_value = true)]
    name: String,

    /// The most to send, a second
    #[arg(long, value_name = "SIZE", value_parser = rate)]
    rate_max: Option<Size>,

    /// Limit of processor time for compression: a percentage of all processors, or 'low': one thread at idle priority
    #[arg(long, value_name = "PERCENT|low", value_parser = str::parse::<CpuMax>)]
    cpu_max: Option<CpuMax>,

    /// Clients' connections served at once
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u8).range(1..=16))]
    connections_max: u8,

    /// Do not tell the kernel to refuse writes to the disk
    #[arg(long)]
    no_setro: bool,

    /// Take no part in measurements of the way here (cheetah probe), for which the port after the one for clients is
    /// listened to; with --rate-max, nothing but answers is sent there
    #[arg(long)]
    no_probe: bool,
}

/// A rate: a size that is not nothing.
fn rate(text: &str) -> Result<Size, String> {
    match text.strip_suffix("/s").unwrap_or(text).parse::<Size>() {
        Ok(size) if size.0 >= 1024 => Ok(size),
        Ok(_) => Err("at least 1KiB a second, or nothing would arrive in time".into()),
        Err(error) => Err(error.to_string()),
    }
}

/// Runs it.
pub async fn run(args: Args, ui: Ui) -> Result<()> {
    let mut stop = Stop::catch()?;
    let by_default = || args.connect.is_none().then(|| LISTEN.parse().ok()).flatten();
    let mut listen = args.listen.or_else(by_default);
    let mut probing = None;
    if let Some(any) = listen.filter(|at| at.port() == 0 && !args.no_probe && (args.insecure || at.ip().is_loopback()))
    {
        (listen, probing) = two_ports(any).await.map_or((listen, None), |(clients, next)| (Some(clients), Some(next)));
    }
    let config = AgentConfig {
        name: args.name,
        listen,
        insecure: args.insecure,
        connections_max: args.connections_max.into(),
        rate_max: args.rate_max.map(|size| size.0),
        cpu_max: args.cpu_max.unwrap_or_default(),
        protect: !args.no_setro,
        connect: args.connect.clone(),
        ..AgentConfig::new(&args.device)
    };
    let agent = Agent::start(config).await?;
    if let Some(address) = agent.address().filter(|_| probing.is_none() && !args.no_probe) {
        probing = probe_listener(address, ui).await;
    }
    let far = FarConfig { name: agent.name().to_owned(), sends: args.rate_max.is_none() };
    let probed_at = probing.as_ref().and_then(|listener| listener.local_addr().ok());
    say_ready(&agent, args.connect.as_deref(), probed_at, ui);
    tokio::select! {
        never = agent.run() => match never {},
        never = probed(probing, far) => match never {},
        signal = stop.asked() => {
            tracing::info!("{signal}: no longer serving");
            Ok(())
        }
    }
}

/// Where any port will do: one for clients that has a free one after it, and the listener there.
async fn two_ports(any: SocketAddr) -> Option<(SocketAddr, TcpListener)> {
    for _ in 0..TWO_PORTS_TRIES {
        let next = TcpListener::bind(any).await.ok()?;
        let clients = SocketAddr::new(any.ip(), next.local_addr().ok()?.port().checked_sub(1)?);
        if TcpListener::bind(clients).await.is_ok() {
            return Some((clients, next));
        }
    }
    None
}

/// Listens at the port after the one for clients, where whoever measures the way here looks. If it cannot be had, the disk is
/// served all the same.
async fn probe_listener(clients: SocketAddr, ui: Ui) -> Option<TcpListener> {
    let next = SocketAddr::new(clients.ip(), clients.port().checked_add(1)?);
    match TcpListener::bind(next).await {
        Ok(listener) => Some(listener),
        Err(error) => {
            ui.warn(format_args!("no part is taken in measurements of the way here (cheetah probe): {next}: {error}"));
            None
        }
    }
}

/// Takes part in measurements, if it is to.
async fn probed(listener: Option<TcpListener>, far: FarConfig) -> Infallible {
    match listener {
        Some(listener) => {
            let router = router(far);
            let with_caller = |Ends { peer, here }| router.clone().layer(Extension(Caller { peer, here }));
            http::serve(listener, PROBE_LIMITS, with_caller).await
        }
        None => std::future::pending().await,
    }
}

fn say_ready(agent: &Agent, connect: Option<&str>, probe: Option<SocketAddr>, ui: Ui) {
    let (identity, name) = (agent.identity(), agent.name());
    let uri = agent.address().map(|address| format!("nbd://{address}/{name}"));
    let value = json!({
        "event": "ready", "uri": uri, "connect": connect, "probe": probe, "name": name, "size_bytes": identity.size,
        "identity": identity, "read_only": state(agent.protection()).0,
    });
    let disk: Vec<&str> = [&identity.model, &identity.serial].into_iter().flatten().map(String::as_str).collect();
    let disk = if disk.is_empty() { String::new() } else { format!(" ({})", disk.join(", serial ")) };
    let places = [uri.map(|uri| format!("at {uri}")), connect.map(|examiner| format!("to {examiner}, who is called"))];
    let places: Vec<_> = places.into_iter().flatten().collect();
    let (location, size) = (&identity.location, Size(identity.size));
    ui.answer(
        format_args!(
            "{location}{disk}, {size}, is served read-only {}\nwrites by this machine: {}",
            places.join(" and "),
            state(agent.protection()).1
        ),
        &value,
    );
}

/// What keeps this machine from writing to the disk: for programs, and for people.
fn state(protection: &Protection) -> (&'static str, String) {
    match protection {
        Protection::Found => ("found", "refused by the kernel, which had it read-only already".into()),
        Protection::Set => ("set", "refused by the kernel from now on (blockdev --setrw undoes it)".into()),
        Protection::Not(why) => ("not-set", format!("not refused by the kernel: {why}")),
    }
}
