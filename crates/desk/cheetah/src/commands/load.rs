//! `cheetah load`: loads an image into a drive.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use cheetah_acquire::acquire::content_of;
use cheetah_acquire::load::{LoadRequest, Loaded};
use cheetah_acquire::order::{ErrorsMax, Opener};
use cheetah_custody::{ContentOf, FillLog};
use cheetah_device::path_text::path_to_text;
use cheetah_device::visible::OneLine;
use cheetah_device::{DynDevice, Size};
use cheetah_drive::file::side_space::SideFiles;
use cheetah_drive::load::LoadOptions;
use cheetah_drive::{CopyProgress, DriveFile, HashChoice, Image, ImageState, Session};
use cheetah_image::{Identity, Source, spec};
use cheetah_source::{LinkUse, OpenedAlone, SourceOptions, UnlockOutcome, VolumeChoice, doubts, is_drive, open};
use futures::FutureExt as _;

use super::lazy;
use super::options::{TimeoutArgs, source, warn_of_doubts};
use super::tune::TuneArgs;
use crate::answers::content as answers;
use crate::desk::Desk;
use crate::failure::{Failure, Result};
use crate::signals::Stop;
use crate::ui::Ui;

/// The options of `load`.
#[derive(Debug, clap::Args)]
#[command(about = "Load an image into a drive")]
#[command(long_about = "Loads an image into a drive, at the drive's start, and hashes it in the same pass.

The source is only read. Digests of all chunks are stored beside the drive file, so that verify can find changes later. \
The command returns when all nodes have flushed.

The load stops at a range that is unreadable, or corrupt in a source that is an image, unless --max-errors allows \
more. The drive then fails reads of such ranges, and NAME.drive.map lists them; the exit code is 3.

Without a source, a drive that was created with --lazy is filled to the end. If that is stopped, the same command \
resumes it. Exits with 3 if parts of the source could not be read.

A drive that holds an image already is overwritten only with --force.

  cheetah load case42.drive disk.raw
  cheetah load case42.drive
  cheetah load case42.drive nbd://10.0.0.7/sda --hash sha256")]
pub struct Args {
    /// The drive file
    pub drive: PathBuf,

    /// An image (raw, compressed, in parts, E01, AFF4, QCOW2, VMDK, VHD, VHDX), a disk, an nbd://, iscsi://,
    /// https:// or s3:// URI, or another drive; omit it to finish a drive created with --lazy
    #[arg(value_parser = source())]
    source: Option<String>,

    /// Hashes to compute of the image: md5, sha1, sha256, blake3, separated by commas; or all, or none
    #[arg(long, default_value_t, requires = "source")]
    hash: HashChoice,

    /// Number of unreadable or corrupt ranges to accept, or unlimited; adjacent sectors are one range
    #[arg(long, value_name = "N", default_value_t, requires = "source")]
    max_errors: ErrorsMax,

    /// Number of times to retry an unreadable sector
    #[arg(long, value_name = "N", default_value_t = 1, requires = "source")]
    retries: u32,

    /// Overwrite the image that the drive holds
    #[arg(long, requires = "source")]
    force: bool,

    /// Take the write lease from its holder
    #[arg(long)]
    force_lease: bool,

    #[command(flatten)]
    tune: TuneArgs,

    #[command(flatten)]
    timeout: TimeoutArgs,
}

/// Runs the command.
pub async fn run(args: Args, desk: &Desk, ui: Ui) -> Result<()> {
    let mut stop = Stop::catch()?;
    let session = desk.session(args.timeout.get());
    let mut file = DriveFile::load(&args.drive)?;
    warn_of_foreign(&file, ui);
    let Some(source) = &args.source else {
        if file.fill.is_none() {
            return Err(Failure::misused(format!(
                "{} has no source to be filled from: name the image to load",
                args.drive.display()
            )));
        }
        let link = args.tune.link(&path_to_text(&args.drive), desk, ui).await?;
        return lazy::fill_up((&file, desk), args.force_lease, link, session, &mut stop, ui).await;
    };
    may_overwrite(&file, args.force)?;
    refuse_itself(&file, source)?;
    let link = args.tune.link(source, desk, ui).await?;
    let opening = OpenImage::open(source, link, &session, None);
    let source = stop.unless(&format!("opening {source}"), opening).await?;
    let (errors_max, retries) = (args.max_errors, args.retries);
    let how = LoadSettings { hashes: args.hash, force_lease: args.force_lease, session, errors_max, retries };
    let left =
        format!(": {} holds part of the image, and is marked so; load it again, or destroy it", args.drive.display());
    let loaded = load((&mut file, desk), source, how, &left, &mut stop, ui).await?;
    let image = &loaded.image;
    let (missing, corrupt) = loaded.missing_bytes();
    let value = answers::Load {
        corrupt_bytes: corrupt,
        drive: path_to_text(&args.drive),
        hashes: &image.hashes,
        size_bytes: image.size,
        source: &image.source,
        unreadable: &loaded.bad,
        unreadable_bytes: missing,
    };
    ui.answer(format_args!("{}: {}", args.drive.display(), describe(image)), &value);
    whole_or_problem(&file, &loaded)
}

/// Fails with an evidence problem if the source did not yield all of the image.
pub fn whole_or_problem(file: &DriveFile, loaded: &Loaded) -> Result<()> {
    let (source, name) = (&loaded.image.source, file.path.display());
    let what = match loaded.missing_bytes() {
        (0, _) => return Ok(()),
        (missing, 0) => format!("{} of {source} could not be read", Size(missing)),
        (missing, corrupt) if missing == corrupt => format!("{} of {source} is corrupt in the image", Size(missing)),
        (missing, corrupt) => {
            format!("{} of {source} could not be read, {} of that because it is corrupt", Size(missing), Size(corrupt))
        }
    };
    Err(Failure::evidence(format!("{what}: the drive has no content there, and {name}.map lists the ranges")))
}

/// Refuses to overwrite an image without `--force`. A partial image left by an interrupted load may be overwritten.
fn may_overwrite(file: &DriveFile, force: bool) -> Result<()> {
    match file.image.as_ref().filter(|image| image.state != ImageState::Loading) {
        Some(image) if !force => Err(Failure::misused(format!(
            "{} holds an image already, of {}; use another drive, or --force to overwrite it",
            file.path.display(),
            image.source
        ))),
        _ => Ok(()),
    }
}

/// Refuses to load a drive into itself, also by a copy of its file.
fn refuse_itself(file: &DriveFile, source: &str) -> Result<()> {
    let path = spec::path_of(source).filter(|(path, is_raw)| !is_raw && is_drive(path)).map(|(path, _)| path);
    match path.and_then(|path| DriveFile::load(&path).ok()).filter(|from| from.id == file.id) {
        Some(_) => Err(Failure::misused(format!("{source} is the drive {} itself; name another source", file.name))),
        None => Ok(()),
    }
}

/// An open image that is to be loaded.
pub struct OpenImage {
    source: Source,
    named: String,
    reopen: Opener,
    /// The disks that it lies on, if it is the content of a volume.
    disks: Vec<Source>,
    /// If it is the content of a volume: what the keys did, if any were given, of what it is, and what it is in words.
    content: Option<(Option<UnlockOutcome>, ContentOf, String)>,
}

impl OpenImage {
    /// Opens the image that the user named `text`, or the volume in it that is chosen.
    pub async fn open(text: &str, link: LinkUse, session: &Session, volume: Option<&VolumeChoice>) -> Result<Self> {
        let reopen = opener_of(text, link, session);
        let evidence = reopen().await?;
        let Some(choice) = volume else {
            let (source, disks) = (evidence.source, Vec::new());
            return Ok(Self { source, named: text.to_owned(), reopen, disks, content: None });
        };
        let location = evidence.source.identity.location.clone();
        let OpenedAlone { evidence, volume, stack } = choice.open(evidence).await?;
        let (source, disks) = (evidence.source, evidence.disks);
        let said = match volume.opened() {
            Some(opened) => format!("{location}: {opened}"),
            None => format!("{location}: {}", volume.sized_description()),
        };
        let content = content_of(disks.iter().map(|disk| disk.identity.clone()).collect(), &stack, &volume);
        let outcome = stack.unlocked.map(|unlocked| unlocked.outcome());
        let named = source.identity.location.clone();
        Ok(Self { named, source, reopen, disks, content: Some((outcome, content, said)) })
    }

    /// Returns what is in doubt about it, and about the disks that it lies on, a sentence each.
    async fn doubts(&self, patience: Duration) -> Vec<String> {
        let mut found = doubts(&self.source, patience).await;
        for disk in &self.disks {
            let of_disk = doubts(disk, patience).await;
            // Those that were there when it was opened are doubts about the volume.
            let new = of_disk.iter().filter(|doubt| !self.source.notes.contains(doubt));
            found.extend(new.map(|doubt| format!("{}: {doubt}", disk.identity.location)));
        }
        found
    }

    /// Returns its content.
    pub fn device(&self) -> DynDevice {
        self.source.device.clone()
    }

    /// Returns its identity.
    pub fn identity(&self) -> &Identity {
        &self.source.identity
    }

    /// Returns its size in bytes.
    pub fn size(&self) -> u64 {
        self.source.identity.size
    }
}

/// Returns what opens the source that the user named `text`, to be loaded. Another server at the same address must not continue the
/// image.
pub fn opener_of(text: &str, link: LinkUse, session: &Session) -> Opener {
    let plain = SourceOptions::new(link, session.clone());
    let options = SourceOptions { trust_reconnects: false, in_order: true, ..plain };
    let again = (text.to_owned(), options);
    Arc::new(move || {
        let (again, options) = again.clone();
        async move { open(&again, &options).await }.boxed()
    })
}

/// How to load an image.
#[derive(Debug, Clone)]
pub struct LoadSettings {
    /// The hashes to compute of the whole.
    pub hashes: HashChoice,
    /// Take the write lease from its holder.
    pub force_lease: bool,
    /// What drives are opened with.
    pub session: Session,
    /// The number of unreadable or corrupt ranges to accept.
    pub errors_max: ErrorsMax,
    /// The number of retries of an unreadable sector.
    pub retries: u32,
}

/// Loads `source` into the drive, with progress and a custody record. If it is stopped, `left` is appended to the error: it
/// describes the state of the drive.
pub async fn load(
    (file, desk): (&mut DriveFile, &Desk),
    source: OpenImage,
    how: LoadSettings,
    left: &str,
    stop: &mut Stop,
    ui: Ui,
) -> Result<Loaded> {
    SideFiles { image_bytes: source.size(), ..SideFiles::default() }.check_space(&file.path)?;
    let log = FillLog::beside(&file.path, &desk.custodian);
    log.started(&source.source.identity, &file.path, how.hashes, false)?;
    if let Some((outcome, content, said)) = &source.content {
        ui.note(OneLine(said));
        log.volume(outcome.clone(), content)?;
    }
    let doubts = source.doubts(how.session.timeout).await;
    warn_of_doubts(&doubts, ui);
    log.doubts(&doubts)?;
    let outcome = tokio::select! {
        outcome = pass(file, &source, how, &log, ui) => outcome,
        signal = stop.asked() => Err(Failure::failed(format!("stopped by {signal}{left}"))),
    };
    outcome.inspect_err(|failure| log.stopped(&failure.message))
}

async fn pass(file: &mut DriveFile, source: &OpenImage, how: LoadSettings, log: &FillLog, ui: Ui) -> Result<Loaded> {
    let LoadSettings { hashes, force_lease, session, errors_max, retries } = how;
    let progress = ui.progress(format!("loading {}", source.named), source.size());
    let sector_size = source.source.identity.sector_size;
    let drive = LoadOptions { source_name: source.named.clone(), sector_size, hashes, force_lease, session };
    let request =
        LoadRequest { drive, errors_max, retries, reopen: source.reopen.clone(), disks: source.disks.clone() };
    let shown = |so_far: CopyProgress| progress.set(so_far.done);
    Ok(cheetah_acquire::load::load(file, &source.source, request, shown, |loaded| {
        log.loaded(&loaded.image, &loaded.bad, &loaded.files)
    })
    .await?)
}

/// Warns of the limits of foreign nodes, if the drive has any.
pub fn warn_of_foreign(file: &DriveFile, ui: Ui) {
    let foreign: Vec<_> = file.nodes().filter(|node| node.instance.is_none()).map(|node| node.name.as_str()).collect();
    if !foreign.is_empty() {
        ui.warn(format_args!(
            "not a Cheetah node: {}; if it restarts empty or its memory is damaged, only `cheetah verify` detects it",
            foreign.join(", ")
        ));
    }
}

/// Describes a loaded image.
pub fn describe(image: &Image) -> String {
    let mut text = format!("loaded {} from {}", Size(image.size), image.source);
    for (kind, digest) in image.hashes.iter() {
        text.push_str(&format!("\n  {:<7} {digest}", kind.name()));
    }
    text
}
