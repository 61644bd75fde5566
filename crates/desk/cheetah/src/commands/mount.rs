//! `cheetah mount`: shows a drive or an image as files.

use std::path::PathBuf;

use cheetah_attach::{Mount, MountOptions};
use cheetah_device::Size;
use cheetah_device::path_text::path_to_text;
use cheetah_error::Error;
use cheetah_image::Kind;
use cheetah_source::{Access, OpenedSource};
use cheetah_volume::partition::SectorSize;

use super::background;
use super::lazy;
use super::options::{AccessArgs, ShadowCopyArgs, source, warn_of};
use crate::answers::access as answers;
use crate::desk::Desk;
use crate::failure::{Failure, Result};
use crate::os::{self, Feature};
use crate::signals::Stop;
use crate::ui::Ui;

/// The kernel's read-ahead of an image in packed chunks, in bytes: some requests, so that all processors unpack while one of
/// them copies what is unpacked.
const PACKED_READ_AHEAD_BYTES: u32 = 4 << 20;

/// The options of `mount`.
#[derive(Debug, clap::Args)]
#[command(about = "Show a drive or an image as files in a directory")]
#[command(long_about = "Shows a drive or an image as files in a directory, until it is unmounted or stopped.

case42.drive becomes DIR/case42.raw, and each of its partitions DIR/case42.pN.raw, for any tool that reads raw \
images. The files are read-only, unless --writable. Only you can use them, also if you are root, unless --allow-other. For tools that must be able to write, --overlay keeps their \
writes outside the drive, which does not change. A drive created with --lazy fills while it is mounted. An encrypted \
partition that --unlock opens is also there decrypted, as DIR/case42.pN.unlocked.raw, and each logical volume of LVM2 as \
DIR/case42.GROUP-NAME.raw. An array of Linux's software RAID whose members are in it is there as DIR/case42.md_NAME.raw. \
What is found in these is there, too, as DIR/case42.md_NAME.p1.raw. --with names other disks that such volumes lie on. \
The shadow copies of NTFS volumes are listed, and --shadow-copy shows one, as DIR/case42.pN.vssM.raw.

  cheetah mount case42.drive /mnt/case42
  cheetah mount case42.drive /mnt/case42 --overlay memory:4GiB
  cheetah mount disk.raw /mnt/disk --background
  cheetah mount laptop.E01 /mnt/laptop --unlock keys.txt
  cheetah mount raid1.E01 /mnt/raid --with raid2.E01 --with raid3.E01
  cheetah mount pc.E01 /mnt/pc --shadow-copy p2.vss1")]
pub struct Args {
    /// A drive file, an image (raw, compressed, in parts, E01, AFF4, QCOW2, VMDK, VHD, VHDX), a disk, or an nbd://,
    /// iscsi://, https:// or s3:// URI
    #[arg(value_parser = source())]
    pub source: String,

    /// An empty directory
    dir: PathBuf,

    /// Return once mounted; `cheetah unmount DIR` ends it
    #[arg(long)]
    background: bool,

    /// Run as the process in the background.
    #[arg(long, hide = true, conflicts_with = "background")]
    detached: bool,

    /// Let all users of this machine use the files, not only this one. Needs root, or user_allow_other in /etc/fuse.conf
    #[arg(long)]
    allow_other: bool,

    /// Sector size, the unit of partition tables [default: that of the source; 512 and 4096 are tried if it is not known]
    #[arg(long, value_name = "BYTES")]
    sector_size: Option<u32>,

    #[command(flatten)]
    copies: ShadowCopyArgs,

    #[command(flatten)]
    access: AccessArgs,
}

/// Runs the command.
pub async fn run(args: Args, desk: &Desk, ui: Ui) -> Result<()> {
    os::offers(Feature::Mounts)?;
    if args.background {
        return background::start(
            |answers::Mount::Ready { file, .. }| format!("mounted: {}", file.as_deref().unwrap_or("?")),
            ui,
        );
    }
    let mut stop = Stop::catch()?;
    if args.detached {
        background::leave_terminal()?;
    }
    let access = Access { shadow_copies: args.copies.get(), ..args.access.get(&args.source, desk, ui).await? };
    let opened = OpenedSource::open(&args.source, &access).await?;
    warn_of(&opened, access.session.timeout, ui);
    let as_usual = MountOptions::new(opened.name.clone());
    let options = MountOptions {
        writable: access.writable || access.overlay.is_some(),
        allow_other: args.allow_other,
        besides: opened.inner_volumes()?,
        read_ahead_bytes: match opened.identity.kind {
            // Foresight prefetches the ranges that will be read; the kernel's read-ahead would only fetch the bytes that
            // follow.
            _ if opened.is_foreseen() => 4096,
            Kind::E01 | Kind::Ex01 | Kind::Aff4 if opened.is_here() => PACKED_READ_AHEAD_BYTES,
            _ => as_usual.read_ahead_bytes,
        },
        sectors: SectorSize::given_or(args.sector_size, opened.identity.sector_size),
        ..as_usual
    };
    let mount = match cheetah_attach::mount(opened.device.clone(), &args.dir, options).await {
        Ok(mount) => mount,
        Err(error) => {
            opened.close().await?;
            return Err(Error::from(error).into());
        }
    };
    for remark in mount.remarks() {
        let remark = cheetah_words::with(remark, remark.next.as_slice());
        ui.warn(format_args!("{}: {remark}", args.source));
    }
    say_ready(&args.source, &mount, &opened, ui);
    if args.detached {
        background::leave_stderr()?;
    }
    let unmounted = tokio::select! {
        ended = mount.wait() => match ended {
            Ok(()) => Ok(()),
            Err(error) => {
                let unmounted = mount.unmount().await;
                Err(Error::from(unmounted.err().unwrap_or(error)).into())
            }
        },
        never = lazy::tell(opened.filled(), &args.source, ui) => match never {},
        signal = stop.asked() => {
            tracing::info!("{signal}: unmounting");
            mount.unmount().await.map_err(|error| Error::from(error).into())
        }
    };
    // The lease must be released even if unmounting failed.
    unmounted.and(opened.close().await.map_err(Failure::from))
}

fn say_ready(source: &str, mount: &Mount, opened: &OpenedSource, ui: Ui) {
    let files: Vec<_> = mount.files().iter().map(|name| mount.dir().join(name)).collect();
    let size = Size(opened.size());
    let names: Vec<_> = files.iter().map(|file| file.display().to_string()).collect();
    let texts: Vec<_> = files.iter().map(|file| path_to_text(file)).collect();
    let value = answers::Mount::Ready {
        dir: path_to_text(mount.dir()),
        file: texts.first().cloned(),
        files: texts,
        filling: opened.filled().is_some(),
        pid: std::process::id(),
        remarks: mount
            .remarks()
            .iter()
            .map(|remark| cheetah_words::with(remark, remark.next.as_slice()).into())
            .collect(),
        size_bytes: size.0,
    };
    let filling = if opened.filled().is_some() { ", is being filled and" } else { "," };
    ui.answer(format_args!("{source}, {size}{filling} is mounted:\n  {}", names.join("\n  ")), &value);
}
