"""Functions of Windows that Python does not offer."""

import ctypes
from ctypes import wintypes

KERNEL = ctypes.WinDLL("kernel32", use_last_error=True)
NTDLL = ctypes.WinDLL("ntdll")

HANDLE, DWORD, BOOL = wintypes.HANDLE, wintypes.DWORD, wintypes.BOOL
INVALID_HANDLE = HANDLE(-1).value


class ExtendedLimits(ctypes.Structure):
    """JOBOBJECT_EXTENDED_LIMIT_INFORMATION, of which only the flags are used."""

    _fields_ = (
        ("PerProcessUserTimeLimit", ctypes.c_int64),
        ("PerJobUserTimeLimit", ctypes.c_int64),
        ("LimitFlags", DWORD),
        ("MinimumWorkingSetSize", ctypes.c_size_t),
        ("MaximumWorkingSetSize", ctypes.c_size_t),
        ("ActiveProcessLimit", DWORD),
        ("Affinity", ctypes.c_size_t),
        ("PriorityClass", DWORD),
        ("SchedulingClass", DWORD),
        ("IoInfo", ctypes.c_uint64 * 6),
        ("ProcessMemoryLimit", ctypes.c_size_t),
        ("JobMemoryLimit", ctypes.c_size_t),
        ("PeakProcessMemoryUsed", ctypes.c_size_t),
        ("PeakJobMemoryUsed", ctypes.c_size_t),
    )


class Counted(ctypes.Structure):
    """IO_COUNTERS."""

    _fields_ = tuple(
        (name, ctypes.c_uint64) for name in ("reads", "writes", "others", "read_bytes", "written_bytes", "other_bytes")
    )


class MemoryUse(ctypes.Structure):
    """PROCESS_MEMORY_COUNTERS."""

    _fields_ = (
        ("cb", DWORD),
        ("PageFaultCount", DWORD),
        ("PeakWorkingSetSize", ctypes.c_size_t),
        ("rest", ctypes.c_size_t * 7),
    )


class MemoryState(ctypes.Structure):
    """MEMORYSTATUSEX."""

    _fields_ = (
        ("dwLength", DWORD),
        ("dwMemoryLoad", DWORD),
        ("ullTotalPhys", ctypes.c_uint64),
        ("ullAvailPhys", ctypes.c_uint64),
        ("rest", ctypes.c_uint64 * 5),
    )


_TIME = ctypes.POINTER(ctypes.c_uint64)
_NUMBER = ctypes.POINTER(DWORD)
for _name, _result, _arguments in (
    ("AssignProcessToJobObject", BOOL, (HANDLE, HANDLE)),
    ("CloseHandle", BOOL, (HANDLE,)),
    ("CreateFileW", HANDLE, (wintypes.LPCWSTR, DWORD, DWORD, ctypes.c_void_p, DWORD, DWORD, HANDLE)),
    ("CreateJobObjectW", HANDLE, (ctypes.c_void_p, wintypes.LPCWSTR)),
    ("GetDriveTypeW", wintypes.UINT, (wintypes.LPCWSTR,)),
    ("GetProcessIoCounters", BOOL, (HANDLE, ctypes.POINTER(Counted))),
    ("GetProcessTimes", BOOL, (HANDLE, _TIME, _TIME, _TIME, _TIME)),
    ("GetSystemTimes", BOOL, (_TIME, _TIME, _TIME)),
    (
        "GetVolumeInformationW", BOOL,
        (wintypes.LPCWSTR, wintypes.LPWSTR, DWORD, _NUMBER, _NUMBER, _NUMBER, wintypes.LPWSTR, DWORD),
    ),
    ("GetVolumePathNameW", BOOL, (wintypes.LPCWSTR, wintypes.LPWSTR, DWORD)),
    ("GlobalMemoryStatusEx", BOOL, (ctypes.POINTER(MemoryState),)),
    ("K32GetProcessMemoryInfo", BOOL, (HANDLE, ctypes.POINTER(MemoryUse), DWORD)),
    ("OpenProcess", HANDLE, (DWORD, BOOL, DWORD)),
    ("SetInformationJobObject", BOOL, (HANDLE, ctypes.c_int, ctypes.c_void_p, DWORD)),
    ("TerminateJobObject", BOOL, (HANDLE, wintypes.UINT)),
):  # fmt: skip
    _function = getattr(KERNEL, _name)
    _function.restype, _function.argtypes = _result, _arguments
NTDLL.NtResumeProcess.restype, NTDLL.NtResumeProcess.argtypes = ctypes.c_long, (HANDLE,)


def failure(path: str | None = None) -> OSError:
    """Returns the error of the last call."""
    error = ctypes.WinError(ctypes.get_last_error())
    error.filename = path
    return error


def process_times(handle: int) -> tuple[int, float] | None:
    """Returns when a process was made, in Windows' own units, and its processor time in seconds; None if Windows does not tell."""
    made, ended, kernel, user = (ctypes.c_uint64() for _ in range(4))
    if not KERNEL.GetProcessTimes(handle, *(ctypes.byref(one) for one in (made, ended, kernel, user))):
        return None
    return made.value, (kernel.value + user.value) / 1e7
