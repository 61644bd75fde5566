//! The file system: a directory with one file, the drive. The kernel caches nothing of it.

use std::ffi::OsStr;
use std::io;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use fuser::{
    Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, InitFlags, KernelConfig,
    LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite, Request,
    WriteFlags,
};

use crate::drive::Operation;
use crate::extent::Extent;
use crate::served::Served;
use crate::store::Store;

/// The usual name of the file.
pub const NAME: &str = "disk.raw";
const FILE: INodeNo = INodeNo(2);
const REQUEST_BYTES_MAX: u32 = 1 << 20;
/// More than a drive reorders, so that the queue is the drive's.
const BACKGROUND_REQUESTS_MAX: u16 = 128;
/// Names and attributes never change.
const FOREVER: Duration = Duration::from_secs(1 << 30);

/// A drive as a file system.
pub struct DriveFile {
    pub served: Arc<Served>,
    pub store: Store,
    /// The size of the file: the drive, or its beginning.
    pub size_bytes: u64,
    pub name: String,
}

impl DriveFile {
    fn attributes(&self, ino: INodeNo) -> Option<FileAttr> {
        let (kind, size, perm) = match ino {
            FILE => (FileType::RegularFile, self.size_bytes, 0o600),
            INodeNo::ROOT => (FileType::Directory, 0, 0o700),
            _ => return None,
        };
        // SAFETY: plain system calls that cannot fail.
        let (uid, gid) = unsafe { (libc::getuid(), libc::getgid()) };
        Some(FileAttr {
            ino,
            size,
            blocks: size.div_ceil(512),
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind,
            perm,
            nlink: 1,
            uid,
            gid,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        })
    }

    /// Returns the part of a range that the file has; none without a byte.
    fn clipped(&self, offset: u64, len: usize) -> Option<Extent> {
        let end = offset.saturating_add(len as u64).min(self.size_bytes);
        (offset < end).then_some(Extent { start: offset, end })
    }
}

fn errno(error: &io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::EIO, Errno::from_i32)
}

impl Filesystem for DriveFile {
    fn init(&mut self, _req: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // On an error, each of these returns the nearest valid value, which then is used.
        let _ = config.set_max_write(REQUEST_BYTES_MAX);
        let _ = config.set_max_background(BACKGROUND_REQUESTS_MAX);
        let _ = config.add_capabilities(InitFlags::FUSE_ASYNC_DIO);
        Ok(())
    }

    fn lookup(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let found = (parent == INodeNo::ROOT && name == self.name.as_str()).then(|| self.attributes(FILE)).flatten();
        match found {
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

    fn open(&self, _req: &Request, _ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        let direct = FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES | FopenFlags::FOPEN_NOFLUSH;
        reply.opened(FileHandle(0), direct);
    }

    fn read(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let arrived_ns = self.served.now_ns();
        let Some(extent) = self.clipped(offset, size as usize) else { return reply.data(&[]) };
        match self.store.read(extent.start, extent.len() as usize) {
            Ok(bytes) => {
                self.served.submit(arrived_ns, Operation::Read(extent), Box::new(move || reply.data(&bytes)));
            }
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn write(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let arrived_ns = self.served.now_ns();
        let Some(extent) = self.clipped(offset, data.len()) else { return reply.error(Errno::ENOSPC) };
        let written = extent.len() as usize;
        match self.store.write(extent.start, &data[..written]) {
            Ok(()) => {
                let end = Box::new(move || reply.written(written as u32));
                self.served.submit(arrived_ns, Operation::Write(extent), end);
            }
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn fsync(&self, _req: &Request, _ino: INodeNo, _fh: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        self.served.submit(self.served.now_ns(), Operation::Flush, Box::new(move || reply.ok()));
    }

    fn readdir(&self, _req: &Request, ino: INodeNo, _fh: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        if ino != INodeNo::ROOT {
            return reply.error(Errno::ENOTDIR);
        }
        let entries = [
            (INodeNo::ROOT, FileType::Directory, "."),
            (INodeNo::ROOT, FileType::Directory, ".."),
            (FILE, FileType::RegularFile, self.name.as_str()),
        ];
        let skipped = usize::try_from(offset).unwrap_or(usize::MAX);
        for (next, (ino, kind, name)) in (1..).zip(entries).skip(skipped) {
            if reply.add(ino, next, kind, name) {
                break;
            }
        }
        reply.ok();
    }
}
