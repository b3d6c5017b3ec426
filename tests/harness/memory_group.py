"""A control group that limits the memory of a server, as a container would."""

import contextlib
import os
import time
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")


class MemoryGroup:
    """Of version 1 or 2, whichever there is; raises OSError where none can be made."""

    def __init__(self, limit_bytes):
        is_v2 = (ROOT / "cgroup.controllers").exists()
        self.folder = (ROOT if is_v2 else ROOT / "memory") / f"zodium-test-{os.getpid()}"
        self.limit = "memory.max" if is_v2 else "memory.limit_in_bytes"
        self.folder.mkdir()
        try:
            (self.folder / self.limit).write_text(str(limit_bytes))
        except OSError:
            self.folder.rmdir()
            raise

    @property
    def prefix(self):
        """The words before a command that is to run in it."""
        return ("sh", "-c", f'echo $$ > {self.folder}/cgroup.procs && exec "$@"', "sh")

    def remove(self):
        """When its processes have ended."""
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                return self.folder.rmdir()
            time.sleep(0.05)
