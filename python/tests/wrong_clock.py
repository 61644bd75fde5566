"""Runs a program, also a static one, with a wrong clock: python wrong_clock.py SECONDS PROGRAM ARGUMENT…

SECONDS since 1970 is the time when the program starts. Libraries such as libfaketime cannot be preloaded into a static
program, which reads the clock by the kernel's vDSO without a system call. This process therefore traces the program
(ptrace), removes the vDSO from its auxiliary vector, and answers its system calls for the time of day. Other clocks are
right. x86-64 Linux.
"""

import ctypes
import os
import signal
import struct
import sys
import time
from collections.abc import Sequence

TRACEME, CONT, GETREGS, SETREGS, SETOPTIONS = 0, 7, 12, 13, 0x4200
# Forks, vforks, clones, executions and filtered system calls; all traced processes end with this one.
OPTIONS = 0x02 | 0x04 | 0x08 | 0x10 | 0x80 | 0x100000
EVENT_EXEC, EVENT_SECCOMP = 4, 7
ALL_THREADS = 0x40000000
NO_NEW_PRIVILEGES, SET_SECCOMP, FILTER = 38, 22, 2
GETTIMEOFDAY, TIME, CLOCK_GETTIME = 96, 201, 228
REALTIME, REALTIME_COARSE = 0, 5
SYSINFO_EHDR, IGNORE = 33, 1

libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p)
libc.ptrace.restype = ctypes.c_long


class Registers(ctypes.Structure):
    """The general registers, as ptrace reads and writes them (struct user_regs_struct)."""

    _fields_ = [
        (name, ctypes.c_ulonglong)
        for name in "r15 r14 r13 r12 rbp rbx r11 r10 r9 r8 rax rcx rdx rsi rdi orig_rax rip cs eflags rsp ss "
        "fs_base gs_base ds es fs gs".split()
    ]


class Filter(ctypes.Structure):
    """A program for the kernel's packet filter (struct sock_fprog)."""

    _fields_ = [("length", ctypes.c_ushort), ("code", ctypes.c_char_p)]


def ptrace(request: int, thread: int, data: object = None) -> None:
    """Calls ptrace. Raises OSError."""
    if libc.ptrace(request, thread, None, data) == -1:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def trace_calls_for_the_time() -> None:
    """Has the kernel stop this process at system calls for the time."""
    calls = (GETTIMEOFDAY, TIME, CLOCK_GETTIME)
    # Load the number; jump to the end if it is one of them; allow; trace.
    lines = [(0x20, 0, 0, 0)]
    lines += [(0x15, len(calls) - index, 0, call) for index, call in enumerate(calls)]
    lines += [(0x06, 0, 0, 0x7FFF0000), (0x06, 0, 0, 0x7FF00000)]
    code = b"".join(struct.pack("<HBBI", *line) for line in lines)
    made = Filter(len(lines), code)
    if libc.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0) or libc.prctl(SET_SECCOMP, FILTER, ctypes.byref(made), 0, 0):
        raise OSError(ctypes.get_errno(), "seccomp")


def remove_vdso(process: int) -> None:
    """Removes the address of the vDSO from the auxiliary vector of a process that is about to start."""
    registers = Registers()
    ptrace(GETREGS, process, ctypes.byref(registers))
    with open(f"/proc/{process}/mem", "r+b", buffering=0) as memory:

        def word(at: int) -> int:
            memory.seek(at)
            return int(struct.unpack("<Q", memory.read(8))[0])

        # The number of arguments, the arguments and the environment, each ended by a zero, and pairs of type and value.
        at = registers.rsp + 8 * (word(registers.rsp) + 2)
        while word(at):
            at += 8
        at += 8
        while kind := word(at):
            if kind == SYSINFO_EHDR:
                memory.seek(at)
                memory.write(struct.pack("<Q", IGNORE))
            at += 16


def answer(thread: int, offset_ns: int) -> None:
    """Answers a call for the time of day, in place of the kernel."""
    registers = Registers()
    ptrace(GETREGS, thread, ctypes.byref(registers))
    call, first, second = registers.orig_rax, registers.rdi, registers.rsi
    if call == CLOCK_GETTIME and first not in (REALTIME, REALTIME_COARSE):
        return
    seconds, ns = divmod(time.time_ns() + offset_ns, 10**9)
    to = second if call == CLOCK_GETTIME else first
    if to:
        part = {CLOCK_GETTIME: (ns,), GETTIMEOFDAY: (ns // 1000,), TIME: ()}[call]
        with open(f"/proc/{thread}/mem", "r+b", buffering=0) as memory:
            memory.seek(to)
            memory.write(struct.pack(f"<{1 + len(part)}q", seconds, *part))
    # No system call has this number: the kernel only returns what is in rax.
    registers.orig_rax, registers.rax = 2**64 - 1, seconds if call == TIME else 0
    ptrace(SETREGS, thread, ctypes.byref(registers))


def run(start_s: int, command: Sequence[str]) -> int:
    """Runs the program. Returns its exit code."""
    offset_ns = start_s * 10**9 - time.time_ns()
    child = os.fork()
    if child == 0:
        ptrace(TRACEME, 0)
        os.kill(os.getpid(), signal.SIGSTOP)
        trace_calls_for_the_time()
        os.execvp(command[0], command)
    os.waitpid(child, 0)
    ptrace(SETOPTIONS, child, OPTIONS)
    ptrace(CONT, child)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: os.kill(child, number))
    known = {child}
    while True:
        thread, status = os.waitpid(-1, ALL_THREADS)
        if not os.WIFSTOPPED(status):
            if thread == child:
                return os.waitstatus_to_exitcode(status)
            continue
        number, event = os.WSTOPSIG(status), status >> 16
        deliver = 0
        try:
            if event == EVENT_EXEC:
                remove_vdso(thread)
            elif event == EVENT_SECCOMP:
                answer(thread, offset_ns)
            elif event == 0 and (thread in known or number != signal.SIGSTOP):
                deliver = number
            # A new thread begins with SIGSTOP.
            known.add(thread)
            ptrace(CONT, thread, deliver)
        except ProcessLookupError:
            # It was killed meanwhile.
            pass


if __name__ == "__main__":
    sys.exit(run(int(sys.argv[1]), sys.argv[2:]))
