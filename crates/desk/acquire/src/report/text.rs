//! The report for people.

use std::fmt;

use cheetah_custody::acquisition_report::{LOG_HEAD, NAME_COLUMNS, case_lines};
use cheetah_device::Size;
use cheetah_device::visible::OneLine;
use cheetah_drive::recognise::{Cause, DiskCompared};
use cheetah_image::{CaseData, Identity};

use super::Report;

/// Unreadable ranges listed; the coverage map has all of them.
const RANGES_SHOWN_MAX: usize = 100;
/// Doubts listed; a table may have thousands of partitions.
const DOUBTS_SHOWN_MAX: usize = 20;
/// Openings listed.
const OPENINGS_SHOWN_MAX: usize = 20;

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "Acquisition report, {}\n", self.tool)?;
        case(f, &self.case)?;
        source(f, &self.source)?;
        self.doubts.iter().take(DOUBTS_SHOWN_MAX).try_for_each(|doubt| line(f, "IN DOUBT", doubt))?;
        self.volumes(f)?;
        for read in &self.files {
            line(f, "read from", format_args!("{} ({} bytes)", read.file, read.size))?;
            match (&read.sha256, &read.why_not) {
                (Some(sha256), _) => line(f, "  its sha256", sha256)?,
                (None, Some(why_not)) => line(f, "  its sha256", format_args!("not made: {why_not}"))?,
                (None, None) => {}
            }
        }
        writeln!(f)?;
        line(f, "acquired", format_args!("{} ({} bytes)", Size(self.size), self.size))?;
        line(f, "started", &self.started)?;
        line(f, "finished", &self.finished)?;
        let rate = Size(self.rate_bytes_s);
        line(f, "at work", format_args!("{:.1} s, {rate} a second", self.duration_s))?;
        line(f, "interruptions", self.interruptions)?;
        line(f, "links lost", self.reconnects)?;
        self.opened_again(f)?;
        if let Some(wire) = &self.wire {
            let ratio = wire.compression().unwrap_or(1.0);
            let content = Size(wire.content_bytes);
            line(f, "over the link", format_args!("{} for {content} ({ratio:.2} to 1)", Size(wire.received_bytes)))?;
        }
        match self.retries {
            0 => line(f, "extra reads", 0)?,
            // A chunk with a bad sector is read again in halves, their halves and so on: thousands of reads a MiB.
            extra => line(f, "extra reads", format_args!("{extra} (smaller reads around bad sectors, and retries)"))?,
        }
        self.unreadable_ranges(f)?;
        writeln!(f)?;
        for (kind, digest) in self.hashes.iter() {
            line(f, kind.name(), digest)?;
        }
        for differs in &self.hashes_differing {
            line(f, "DIFFERS", format_args!("the source claims the {} {}", differs.hash, differs.claimed))?;
        }
        self.destinations(f)
    }
}

impl Report {
    /// Volumes: which is which.
    fn volumes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(unlocked) = &self.unlocked {
            line(f, "image of", "what is on the disk: encrypted volumes are encrypted in it")?;
            unlocked.opened.iter().try_for_each(|volume| line(f, "opened", volume))?;
            unlocked.locked.iter().try_for_each(|volume| line(f, "locked", volume))?;
        }
        if let Some(volume) = &self.volume {
            line(f, "image of", "the content of a volume that was found on a disk: it is not what is on the disk")?;
            line(f, "volume", format_args!("{}: {}", volume.name, volume.description))?;
            volume.opened.iter().try_for_each(|opened| line(f, "opened", opened))?;
            line(f, "found in", &volume.of)?;
            volume.hashes.iter().try_for_each(|(kind, digest)| line(f, &format!("  its {}", kind.name()), digest))?;
            disks(f, &volume.disks)?;
        }
        let Some(decrypted) = &self.decrypted else { return Ok(()) };
        line(f, "image of", "the content of an encrypted volume, DECRYPTED: it is not what is on the disk")?;
        line(f, "opened", &decrypted.volume)?;
        line(f, "decrypted from", &decrypted.of)?;
        decrypted.hashes.iter().try_for_each(|(kind, digest)| line(f, &format!("  its {}", kind.name()), digest))?;
        disks(f, &decrypted.disks)
    }

    fn opened_again(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for opening in self.openings.iter().take(OPENINGS_SHOWN_MAX) {
            let why = match opening.cause {
                Cause::Lost => "source lost, opened again",
                Cause::Resumed => "command run again",
            };
            line(f, "", format_args!("at {}: {why}: {opening}", Size(opening.at)))?;
            for disk in &opening.disks {
                line(f, "", format_args!("  {}", Compared(disk)))?;
            }
        }
        if self.openings.len() > OPENINGS_SHOWN_MAX {
            line(f, "", format_args!("and {} more", self.openings.len() - OPENINGS_SHOWN_MAX))?;
        }
        self.notes.iter().take(OPENINGS_SHOWN_MAX).try_for_each(|note| line(f, "NOTE", note))
    }

    fn unreadable_ranges(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.unreadable.is_empty() {
            return line(f, "unreadable", "nothing");
        }
        for (corrupt, name) in [(false, "UNREADABLE"), (true, "CORRUPT")] {
            let (bytes, count) = self.bad(corrupt);
            if count == 0 {
                continue;
            }
            let place = if corrupt { " of the source, itself an image" } else { "" };
            line(f, name, format_args!("{bytes} bytes in {count} ranges{place}; zeros stand for them"))?;
            for bad in self.unreadable.iter().filter(|bad| bad.corrupt == corrupt).take(RANGES_SHOWN_MAX) {
                line(f, "", format_args!("{} bytes at {}: {}", bad.len, bad.offset, bad.why))?;
            }
            if count > RANGES_SHOWN_MAX {
                line(f, "", format_args!("and {} more: see the map", count - RANGES_SHOWN_MAX))?;
            }
        }
        Ok(())
    }

    fn destinations(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for sink in &self.sinks {
            writeln!(f)?;
            line(f, "destination", &sink.destination)?;
            for file in sink.files.iter().skip(1) {
                line(f, "", file.display())?;
            }
            line(f, "stored", Size(sink.stored_bytes))?;
            if let Some(map) = &sink.map {
                line(f, "coverage map", map.display())?;
            }
            if let Some(custody) = &sink.custody {
                line(f, "custody log", custody.display())?;
            }
            if let Some(head) = &sink.head {
                line(f, LOG_HEAD, head.noted())?;
                line(f, "  at", &head.time)?;
                line(f, "  signed by", &head.public_key)?;
                line(f, "  signature", &head.signature)?;
            }
            match sink.verified {
                Some(true) => {
                    let made: Vec<_> = sink.verified_hashes.iter().map(|(kind, _)| kind.name()).collect();
                    let by = if made.is_empty() { "digests of its chunks".to_owned() } else { made.join(", ") };
                    line(f, "read back", format_args!("as acquired, by {by}"))?;
                }
                Some(false) => line(f, "READ BACK", "NOT as acquired")?,
                None => line(f, "read back", "not asked for")?,
            }
            for problem in &sink.problems {
                line(f, "PROBLEM", problem)?;
            }
        }
        Ok(())
    }
}

fn line(f: &mut fmt::Formatter<'_>, name: &str, value: impl fmt::Display) -> fmt::Result {
    // Some values come from the source: none may appear as a line of its own, or control a terminal.
    writeln!(f, "{name:<NAME_COLUMNS$}{}", OneLine(value))
}

fn case(f: &mut fmt::Formatter<'_>, case: &CaseData) -> fmt::Result {
    for (name, value) in case_lines(case) {
        value.map_or(Ok(()), |value| line(f, name, value))?;
    }
    if case.is_empty() { Ok(()) } else { writeln!(f) }
}

/// How a disk that a volume lies on was compared with its state at the beginning.
struct Compared<'a>(&'a DiskCompared);

impl fmt::Display for Compared<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let DiskCompared { location, compared_bytes, unreadable_bytes, .. } = self.0;
        match compared_bytes {
            0 => write!(f, "{location}: no content compared")?,
            bytes => write!(f, "{location}: {} at both ends and in random places compared, equal", Size(*bytes))?,
        }
        match unreadable_bytes {
            0 => Ok(()),
            bytes => write!(f, "; {} of these places cannot be read any more", Size(*bytes)),
        }
    }
}

/// The disks and images that a volume was looked for on, if these are several. It may lie on some of them alone.
fn disks(f: &mut fmt::Formatter<'_>, disks: &[Identity]) -> fmt::Result {
    for disk in disks {
        line(f, "looked for on", format_args!("{} ({}, {} bytes)", disk.location, disk.kind, disk.size))?;
        for (name, value) in [("  its model", &disk.model), ("  its serial", &disk.serial)] {
            value.as_ref().map_or(Ok(()), |value| line(f, name, value))?;
        }
        disk.hashes.iter().try_for_each(|(kind, digest)| line(f, &format!("  its {}", kind.name()), digest))?;
    }
    Ok(())
}

fn source(f: &mut fmt::Formatter<'_>, source: &Identity) -> fmt::Result {
    line(f, "source", &source.location)?;
    for redirection in source.server.iter().flat_map(|server| &server.redirections) {
        line(f, "redirected to", redirection)?;
    }
    line(f, "kind", source.kind)?;
    if let Some(transport) = source.server.as_ref().and_then(|server| server.transport.as_ref()) {
        line(f, "connection", transport)?;
    }
    if let Some(target) = &source.aoe {
        line(f, "AoE target", target)?;
    }
    for (name, value) in [("model", &source.model), ("serial number", &source.serial)] {
        if let Some(value) = value {
            line(f, name, value)?;
        }
    }
    if let Some(bytes) = source.sector_size {
        line(f, "sector", format_args!("{bytes} bytes"))?;
    }
    line(
        f,
        "write-protected",
        match source.write_protected {
            Some(true) => "yes",
            Some(false) => "no; it was opened read-only, and never written to",
            None => "unknown; it was opened read-only, and never written to",
        },
    )?;
    line(f, "watched", source.watched.as_deref().unwrap_or("not watched for changes: it is at the other end of a link"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_disk_no_zero_bytes_are_called_equal_and_what_cannot_be_read_any_more_is_said() {
        let line = |compared_bytes, unreadable_bytes| {
            let location = "disk2.raw".to_owned();
            Compared(&DiskCompared { location, size_bytes: 1 << 20, compared_bytes, unreadable_bytes }).to_string()
        };
        let [none, unread, compared] = [0, 4096, 8192].map(|bytes| Size(bytes).to_string());
        assert!(!line(0, 0).contains(&none));
        assert!(line(8192, 0).contains(&compared) && !line(8192, 0).contains(&unread));
        assert!(line(8192, 4096).contains(&compared) && line(8192, 4096).contains(&unread));
    }
}
