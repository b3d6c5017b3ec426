# Helper of the zodium server: resolves conflicts with the application's classes.
#
# It loads records written by clients, which calls what they name, as in a stock server. So it first
# gives up all rights that it does not need: writing files, the network, other processes, unlimited
# memory. docs/conflicts.md says what that prevents.

import logging
import os
import resource
import signal
import socket
import struct
import sys
import traceback

# Processor time limit of a conflict, including the import of the class.
CALL_CPU_SECONDS = 10
# The server ends a conflict far earlier. This ends one that outlives the server.
CALL_SECONDS = 60
ADDRESS_SPACE_BYTES = 2 << 30
OPEN_FILES = 256
REASON_BYTES = 4096

HELLO, REFUSED, RESOLVED, UNRESOLVED, FAILED = b"HXRUF"

CLONE_NEWUSER, CLONE_NEWNET, CLONE_NEWIPC = 0x10000000, 0x40000000, 0x08000000
PR_SET_NO_NEW_PRIVS = 38
SYS_LANDLOCK_CREATE_RULESET, SYS_LANDLOCK_RESTRICT_SELF = 444, 446
LANDLOCK_CREATE_RULESET_VERSION = 1
# Landlock access rights that write to a file system, by the version of the interface that added
# them. Executing (1), reading a file (4) and a folder (8) stay allowed.
LANDLOCK_WRITES = {1: 0b1_1111_1111_0010, 2: 1 << 13, 3: 1 << 14, 5: 1 << 15}
LANDLOCK_TCP = {4: 0b11}
# Abstract Unix sockets, and signals to other processes.
LANDLOCK_SCOPES = {6: 0b11}


def take_channel():
    """Return the socket to the server; close all other inherited descriptors."""
    channel = socket.socket(fileno=os.dup(0))
    kept = channel.fileno()
    for descriptor in open_descriptors(kept):
        if descriptor > 2 and descriptor != kept:
            # What is closed already does not matter to it.
            os.closerange(descriptor, descriptor + 1)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    os.close(null)
    return channel


def open_descriptors(known):
    """Return the open descriptors, of which one is known; all possible ones if the kernel does not
    tell.

    Without close_range(2), to close all up to the limit takes minutes: it may be 2**30.
    """
    try:
        found = [int(name) for name in os.listdir("/proc/self/fd")]
    except OSError:
        found = []
    return found if known in found else range(resource.getrlimit(resource.RLIMIT_NOFILE)[0])


def give_up_rights():
    """Drop rights and set limits; return words for what is out of reach."""
    os.setsid()
    for signal_number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(signal_number, signal.SIG_IGN)
    without = ask_kernel()
    for kind, limit in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_NPROC, 0),
        (resource.RLIMIT_NOFILE, OPEN_FILES),
        (resource.RLIMIT_AS, ADDRESS_SPACE_BYTES),
    ):
        hard = resource.getrlimit(kind)[1]
        limit = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
        resource.setrlimit(kind, (limit, limit))
    return without


def ask_kernel():
    """Drop rights by system calls that not every system has; return words for them."""
    try:
        import ctypes

        libc = ctypes.CDLL(None)
        without = ["network"] if leave_network(libc) else []
        return without + forbid_writing(libc, ctypes.c_size_t)
    except (ImportError, OSError, AttributeError):
        return []


def leave_network(libc):
    """Move to an empty network namespace, if the kernel allows it."""
    alone = CLONE_NEWNET | CLONE_NEWIPC
    return any(libc.unshare(flags) == 0 for flags in (CLONE_NEWUSER | alone, alone))


def forbid_writing(libc, size_t):
    """Forbid changes to all file systems with Landlock; return words for what is refused."""
    version = libc.syscall(
        SYS_LANDLOCK_CREATE_RULESET, None, size_t(0), LANDLOCK_CREATE_RULESET_VERSION
    )
    if version < 1 or libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        return []

    def known(bits):
        return sum(bit for since, bit in bits.items() if since <= version)

    refused = known(LANDLOCK_WRITES), known(LANDLOCK_TCP), known(LANDLOCK_SCOPES)
    attributes = struct.pack("=QQQ", *refused)
    size = 8 * (1 if version < 4 else 2 if version < 6 else 3)
    rules = libc.syscall(SYS_LANDLOCK_CREATE_RULESET, attributes, size_t(size), 0)
    if rules < 0:
        return []
    restricted = libc.syscall(SYS_LANDLOCK_RESTRICT_SELF, rules, 0) == 0
    os.close(rules)
    words = [("files to write", refused[0]), ("TCP", refused[1]), ("signals", refused[2])]
    return [word for word, bits in words if bits] if restricted else []


class Reasons(logging.Handler):
    """Collect what ZODB logs about a conflict that it does not resolve."""

    kind, text = UNRESOLVED, ""

    def emit(self, record):
        self.kind = FAILED if record.levelno >= logging.ERROR else UNRESOLVED
        self.text = record.getMessage()
        if record.exc_info:
            self.text += "\n" + "".join(traceback.format_exception(*record.exc_info)).strip()


def frame(kind, payload):
    return struct.pack(">BI", kind, len(payload)) + payload


def reason(text):
    return text.encode("utf-8", "replace")[:REASON_BYTES]


def allow_time_for_a_call():
    used = resource.getrusage(resource.RUSAGE_SELF)
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    soft = int(used.ru_utime + used.ru_stime) + 1 + CALL_CPU_SECONDS
    soft = soft if hard == resource.RLIM_INFINITY else min(soft, hard)
    resource.setrlimit(resource.RLIMIT_CPU, (soft, hard))
    signal.alarm(CALL_SECONDS)


def serve(channel, resolution, conflict_error):
    """Answer requests of three records each, until the server closes the channel."""

    class Revisions(resolution.ConflictResolvingStorage):
        def loadSerial(self, oid, serial):
            return self.records[serial]

    revisions, reasons = Revisions(), Reasons(logging.DEBUG)
    logger = logging.getLogger("ZODB.ConflictResolution")
    logger.addHandler(reasons)
    logger.setLevel(logging.DEBUG)
    logger.propagate = False
    # Its repr stands for the class in log messages.
    resolution.BadClass.__repr__ = lambda bad: f"{'.'.join(bad.args)}, which cannot be imported"
    old, committed = bytes(7) + b"\1", bytes(7) + b"\2"
    requests = channel.makefile("rb")
    while len(sizes := requests.read(12)) == 12:
        records = [requests.read(size) for size in struct.unpack(">III", sizes)]
        revisions.records = {old: records[0], committed: records[1]}
        reasons.kind, reasons.text = UNRESOLVED, ""
        allow_time_for_a_call()
        try:
            merged = revisions.tryToResolveConflict(bytes(8), committed, old, records[2])
            answer = frame(RESOLVED, merged)
        except conflict_error:
            answer = frame(reasons.kind, reason(reasons.text))
        except Exception:
            answer = frame(FAILED, reason(traceback.format_exc().strip()))
        signal.alarm(0)
        channel.sendall(answer)


def main():
    channel = take_channel()
    # `python -c` adds the current folder.
    sys.path[:] = [folder for folder in sys.path if folder]
    try:
        without = give_up_rights()
        import ZODB.ConflictResolution
        from ZODB.POSException import ConflictError
    except Exception:
        channel.sendall(frame(REFUSED, reason(traceback.format_exc().strip())))
        os._exit(1)
    channel.sendall(frame(HELLO, reason(", ".join(without))))
    os.dup2(1, 2)
    try:
        serve(channel, ZODB.ConflictResolution, ConflictError)
    finally:
        # Skips exit handlers of imported code.
        os._exit(0)


main()
