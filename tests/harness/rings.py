"""io_uring: whether this process may use it, how much a server has, and a program without it.

As a program it starts another one, to which the system refuses io_uring as a container may:
`python -m harness.rings COMMAND...`.
"""

import ctypes
import errno
import mmap
import os
import struct
import sys
import time
from pathlib import Path

SYSCALL_IO_URING_SETUP = 425  # on all architectures
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2
LOAD_WORD, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06
SECCOMP_ALLOW, SECCOMP_ERRNO = 0x7FFF0000, 0x00050000

WITHOUT = (sys.executable, str(Path(__file__).resolve()))
"""The words before a command that must do without io_uring."""


def are_allowed():
    """Whether the system has io_uring for this process."""
    libc = ctypes.CDLL(None, use_errno=True)
    parameters = ctypes.create_string_buffer(120)
    ring = libc.syscall(SYSCALL_IO_URING_SETUP, 1, parameters)
    if ring < 0:
        return False
    os.close(ring)
    return True


def reads_of(process):
    """How many operations a process has handed to its rings."""
    count = 0
    for entry in Path(f"/proc/{process}/fd").iterdir():
        try:
            if os.readlink(entry) == "anon_inode:[io_uring]":
                count += tail_of(Path(f"/proc/{process}/fdinfo/{entry.name}"))
        except FileNotFoundError:  # a connection that has just ended
            continue
    return count


def tail_of(ring, seconds=20):
    """How many operations a ring was handed. The system does not tell while the ring is in use."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        for line in ring.read_text().splitlines():
            if line.startswith("SqTail:"):
                return int(line.split()[1])
        time.sleep(0.001)
    raise TimeoutError(f"{ring} does not tell")


def evict(path, tries=40):
    """Takes a file out of memory; whether it would be read from the disk.

    Some file systems keep all their files there, and some do not tell. Pages that the system still
    works with stay at the first try, and a server that has just started reads some, too.
    """
    file = os.open(path, os.O_RDONLY)
    try:
        for _ in range(tries):
            os.fsync(file)
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
            time.sleep(0.05)
            if not resident_pages(file) and is_on_disk(file):
                return True
        return False
    finally:
        os.close(file)


def is_on_disk(file):
    """Whether the system says that a read would have to wait. The read begins then."""
    try:
        os.preadv(file, [bytearray(1)], 0, os.RWF_NOWAIT)
    except BlockingIOError:
        return True
    except OSError as error:
        if error.errno != errno.EOPNOTSUPP:
            raise
    return False


def resident_pages(file):
    """How many pages of a file are in memory."""
    with mmap.mmap(file, 0, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE) as view:
        pages = ctypes.create_string_buffer(-(-len(view) // mmap.PAGESIZE))
        start = ctypes.c_char.from_buffer(view)
        failed = ctypes.CDLL(None, use_errno=True).mincore(
            ctypes.c_void_p(ctypes.addressof(start)), ctypes.c_size_t(len(view)), pages
        )
        # The view cannot be closed while this refers to it.
        del start
        if failed:
            raise OSError(ctypes.get_errno(), "mincore")
        return sum(page & 1 for page in pages.raw)


def refuse():
    """Has the system refuse io_uring to this process, and to those that it starts."""
    program = [
        (LOAD_WORD, 0, 0, 0),  # the number of the system call
        (JUMP_IF_EQUAL, 0, 1, SYSCALL_IO_URING_SETUP),
        (RETURN, 0, 0, SECCOMP_ERRNO | errno.EPERM),
        (RETURN, 0, 0, SECCOMP_ALLOW),
    ]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in program))
    filtering = struct.pack("HxxxxxxP", len(program), ctypes.addressof(code))
    libc = ctypes.CDLL(None, use_errno=True)
    for call in [
        (PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
        (PR_SET_SECCOMP, SECCOMP_MODE_FILTER, filtering, 0, 0),
    ]:
        if libc.prctl(*call):
            raise OSError(ctypes.get_errno(), "prctl")


if __name__ == "__main__":
    refuse()
    os.execvp(sys.argv[1], sys.argv[1:])
