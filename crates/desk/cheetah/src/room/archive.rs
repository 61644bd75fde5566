//! What a command takes from the room's machine, and gives to it: heads of custody logs, and drive files.

use std::path::{Path, PathBuf};
use std::time::Duration;

use cheetah_custody::Head;
use cheetah_custody::placed::{self, PlacedHead};
use cheetah_drive::DriveFile;
use cheetah_error::{Error, Fact, Result};
use cheetah_image::own_file::OwnFile;
use cheetah_nbd::uri::{NbdUri, Security};
use cheetah_room::archive::Archive;
use cheetah_room::drives::{PART_LEN_MAX, Part, is_name};
use cheetah_room::heads::SentHead;
use cheetah_source::is_drive;
use cheetah_tls::Role;
use cheetah_words::sentence;
use tokio::time::timeout;

use crate::desk::Desk;
use crate::ui::Ui;

/// How long a command waits for the room's machine, which need not be on.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long giving it a drive file may take, once it answers.
const GIVING: Duration = Duration::from_secs(60);

/// A file beside a drive file.
const PART: OwnFile = OwnFile { name: "file of a drive", begins: |_| true };

/// The heads that the room's machine has of the log at `path`, and its name in messages; `None` without a room or a log.
pub async fn heads_of(path: &Path, archive: Option<&Archive>) -> Option<Result<(String, Vec<PlacedHead>)>> {
    let archive = archive.filter(|archive| archive.is_reachable())?;
    let log = placed::log_id(path)?;
    let from = format!("the machine of room {}", archive.name());
    let heads = within(PATIENCE, archive, archive.heads(&log)).await;
    let not_asked = |error| Error::failed(format!("the heads that {from} has were not compared: {}", sentence(&error)));
    Some(heads.map(|heads| (from.clone(), heads.into_iter().map(known).collect())).map_err(not_asked))
}

/// The drive files that a command names, as they are before it runs.
pub struct DriveFiles(Vec<(PathBuf, Option<DriveFile>)>);

impl DriveFiles {
    /// Reads those of these paths that are drive files; one that is not there may be made.
    pub fn named(paths: Vec<PathBuf>) -> Self {
        let read = |path: PathBuf| {
            let file = DriveFile::load(&path).ok();
            (path, file)
        };
        Self(paths.into_iter().filter(|path| is_drive(path)).map(read).collect())
    }

    /// Returns those that are others now.
    fn changed(self) -> impl Iterator<Item = DriveFile> {
        let now = |(path, before): (PathBuf, Option<DriveFile>)| {
            DriveFile::load(&path).ok().filter(|now| before.as_ref() != Some(now))
        };
        self.0.into_iter().filter_map(now)
    }
}

/// Gives the room's machine what this command wrote: heads of custody logs and, if this is an examiner, the drive files that
/// changed. A machine that does not answer gets them from a later command.
pub async fn give(desk: &Desk, drives: DriveFiles, ui: Ui) {
    let heads = desk.custodian.take_written();
    let Some(archive) = desk.archive.as_ref().filter(|archive| archive.is_reachable()) else { return };
    if !heads.is_empty() {
        let sent = heads.into_iter().map(sent).collect();
        if let Err(error) = within(PATIENCE, archive, archive.send_heads(sent)).await {
            say("the heads of custody logs are not at the room's machine", &error, ui);
        }
    }
    if archive.role() != Some(Role::Examiner) {
        return;
    }
    for file in drives.changed().filter(|file| is_in(file, archive)) {
        if let Err(error) = give_drive(archive, &file).await {
            let name = &file.name;
            say(&format!("the room does not hand out {name} as it is now"), &error, ui);
        }
    }
}

/// Has the room no longer hand out a drive that was destroyed.
pub async fn withdraw(file: &DriveFile, archive: Option<&Archive>, ui: Ui) {
    let archive = archive.filter(|archive| archive.is_reachable() && archive.role() == Some(Role::Examiner));
    let Some(archive) = archive.filter(|archive| is_name(&file.name) && is_in(file, archive)) else { return };
    if let Err(error) = within(PATIENCE, archive, archive.forget(&file.name, Some(&file.id))).await {
        say("the room may still hand out the drive file", &error, ui);
    }
}

/// A machine that is not on is no news; a refusal is.
fn say(what: &str, error: &Error, ui: Ui) {
    let told = format!("{what}: {}", sentence(error));
    match error.fact() {
        Some(Fact::Unreachable | Fact::Silent) => tracing::info!("{told}"),
        _ => ui.warn(told),
    }
}

async fn give_drive(archive: &Archive, file: &DriveFile) -> Result<()> {
    if !is_name(&file.name) {
        let name = &file.name;
        return Err(Error::failed(format!(
            "a room hands out drives whose names have ASCII letters and digits, unlike {name}"
        )));
    }
    // Asks first, so that a machine that is off costs little.
    within(PATIENCE, archive, archive.drives()).await?;
    let giving = async {
        for part in Part::ALL {
            let mut path = file.path.clone().into_os_string();
            path.push(part.suffix());
            let content = PART.read(Path::new(&path), PART_LEN_MAX as u64)?;
            archive.keep_part((&file.name, &file.id), part, content).await?;
        }
        Ok(())
    };
    within(GIVING, archive, giving).await
}

/// Whether the nodes of a drive are members of the room.
fn is_in(file: &DriveFile, archive: &Archive) -> bool {
    let room = archive.room();
    let is_in = |uri: NbdUri| matches!(uri.security, Security::Room { room: of, .. } if of.is_some() && of == room);
    file.nodes().any(|node| node.uri().is_some_and(is_in))
}

async fn within<T>(patience: Duration, archive: &Archive, work: impl Future<Output = Result<T>>) -> Result<T> {
    let silent = || {
        let (name, seconds) = (archive.name(), patience.as_secs());
        Error::node(Fact::Silent, format!("the machine of room {name} does not answer within {seconds} s"))
    };
    timeout(patience, work).await.unwrap_or_else(|_| Err(silent()))
}

fn sent(PlacedHead { place, is_evidence, head }: PlacedHead) -> SentHead {
    let Head { log, records, sha256, time, public_key, signature } = head;
    SentHead { place, is_evidence, log, records, sha256, time, public_key, signature }
}

fn known(head: SentHead) -> PlacedHead {
    let SentHead { place, is_evidence, log, records, sha256, time, public_key, signature } = head;
    PlacedHead { place, is_evidence, head: Head { log, records, sha256, time, public_key, signature } }
}
