//! The file system: one directory, with one file per view.
//!
//! **Caching.** On a read-only mount, or one with a single file, the kernel caches pages across opening and closing. On a
//! writable mount with partitions, the same bytes are in two files, and a write to one would leave stale pages of the
//! other. Files are then opened with direct I/O, so that every read and write is a request. Loop devices, which have their
//! own cache, work well with that; only a shared `mmap` is impossible. In any case, writes by another machine become visible
//! only after mounting again.

use std::ffi::OsStr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use cheetah_device::{ByteRange, Data, buffers};
use fuser::{
    AccessFlags, BsdFileFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo,
    InitFlags, IoctlFlags, KernelConfig, LockOwner, OpenAccMode, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate,
    ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyIoctl, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite,
    ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use tokio::runtime::Handle;

use super::pages::Pages;
use super::view::{FileView, Seek, in_one_piece};
use crate::table::PID_ATTRIBUTE;
use crate::task;

/// What the log calls a request.
const REQUEST: &str = "a request of the mount";
/// The maximum size of a request, which is also the kernel's default.
const REQUEST_BYTES_MAX: u32 = 1 << 20;
/// The maximum number of read-ahead and asynchronous requests in flight; at 1 MiB each, this also limits memory.
const BACKGROUND_REQUESTS_MAX: u16 = 32;
/// Names and attributes never change.
const FOREVER: Duration = Duration::from_secs(1 << 30);
/// The inode number of the first file; the directory has 1.
const FIRST_FILE: u64 = 2;
const BLOCK_BYTES: u32 = 4096;
const READ_HANDLE: FileHandle = FileHandle(0);
const WRITE_HANDLE: FileHandle = FileHandle(1);

/// What may be done with the files, and by whom.
#[derive(Debug, Clone, Copy)]
pub(super) struct FileAccess {
    pub writable: bool,
    /// All users may use them; otherwise only the owner.
    pub allow_other: bool,
}

impl FileAccess {
    /// The permissions of a file, and of the directory.
    fn permissions(self) -> (u16, u16) {
        let of_owner = if self.writable { 0o600 } else { 0o400 };
        if self.allow_other { (of_owner | 0o044, 0o555) } else { (of_owner, 0o500) }
    }
}

/// The views of a device as a file system.
pub(super) struct ViewFiles {
    views: Vec<Arc<FileView>>,
    writable: bool,
    access: FileAccess,
    pages: Arc<Pages>,
    read_ahead_bytes: u32,
    runtime: Handle,
    mounted: SystemTime,
}

impl ViewFiles {
    pub(super) fn new(views: Vec<FileView>, access: FileAccess, read_ahead_bytes: u32, runtime: Handle) -> Self {
        let (views, pages) = (views.into_iter().map(Arc::new).collect(), Arc::new(Pages::new()));
        let read_ahead_bytes = read_ahead_bytes.min(REQUEST_BYTES_MAX);
        let (writable, mounted) = (access.writable, SystemTime::now());
        Self { views, writable, access, pages, read_ahead_bytes, runtime, mounted }
    }

    /// The kernel's page cache, if the mount is read-only: a store must not overwrite pages that were written meanwhile.
    pub(super) fn pages(&self) -> Option<Arc<Pages>> {
        (!self.writable).then(|| Arc::clone(&self.pages))
    }

    fn view(&self, ino: INodeNo) -> Option<&Arc<FileView>> {
        self.views.get(usize::try_from(ino.0.checked_sub(FIRST_FILE)?).ok()?)
    }

    fn numbered(&self) -> impl Iterator<Item = (INodeNo, &Arc<FileView>)> {
        (FIRST_FILE..).map(INodeNo).zip(&self.views)
    }

    fn attributes(&self, ino: INodeNo) -> Option<FileAttr> {
        let (of_file, of_directory) = self.access.permissions();
        let file = |size, perm| (FileType::RegularFile, size, perm, 1);
        let (kind, size, perm, nlink) = match self.view(ino) {
            Some(view) => file(view.size, of_file),
            None if ino == INodeNo::ROOT => (FileType::Directory, 0, of_directory, 2),
            None => return None,
        };
        Some(FileAttr {
            ino,
            size,
            blocks: size.div_ceil(512),
            atime: self.mounted,
            mtime: self.mounted,
            ctime: self.mounted,
            crtime: self.mounted,
            kind,
            perm,
            nlink,
            uid: rustix::process::getuid().as_raw(),
            gid: rustix::process::getgid().as_raw(),
            rdev: 0,
            blksize: BLOCK_BYTES,
            flags: 0,
        })
    }

    /// The flags of an open file; see the module documentation.
    fn open_flags(&self, for_writing: bool) -> FopenFlags {
        let caching = if self.writable && self.views.len() > 1 {
            FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES
        } else {
            FopenFlags::FOPEN_KEEP_CACHE
        };
        if for_writing { caching } else { caching | FopenFlags::FOPEN_NOFLUSH }
    }

    /// Runs `operation` on a view, and replies with its result.
    fn run<F: Future<Output = Result<(), Errno>> + Send + 'static>(
        &self,
        ino: INodeNo,
        reply: ReplyEmpty,
        operation: impl FnOnce(Arc<FileView>) -> F,
    ) {
        let Some(view) = self.view(ino) else { return reply.error(Errno::ENOENT) };
        let operation = operation(Arc::clone(view));
        task::run(&self.runtime, REQUEST, async move {
            match operation.await {
                Ok(()) => reply.ok(),
                Err(errno) => reply.error(errno),
            }
        });
    }
}

impl Filesystem for ViewFiles {
    fn init(&mut self, _req: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        // On an error, each of these returns the nearest valid value.
        let _ = config.set_max_write(REQUEST_BYTES_MAX);
        if let Err(largest) = config.set_max_readahead(self.read_ahead_bytes) {
            let _ = config.set_max_readahead(largest);
        }
        let _ = config.set_max_background(BACKGROUND_REQUESTS_MAX);
        // Concurrent reads of one file, also with direct I/O.
        let _ = config.add_capabilities(InitFlags::FUSE_ASYNC_DIO);
        Ok(())
    }

    fn lookup(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let found = self.numbered().find(|(_, view)| parent == INodeNo::ROOT && name == view.name.as_str());
        match found.and_then(|(ino, _)| self.attributes(ino)) {
            Some(attributes) => reply.entry(&FOREVER, &attributes, Generation(0)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _req: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        match self.attributes(ino) {
            Some(attributes) => reply.attr(&FOREVER, &attributes),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn setattr(
        &self,
        _req: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        _atime: Option<TimeOrNow>,
        _mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _fh: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        // New times are accepted and ignored, since many tools set them. The size of a device is fixed.
        match self.attributes(ino) {
            None => reply.error(Errno::ENOENT),
            Some(now) if size.is_some_and(|size| size != now.size) => reply.error(Errno::EPERM),
            Some(_) if mode.is_some() || uid.is_some() || gid.is_some() => reply.error(Errno::EPERM),
            Some(now) => reply.attr(&FOREVER, &now),
        }
    }

    fn open(&self, _req: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let for_writing = flags.acc_mode() != OpenAccMode::O_RDONLY;
        match self.view(ino) {
            None => reply.error(Errno::EISDIR),
            Some(_) if for_writing && !self.writable => reply.error(Errno::EROFS),
            Some(_) => {
                let handle = if for_writing { WRITE_HANDLE } else { READ_HANDLE };
                reply.opened(handle, self.open_flags(for_writing));
            }
        }
    }

    fn read(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let Some(view) = self.view(ino).map(Arc::clone) else { return reply.error(Errno::ENOENT) };
        let (pages, thread) = (Arc::clone(&self.pages), std::thread::current().id());
        task::run(&self.runtime, REQUEST, async move {
            let range = view.clip(offset, size.into());
            match view.read(range).await {
                Ok(data) => {
                    // Only on this thread: the runtime's threads must not block.
                    if std::thread::current().id() == thread {
                        pages.store_after(range, ino, &view);
                    }
                    in_one_piece(&data, |bytes| reply.data(bytes));
                }
                Err(errno) => reply.error(errno),
            }
        });
    }

    fn write(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let Some(view) = self.view(ino).map(Arc::clone) else { return reply.error(Errno::ENOENT) };
        let range = view.clip(offset, data.len() as u64);
        if range.is_empty() && !data.is_empty() {
            // As block devices do for writes beyond their end.
            return reply.error(Errno::ENOSPC);
        }
        // At most the size of the request.
        let Ok(len) = u32::try_from(range.len) else { return reply.error(Errno::EINVAL) };
        // The next request overwrites this one's memory, so that it is copied: into a reused buffer, as fresh memory costs
        // page faults.
        let mut copy = buffers::empty(len as usize);
        copy.extend_from_slice(&data[..len as usize]);
        let data = Data::from(buffers::share(copy));
        let fua = flags.0 & libc::O_DSYNC != 0;
        task::run(&self.runtime, REQUEST, async move {
            match view.write(offset, data, fua).await {
                Ok(()) => reply.written(len),
                Err(errno) => reply.error(errno),
            }
        });
    }

    fn flush(&self, req: &Request, ino: INodeNo, fh: FileHandle, _lock_owner: LockOwner, reply: ReplyEmpty) {
        if fh == WRITE_HANDLE { self.fsync(req, ino, fh, true, reply) } else { reply.ok() }
    }

    fn fsync(&self, _req: &Request, ino: INodeNo, _fh: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        self.run(ino, reply, |view| async move { view.flush().await });
    }

    fn fallocate(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let keep_size = mode & libc::FALLOC_FL_KEEP_SIZE != 0;
        let (punch, zero) = (mode & libc::FALLOC_FL_PUNCH_HOLE != 0, mode & libc::FALLOC_FL_ZERO_RANGE != 0);
        let beyond = self.view(ino).is_none_or(|view| !ByteRange::new(offset, length).fits(view.size));
        if punch == zero || (beyond && !keep_size) {
            return reply.error(Errno::EOPNOTSUPP);
        }
        self.run(ino, reply, |view| async move { view.zero(view.clip(offset, length), zero).await });
    }

    fn lseek(&self, _req: &Request, ino: INodeNo, _fh: FileHandle, offset: i64, whence: i32, reply: ReplyLseek) {
        let what = match whence {
            libc::SEEK_DATA => Seek::Data,
            libc::SEEK_HOLE => Seek::Hole,
            _ => return reply.error(Errno::EINVAL),
        };
        let Some(view) = self.view(ino).map(Arc::clone) else { return reply.error(Errno::ENOENT) };
        let Ok(offset) = u64::try_from(offset) else { return reply.error(Errno::ENXIO) };
        task::run(&self.runtime, REQUEST, async move {
            match view.seek(offset, what).await.map(i64::try_from) {
                Ok(Ok(found)) => reply.offset(found),
                Ok(Err(_)) => reply.error(Errno::EOVERFLOW),
                Err(errno) => reply.error(errno),
            }
        });
    }

    fn readdir(&self, _req: &Request, ino: INodeNo, _fh: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        if ino != INodeNo::ROOT {
            return reply.error(Errno::ENOTDIR);
        }
        let dots = [".", ".."].map(|name| (INodeNo::ROOT, FileType::Directory, name));
        let files = self.numbered().map(|(ino, view)| (ino, FileType::RegularFile, view.name.as_str()));
        // The offset of an entry is where the next call continues.
        let skipped = usize::try_from(offset).unwrap_or(usize::MAX);
        for (next, (ino, kind, name)) in (1..).zip(dots.into_iter().chain(files)).skip(skipped) {
            if reply.add(ino, next, kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn statfs(&self, _req: &Request, _ino: INodeNo, reply: ReplyStatfs) {
        // The partitions are part of the first file.
        let blocks = self.views.first().map_or(0, |view| view.size.div_ceil(BLOCK_BYTES.into()));
        reply.statfs(blocks, 0, 0, self.views.len() as u64, 0, BLOCK_BYTES, 255, BLOCK_BYTES);
    }

    // Every file system must have the remaining operations; here they are trivial.

    fn access(&self, _req: &Request, _ino: INodeNo, _mask: AccessFlags, reply: ReplyEmpty) {
        reply.ok();
    }

    fn getxattr(&self, _req: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        if ino != INodeNo::ROOT || name != PID_ATTRIBUTE {
            return reply.error(Errno::EOPNOTSUPP);
        }
        let pid = std::process::id().to_string();
        match (u32::try_from(pid.len()), size) {
            (Ok(len), 0) => reply.size(len),
            (Ok(len), size) if len <= size => reply.data(pid.as_bytes()),
            _ => reply.error(Errno::ERANGE),
        }
    }

    fn listxattr(&self, _req: &Request, _ino: INodeNo, _size: u32, reply: ReplyXattr) {
        reply.error(Errno::EOPNOTSUPP);
    }

    fn ioctl(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _flags: IoctlFlags,
        _cmd: u32,
        _in_data: &[u8],
        _out_size: u32,
        reply: ReplyIoctl,
    ) {
        reply.error(Errno::ENOTTY);
    }

    fn create(
        &self,
        _req: &Request,
        _parent: INodeNo,
        _name: &OsStr,
        _mode: u32,
        _umask: u32,
        _flags: i32,
        reply: ReplyCreate,
    ) {
        reply.error(Errno::EPERM);
    }

    fn mkdir(&self, _req: &Request, _parent: INodeNo, _name: &OsStr, _mode: u32, _umask: u32, reply: ReplyEntry) {
        reply.error(Errno::EPERM);
    }

    fn unlink(&self, _req: &Request, _parent: INodeNo, _name: &OsStr, reply: ReplyEmpty) {
        reply.error(Errno::EPERM);
    }

    fn rename(
        &self,
        _req: &Request,
        _parent: INodeNo,
        _name: &OsStr,
        _newparent: INodeNo,
        _newname: &OsStr,
        _flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        reply.error(Errno::EPERM);
    }
}
