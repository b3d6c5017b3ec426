"""Runs `zodium-bench`, its files in a folder of their own, and looks at what it leaves behind.

The program is the one in the folder of the server under test.
"""

import os
import subprocess
from pathlib import Path

import pytest

from .servers import BINARY

PROGRAM = str(Path(BINARY).with_name("zodium-bench"))
SECONDS = 120  # some servers start slowly on a busy machine
OF_DISKS = ("cold", "commit", "pack", "start")


def run_bench(tmp_path, command, *options):
    """One benchmark to its end; nothing may be left of it."""
    if command in OF_DISKS and "--folder" not in options and is_in_memory(tmp_path):
        pytest.skip(f"{tmp_path} is in memory, where no disk can be measured: set TMPDIR")
    done = subprocess.run(
        [PROGRAM, command, *options],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        env=environment(tmp_path),
    )
    assert_nothing_left(tmp_path)
    return done


def is_in_memory(folder):
    stat = subprocess.run(["stat", "-f", "-c", "%T", folder], capture_output=True, text=True)
    return stat.stdout.strip() in ("tmpfs", "ramfs")


def environment(tmp_path):
    folder = tmp_path / "bench"
    folder.mkdir(exist_ok=True)
    return {**os.environ, "TMPDIR": str(folder)}


def assert_nothing_left(tmp_path):
    assert list((tmp_path / "bench").iterdir()) == []
    assert [line for line in command_lines() if str(tmp_path / "bench") in line] == []


def command_lines():
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            yield path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue  # ended meanwhile
