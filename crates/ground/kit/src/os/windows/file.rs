//! Files.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, ErrorKind};
use std::mem::size_of;
use std::os::windows::fs::{FileExt, OpenOptionsExt as _};
use std::os::windows::io::{AsRawHandle as _, FromRawHandle as _};
use std::path::Path;
use std::ptr::{null, null_mut};

use windows_sys::Win32::Foundation::{ERROR_IO_PENDING, ERROR_LOCK_VIOLATION, FILETIME, INVALID_HANDLE_VALUE};
use windows_sys::Win32::Storage::FileSystem::{
    BY_HANDLE_FILE_INFORMATION, FILE_BASIC_INFO, FILE_FLAG_BACKUP_SEMANTICS, FILE_FLAG_OPEN_REPARSE_POINT,
    FILE_GENERIC_WRITE, FILE_ID_INFO, FILE_INFO_BY_HANDLE_CLASS, FILE_SHARE_DELETE, FILE_SHARE_READ, FILE_SHARE_WRITE,
    FileBasicInfo, FileIdInfo, GetDiskFreeSpaceExW, GetFileInformationByHandle, GetFileInformationByHandleEx,
    LOCKFILE_EXCLUSIVE_LOCK, LOCKFILE_FAIL_IMMEDIATELY, LockFileEx, ReOpenFile, UnlockFileEx,
};
use windows_sys::Win32::System::IO::{DeviceIoControl, OVERLAPPED, OVERLAPPED_0, OVERLAPPED_0_0};
use windows_sys::Win32::System::Ioctl::{FILE_ZERO_DATA_INFORMATION, FSCTL_SET_SPARSE, FSCTL_SET_ZERO_DATA};

use super::super::{FileId, NotItself, Status, Time};
use super::checked;
use super::path::wide;

/// The byte that is locked, beyond all content: programs that do not ask for the lock can read and write the file.
const LOCKED_AT: u64 = i64::MAX as u64 - 1;
/// From 1601, where Windows begins to count, to 1970.
const S_BEFORE_1970: i64 = 11_644_473_600;
/// Windows counts 100 ns.
const TICKS_PER_S: i64 = 10_000_000;

pub(crate) fn read_at(file: &File, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
    file.seek_read(bytes, offset)
}

pub(crate) fn write_at(file: &File, bytes: &[u8], offset: u64) -> io::Result<usize> {
    file.seek_write(bytes, offset)
}

pub(crate) fn begin_storing(_file: &File, _offset: u64, _len: u64) -> io::Result<()> {
    Ok(())
}

pub(crate) fn status_of(file: &File) -> io::Result<Status> {
    let mut found = BY_HANDLE_FILE_INFORMATION::default();
    // SAFETY: the handle is open, and the call writes the structure that it is given.
    checked(unsafe { GetFileInformationByHandle(file.as_raw_handle(), &raw mut found) })?;
    let joined = |high: u32, low: u32| u64::from(high) << 32 | u64::from(low);
    let id = match information::<FILE_ID_INFO>(file, FileIdInfo) {
        Ok(id) => FileId { volume: id.VolumeSerialNumber, number: u128::from_le_bytes(id.FileId.Identifier) },
        // FAT and some file systems on servers have shorter numbers only.
        Err(_) => FileId {
            volume: found.dwVolumeSerialNumber.into(),
            number: joined(found.nFileIndexHigh, found.nFileIndexLow).into(),
        },
    };
    let modified = time(ticks(found.ftLastWriteTime));
    // Where it is not kept, it is the time of modification.
    let changed = information::<FILE_BASIC_INFO>(file, FileBasicInfo).map_or(modified, |found| time(found.ChangeTime));
    let len = joined(found.nFileSizeHigh, found.nFileSizeLow);
    Ok(Status { id, len, names: found.nNumberOfLinks.into(), modified, changed })
}

/// One of the structures about an open file.
fn information<T: Default>(file: &File, class: FILE_INFO_BY_HANDLE_CLASS) -> io::Result<T> {
    let mut found = T::default();
    let len = u32::try_from(size_of::<T>()).unwrap_or(0);
    // SAFETY: the handle is open, and the call writes at most `len` bytes of plain numbers, the size of the structure.
    checked(unsafe { GetFileInformationByHandleEx(file.as_raw_handle(), class, (&raw mut found).cast(), len) })?;
    Ok(found)
}

fn ticks(time: FILETIME) -> i64 {
    (u64::from(time.dwHighDateTime) << 32 | u64::from(time.dwLowDateTime)).cast_signed()
}

fn time(ticks: i64) -> Time {
    (ticks.div_euclid(TICKS_PER_S) - S_BEFORE_1970, ticks.rem_euclid(TICKS_PER_S) * 100)
}

pub(crate) fn status_at(path: &Path) -> io::Result<Status> {
    status_of(&looked_at(path, FILE_FLAG_BACKUP_SEMANTICS)?)
}

pub(crate) fn status_of_itself(path: &Path) -> io::Result<Status> {
    status_of(&looked_at(path, FILE_FLAG_BACKUP_SEMANTICS | FILE_FLAG_OPEN_REPARSE_POINT)?)
}

/// Opens a file or a folder to look at it only.
fn looked_at(path: &Path, flags: u32) -> io::Result<File> {
    OpenOptions::new().access_mode(0).custom_flags(flags).open(path)
}

/// A link is looked for before, so that none is followed to create a file; and it is looked at afterwards which file was opened.
/// Opening the link itself (`FILE_FLAG_OPEN_REPARSE_POINT`) would also read compressed files without decompressing them.
pub(crate) fn open_itself(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    let refused = |is: NotItself| Err(io::Error::new(ErrorKind::InvalidInput, is));
    if path.symlink_metadata().is_ok_and(|found| found.is_symlink()) {
        return refused(NotItself::Link);
    }
    let file = match options.open(path) {
        Err(_) if path.is_dir() => return refused(NotItself::NotRegular),
        opened => opened?,
    };
    let Ok(opened) = status_of(&file) else { return refused(NotItself::NotRegular) };
    if opened.id == status_of_itself(path)?.id { Ok(file) } else { refused(NotItself::Link) }
}

/// The same: a pipe that a program serves is never waited for.
pub(crate) fn open_without_following(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    open_itself(options, path)
}

/// [`open_itself`] names it.
pub(crate) fn not_itself(_error: &io::Error) -> Option<NotItself> {
    None
}

/// A file has the access list of its folder.
pub(crate) fn of_its_owner_alone(options: &mut OpenOptions) -> &mut OpenOptions {
    options
}

/// A file has no mode; its access list is that of its folder, such as one below the user's profile, and is not looked at.
pub(crate) fn others_may_use(_file: &File) -> io::Result<bool> {
    Ok(false)
}

pub(crate) fn as_the_umask_allows() -> Option<Permissions> {
    None
}

pub(crate) fn try_lock(file: &File) -> io::Result<bool> {
    let flags = LOCKFILE_EXCLUSIVE_LOCK | LOCKFILE_FAIL_IMMEDIATELY;
    let mut place = place_of_lock();
    // SAFETY: the handle is open, and the call does not keep the structure: the handle is a synchronous one.
    match checked(unsafe { LockFileEx(file.as_raw_handle(), flags, 0, 1, 0, &raw mut place) }) {
        Ok(()) => Ok(true),
        Err(error) if error.raw_os_error().is_some_and(|code| is_held(code.cast_unsigned())) => Ok(false),
        Err(error) => Err(error),
    }
}

fn is_held(code: u32) -> bool {
    matches!(code, ERROR_LOCK_VIOLATION | ERROR_IO_PENDING)
}

pub(crate) fn unlock(file: &File) -> io::Result<()> {
    let mut place = place_of_lock();
    // SAFETY: as in `try_lock`.
    checked(unsafe { UnlockFileEx(file.as_raw_handle(), 0, 1, 0, &raw mut place) })
}

fn place_of_lock() -> OVERLAPPED {
    // The halves of the offset.
    let (low, high) = (LOCKED_AT as u32, (LOCKED_AT >> 32) as u32);
    let place = OVERLAPPED_0 { Anonymous: OVERLAPPED_0_0 { Offset: low, OffsetHigh: high } };
    OVERLAPPED { Anonymous: place, ..OVERLAPPED::default() }
}

/// Appending does not include the right to cut, which takes another handle.
pub(crate) fn set_len(file: &File, bytes: u64) -> io::Result<()> {
    match file.set_len(bytes) {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => writable(file)?.set_len(bytes),
        done => done,
    }
}

/// The same file, opened for writing.
fn writable(file: &File) -> io::Result<File> {
    let share = FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE;
    // SAFETY: the handle is open, and the call takes numbers beside it.
    let handle = unsafe { ReOpenFile(file.as_raw_handle(), FILE_GENERIC_WRITE, share, 0) };
    if handle == INVALID_HANDLE_VALUE {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the handle was just opened, and nothing else has it.
    Ok(unsafe { File::from_raw_handle(handle) })
}

/// NTFS and ReFS log changes of folders themselves, and a folder cannot be flushed without the right to write to it.
pub(crate) fn sync_folder(_folder: &Path) -> io::Result<()> {
    Ok(())
}

pub(crate) fn make_sparse(file: &File) -> io::Result<()> {
    control(file, FSCTL_SET_SPARSE, &[0u8; 0])
}

pub(crate) fn punch_hole(file: &File, offset: u64, len: u64) -> io::Result<()> {
    let signed = |at: u64| i64::try_from(at).map_err(|_| ErrorKind::InvalidInput);
    let end = offset.checked_add(len).ok_or(ErrorKind::InvalidInput)?;
    let range = FILE_ZERO_DATA_INFORMATION { FileOffset: signed(offset)?, BeyondFinalZero: signed(end)? };
    control(file, FSCTL_SET_ZERO_DATA, &[range])
}

/// A request to the file system that takes `input` and returns nothing.
fn control<T>(file: &File, request: u32, input: &[T]) -> io::Result<()> {
    let bytes = u32::try_from(size_of_val(input)).unwrap_or(0);
    let input = if input.is_empty() { null() } else { input.as_ptr().cast() };
    let mut returned = 0;
    // SAFETY: the handle is open and synchronous; the call reads `bytes` bytes of the input, and writes a number.
    checked(unsafe {
        DeviceIoControl(file.as_raw_handle(), request, input, bytes, null_mut(), 0, &raw mut returned, null_mut())
    })
}

pub(crate) fn free_bytes(folder: &Path) -> Option<u64> {
    let folder = wide(folder).ok()?;
    let mut free = 0;
    // SAFETY: the name ends with a zero, and the call writes a number.
    checked(unsafe { GetDiskFreeSpaceExW(folder.as_ptr(), &raw mut free, null_mut(), null_mut()) }).ok()?;
    Some(free)
}
