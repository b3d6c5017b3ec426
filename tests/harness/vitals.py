"""What a server's process takes of the machine, read from /proc."""

import os
import re
import time
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")


def memory_bytes(server, field="VmRSS"):
    """Resident memory; "VmHWM" is its peak."""
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    return int(re.search(rf"{field}:\s+(\d+) kB", status)[1]) << 10


def cpu_seconds(server):
    fields = Path(f"/proc/{server.process.pid}/stat").read_text().rsplit(")")[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def cpu_seconds_during(server, seconds):
    before = cpu_seconds(server)
    time.sleep(seconds)
    return cpu_seconds(server) - before


def open_files(server):
    return len(os.listdir(f"/proc/{server.process.pid}/fd"))


def wait_open_files(server, most, seconds=10):
    """Until no more than `most` are open; how many there are."""
    deadline = time.monotonic() + seconds
    while (count := open_files(server)) > most and time.monotonic() < deadline:
        time.sleep(0.02)
    return count
