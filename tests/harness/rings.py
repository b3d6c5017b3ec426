"""io_uring: whether this process may use it, how much a server has, and a program without it.

As a program it starts another one, to which the system refuses io_uring as a container may:
`python -m harness.rings COMMAND...`.
"""

import ctypes
import errno
import os
import struct
import sys
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
            if os.readlink(entry) != "anon_inode:[io_uring]":
                continue
            lines = Path(f"/proc/{process}/fdinfo/{entry.name}").read_text().splitlines()
        except FileNotFoundError:  # a connection that has just ended
            continue
        count += sum(int(line.split()[1]) for line in lines if line.startswith("SqTail:"))
    return count


def evict(path):
    """Takes a file out of memory; whether its first bytes, at least, would be read from the disk.

    Some file systems keep all their files there, and some do not tell.
    """
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        os.preadv(file, [bytearray(1)], 0, os.RWF_NOWAIT)
        return False
    except BlockingIOError:
        return True
    except OSError as error:
        if error.errno != errno.EOPNOTSUPP:
            raise
        return False
    finally:
        os.close(file)


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
