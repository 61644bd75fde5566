//! A disk image of real files, made without loop devices: a partition table, an NTFS and an ext4 file system.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cheetah_kit::file::{FileExt as _, Status};
use tokio::process::Command;

use super::files::{self, Copied};
use crate::failure::{Context, Failure, Result};
use crate::os;

const MIB: u64 = 1 << 20;
const SECTOR_BYTES: u64 = 512;
/// Files in each file system.
const FILES_BYTES: u64 = 160 * MIB;
/// Each file system: its files and room for its own structures.
const PARTITION_BYTES: u64 = 208 * MIB;
const NTFS_AT: u64 = MIB;
const EXT4_AT: u64 = NTFS_AT + PARTITION_BYTES;
/// In the scratch directory.
const MOUNT_POINT: &str = "mnt";
const IMAGE_BYTES: u64 = EXT4_AT + PARTITION_BYTES + MIB;

/// Makes the image at `path`; `scratch` is an empty directory for temporary files.
pub async fn build(path: &Path, scratch: &Path) -> Result<Copied> {
    let image = File::create_new(path).context(format_args!("cannot create {}", path.display()))?;
    image.set_len(IMAGE_BYTES).context("cannot size the image")?;
    let ntfs = ntfs_files(&image, scratch).await?;
    image.write_all_at(&partition_table(), 0).context("cannot write the partition table")?;
    let ext4 = ext4_files(path, scratch).await?;
    image.sync_all().context("cannot finish writing the image")?;
    let _ = fs::remove_dir_all(scratch);
    Ok(Copied { files: ntfs.files + ext4.files, bytes: ntfs.bytes + ext4.bytes })
}

/// Returns a master boot record with the two partitions.
fn partition_table() -> [u8; SECTOR_BYTES as usize] {
    let mut sector = [0; SECTOR_BYTES as usize];
    for (index, (kind, at)) in [(0x07, NTFS_AT), (0x83, EXT4_AT)].into_iter().enumerate() {
        let entry = &mut sector[446 + 16 * index..][..16];
        // Cylinder, head and sector are obsolete; these values mean "use the LBA".
        entry[1..4].copy_from_slice(&[0xfe, 0xff, 0xff]);
        entry[4] = kind;
        entry[5..8].copy_from_slice(&[0xfe, 0xff, 0xff]);
        entry[8..12].copy_from_slice(&sectors(at));
        entry[12..16].copy_from_slice(&sectors(PARTITION_BYTES));
    }
    sector[510..].copy_from_slice(&[0x55, 0xaa]);
    sector
}

fn sectors(bytes: u64) -> [u8; 4] {
    u32::try_from(bytes / SECTOR_BYTES).unwrap_or(u32::MAX).to_le_bytes()
}

/// Makes an ext4 file system with files, in its place in the image.
async fn ext4_files(image: &Path, scratch: &Path) -> Result<Copied> {
    let tree = scratch.join("ext4");
    let copied = copy_some(&["/usr/bin", "/usr/lib"], tree.clone(), FILES_BYTES).await?;
    let offset = format!("offset={EXT4_AT}");
    let mut mkfs = command("mkfs.ext4");
    mkfs.args(["-q", "-F", "-L", "evidence", "-E", &offset, "-d"]).arg(&tree).arg(image);
    mkfs.arg(format!("{}k", PARTITION_BYTES / 1024));
    succeed(mkfs, "mkfs.ext4").await?;
    Ok(copied)
}

/// Makes an NTFS file system in a file (mkntfs takes no offset), and copies it to its place.
async fn ntfs_files(image: &File, scratch: &Path) -> Result<Copied> {
    let part = scratch.join("ntfs.part");
    let file =
        File::options().create_new(true).read(true).write(true).open(&part).context("cannot create the NTFS file")?;
    file.set_len(PARTITION_BYTES).context("cannot size the NTFS file")?;
    let mut mkntfs = command("mkntfs");
    let start = (NTFS_AT / SECTOR_BYTES).to_string();
    mkntfs.args(["-F", "-q", "-Q", "-s", "512", "-p", &start, "-H", "255", "-S", "63", "-L", "EVIDENCE"]).arg(&part);
    succeed(mkntfs, "mkntfs").await?;
    let copied = fill_ntfs(&part, scratch).await?;
    place(&file, image, NTFS_AT).context("cannot copy the NTFS file system into the image")?;
    let _ = fs::remove_file(&part);
    Ok(copied)
}

/// Copies files into the NTFS file system: through FUSE where ntfs-3g may mount (root), else one by one.
async fn fill_ntfs(part: &Path, scratch: &Path) -> Result<Copied> {
    let dir = scratch.join(MOUNT_POINT);
    fs::create_dir(&dir).context("cannot create a mount point")?;
    // The driver runs in the foreground: unmounting does not wait for its last writes, so its exit is awaited.
    let mut driver =
        command("ntfs-3g").args(["-o", "no_detach"]).arg(part).arg(&dir).spawn().context(missing("ntfs-3g"))?;
    while !is_mount_point(&dir) {
        if driver.try_wait().context("cannot watch ntfs-3g")?.is_some() {
            return fill_ntfs_unmounted(part, scratch).await;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let copied = copy_some(&["/usr/share", "/usr/lib"], dir.clone(), FILES_BYTES).await;
    let mut umount = command("umount");
    umount.arg(&dir);
    succeed(umount, "umount").await?;
    driver.wait().await.context("cannot wait for ntfs-3g")?;
    copied
}

/// Copies fewer files, all into the root directory, if this user must not mount.
async fn fill_ntfs_unmounted(part: &Path, scratch: &Path) -> Result<Copied> {
    const FILES_UNMOUNTED_MAX: usize = 300;
    let tree = scratch.join("ntfs");
    let mut copied = Copied::default();
    let all = copy_some(&["/usr/share"], tree.clone(), FILES_BYTES / 4).await?;
    let mut directories = vec![tree];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory).context("cannot read back the files")?.flatten() {
            if entry.path().is_dir() {
                directories.push(entry.path());
            } else if copied.files < FILES_UNMOUNTED_MAX.min(all.files) {
                let name = format!("{:03}-{}", copied.files, entry.file_name().display());
                let mut ntfscp = command("ntfscp");
                ntfscp.args(["-f", "-q"]).arg(part).arg(entry.path()).arg(name);
                succeed(ntfscp, "ntfscp").await?;
                copied.files += 1;
                copied.bytes += entry.metadata().map_or(0, |meta| meta.len());
            }
        }
    }
    Ok(copied)
}

/// Copies `from` into `to` at an offset, omitting zeros.
fn place(mut from: &File, to: &File, at: u64) -> std::io::Result<()> {
    let mut buffer = vec![0; MIB as usize];
    let mut offset = at;
    loop {
        let len = from.read(&mut buffer)?;
        if len == 0 {
            return Ok(());
        }
        if !cheetah_device::data::is_zero(&buffer[..len]) {
            to.write_all_at(&buffer[..len], offset)?;
        }
        offset += len as u64;
    }
}

fn is_mount_point(dir: &Path) -> bool {
    let device = |path: &Path| Status::at(path).map(|status| status.id.volume).ok();
    dir.parent().is_some_and(|parent| device(dir) != device(parent))
}

/// Returns a command whose output is shown only if it fails. It is killed when its future is dropped; Ctrl-C does not
/// reach it.
fn command(program: &str) -> Command {
    let mut command = Command::new(super::tools::find(program));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true);
    os::keep_from_ctrl_c(&mut command);
    command
}

async fn succeed(mut command: Command, name: &str) -> Result<()> {
    let output = command.output().await.context(missing(name))?;
    if output.status.success() {
        return Ok(());
    }
    Err(Failure::failed(format!(
        "{name} failed ({}): {}",
        output.status,
        String::from_utf8_lossy(&output.stderr).trim()
    )))
}

fn missing(program: &str) -> String {
    format!("cannot run {program} (package {})", super::tools::package(program))
}

/// Copies on a thread of its own, which stops when the future is dropped.
async fn copy_some(roots: &'static [&'static str], to: PathBuf, budget_bytes: u64) -> Result<Copied> {
    struct StopOnDrop(Arc<AtomicBool>);
    impl Drop for StopOnDrop {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let stop = StopOnDrop(Arc::default());
    let stopped = Arc::clone(&stop.0);
    let copying = tokio::task::spawn_blocking(move || files::copy_some(roots, &to, budget_bytes, &stopped));
    copying.await.context("copying files was interrupted")?
}

/// Removes the remains of an interrupted [`build`].
pub async fn abandon(scratch: &Path) {
    if scratch.exists() {
        // Tried in any case: whether it is mounted is hard to determine.
        let _ = command("umount").arg("-l").arg(scratch.join(MOUNT_POINT)).output().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_partition_table_has_its_signature_and_its_partitions() {
        let table = partition_table();
        assert_eq!(table[510..], [0x55, 0xaa]);
        assert_eq!(table[446 + 8..][..4], 2048u32.to_le_bytes());
        assert_eq!(table[446 + 16 + 4], 0x83);
    }
}
