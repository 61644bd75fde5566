//! `cheetah save`: writes a drive to an image file.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use cheetah_acquire::order::Destination;
use cheetah_custody::DriveRecords;
use cheetah_device::coverage::State;
use cheetah_device::path_text::path_to_text;
use cheetah_device::{Device as _, DynDevice, Size};
use cheetah_drive::digests::Digests;
use cheetah_drive::partial::{PartialOptions, PartialSave, save_partial};
use cheetah_drive::save::{SaveOptions, Saved, save, save_to};
use cheetah_drive::{CopyProgress, DriveFile, HashChoice, Image, ImageState};
use cheetah_error::Error;
use cheetah_error::next::{Acquisition, Files};
use cheetah_image::space;
use cheetah_kit::file::Status;
use cheetah_source::{Access, ObjectTarget, OpenedSource, Upload, UploadRecord, doubts_about_drive};

use super::compared::{hash_lines, since_load};
use super::options::{TimeoutArgs, warn_of_doubts};
use super::verify::Keys;
use crate::answers::acquire::Discard;
use crate::answers::content as answers;
use crate::desk::Desk;
use crate::failure::{Failure, Result};
use crate::signals::Stop;
use crate::ui::Ui;

/// The options of `save`.
#[derive(Debug, clap::Args)]
#[command(about = "Write a drive to an image file")]
#[command(
    long_about = "Writes a drive to a raw, sparse image file or to an object (s3://BUCKET/KEY), and hashes it in the same pass. For an E01 \
image, use acquire.

Every chunk is compared with its digest made at load; if one differs, or if the drive file does not agree with the signed \
custody log beside it, nothing is saved. If the drive was opened for writing since, nothing is compared, with a warning. The file gets its name only once it is complete and on stable \
storage. An interrupted upload of an object is resumed by the same command, and its record is BUCKET-NAME.upload \
in the current folder.

With --partial, a drive with lost nodes, or one that is not filled yet, is saved as far as it can be read. Other \
ranges become holes, which IMAGE.map, a GNU ddrescue mapfile, lists. Exits with 3 if anything is missing.

  cheetah save case42.drive copy.raw
  cheetah save case42.drive rest.raw --partial
  cheetah save case42.drive copy.raw --whole --hash sha256"
)]
pub struct Args {
    /// The drive file
    pub drive: PathBuf,

    /// The image file or object to write
    image: PathBuf,

    /// Replace the image file if it exists
    #[arg(long)]
    force: bool,

    /// Write even if there may be too little space. A range of zeros takes none
    #[arg(long)]
    skip_space_check: bool,

    /// Save all ranges that can be read, and list the others in IMAGE.map. Exits with 3 if there are any
    #[arg(long, conflicts_with_all = ["whole", "hash"])]
    partial: bool,

    /// Save the whole drive, not only its image
    #[arg(long)]
    whole: bool,

    /// Hashes to compute of the written bytes: md5, sha1, sha256, blake3, separated by commas; or all, or none
    #[arg(long, default_value_t)]
    hash: HashChoice,

    /// Discard the interrupted upload of the object, and start again
    #[arg(long)]
    restart: bool,

    /// Discard the interrupted upload of the object, and end
    #[arg(long, conflicts_with = "restart")]
    discard: bool,

    /// Trust a custody log signed with this key, besides your own: base64, or a PEM file
    #[arg(long, value_name = "PUBLIC")]
    key: Vec<String>,

    #[command(flatten)]
    timeout: TimeoutArgs,
}

/// Refuses a name by which the image could not be opened again.
fn check_is_raw(args: &Args) -> Result<()> {
    let Some(claimed) = cheetah_image::claimed_format(&args.image) else { return Ok(()) };
    let (drive, image) = (args.drive.display(), args.image.display());
    Err(Failure::misused(format!(
        "{image} is named like {claimed}, but save writes raw images; for an E01 image use `cheetah acquire {drive} copy.E01`"
    )))
}

/// The beginnings of files that `--force` does not replace either: nothing else holds what is in them.
const RECORDS: [(&[u8], &str); 6] = [
    (b"# A Cheetah drive", "a drive file"),
    (b"cheetah-seal-v", "the seal record of a drive"),
    (b"{\"seq\":1,", "a custody log"),
    (b"-----BEGIN", "a key or a certificate"),
    (b"AGE-SECRET-KEY-", "a key"),
    (b"# created: ", "a key"),
];

/// Refuses to overwrite the files of the drive itself, under any name, and records of other drives and images.
fn check_replaces_no_record(args: &Args, file: &DriveFile) -> Result<()> {
    let map = std::ffi::OsString::from_iter([args.image.as_os_str(), ".map".as_ref()]);
    let targets = [args.image.clone(), PathBuf::from(map)];
    for target in targets.iter().take(if args.partial { 2 } else { 1 }) {
        let name = target.display();
        let id = |path: &Path| Status::at(path).ok().map(|status| status.id);
        let there = id(target);
        let is_own = |own: &PathBuf| own == target || there.is_some() && id(own) == there;
        if let Some(own) = file.own_files().iter().chain([&args.drive]).find(|own| is_own(own)) {
            let own = own.display();
            return Err(Failure::misused(format!("{name} is {own}, a file of the drive itself; choose another name")));
        }
        let mut head = [0; 32];
        let read = File::open(target).and_then(|file| file.take(32).read(&mut head)).unwrap_or(0);
        if let Some((_, what)) = RECORDS.iter().find(|(begins, _)| head[..read].starts_with(begins)) {
            return Err(Failure::misused(format!(
                "{name} is {what}, which is not replaced by an image; move it away, or choose another name"
            )));
        }
        let extension = target.extension().and_then(|extension| extension.to_str());
        if let Some(extension) = extension.filter(|found| ["drive", "seal", "custody", "digests"].contains(found)) {
            return Err(Failure::misused(format!(
                "{name} is named like a .{extension} file, and would hold an image; name it .raw"
            )));
        }
    }
    Ok(())
}

/// Runs the command.
pub async fn run(args: Args, desk: &Desk, ui: Ui) -> Result<()> {
    let mut stop = Stop::catch()?;
    check_is_raw(&args)?;
    let object = object(&args)?;
    if let Some(to) = object.as_ref().filter(|_| args.discard) {
        let target = ObjectTarget::parse(&to.to_string(), args.timeout.get())?;
        check_is_ours(to)?;
        UploadRecord::discard(&to.beside("upload"), &target).await?;
        ui.answer("discarded", &Discard::Discarded);
        return Ok(());
    }
    let file = DriveFile::load(&args.drive)?;
    check_replaces_no_record(&args, &file)?;
    let records = DriveRecords::read(&file, &Keys::of(&args.key, &[], desk)?.known)?;
    let image = file.image.as_ref().filter(|_| !args.whole);
    if args.partial {
        return partial(&args, (&file, &records, desk), &mut stop, ui).await;
    }
    if let Some(image) = file.image.as_ref().filter(|_| file.fill.is_some() || file.map.is_some()) {
        return Err(Failure::evidence(format!(
            "{} holds only part of {}; `cheetah status` shows how much, and save --partial saves that part, with a map",
            args.drive.display(),
            image.source
        )));
    }
    if image.is_some_and(|image| image.state == ImageState::Loading) {
        return Err(Failure::evidence(format!(
            "{} holds part of an image, since its load never finished; load it again, or save the drive as it is with --whole",
            args.drive.display()
        )));
    }
    refuse_disagreement(&args, &file, &records)?;
    let size = image.map(|image| image.size);
    let access = Access { half_loaded: args.whole, ..Access::read_once(desk.session(args.timeout.get())) };
    let source = OpenedSource::open(&path_to_text(&args.drive), &access).await?;
    // Not the note, which is said at the end.
    warn_of_doubts(&source.all_doubts(args.timeout.get()).await, ui);
    let progress = ui.progress(format!("saving {}", args.image.display()), size.unwrap_or_else(|| source.size()));
    // An unchanged image must have the digests and hashes made at load.
    let intact = file.image.as_ref().filter(|image| image.state == ImageState::Intact);
    let recorded = intact.and_then(|image| image.digests.as_ref().map(|digests| (digests, image.size)));
    let digests = recorded.map(|(digests, size)| Digests::load(&file, digests, size)).transpose()?;
    let compared = digests.is_some();
    // The log's, because it is signed; the drive file has the same.
    let expected = intact.filter(|_| !args.whole).map(|_| records.hashes()).unwrap_or_default();
    let check_space = !args.skip_space_check;
    let options = SaveOptions { force: args.force, check_space, hashes: args.hash, size, expected, digests };
    let shown = |so_far: CopyProgress| progress.set(so_far.done);
    let saved = match &object {
        Some(to) => {
            let how = (options, args.timeout.get(), args.restart);
            upload(to, source.device.clone(), how, shown, &mut stop).await?
        }
        None => tokio::select! {
            saved = save(source.device.clone(), &args.image, options, shown) => saved?,
            signal = stop.asked() => return Err(stopped(signal)),
        },
    };
    drop(progress);
    source.close().await?;
    let mut text = format!("{}: {}", args.image.display(), Size(saved.size));
    hash_lines(&saved.hashes, |_| String::new()).iter().for_each(|line| text.push_str(&format!("\n{line}")));
    if let Some(why) = file.image.as_ref().and_then(|image| since_load(image.state)) {
        ui.warn(format_args!("not compared: {why}"));
    }
    warn_of_doubt(&file, ui);
    let value = answers::Save {
        compared,
        hashes: &saved.hashes,
        image: path_to_text(&args.image),
        note: note(&file),
        size_bytes: saved.size,
    };
    ui.answer(text, &value);
    match &file.image {
        Some(image) if image.state == ImageState::Loading => Err(Failure::evidence(format!(
            "{} is only part of {}, whose load never finished; the rest is zeros",
            args.image.display(),
            image.source
        ))),
        _ => Ok(()),
    }
}

/// Fails if the drive file does not agree with its custody log, or if nothing signed would be compared.
fn refuse_disagreement(args: &Args, file: &DriveFile, records: &DriveRecords) -> Result<()> {
    let is_intact = file.image.as_ref().is_some_and(|image| image.state == ImageState::Intact);
    let uncompared = records.signed().filter(|_| is_intact).is_some_and(|signed| {
        signed.digests.is_none() && (args.whole || signed.hashes.choice() & args.hash == HashChoice::NONE)
    });
    let uncompared = uncompared.then(|| "would be compared with nothing that its custody log signed".to_owned());
    match records.problems.first().cloned().or(uncompared) {
        None => Ok(()),
        Some(problem) => Err(Failure::evidence(format!(
            "{} {problem}; nothing was saved, and save --partial saves it as it is",
            args.drive.display()
        ))),
    }
}

fn stopped(signal: &str) -> Failure {
    Failure::failed(format!("stopped by {signal}; nothing was saved"))
}

/// Returns the object to save to, if the image is to be one.
fn object(args: &Args) -> Result<Option<Destination>> {
    let text = path_to_text(&args.image);
    if !text.starts_with("s3://") {
        return match args.restart || args.discard {
            true => Err(Failure::misused(format!(
                "{text} is a file, and saving to a file is never resumed; leave out --restart and --discard"
            ))),
            false => Ok(None),
        };
    }
    if args.partial {
        return Err(Failure::misused(format!("{text}: save --partial writes files only; save to a file")));
    }
    Ok(Some(text.parse()?))
}

/// Fails if the upload to the object is an acquisition's.
fn check_is_ours(to: &Destination) -> Result<()> {
    match to.beside("acquire").exists() {
        true => {
            Err(Failure::misused(format!("{to} is being acquired; complete that, or discard it (acquire --discard)")))
        }
        false => Ok(()),
    }
}

/// Saves to an object. After a lost connection or a crash, the same command resumes.
async fn upload(
    to: &Destination,
    device: DynDevice,
    (options, timeout, restart): (SaveOptions, Duration, bool),
    progress: impl FnMut(CopyProgress) + Send,
    stop: &mut Stop,
) -> Result<Saved> {
    let name = to.to_string();
    check_is_ours(to)?;
    let target = ObjectTarget::parse(&name, timeout)?;
    if restart {
        UploadRecord::discard(&to.beside("upload"), &target).await?;
    }
    let size = options.size.unwrap_or_else(|| device.geometry().size);
    if options.check_space {
        space::check(&[(to.beside("upload"), UploadRecord::bytes_max(size))], Files::MakeSpace)?;
    }
    let record = Arc::new(UploadRecord::open(&to.beside("upload"), &target)?);
    let saving = async {
        let upload = Arc::new(Upload::open(target.clone(), size, options.force, record.clone()).await?);
        let to: DynDevice = upload.clone();
        let saved = save_to(device, (to, name.as_str()), &options, progress).await?;
        upload.store_rest(size).await?;
        upload.complete().await?;
        record.remove()?;
        Ok::<Saved, Error>(saved)
    };
    let failure = tokio::select! {
        saved = saving => match saved {
            Ok(saved) => return Ok(saved),
            Err(error) if error.is_evidence() || error.is_misuse() => error.into(),
            Err(error) => return Err(error.next(Acquisition::Resume).into()),
        },
        signal = stop.asked() => stopped(signal),
    };
    // A store that does not answer neither hides the failure nor keeps the command from ending.
    let aborted = tokio::select! {
        aborted = record.abort(&target) => aborted.map_err(|error| error.to_string()),
        signal = stop.asked() => Err(format!("stopped by {signal}")),
    };
    match aborted {
        Ok(()) => Err(failure),
        Err(why) => Err(Failure {
            message: format!("{failure}; the store may still have parts, which save --discard removes ({why})"),
            ..failure
        }),
    }
}

/// Saves the ranges that can be read.
async fn partial(
    args: &Args,
    (file, records, desk): (&DriveFile, &DriveRecords, &Desk),
    stop: &mut Stop,
    ui: Ui,
) -> Result<()> {
    let progress = ui.progress(format!("saving {}", args.image.display()), file.size);
    let shown = |so_far: CopyProgress| progress.set(so_far.done);
    let (force, check_space) = (args.force, !args.skip_space_check);
    let session = desk.session(args.timeout.get());
    let options = PartialOptions { force, check_space, session };
    let saved = tokio::select! {
        saved = save_partial(file, &args.image, &options, shown) => saved?,
        signal = stop.asked() => return Err(stopped(signal)),
    };
    drop(progress);
    for lost in &saved.lost {
        ui.warn(lost);
    }
    let doubts = doubts_about_drive(file, &options.session).await;
    warn_of_doubts(&doubts, ui);
    warn_of_doubt(file, ui);
    let drive = args.drive.display();
    records.problems.iter().for_each(|problem| ui.warn(format_args!("{drive} {problem}")));
    answer_partial((&args.image, note(file)), &saved, ui);
    if saved.coverage.is_whole() {
        return match records.problems.first() {
            None => Ok(()),
            Some(problem) => Err(Failure::evidence(format!("{drive} {problem}"))),
        };
    }
    let (image, map) = (args.image.display(), saved.map.display());
    Err(Failure::evidence(format!("{image} is not a whole image: {map} lists the missing ranges")))
}

/// A warning that the image may not have one source.
fn note(file: &DriveFile) -> Option<String> {
    file.image.as_ref().and_then(Image::note).map(|note| note.to_string())
}

fn warn_of_doubt(file: &DriveFile, ui: Ui) {
    if let Some(note) = note(file) {
        ui.warn(note);
    }
}

fn answer_partial((image, note): (&Path, Option<String>), saved: &PartialSave, ui: Ui) {
    let size = saved.coverage.size();
    let [read, unread, unreadable] =
        [State::Read, State::Unread, State::Unreadable].map(|state| saved.coverage.bytes(state));
    let mut text = format!("{}: {} of {}", image.display(), Size(read), Size(size));
    if !saved.coverage.is_whole() {
        let (unread, unreadable, map) = (Size(unread), Size(unreadable), saved.map.display());
        text.push_str(&format!("; {unread} unread, {unreadable} unreadable\n  holes, listed in {map}"));
    }
    if saved.differing_bytes > 0 {
        text.push_str(&format!("\n  {} left out: different from what was loaded", Size(saved.differing_bytes)));
    }
    let value = answers::SavePartial {
        differing_bytes: saved.differing_bytes,
        image: path_to_text(image),
        lost: &saved.lost,
        map: path_to_text(&saved.map),
        note,
        read_bytes: read,
        size_bytes: size,
        unreadable_bytes: unreadable,
        unread_bytes: unread,
    };
    ui.answer(text, &value);
}
