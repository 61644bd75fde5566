//! The programs the demonstration runs: finding them, emptying the cache before them, timing them.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use tokio::process::Command;

use crate::failure::{Context, Failure, Result};

/// Debian's package of a program.
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

/// Where a program is. What an ordinary user's PATH leaves out is looked at too.
pub fn find(program: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/local/sbin", "/usr/sbin", "/sbin"].map(PathBuf::from);
    let mut places = std::env::split_paths(&path).chain(system).map(|dir| dir.join(program));
    places.find(|place| place.is_file()).unwrap_or_else(|| program.into())
}

/// Fails with the packages to install unless every program is there.
pub fn require(programs: &[&str]) -> Result<()> {
    let missing: Vec<_> = programs.iter().copied().filter(|program| !find(program).is_file()).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let mut packages: Vec<_> = missing.iter().map(|program| package(program)).collect();
    packages.dedup();
    Err(Failure::failed(format!(
        "the demonstration needs {}; install with: apt-get install {}",
        missing.join(", "),
        packages.join(" ")
    )))
}

/// How the cache is emptied before a program is timed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cold {
    /// All of the kernel's page cache, which takes root.
    Everything,
    /// The pages of the file about to be read.
    TheFile,
}

impl Cold {
    /// The best this user may do.
    pub fn best() -> Self {
        if drop_caches().is_ok() { Self::Everything } else { Self::TheFile }
    }

    /// For the note below the table.
    pub fn describe(self) -> &'static str {
        match self {
            Self::Everything => "before each run the page cache was emptied (sync; drop_caches)",
            Self::TheFile => {
                "before each run the file's pages were dropped from the cache (posix_fadvise; root could empty all of it)"
            }
        }
    }

    /// Makes `file` cold, for `program` to read.
    pub fn chill(self, file: &Path, program: &str) -> Result<()> {
        let open = File::open(file).context(format_args!("cannot open {}", file.display()))?;
        // Clean pages only can be dropped. On a read-only mount there is nothing to sync.
        let _ = open.sync_all();
        let _ = rustix::fs::fadvise(&open, 0, None, rustix::fs::Advice::DontNeed);
        if self == Self::Everything {
            drop_caches().context("cannot empty the page cache")?;
            // The program itself has become cold with the rest, and its loading is not to be measured.
            let warm = std::process::Command::new(find(program)).arg("--version").stdin(Stdio::null()).output();
            warm.context(format_args!("cannot run {program}"))?;
        }
        Ok(())
    }
}

fn drop_caches() -> std::io::Result<()> {
    rustix::fs::sync();
    std::fs::write("/proc/sys/vm/drop_caches", "3")
}

/// What a program printed, and how long it took.
pub struct Run {
    /// Wall-clock time.
    pub took: Duration,
    /// Its standard output, with the name of the file it read taken out.
    pub printed: Vec<u8>,
    /// How it ended.
    pub status: std::process::ExitStatus,
    /// Its standard error.
    pub complained: Vec<u8>,
}

/// Runs `program ARGS… FILE` with a cold cache.
pub async fn run_cold(cold: Cold, program: &str, args: &[String], file: &Path) -> Result<Run> {
    let path = file.to_owned();
    let name = program.to_owned();
    tokio::task::spawn_blocking(move || cold.chill(&path, &name)).await.context("emptying the cache broke off")??;
    let mut command = Command::new(find(program));
    command.args(args).arg(file).stdin(Stdio::null()).kill_on_drop(true).process_group(0);
    let started = Instant::now();
    let output = command.output().await.context(format_args!("cannot run {program} (package {})", package(program)))?;
    let took = started.elapsed();
    Ok(Run { took, printed: without(&output.stdout, file), status: output.status, complained: output.stderr })
}

/// `text` without the path in it.
fn without(text: &[u8], path: &Path) -> Vec<u8> {
    let path = path.as_os_str().as_encoded_bytes();
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    // The path is printed at the end of a line if at all (md5sum); looking elsewhere would take long in a listing.
    while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
        let line = &rest[..end];
        out.extend_from_slice(line.strip_suffix(path).unwrap_or(line));
        out.push(b'\n');
        rest = &rest[end + 1..];
    }
    out.extend_from_slice(rest);
    out
}

/// The sectors at which the partitions begin, read from what mmls printed.
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
    fn reads_the_partitions_mmls_prints() {
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
    fn the_name_of_the_file_is_no_difference() {
        assert_eq!(without(b"abc  /tmp/x\n", Path::new("/tmp/x")), b"abc  \n");
    }
}
