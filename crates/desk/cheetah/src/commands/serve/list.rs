//! `cheetah serve --list`: the disks of this machine.

use std::time::Duration;

use cheetah_acquire::agent::{FoundDisk, disks};
use cheetah_device::Size;
use cheetah_device::path_text::path_to_text;
use cheetah_drive::Session;
use cheetah_source::{LinkUse, SourceOptions, Volume, open, volumes};
use tokio::time::timeout;

use crate::answers::access::{Disks, ListedDisk, ListedVolume};
use crate::commands::compared::wrapped;
use crate::desk::Desk;
use crate::failure::{Context as _, Result};
use crate::os::SYSTEM;
use crate::signals::Stop;
use crate::ui::Ui;

/// How long a disk may take to be looked at. One that fails is slow.
const PATIENCE: Duration = Duration::from_secs(10);

/// Lists them.
pub async fn run(desk: &Desk, stop: &mut Stop, ui: Ui) -> Result<()> {
    let session = desk.session(PATIENCE);
    let found = disks().context("cannot list the disks of this machine")?;
    let mut listed = Vec::with_capacity(found.len());
    for disk in found {
        let doing = format!("looking at {}", disk.path.display());
        listed.push(stop.unless(&doing, async { Ok::<_, crate::failure::Failure>(look(disk, &session).await) }).await?);
    }
    let text = match &listed[..] {
        [] => "this machine has no disks".to_owned(),
        disks => disks.iter().map(shown).collect::<Vec<_>>().join("\n"),
    };
    ui.answer(text, &Disks { disks: listed });
    Ok(())
}

async fn look(disk: FoundDisk, session: &Session) -> ListedDisk {
    let path = path_to_text(&disk.path).into_owned();
    let (volumes, problem) = match timeout(PATIENCE, known_volumes(&path, session)).await {
        Ok(Ok(volumes)) => (volumes, None),
        Ok(Err(error)) => (Vec::new(), Some(error.to_string())),
        Err(_) => (Vec::new(), Some(format!("it could not be read within {} seconds", PATIENCE.as_secs()))),
    };
    ListedDisk {
        bus: disk.bus,
        model: disk.properties.model,
        path,
        problem,
        sector_size_bytes: disk.properties.sector_size,
        serial: disk.properties.serial,
        size_bytes: disk.size_bytes,
        users: disk.users,
        volumes,
        write_protected: disk.properties.write_protected,
    }
}

/// The partitions of a disk, and its content as a whole if that has a known format.
async fn known_volumes(path: &str, session: &Session) -> cheetah_error::Result<Vec<ListedVolume>> {
    let evidence = open(path, &SourceOptions::new(LinkUse::default(), session.clone())).await?;
    let found = volumes(&evidence.source).await.into_iter();
    let is_known = |volume: &Volume| !volume.content.formats.is_empty() || volume.content.unread.is_some();
    Ok(found.filter(|volume| volume.partition.is_some() || is_known(volume)).map(listed).collect())
}

fn listed(volume: Volume) -> ListedVolume {
    ListedVolume {
        description: volume.description,
        formats: volume.content.formats.iter().map(ToString::to_string).collect(),
        is_locked: volume.content.formats.iter().any(|format| format.lock.is_some()),
        offset: volume.range.offset,
        partition: volume.partition,
        size_bytes: volume.range.len,
        unread: volume.content.unread.filter(|_| volume.content.formats.is_empty()),
    }
}

/// A disk as people read it.
fn shown(disk: &ListedDisk) -> String {
    let mut facts = vec![Size(disk.size_bytes).to_string()];
    facts.extend(disk.bus.map(str::to_owned));
    facts.extend(disk.model.clone());
    facts.extend(disk.serial.as_ref().map(|serial| format!("serial number {serial}")));
    facts.extend(disk.write_protected.filter(|protected| *protected).map(|_| format!("{SYSTEM} refuses writes")));
    let mut lines = vec![wrapped(&format!("{}: {}", disk.path, facts.join(", ")), 0)];
    lines.extend(disk.users.iter().map(|user| wrapped(&format!("in use: {user}"), 2)));
    lines.extend(disk.volumes.iter().map(|volume| wrapped(&volume_line(volume), 2)));
    lines.extend(disk.problem.iter().map(|why| wrapped(&format!("its volumes are not known: {why}"), 2)));
    lines.join("\n")
}

fn volume_line(volume: &ListedVolume) -> String {
    let place = match volume.partition {
        Some(number) => format!("partition {number}"),
        None => "the whole disk".to_owned(),
    };
    let formats = match (&volume.formats[..], &volume.unread) {
        ([], Some(why)) => format!("could not be examined: {why}"),
        ([], None) => "no known format".to_owned(),
        (formats, _) => formats.join(" and "),
    };
    let kind = if volume.description.is_empty() { String::new() } else { format!(", {}", volume.description) };
    format!("{place}: {}{kind}: {formats}", Size(volume.size_bytes))
}

#[cfg(test)]
mod tests {
    use cheetah_device::ByteRange;
    use cheetah_volume::formats::Identified;

    use super::*;

    #[tokio::test]
    async fn partitions_are_named_with_what_their_table_says_and_a_locked_one_with_its_identifier() {
        let mut disk = vec![0; 4 << 20];
        for (entry, first, kind) in [(446, 2048_u32, 0x83), (462, 4096, 0x07)] {
            disk[entry + 4] = kind;
            disk[entry + 8..entry + 12].copy_from_slice(&first.to_le_bytes());
            disk[entry + 12..entry + 16].copy_from_slice(&2048_u32.to_le_bytes());
        }
        disk[510..512].copy_from_slice(&[0x55, 0xaa]);
        // LUKS 1 (On-Disk Format 1.2.3, figure 1): magic, version, cipher, mode, hash … and the UUID at 168.
        let luks = 1 << 20;
        disk[luks..luks + 8].copy_from_slice(b"LUKS\xba\xbe\0\x01");
        for (at, text) in
            [(8, "aes"), (40, "xts-plain64"), (72, "sha256"), (168, "1d54aa30-74d8-4891-87ff-0a3a6d5935a3")]
        {
            disk[luks + at..luks + at + text.len()].copy_from_slice(text.as_bytes());
        }
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), &disk).unwrap();
        let session = Session::new(Default::default(), Default::default(), PATIENCE);
        let volumes = known_volumes(file.path().to_str().unwrap(), &session).await.unwrap();
        let lines: Vec<_> = volumes.iter().map(volume_line).collect();
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert!(lines[0].starts_with("partition 1: 1MiB, Linux (0x83): LUKS, encrypted (1d54aa30-"), "{}", lines[0]);
        assert!(volumes[0].is_locked && !volumes[1].is_locked);
        assert!(lines[1].starts_with("partition 2: 1MiB, ") && lines[1].ends_with(": no known format"), "{}", lines[1]);
        assert!(known_volumes("/nonexistent", &session).await.is_err());
    }

    #[test]
    fn a_volume_that_could_not_be_examined_is_not_called_one_without_a_known_format() {
        let content = Identified { unread: Some("bad sector".into()), ..Identified::default() };
        let range = ByteRange::new(512, 512);
        let line =
            volume_line(&listed(Volume { partition: Some(3), range, description: "Linux (0x83)".into(), content }));
        assert!(line.starts_with("partition 3: ") && line.ends_with(": could not be examined: bad sector"), "{line}");
    }
}
