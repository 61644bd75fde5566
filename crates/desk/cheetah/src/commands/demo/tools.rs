//! The programs of the demonstration: finds, times and runs them with cold caches.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use tokio::process::Command;

use crate::failure::{Context, Failure, Result};
use crate::os;

/// Returns the Debian package of a program.
pub fn package(program: &str) -> &'static str {
    match program {
        "mmls" | "fls" => "sleuthkit",
        "mkntfs" | "ntfs-3g" | "ntfscp" => "ntfs-3g",
        "mkfs.ext4" => "e2fsprogs",
        "umount" => "mount",
        "fusermount3" => "fuse3",
        _ => "coreutils",
    }
}

/// Returns a program's path. Also searches the sbin directories, which are not on every user's PATH.
pub fn find(program: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/local/sbin", "/usr/sbin", "/sbin"].map(PathBuf::from);
    let mut places = std::env::split_paths(&path).chain(system).map(|dir| dir.join(program));
    places.find(|place| place.is_file()).unwrap_or_else(|| program.into())
}

/// Fails with the packages to install if a program is missing.
pub fn require(programs: &[&str]) -> Result<()> {
    let missing: Vec<_> = programs.iter().copied().filter(|program| !find(program).is_file()).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let mut packages: Vec<_> = missing.iter().map(|program| package(program)).collect();
    packages.dedup();
    Err(Failure::failed(format!(
        "the demonstration needs {}; install: apt-get install {}",
        missing.join(", "),
        packages.join(" ")
    )))
}

/// How caches are dropped before a program is timed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cold {
    /// The whole page cache; needs root.
    Everything,
    /// The pages of the file that is read.
    TheFile,
}

impl Cold {
    /// Returns the most thorough method permitted to this user.
    pub fn best() -> Self {
        if os::drop_caches().is_ok() { Self::Everything } else { Self::TheFile }
    }

    /// Returns a sentence for the note below the table.
    pub fn describe(self) -> &'static str {
        match self {
            Self::Everything => "The page cache was dropped before each run (drop_caches).",
            Self::TheFile => {
                "The file's pages were dropped from the page cache before each run (posix_fadvise;\nas root, the whole cache is dropped)."
            }
        }
    }

    /// Drops caches before `program` reads `file`.
    pub fn chill(self, file: &Path, program: &str) -> Result<()> {
        let open = File::open(file).context(format_args!("cannot open {}", file.display()))?;
        // Only clean pages can be dropped. On a read-only mount there is nothing to sync.
        let _ = open.sync_all();
        os::forget_cached(&open);
        if self == Self::Everything {
            os::drop_caches().context("cannot drop the page cache")?;
            // Loads the program again, since its start is not to be measured.
            let warm = std::process::Command::new(find(program)).arg("--version").stdin(Stdio::null()).output();
            warm.context(format_args!("cannot run {program}"))?;
        }
        Ok(())
    }
}

/// A program's output and duration.
#[derive(Clone)]
pub struct Run {
    /// Wall-clock time.
    pub took: Duration,
    /// Its standard output, without the name of the file that it read.
    pub printed: Vec<u8>,
    /// Its exit status.
    pub status: std::process::ExitStatus,
    /// Its standard error.
    pub complained: Vec<u8>,
}

/// Runs `program ARGS… FILE` with cold caches.
pub async fn run_cold(cold: Cold, program: &str, args: &[String], file: &Path) -> Result<Run> {
    let path = file.to_owned();
    let name = program.to_owned();
    tokio::task::spawn_blocking(move || cold.chill(&path, &name))
        .await
        .context("dropping caches was interrupted")??;
    let mut command = Command::new(find(program));
    command.args(args).arg(file).stdin(Stdio::null()).kill_on_drop(true);
    os::keep_from_ctrl_c(&mut command);
    let started = Instant::now();
    let output = command.output().await.context(format_args!("cannot run {program} (package {})", package(program)))?;
    let took = started.elapsed();
    Ok(Run { took, printed: without(&output.stdout, file), status: output.status, complained: output.stderr })
}

/// Removes `path` from the ends of lines.
fn without(text: &[u8], path: &Path) -> Vec<u8> {
    let path = path.as_os_str().as_encoded_bytes();
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    // md5sum prints the path at the end of a line. Searching elsewhere would take long in a listing.
    while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
        let line = &rest[..end];
        out.extend_from_slice(line.strip_suffix(path).unwrap_or(line));
        out.push(b'\n');
        rest = &rest[end + 1..];
    }
    out.extend_from_slice(rest);
    out
}

/// Returns the first sectors of the partitions that mmls printed.
pub fn partition_starts(mmls: &[u8]) -> Vec<u64> {
    const PARTITIONS_MAX: usize = 16;
    String::from_utf8_lossy(mmls)
        .lines()
        .filter_map(|line| {
            // 002:  000:000   0000002048   0000428031   0000425984   NTFS / exFAT (0x07)
            let mut words = line.split_whitespace();
            let (number, slot, start) = (words.next()?, words.next()?, words.next()?);
            let a_partition = number.ends_with(':') && slot.starts_with(|c: char| c.is_ascii_digit());
            a_partition.then(|| start.parse().ok()).flatten()
        })
        .take(PARTITIONS_MAX)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partition_starts_are_read_from_mmls() {
        let text = b"DOS Partition Table\nOffset Sector: 0\nUnits are in 512-byte sectors\n\n      Slot      Start        End          Length       Description\n\
            000:  Meta      0000000000   0000000000   0000000001   Primary Table (#0)\n\
            001:  -------   0000000000   0000002047   0000002048   Unallocated\n\
            002:  000:000   0000002048   0000428031   0000425984   NTFS / exFAT (0x07)\n\
            003:  000:001   0000428032   0000854015   0000425984   Linux (0x83)\n";
        assert_eq!(partition_starts(text), [2048, 428032]);
        let gpt = b"004:  000       0000002048   0000006143   0000004096   EFI\n";
        assert_eq!(partition_starts(gpt), [2048]);
    }

    #[test]
    fn file_name_is_not_compared() {
        assert_eq!(without(b"abc  /tmp/x\n", Path::new("/tmp/x")), b"abc  \n");
    }
}
