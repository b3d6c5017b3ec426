"""A disk for one server on which a test makes syncs and writes of the data file fail, or slow.

Key decision: the server's binary is the real one; a small library of C, compiled here,
stands between it and the system (failing_disk.c).
"""

import errno
import struct
import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_name("failing_disk.c")
ALWAYS = -1
LAYOUT = "=qqqqq"


class FailingDisk:
    def __init__(self, folder, data_file):
        self.data_file = data_file
        self.path = folder / "failing-disk"
        self.library = folder / "failing-disk.so"
        words = ["cc", "-shared", "-fPIC", "-O1", "-o", str(self.library), str(SOURCE), "-ldl"]
        subprocess.run(words, check=True)
        self.set()

    @property
    def prefix(self):
        """Words that run a command with this disk."""
        return [
            "env",
            f"LD_PRELOAD={self.library}",
            f"FAILING_DISK={self.path}",
            f"FAILING_FILE={self.data_file.resolve()}",
        ]

    def set(self, syncs=0, writes=0, error=errno.EIO, sync_seconds=0):
        """So many of the next syncs and writes fail; every sync takes so much longer."""
        numbers = error, syncs, error, writes, round(sync_seconds * 1000)
        mode = "r+b" if self.path.exists() else "wb"
        with open(self.path, mode) as file:  # the same file: it is mapped
            file.write(struct.pack(LAYOUT, *numbers))

    def failures_left(self):
        """How many of the next syncs and writes will fail."""
        _, syncs, _, writes, _ = struct.unpack(LAYOUT, self.path.read_bytes())
        return syncs, writes
