"""Processor time of a load from a NEO cluster: our client and storage beside NEO/py's.

    NEOPPOD=CHECKOUT NEOPPOD_PYTHON=PYTHON PYTHONPATH=tests PYTHON -m harness.neo_load_cost

Two clusters of one storage, one all ours and one all NEO/py's, each with a client in a process of
its own.  The rounds of the two are interleaved.  Each round loads every object once,
past the client's cache.  Printed are microseconds a load: client, storage, both, and the
time that passed.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from .vitals import cpu_seconds

OBJECT_BYTES = 4000


def open_storage(kind, masters, name):
    """A storage, and a function that empties its cache."""
    if kind == "ours":
        from zodium import NEOStorage

        storage = NEOStorage(masters, name)
        return storage, storage.clear_cache
    sys.path.insert(0, os.environ["NEOPPOD"])
    from neo.client.Storage import Storage

    storage = Storage(master_nodes=masters, name=name)
    return storage, lambda: storage.app._cache.clear()


def client(kind, masters, name, count):
    """Stores objects; then loads them once for each line on standard input."""
    import transaction
    from ZODB.utils import p64, u64, z64

    storage, clear = open_storage(kind, masters, name)
    choose = random.Random(1)
    oids = [storage.new_oid() for _ in range(count)]
    for start in range(0, count, 100):
        txn = transaction.Transaction()
        storage.tpc_begin(txn)
        for oid in oids[start : start + 100]:
            storage.store(oid, z64, choose.randbytes(OBJECT_BYTES), "", txn)
        storage.tpc_vote(txn)
        storage.tpc_finish(txn)
    print("ready", flush=True)
    for _ in sys.stdin:
        clear()
        before = p64(u64(storage.lastTransaction()) + 1)
        cpu, passed = time.process_time(), time.perf_counter()
        for oid in oids:
            storage.loadBefore(oid, before)
        cpu, passed = time.process_time() - cpu, time.perf_counter() - passed
        print(json.dumps([cpu / count * 1e6, passed / count * 1e6]), flush=True)
    os._exit(0)


class Side:
    """A cluster and its client."""

    def __init__(self, kind, folder, count):
        from . import package
        from .neo import PYTHON, Cluster, OwnCluster

        folder.mkdir()
        self.cluster, self.count = (OwnCluster if kind == "ours" else Cluster)(folder), count
        if kind != "ours":
            self.cluster.storages = [self.cluster.neo_storage_node(1)]
        self.cluster.start()
        package.use()
        words = [PYTHON, "-m", "harness.neo_load_cost", "--client", kind]
        words += [self.cluster.masters, self.cluster.name, "--count", str(count)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self.client = subprocess.Popen(words, **pipes)
        assert self.client.stdout.readline() == "ready\n"
        self.rows = []

    def round(self):
        pid = self.cluster.storages[0].process.pid
        before = cpu_seconds(pid)
        print(file=self.client.stdin, flush=True)
        client, passed = json.loads(self.client.stdout.readline())
        storage = (cpu_seconds(pid) - before) / self.count * 1e6
        self.rows.append((client, storage, client + storage, passed))

    def end(self):
        self.client.stdin.close()
        self.client.wait()
        self.cluster.end()


def shown(numbers):
    return f"{statistics.median(numbers):.0f} ({min(numbers):.0f}-{max(numbers):.0f})"


def compare(make_side, rounds, heading, names):
    """Have clusters of both kinds take turns; print the columns of their rows, and ratios."""
    with tempfile.TemporaryDirectory() as folder:
        sides = {kind: make_side(kind, Path(folder, kind)) for kind in ("ours", "neoppod")}
        # The first round of each is not counted: it connects.
        for _ in range(rounds + 1):
            for side in sides.values():
                side.round()
        sys.stdout = sys.stderr
        for side in sides.values():
            side.end()
        sys.stdout = sys.__stdout__
    print(f"{heading:10}" + "".join(f"{name:>20}" for name in names))
    columns = {kind: list(zip(*side.rows[1:])) for kind, side in sides.items()}
    for kind, found in columns.items():
        print(f"{kind:10}" + "".join(f"{shown(column):>20}" for column in found))
    ratios = zip(columns["ours"], columns["neoppod"])
    medians = [statistics.median(a) / statistics.median(b) for a, b in ratios]
    print(f"{'ratio':10}" + "".join(f"{ratio:>20.3f}" for ratio in medians))
    print("load of the machine:", *os.getloadavg())


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--client")
    parser.add_argument("place", nargs="*")
    parser.add_argument("--count", type=int, default=3000)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    if options.client:
        client(options.client, *options.place, options.count)
    compare(
        lambda kind, folder: Side(kind, folder, options.count),
        options.rounds,
        "us a load",
        ("client", "storage", "both", "time"),
    )


if __name__ == "__main__":
    main()
