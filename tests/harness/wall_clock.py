"""A wall clock for one server, which a test turns back, puts forward, or stops.

Key decision: the server's binary is the real one; a small library of C, compiled here,
stands between it and the system's clock (wall_clock.c).  Time for timeouts is not touched.
"""

import struct
import subprocess
import time
from pathlib import Path

SOURCE = Path(__file__).with_name("wall_clock.c")


class WallClock:
    def __init__(self, folder):
        self.path = folder / "wall-clock"
        self.library = folder / "wall-clock.so"
        words = ["cc", "-shared", "-fPIC", "-O1", "-o", str(self.library), str(SOURCE)]
        subprocess.run(words, check=True)
        self.set()

    @property
    def prefix(self):
        """Words that run a command with this clock."""
        return ["env", f"LD_PRELOAD={self.library}", f"WALL_CLOCK={self.path}"]

    def set(self, ahead_seconds=0, still=False):
        """Ahead of the true time by so much, or standing still there."""
        nanos = round(ahead_seconds * 1e9)
        stands = time.time_ns() + nanos if still else 0
        mode = "r+b" if self.path.exists() else "wb"
        with open(self.path, mode) as file:  # the same file: it is mapped
            file.write(struct.pack("=qq", nanos, stands))
