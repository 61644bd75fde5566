//! `cheetah attach`: makes a block device of a drive or an image.

use std::path::PathBuf;
use std::time::Duration;

use cheetah_attach::block::{self, AttachOptions, Attachment};
use cheetah_attach::nbd::{self, Start};
#[cfg(feature = "ublk")]
use cheetah_attach::ublk;
use cheetah_device::path_text::path_to_text;
use cheetah_device::{Size, supervise};
use cheetah_error::Error;
use cheetah_image::Kind;
use cheetah_source::{Access, OpenedSource, Shown, nodes_here};
use cheetah_volume::partition::read_tables;

use super::options::{AccessArgs, source, warn_of};
use super::unlock::WhichArgs;
use super::{attached, background, lazy};
use crate::answers::access as answers;
use crate::desk::Desk;
use crate::failure::{Failure, Result};
use crate::os::{self, Feature};
use crate::signals::Stop;
use crate::ui::Ui;

/// The kernel's read-ahead, as of a mount.
const READ_AHEAD_BYTES: u32 = 1 << 20;
/// The kernel's read-ahead for a source with foresight, which itself prefetches the ranges that will be read.
const READ_AHEAD_FORESEEN_BYTES: u32 = 4096;
/// How much longer the kernel waits for an answer than twice `--timeout`.
const KERNEL_PATIENCE: Duration = Duration::from_secs(10);

/// The options of `attach`.
#[derive(Debug, clap::Args)]
#[command(about = "Make a block device of a drive or an image")]
#[command(
    long_about = "Makes a block device of a drive or an image, until it is detached: /dev/nbdN, and /dev/nbdNpM for \
each of its partitions. Needs root, and the kernel's module nbd (modprobe nbd); `cheetah mount` needs neither.

The device is read-only, unless --writable. For file systems that must be able to write, --overlay keeps their \
writes outside the drive, which does not change. If this process dies, programs that use the device wait for --grace \
seconds; the same command with --resume continues to serve them. With --unlock, the device is the encrypted volume that a \
key opens, decrypted, and not the disk; with --volume, it is the logical volume, the array or another volume of that name.

  cheetah attach case42.drive --background
  mount -o ro /dev/nbd0p1 /mnt/case42
  cheetah attach case42.drive --resume /dev/nbd0 --background
  umount /mnt/case42 && cheetah detach /dev/nbd0"
)]
pub struct Args {
    /// A drive file, an image (raw, compressed, in parts, E01, AFF4, QCOW2, VMDK, VHD, VHDX), a disk, or an nbd://,
    /// iscsi://, https:// or s3:// URI
    #[arg(value_parser = source())]
    pub source: String,

    /// The device to make [default: the first free one]
    #[arg(long, value_name = "/dev/nbdN")]
    device: Option<PathBuf>,

    /// The kernel's driver that makes the device: nbd, or ublk, which takes fewer steps and has no --resume and no --grace
    #[cfg(feature = "ublk")]
    #[arg(long, value_enum, default_value = "nbd")]
    driver: Driver,

    /// Continue to serve this device of the same source, whose process has died
    #[arg(long, value_name = "/dev/nbdN", conflicts_with_all = ["device", "overlay"])]
    resume: Option<PathBuf>,

    /// Seconds for which programs wait if this process dies, before their requests fail
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=3600))]
    grace: u64,

    /// Sector size, the unit of partition tables [default: that of the source; 512 and 4096 are tried if it is not known]
    #[arg(long, value_name = "BYTES")]
    sector_size: Option<u32>,

    #[command(flatten)]
    which: WhichArgs,

    /// Return once attached; `cheetah detach /dev/nbdN` ends it
    #[arg(long)]
    background: bool,

    /// Run as the process in the background.
    #[arg(long, hide = true, conflicts_with = "background")]
    detached: bool,

    #[command(flatten)]
    access: AccessArgs,
}

/// A driver of the kernel.
#[cfg(feature = "ublk")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Driver {
    /// The NBD client: /dev/nbdN.
    Nbd,
    /// ublk: /dev/ublkbN.
    Ublk,
}

impl Args {
    /// Prepares this process to serve a block device; before it starts threads.
    pub fn prepare(&self) {
        if !self.background
            && let Err(error) = block::prepare_thread()
        {
            tracing::warn!("the memory of this process is not locked ({error}): it may hang when memory runs out");
        }
    }
}

/// Runs the command.
pub async fn run(args: Args, desk: &Desk, ui: Ui) -> Result<()> {
    os::offers(Feature::BlockDevices)?;
    check(&args).await?;
    if args.background {
        return background::start(|answers::Attach::Ready { device, .. }| format!("attached: {device}"), ui);
    }
    let mut stop = Stop::catch()?;
    if args.detached {
        background::leave_terminal()?;
    }
    let access = args.access.get(&args.source, desk, ui).await?;
    let shown = args.which.which(access.unlock.is_some()).map_or(Shown::Source, Shown::Volume);
    let access = Access { shown, ..access };
    if access.writable {
        refuse_own_nodes(&args.source).await?;
    }
    let opened = OpenedSource::open(&args.source, &access).await?;
    warn_of(&opened, access.session.timeout, ui);
    let timeout = access.session.timeout * 2 + KERNEL_PATIENCE;
    let use_of = attached::Use::of(&access);
    let options = AttachOptions {
        writable: use_of.writes(),
        sector_bytes: sector_bytes(&args, &opened, ui).await,
        identifier: attached::identifier(
            &opened.identity,
            opened.beside(),
            opened.volume.as_ref().map(|volume| volume.name.as_str()),
            use_of,
        ),
        timeout,
        grace: Duration::from_secs(args.grace),
        read_ahead_bytes: if opened.is_foreseen() { READ_AHEAD_FORESEEN_BYTES } else { READ_AHEAD_BYTES },
    };
    tell_rest(&opened, options.sector_bytes, ui);
    let served = serve(&args, &opened, options, &mut stop, ui).await;
    // The lease must be released even if serving failed.
    served.and(opened.close().await.map_err(Failure::from))
}

/// Fails if the kernel's driver is missing.
async fn check(args: &Args) -> Result<()> {
    #[cfg(feature = "ublk")]
    if args.driver == Driver::Ublk {
        if args.resume.is_some() {
            return Err(Failure::misused("a device of ublk ends with its process; --resume needs --driver nbd"));
        }
        return ublk::check().await.map_err(|error| Error::from(error).into());
    }
    let _ = args;
    nbd::check().await.map_err(|error| Error::from(error).into())
}

/// Refuses nodes on this machine: under memory pressure, such a node waits for the kernel to write to the device, and
/// the device waits for the node.
async fn refuse_own_nodes(source: &str) -> Result<()> {
    let here = nodes_here(source).await?;
    if here.is_empty() {
        return Ok(());
    }
    Err(Failure::misused(format!(
        "{source} has its node {} on this machine, which could wait for itself when memory runs out; attach it \
         without --writable, or on another machine, or use `cheetah mount --writable`",
        cheetah_error::list(&here)
    )))
}

/// The size of a sector: the one asked for, that of the source, or the one in which the partition table makes sense.
async fn sector_bytes(args: &Args, opened: &OpenedSource, ui: Ui) -> u32 {
    let recorded = opened.identity.sector_size;
    // A disk knows; an image may record what a bridge said.
    let of_disk = recorded.filter(|_| matches!(opened.identity.kind, Kind::Block | Kind::Iscsi));
    if let Some(known) = args.sector_size.or(of_disk) {
        return known;
    }
    let tables = read_tables(&opened.device, recorded).await;
    for remark in tables.remarks {
        let remark = cheetah_words::with(&remark, remark.next.as_slice());
        ui.warn(format_args!("{}: {remark}", args.source));
    }
    let found = tables.partitions.first().map(|partition| partition.sector_bytes);
    let found = found.and_then(|bytes| bytes.try_into().ok()).or(recorded);
    found.filter(|bytes| (512..=4096).contains(bytes)).unwrap_or(512)
}

fn tell_rest(opened: &OpenedSource, sector_bytes: u32, ui: Ui) {
    let rest = opened.size() % u64::from(sector_bytes);
    if rest > 0 {
        ui.warn(format!(
            "{}: its last {rest} bytes are not on the device, since they are not a whole sector of {sector_bytes} \
             bytes; `cheetah mount` shows them",
            opened.name
        ));
    }
}

/// Makes the block device.
async fn attach(args: &Args, opened: &OpenedSource, options: AttachOptions) -> cheetah_attach::Result<Attachment> {
    let device = opened.device.clone();
    #[cfg(feature = "ublk")]
    if args.driver == Driver::Ublk {
        return ublk::attach(device, args.device.clone(), options).await;
    }
    let start = match (&args.resume, &args.device) {
        (Some(path), _) => Start::Resume(path.clone()),
        (None, Some(path)) => Start::At(path.clone()),
        (None, None) => Start::Free,
    };
    nbd::attach(device, start, options).await
}

async fn serve(args: &Args, opened: &OpenedSource, options: AttachOptions, stop: &mut Stop, ui: Ui) -> Result<()> {
    let mut attachment = attach(args, opened, options).await.map_err(Error::from)?;
    say_ready(args, &attachment, opened, ui);
    if args.detached {
        background::leave_stderr()?;
    }
    loop {
        tokio::select! {
            ended = attachment.wait() => {
                let closed = attachment.close().await;
                return ended.and(closed).map_err(|error| Error::from(error).into());
            }
            never = lazy::tell(opened.filled(), &args.source, ui) => match never {},
            signal = stop.asked() => match attachment.users().await {
                // A process that has failed ends, and its device can be resumed.
                Ok(Some(users)) if supervise::failure().is_some() => {
                    return Err(Failure::failed(still_used(&attachment, &users)));
                }
                Ok(Some(users)) => tracing::warn!("{signal}: {}", still_used(&attachment, &users)),
                _ => {
                    tracing::info!("{signal}: detaching");
                    return attachment.detach(false).await.map_err(|error| Error::from(error).into());
                }
            },
        }
    }
}

fn still_used(attachment: &Attachment, users: &[String]) -> String {
    let device = attachment.path();
    let by = if users.is_empty() { String::new() } else { format!(" ({})", users.join(", ")) };
    format!(
        "{device} is in use{by} and stays attached; stop its users, or cut them off: cheetah detach {device} --force",
        device = device.display()
    )
}

fn say_ready(args: &Args, attachment: &Attachment, opened: &OpenedSource, ui: Ui) {
    let size = Size(opened.size());
    let partitions = attachment.partitions();
    let devices: Vec<_> = std::iter::once(attachment.path()).chain(partitions.clone()).collect();
    let device = attachment.path();
    let value = answers::Attach::Ready {
        device: path_to_text(&device),
        filling: opened.filled().is_some(),
        partitions: partitions.iter().map(|path| path_to_text(path)).collect(),
        pid: std::process::id(),
        size_bytes: size.0,
        writable: attachment.is_writable(),
    };
    let how = if attachment.is_writable() { "writable" } else { "read-only" };
    let verb = if args.resume.is_some() { "served again" } else { "attached" };
    let shown: Vec<_> = devices.iter().map(|device| device.display().to_string()).collect();
    ui.answer(format_args!("{}, {size}, is {verb}, {how}:\n  {}", args.source, shown.join("\n  ")), &value);
}
