"""What a server's process takes of the machine, read from /proc."""

import contextlib
import os
import re
import time
from pathlib import Path

from .waiting import WAIT_SECONDS


def memory_bytes(server, field="VmRSS"):
    """Resident memory; "VmHWM" is its peak."""
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    return int(re.search(rf"{field}:\s+(\d+) kB", status)[1]) << 10


def cpu_seconds(pid):
    """Processor time of a process by its clock: /proc/PID/stat counts in hundredths of a second."""
    return time.clock_gettime((~pid << 3) | 2)


def cpu_seconds_during(server, seconds):
    before = cpu_seconds(server.process.pid)
    time.sleep(seconds)
    return cpu_seconds(server.process.pid) - before


def open_files(server):
    return len(os.listdir(f"/proc/{server.process.pid}/fd"))


def open_targets(server):
    """What its open files are, for the message of a test that finds too many."""
    found = []
    for entry in Path(f"/proc/{server.process.pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found.append(os.readlink(entry))
    return sorted(found)


def wait_open_files(server, most, seconds=WAIT_SECONDS):
    """Until no more than `most` are open; how many there are."""
    deadline = time.monotonic() + seconds
    while (count := open_files(server)) > most and time.monotonic() < deadline:
        time.sleep(0.02)
    return count
