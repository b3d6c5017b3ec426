"""Runs zodbshootout over Zodium, ZEO and RelStorage, and makes one table of what it found.

    python tests/shootout/run.py BINARY [options of zodbshootout] [benchmarks]

The servers run here, with their files in a new folder in TMPDIR. zodbshootout takes the storages
in turns, one benchmark after the other; each value is of a process of its own.
"""

import math
import os
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pyperf

HERE = Path(__file__).parent
START_SECONDS = 30
# What zodbshootout gives for a benchmark that failed; it is divided by its loops.
FAILED_SECONDS = 666
STORAGES = ("zodium", "zeo", "zeo_to_zodium", "relstorage")
QUIET = ("--include-mapping", "false", "-q")
DEFAULTS = ("-c", "1", "-p", "5", "-n", "3")


class Server:
    """A server that runs within a `with`, on a file of its own."""

    def __init__(self, folder, name, command, **environment):
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.command = [
            word.format(address=f"127.0.0.1:{self.port}", path=folder / f"{name}.fs")
            for word in command
        ]
        self.environment = {**os.environ, **environment}
        self.log = folder / f"{name}.log"

    def __enter__(self):
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                self.command, env=self.environment, stdout=log, stderr=subprocess.STDOUT
            )
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port)).close()
                return self
            except OSError as error:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    self.__exit__()
                    sys.exit(f"{self.command[0]} does not listen: {error}\n{self.log.read_text()}")
                time.sleep(0.05)

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()


def main(binary, *options):
    with tempfile.TemporaryDirectory(prefix="shootout-") as folder:
        folder = Path(folder)
        serve = [binary, "serve", "{path}", "-a", "{address}", "--msgpack", "--log-level", "warn"]
        runzeo = [sys.executable, "-m", "ZEO.runzeo", "-a", "{address}", "-f", "{path}"]
        with (
            Server(folder, "zodium", serve) as zodium,
            Server(folder, "zeo", runzeo, ZEO_MSGPACK="1") as zeo,
        ):
            results = shoot(folder, zodium.port, zeo.port, options)
        print_table(pyperf.BenchmarkSuite.load(str(results)))


def shoot(folder, zodium_port, zeo_port, options):
    """The file with what zodbshootout found."""
    found = {"zodium_port": zodium_port, "zeo_port": zeo_port, "folder": folder}
    defines = "".join(f"%define {name} {value}\n" for name, value in found.items())
    storages = folder / "storages.conf"
    storages.write_text(defines + (HERE / "storages.conf").read_text())
    results = folder / "results.json"
    # Options first, since benchmarks stand after the file.
    benchmarks = [word for word in options if re.fullmatch("-?[a-z][A-Za-z_]+", word)]
    others = [word for word in options if word not in benchmarks]
    command = [sys.executable, "-m", "zodbshootout", *QUIET, *DEFAULTS, *others]
    subprocess.run([*command, "-o", results, storages, *benchmarks], cwd=folder, check=True)
    return results


def print_table(suite):
    """A row for each benchmark: milliseconds, median and range, and zodium over each other."""
    rows = {}
    for benchmark in suite.get_benchmarks():
        _, storage, what = re.fullmatch(r"(\{.*\}) (\w+): (.*)", benchmark.get_name()).groups()
        values, loops = sorted(benchmark.get_values()), benchmark.get_total_loops()
        failed = any(math.isclose(value * loops, FAILED_SECONDS) for value in values)
        rows.setdefault(what, {})[storage] = None if failed else values
    others = STORAGES[1:]
    headings = ["what", *(f"{name} ms" for name in STORAGES), *(f"zodium / {o}" for o in others)]
    print("| " + " | ".join(headings) + " |")
    print("|---" + "|--:" * (len(headings) - 1) + "|")
    for what, found in rows.items():
        values = [found.get(name) for name in STORAGES]
        ratios = [ratio(values[0], other) for other in values[1:]]
        print("| " + " | ".join([what, *map(spread, values), *ratios]) + " |")


def spread(values):
    if values is None:
        return "failed"
    middle, *ends = (1e3 * value for value in (statistics.median(values), values[0], values[-1]))
    return f"{middle:.3g} ({ends[0]:.3g}-{ends[1]:.3g})"


def ratio(values, others):
    if values is None or others is None:
        return ""
    return f"{statistics.median(values) / statistics.median(others):.2f}"


if __name__ == "__main__":
    main(*sys.argv[1:])
