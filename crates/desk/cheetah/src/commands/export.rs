//! `cheetah export`: serves a drive or an image over NBD.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use cheetah_device::{DynDevice, Error as DeviceError, Size, os_error};
use cheetah_nbd::server::{Export, Exports, Listener, MEMORY_BYTES_USUAL, ServerConfig, SingleExport, serve};
use cheetah_source::{Access, OpenedSource};
use cheetah_tls::ServerTls;

use super::compared::wrapped;
use super::lazy;
use super::options::{AccessArgs, ShadowCopyArgs, source, warn_of};
use crate::answers::access::{self as answers, Transport};
use crate::desk::Desk;
use crate::failure::{Context, Failure, Result};
use crate::os::{self, Feature};
use crate::signals::Stop;
use crate::ui::Ui;

/// The options of `export`.
#[derive(Debug, clap::Args)]
#[command(about = "Serve a drive or an image over NBD")]
#[command(long_about = "Serves a drive or an image over NBD, until it is stopped.

Any NBD client can read it: qemu, nbd-client, nbdcopy, another Cheetah. The name of the export is the drive's name, and \
it is also the default export. It is read-only, unless --writable; --overlay keeps the clients' writes outside the \
drive. A drive created with --lazy fills while it is exported. An encrypted partition that --unlock opens is a further \
export, NAME.pN.unlocked, and so are each logical volume of LVM2, NAME.GROUP-NAME, and each array of Linux's software RAID, \
NAME.md_NAME. What is found in these is a further export, too: NAME.md_NAME.p1. --with names other disks that such volumes lie on. \
The shadow copies of NTFS volumes are listed, and --shadow-copy makes one a further export, NAME.pN.vssM.

  cheetah export case42.drive --unix /run/case42.sock
  cheetah export case42.drive --listen 127.0.0.1:10900
  qemu-img convert -f raw -O qcow2 nbd://127.0.0.1:10900/case42 case42.qcow2")]
#[command(group = clap::ArgGroup::new("place").required(true).args(["listen", "unix"]))]
pub struct Args {
    /// A drive file, an image (raw, compressed, in parts, E01, AFF4, QCOW2, VMDK, VHD, VHDX), a disk, or an nbd://,
    /// iscsi://, https:// or s3:// URI
    #[arg(value_parser = source())]
    pub source: String,

    /// Address to listen on
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = crate::commands::listen::address)]
    listen: Option<SocketAddr>,

    /// Unix socket to create
    #[arg(long, value_name = "PATH")]
    unix: Option<PathBuf>,

    /// Use no room: connections are neither encrypted nor authenticated, and anyone who reaches the port can read
    #[arg(long)]
    insecure: bool,

    #[command(flatten)]
    copies: ShadowCopyArgs,

    #[command(flatten)]
    access: AccessArgs,
}

/// Runs the command.
pub async fn run(args: Args, desk: &Desk, ui: Ui) -> Result<()> {
    let mut stop = Stop::catch()?;
    let access = Access { shadow_copies: args.copies.get(), ..args.access.get(&args.source, desk, ui).await? };
    let opened = OpenedSource::open(&args.source, &access).await?;
    warn_of(&opened, access.session.timeout, ui);
    let served = offer((&args, desk), &opened, &mut stop, ui).await;
    // The lease must be released even if serving failed.
    served.and(opened.close().await.map_err(Failure::from))
}

async fn offer((args, desk): (&Args, &Desk), opened: &OpenedSource, stop: &mut Stop, ui: Ui) -> Result<()> {
    let (listener, tls, uri) = listen(args, &opened.name, desk).await?;
    let size = Size(opened.size());
    let exports = WithInnerVolumes::of(opened)?;
    let value = answers::Export::Ready {
        filling: opened.filled().is_some(),
        name: &opened.name,
        size_bytes: size.0,
        transport: Transport::of(tls.is_some()),
        uri: &uri,
    };
    ui.answer(wrapped(&format!("{}, {size}, is served at {uri}", args.source), 0), &value);
    // The limit for all clients together, besides the read-ahead. Few links need more, and a client that waits for memory
    // loses only time.
    let config = ServerConfig { memory_bytes_max: MEMORY_BYTES_USUAL, tls, ..ServerConfig::default() };
    tokio::select! {
        never = lazy::tell(opened.filled(), &args.source, ui) => match never {},
        never = serve(listener, Arc::new(exports), config) => match never {},
        signal = stop.asked() => {
            tracing::info!("{signal}: no longer serving");
            opened.device.flush().await.context("written data may not be on the drive")
        }
    }
}

/// A source, and the volumes that were found in it.
struct WithInnerVolumes {
    source: SingleExport,
    volumes: Vec<SingleExport>,
}

impl WithInnerVolumes {
    fn of(opened: &OpenedSource) -> Result<Self> {
        let named = |(name, device): (String, DynDevice)| {
            SingleExport::described_by_name(format!("{}.{name}", opened.name), device)
        };
        let volumes = opened.inner_volumes()?.into_iter().map(named).collect();
        let source = SingleExport::described_by_name(opened.name.clone(), opened.device.clone());
        Ok(Self { source, volumes })
    }
}

impl Exports for WithInnerVolumes {
    fn list(&self) -> Vec<String> {
        std::iter::once(&self.source).chain(&self.volumes).map(|export| export.name.clone()).collect()
    }

    fn open(&self, name: &str, contexts: &[String]) -> std::result::Result<Export, DeviceError> {
        self.volumes.iter().find(|volume| volume.name == name).unwrap_or(&self.source).open(name, contexts)
    }
}

async fn listen(args: &Args, name: &str, desk: &Desk) -> Result<(Listener, Option<ServerTls>, String)> {
    if let Some(path) = &args.unix {
        os::offers(Feature::UnixSockets)?;
        let path = std::path::absolute(path).context("cannot resolve the path of the socket")?;
        let listener = Listener::unix(&path).context(format_args!("cannot create the socket {}", path.display()))?;
        return Ok((listener, None, format!("nbd+unix:///{name}?socket={}", path.display())));
    }
    let Some(address) = args.listen else { return Err(Failure::misused("give an address: --listen or --unix")) };
    let tls = desk.credentials.server(address, args.insecure).map_err(cheetah_control::exposed)?;
    let listener = Listener::tcp(address).await.map_err(|error| match error.kind() {
        std::io::ErrorKind::AddrInUse => {
            Failure::failed(format!("{address} is taken by another program: stop it, or choose another port"))
        }
        _ => Failure::failed(format!("cannot listen on {address}: {}", os_error::describe(&error))),
    })?;
    let bound = listener.tcp_address().unwrap_or(address);
    let scheme = if tls.is_some() { "nbds" } else { "nbd" };
    Ok((listener, tls, format!("{scheme}://{bound}/{name}")))
}
