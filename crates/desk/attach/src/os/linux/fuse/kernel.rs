//! Mounting and unmounting: system calls, or `fusermount3` for users who are not root.
//!
//! fuser can do this too, but cannot distinguish a busy mount from one that is gone, and would unmount any other mount
//! that is on the directory by then.

use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use cheetah_device::{os_error, program};
use rustix::io::{Errno, FdFlags, fcntl_setfd};
use rustix::mount::{MountFlags, UnmountFlags};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

use crate::table;
use crate::{Error, Result};

/// The names of the helper that mounts for users who are not root.
const HELPERS: [&str; 2] = ["fusermount3", "fusermount"];

/// How to mount.
pub(super) struct MountRequest<'a> {
    /// The source to show in the table of mounts.
    pub(super) source: &'a str,
    pub(super) writable: bool,
    pub(super) allow_other: bool,
}

/// Checks that a directory exists, is empty, and has no mount of ours; returns its path without symbolic links.
pub(super) fn check_directory(dir: &Path) -> Result<PathBuf> {
    let io = |error: io::Error| match Errno::from_io_error(&error) {
        Some(Errno::NOENT) => Error::NoDirectory(dir.to_owned()),
        Some(Errno::NOTDIR) => Error::NotADirectory(dir.to_owned()),
        Some(Errno::NOTCONN | Errno::CONNABORTED) => Error::Stale(dir.to_owned()),
        _ => Error::Io { context: format!("looking at {}", dir.display()), error },
    };
    let path = dir.canonicalize().map_err(io)?;
    let mut entries = path.read_dir().map_err(io)?;
    if let Some(mounted) = table::ours_on(&path).map_err(io)? {
        return Err(Error::Mounted { dir: dir.to_owned(), source_name: mounted.source });
    }
    if entries.next().is_some() { Err(Error::NotEmpty(dir.to_owned())) } else { Ok(path) }
}

/// Whether this user may allow others to use a mount.
pub(super) fn may_allow_other() -> bool {
    let permitted = || {
        let config = std::fs::read_to_string("/etc/fuse.conf").unwrap_or_default();
        config.lines().any(|line| line.trim() == "user_allow_other")
    };
    rustix::process::geteuid().is_root() || permitted()
}

/// Mounts on `dir`; returns the file from which to read the kernel's requests.
pub(super) fn mount(dir: &Path, request: &MountRequest<'_>) -> Result<OwnedFd> {
    let device = OpenOptions::new().read(true).write(true).open("/dev/fuse").map_err(Error::NoFuse)?;
    match mount_directly(dir, &device, request) {
        Ok(()) => Ok(device.into()),
        Err(Errno::PERM) => mount_by_helper(dir, request),
        Err(errno) => Err(refused(dir, io::Error::from(errno).to_string())),
    }
}

fn refused(dir: &Path, why: String) -> Error {
    Error::Refused { dir: dir.to_owned(), why }
}

fn mount_directly(dir: &Path, device: &File, request: &MountRequest<'_>) -> std::result::Result<(), Errno> {
    const S_IFDIR: u32 = 0o40_000;
    let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    let mut options = format!("fd={},rootmode={S_IFDIR:o},user_id={uid},group_id={gid}", device.as_raw_fd());
    options.push_str(",default_permissions");
    if request.allow_other {
        options.push_str(",allow_other");
    }
    let mut flags = MountFlags::NODEV | MountFlags::NOSUID | MountFlags::NOEXEC | MountFlags::NOATIME;
    if !request.writable {
        flags |= MountFlags::RDONLY;
    }
    let options = CString::new(options).map_err(|_| Errno::INVAL)?;
    rustix::mount::mount(request.source, dir, "fuse.cheetah", flags, Some(options.as_c_str()))
}

fn mount_by_helper(dir: &Path, request: &MountRequest<'_>) -> Result<OwnedFd> {
    let io = |error: io::Error| refused(dir, format!("no connection to fusermount3: {}", os_error::describe(&error)));
    let (ours, theirs) = UnixStream::pair().map_err(io)?;
    // The helper inherits a socket, through which it sends the open device.
    fcntl_setfd(&theirs, FdFlags::empty()).map_err(|errno| io(errno.into()))?;
    // A comma would end the option.
    let source = request.source.replace([',', '\\'], "_");
    let mut options = format!("fsname={source},subtype=cheetah,default_permissions,nodev,nosuid,noexec,noatime");
    options.push_str(if request.writable { ",rw" } else { ",ro" });
    if request.allow_other {
        options.push_str(",allow_other");
    }
    let number = theirs.as_raw_fd().to_string();
    let helper = run_helper(|command| {
        command.args(["-o", &options, "--"]).arg(dir).env("_FUSE_COMMFD", &number).stderr(Stdio::piped());
    });
    drop(theirs);
    let output = helper.map_err(|error| refused(dir, error.to_string()))?;
    if !output.status.success() {
        return Err(refused(dir, String::from_utf8_lossy(&output.stderr).trim().to_owned()));
    }
    receive_file(&ours).map_err(io)?.ok_or_else(|| refused(dir, "fusermount3 sent no file".to_owned()))
}

/// Why no helper ran.
#[derive(Debug, thiserror::Error)]
enum HelperError {
    /// None is installed.
    #[error("there is no fusermount3 in PATH, without which only root may do it; install the package fuse3")]
    Absent,
    /// It cannot be run.
    #[error("running {helper}: {}", os_error::describe(error), helper = .helper.display())]
    NotRun { helper: PathBuf, error: io::Error },
}

/// Runs the first helper that exists, and waits for it.
fn run_helper(prepare: impl Fn(&mut Command)) -> std::result::Result<std::process::Output, HelperError> {
    let helper = HELPERS.into_iter().find_map(program::find).ok_or(HelperError::Absent)?;
    let mut command = Command::new(&helper);
    prepare(&mut command);
    let ran = command.stdin(Stdio::null()).stdout(Stdio::null()).output();
    ran.map_err(|error| HelperError::NotRun { helper, error })
}

fn receive_file(socket: &UnixStream) -> io::Result<Option<OwnedFd>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    recvmsg(socket, &mut [io::IoSliceMut::new(&mut byte)], &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
    let mut files = ancillary.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut files) => files.next(),
        _ => None,
    });
    Ok(files.next())
}

/// The result of an attempt to unmount.
pub(super) enum Unmounted {
    /// It is unmounted, perhaps by another process.
    Yes,
    /// Files on it are open.
    Busy,
}

/// The device number of the file system mounted on `dir`. Sends a request to that file system.
pub(super) fn number(dir: &Path) -> io::Result<u64> {
    dir.metadata().map(|metadata| metadata.dev())
}

/// Unmounts `dir` if the file system with that number is still mounted on it; with `lazily`, even if it is in use.
pub(super) fn unmount(dir: &Path, of_number: u64, lazily: bool) -> Result<Unmounted> {
    match number(dir) {
        Ok(found) if found != of_number => return Ok(Unmounted::Yes),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Unmounted::Yes),
        _ => {}
    }
    let flags = UnmountFlags::NOFOLLOW | if lazily { UnmountFlags::DETACH } else { UnmountFlags::empty() };
    match rustix::mount::unmount(dir, flags) {
        Ok(()) => Ok(Unmounted::Yes),
        Err(Errno::BUSY) => Ok(Unmounted::Busy),
        Err(Errno::PERM) => unmount_by_helper(dir, lazily),
        Err(errno) => Err(Error::Unmount { dir: dir.to_owned(), why: io::Error::from(errno).to_string() }),
    }
}

fn unmount_by_helper(dir: &Path, lazily: bool) -> Result<Unmounted> {
    let options: &[&str] = if lazily { &["-u", "-z", "--"] } else { &["-u", "--"] };
    let output = run_helper(|command| {
        command.args(options).arg(dir).env("LC_ALL", "C").stderr(Stdio::piped());
    });
    let why = match output {
        Ok(output) if output.status.success() => return Ok(Unmounted::Yes),
        Ok(output) => {
            let stderr = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            // The helper has one exit code for all failures.
            if stderr.contains("busy") {
                return Ok(Unmounted::Busy);
            }
            stderr
        }
        Err(error) => error.to_string(),
    };
    Err(Error::Unmount { dir: dir.to_owned(), why })
}

/// The kernel's default read-ahead in bytes.
pub(super) const READ_AHEAD_BYTES: u32 = 128 << 10;

/// Raises the kernel's read-ahead, if permitted (for root). Otherwise the requests of a sequential reader have 128 KiB.
pub(super) fn raise_read_ahead(number: u64, bytes: u32) {
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    let setting = format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb");
    let kib = bytes / 1024;
    if let Err(error) = std::fs::write(&setting, kib.to_string()) {
        tracing::debug!("{setting} stays as it is: {error}");
    }
}
